#include "daemon/ingerod/programs.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "core/model/time.h"
#include "core/symbols/program_check.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t max_known = 16'384;
/// Programs that wait for a worker: one is asked about at a time, so that queries find the others free.
constexpr size_t max_questions = 256;
constexpr size_t max_waiting = 256;
constexpr uint64_t refused_period_ns = 60'000'000'000;
/// The runtime is there where these are: a program that calls it dynamically defines neither.
const json marks = {"cudaLaunchKernel", "cudaMalloc"};

}  // namespace

bool may_be_program(std::string_view path) {
    if (!path.starts_with('/') || path.starts_with("/dev/") || path.starts_with("/memfd:")) return false;
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return !name.ends_with(".so") && name.find(".so.") == std::string_view::npos;
}

Programs::Programs(const ProcFs& proc, WorkerPool& workers, OnFound on_found)
    : proc_(proc), workers_(workers), on_found_(std::move(on_found)) {}

Programs::~Programs() {
    *alive_ = false;
}

void Programs::look(uint32_t pid, const Mapping& mapping, uint64_t time_ns) {
    // The link leads to the file itself, and nobody is asked who serves it.
    struct statx facts {};
    const std::string link = "/proc/" + std::to_string(pid) + "/exe";
    if (statx(AT_FDCWD, link.c_str(), AT_STATX_DONT_SYNC, STATX_INO | STATX_CTIME | STATX_SIZE, &facts) != 0) return;
    if (facts.stx_ino != mapping.file.inode) return;  // of another file than its program
    const Key key{mapping.file, facts.stx_ctime.tv_sec, facts.stx_ctime.tv_nsec, facts.stx_size};
    if (known_.size() >= max_known && !known_.contains(key))
        std::erase_if(known_, [](const auto& one) { return one.second.verdict == Verdict::has_none; });
    auto [known, added] = known_.try_emplace(key);
    if (known->second.verdict == Verdict::has_none) return;
    if (known->second.verdict == Verdict::has_runtime) return on_found_(pid, mapping, time_ns);
    if (known->second.waiting.size() < max_waiting) known->second.waiting.push_back({pid, mapping, time_ns});
    if (!added) return;
    auto file = proc_.open_mapped_file(pid, mapping);
    // Gone, or not to be opened: who runs it next may have more luck.
    if (!file || !may_have_symbol_table(file->get())) {
        known->second.waiting.clear();
        if (file)
            known->second.verdict = Verdict::has_none;
        else
            known_.erase(known);
        return;
    }
    if (questions_.size() >= max_questions) {
        known_.erase(known);
        const uint64_t now = monotonic_now_ns();
        if (now - refused_told_ns_ < refused_period_ns) return;
        refused_told_ns_ = now;
        return spdlog::warn("more new programs are started than can be looked at for a CUDA runtime inside");
    }
    questions_.push_back({key, std::make_shared<UniqueFd>(std::move(*file))});
    ask_next();
}

void Programs::ask_next() {
    if (asking_ || questions_.empty()) return;
    asking_ = true;
    Question question = std::move(questions_.front());
    questions_.pop_front();
    const int fd = question.file->get();
    workers_.request(
        "symbols", {{"wanted", marks}, {"static", true}}, fd,
        [this, question = std::move(question), alive = alive_](const Result<json>& answer) {
            if (!*alive) return;
            asking_ = false;
            if (answer) {
                const json& functions = answer->value("functions", json::array());
                settle(question.key, functions.size() >= marks.size());
            } else if (answer.error().code == ErrorCode::corrupt || answer.error().code == ErrorCode::limit) {
                settle(question.key, false);
            } else {
                known_.erase(question.key);
            }
            ask_next();
        });
}

void Programs::settle(const Key& key, bool has_runtime) {
    const auto known = known_.find(key);
    if (known == known_.end()) return;
    known->second.verdict = has_runtime ? Verdict::has_runtime : Verdict::has_none;
    const std::vector<Sight> waiting = std::exchange(known->second.waiting, {});
    if (!has_runtime) return;
    for (const Sight& sight : waiting) on_found_(sight.pid, sight.mapping, sight.time_ns);
}

}  // namespace ingero
