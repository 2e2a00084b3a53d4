#include "daemon/ingerod/targets/programs.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "core/symbols/program_check.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t max_known = 16'384;
/// Programs that wait for a worker: one is asked about at a time, so that queries find the others free.
constexpr size_t max_questions = 256;
constexpr size_t max_waiting = 256;
constexpr const char* ended = "exited before it could be checked for CUDA";
constexpr const char* held_up = "its file system does not answer";
/// The runtime is there where these are: a program that calls it dynamically defines neither.
const json marks = {"cudaLaunchKernel", "cudaMalloc"};

}  // namespace

bool may_be_program(std::string_view path) {
    if (!path.starts_with('/') || path.starts_with("/dev/") || path.starts_with("/memfd:")) return false;
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return !name.ends_with(".so") && name.find(".so.") == std::string_view::npos;
}

Programs::Programs(const ProcFs& proc, WorkerPool& workers, Callbacks callbacks)
    : proc_(proc), workers_(workers), callbacks_(std::move(callbacks)) {}

Programs::~Programs() {
    *alive_ = false;
}

/// By the file's number alone, where no process is left to say which version of the file it was.
bool Programs::is_without(FileId file) const {
    const auto known = known_.lower_bound(Key{file, INT64_MIN, 0, 0});
    return known != known_.end() && known->first.file == file && known->second.verdict == Verdict::has_none;
}

void Programs::look(uint32_t pid, const Mapping& mapping, uint64_t time_ns) {
    const auto facts = proc_.program_of(pid);
    if (!facts) {
        if (!is_without(mapping.file))
            callbacks_.on_unexamined(pid, mapping, time_ns,
                                     facts.error().code == ErrorCode::deadline ? facts.error().message : ended);
        return;
    }
    if (facts->stx_ino != mapping.file.inode) return;  // of another file than its program
    const Key key{mapping.file, facts->stx_ctime.tv_sec, facts->stx_ctime.tv_nsec, facts->stx_size};
    if (known_.size() >= max_known && !known_.contains(key))
        std::erase_if(known_, [](const auto& one) { return one.second.verdict != Verdict::asked; });
    auto [found, added] = known_.try_emplace(key);
    Known& known = found->second;
    if (known.verdict == Verdict::has_none) return;
    if (known.verdict == Verdict::has_runtime) return callbacks_.on_found(pid, mapping, time_ns);
    if (known.verdict == Verdict::unreadable) return callbacks_.on_unexamined(pid, mapping, time_ns, known.why);
    if (known.waiting.size() < max_waiting)
        known.waiting.push_back({pid, mapping, time_ns});
    else
        callbacks_.on_unexamined(pid, mapping, time_ns, "too many processes run it at once");
    if (!added) return;
    auto file = proc_.open_mapped_file(pid, mapping);
    // Gone, or not to be opened: who runs it next may have more luck.
    if (!file) {
        known_.erase(found);
        return callbacks_.on_unexamined(pid, mapping, time_ns,
                                        file.error().code == ErrorCode::not_found ? ended : file.error().message);
    }
    const auto held = std::make_shared<UniqueFd>(std::move(*file));
    const auto may_have =
        proc_.ask_of_file(mapping.file, proc_.owner_of(pid), [held] { return may_have_symbol_table(held->get()); });
    if (!may_have) {
        known_.erase(found);
        return callbacks_.on_unexamined(pid, mapping, time_ns, held_up);
    }
    if (!*may_have) return settle(key, Verdict::has_none);
    if (questions_.size() >= max_questions) {
        known_.erase(found);
        return callbacks_.on_unexamined(pid, mapping, time_ns, "too many new programs are waiting to be inspected");
    }
    questions_.push_back({key, held});
    ask_next();
}

void Programs::ask_next() {
    if (asking_ || questions_.empty()) return;
    asking_ = true;
    Question question = std::move(questions_.front());
    questions_.pop_front();
    const int fd = question.file->get();
    workers_.request(no_user, "symbols", {{"wanted", marks}, {"static", true}}, fd,
                     [this, question = std::move(question), alive = alive_](const Result<json>& answer) {
                         if (!*alive) return;
                         asking_ = false;
                         take_answer(question, answer);
                         ask_next();
                     });
}

void Programs::take_answer(Question question, const Result<json>& answer) {
    const auto known = known_.find(question.key);
    if (known == known_.end()) return;
    const bool makes_sense = answer && answer->is_object() && answer->contains("functions");
    if (makes_sense)
        return settle(question.key,
                      (*answer)["functions"].size() >= marks.size() ? Verdict::has_runtime : Verdict::has_none);
    const bool files_fault =
        !answer && (answer.error().code == ErrorCode::corrupt || answer.error().code == ErrorCode::limit);
    if (files_fault) return settle(question.key, Verdict::unreadable, answer.error().message);
    // The worker's fault, which says nothing of the file: another is asked, once.
    if (!std::exchange(known->second.asked_twice, true)) return questions_.push_back(std::move(question));
    report(std::exchange(known->second.waiting, {}),
           answer ? "a worker's answer about its symbols is invalid" : answer.error().message);
    known_.erase(known);
}

void Programs::settle(const Key& key, Verdict verdict, const std::string& why) {
    Known& known = known_.at(key);
    known.verdict = verdict;
    known.why = why;
    const std::vector<Sight> waiting = std::exchange(known.waiting, {});
    if (verdict == Verdict::unreadable) return report(waiting, why);
    if (verdict != Verdict::has_runtime) return;
    for (const Sight& sight : waiting) callbacks_.on_found(sight.pid, sight.mapping, sight.time_ns);
}

void Programs::report(const std::vector<Sight>& sights, const std::string& why) const {
    for (const Sight& sight : sights) callbacks_.on_unexamined(sight.pid, sight.mapping, sight.time_ns, why);
}

}  // namespace ingero
