#include "daemon/ingerod/stacks/frame_names.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "core/render/render.h"
#include "core/symbols/symbolizer.h"
#include "daemon/ingerod/stacks/file_answer.h"

namespace ingero {

using nlohmann::json;

namespace {

/// New stacks come in bursts, at a program's start: a little patience makes one request of many.
constexpr uint64_t gather_us = 50'000;
constexpr size_t places_a_request = 1024;
constexpr size_t most_places_a_file = 262'144;
constexpr unsigned max_failures = 5;
constexpr uint64_t retry_us = 500'000;
constexpr uint64_t longest_wait_us = 3'000'000;
constexpr size_t most_waiters = 64;

/// Of an honest worker's, with U+FFFD for each byte that is not UTF-8.
constexpr size_t most_name_bytes = 3 * max_symbol_name_bytes;

UniqueFd open_regular(const std::string& path) {
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat facts {};
    if (fd && (fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode))) fd.reset();
    return fd;
}

}  // namespace

struct FrameNames::Batch {
    MappedFilePtr file;
    std::vector<SymbolRow> rows;
    std::vector<uint64_t> addresses;  ///< of each row, as the worker said
    std::string build_id;
    std::string debug_link;
    FileState state = FileState::unread;
    bool in_debug_file = false;
};

FrameNames::FrameNames(EventLoop& loop, WorkerPool& workers, Sink sink, std::string debug_root)
    : loop_(loop), workers_(workers), sink_(std::move(sink)), debug_root_(std::move(debug_root)) {}

FrameNames::~FrameNames() {
    *alive_ = false;
}

void FrameNames::want(const MappedFilePtr& file, uint64_t offset) {
    if (!file->stored) {
        file->stored = true;
        sink_.put_file(file->row);
    }
    if (file->row.state == FileState::anonymous || file->named.size() >= most_places_a_file) return;
    if (!file->named.insert(offset).second) return;
    if (file->pending.empty()) waiting_.push(file->user, file);
    file->pending.push_back(offset);
    if (!timer_.active() && !asking_)
        timer_ = loop_.add_timer(
            gather_us, [this] { ask_next(); }, gather_us / 5);
}

void FrameNames::when_named(std::function<void()> then) {
    if (is_done() || until_named_.size() >= most_waiters) return then();
    const auto waiter = until_named_.insert(until_named_.end(), {std::move(then), {}});
    waiter->timer = loop_.add_timer(longest_wait_us, [this, waiter] {
        std::list<Waiter> late;
        late.splice(late.end(), until_named_, waiter);
        late.front().then();
    });
}

void FrameNames::ask_next() {
    timer_.reset();
    if (asking_ || waiting_.empty()) return;
    const auto batch = std::make_shared<Batch>();
    batch->file = *waiting_.take();
    MappedFile& file = *batch->file;
    const size_t count = std::min(file.pending.size(), places_a_request);
    json offsets = json::array();
    for (size_t i = 0; i < count; ++i) {
        batch->rows.push_back({.file = file.row.id, .offset = file.pending[i], .name = {}, .demangled = {}});
        offsets.push_back(file.pending[i]);
    }
    if (!file.fd) return give_up(batch);
    asking_ = true;
    workers_.request(
        file_user(file.user), "symbolize",
        {{"offsets", std::move(offsets)}, {"build_id", file.row.build_id}, {"mangled", file.names_take_long}},
        file.fd.get(), [this, batch, alive = alive_](const Result<json>& answer) {
            if (*alive) take_answer(batch, answer);
        });
}

void FrameNames::take_answer(const std::shared_ptr<Batch>& batch, const Result<json>& answer) {
    asking_ = false;
    if (!answer) {
        MappedFile& file = *batch->file;
        const bool files_fault = answer.error().code == ErrorCode::corrupt || answer.error().code == ErrorCode::limit;
        if (batch->in_debug_file) return finish(batch);
        if (files_fault || ++file.failures >= max_failures) {
            spdlog::info("cannot read the names of functions of {}: {}", escape_text(file.row.path),
                         escape_text(answer.error().message));
            return give_up(batch);
        }
        // Names may be made to take long to demangle.
        if (answer.error().code == ErrorCode::deadline) file.names_take_long = true;
        waiting_.push(file.user, batch->file);
        timer_ = loop_.add_timer(
            retry_us, [this] { ask_next(); }, retry_us / 10);
        return;
    }
    try {
        const json& symbols = answer->at("symbols");
        const std::string state = answer->at("state");
        if (batch->in_debug_file && state == to_string(FileState::rebuilt)) return finish(batch);
        size_t at = 0;
        for (SymbolRow& row : batch->rows) {
            if (batch->in_debug_file && !row.name.empty()) continue;
            const json& one = symbols.at(at++);
            SymbolRow named = row;
            named.name = checked_text(one.at("name"), most_name_bytes);
            named.demangled = checked_text(one.at("demangled"), most_name_bytes);
            named.symbol_offset = checked_number(one.at("offset"));
            if (!batch->in_debug_file) batch->addresses.push_back(checked_number(one.at("address")));
            row = std::move(named);
        }
        if (batch->in_debug_file) {
            batch->state = FileState::ok;
            return finish(batch);
        }
        batch->build_id = checked_build_id(answer->at("build_id"));
        batch->debug_link = checked_file_name(answer->at("debug_link"));
        for (const FileState known : {FileState::ok, FileState::stripped, FileState::rebuilt})
            if (state == to_string(known)) batch->state = known;
    } catch (const std::exception& wrong) {
        spdlog::warn("a worker's answer about names is invalid: {}", wrong.what());
        return finish(batch);
    }
    if (batch->state == FileState::stripped && ask_debug_file(batch)) return;
    finish(batch);
}

/// A stripped file's symbols lie in a file of their own, where debug packages are installed. False where there is none.
bool FrameNames::ask_debug_file(const std::shared_ptr<Batch>& batch) {
    // Without a build-id nothing would show that the two belong together.
    if (batch->build_id.size() < 4) return false;
    const std::string& root = debug_root_;
    UniqueFd fd =
        open_regular(root + "/.build-id/" + batch->build_id.substr(0, 2) + "/" + batch->build_id.substr(2) + ".debug");
    if (!fd && !batch->debug_link.empty())
        fd = open_regular(root + std::filesystem::path(batch->file->row.path).parent_path().string() + "/" +
                          batch->debug_link);
    if (!fd) return false;
    json addresses = json::array();
    for (size_t i = 0; i < batch->rows.size(); ++i)
        if (batch->rows[i].name.empty()) addresses.push_back(batch->addresses.at(i));
    batch->in_debug_file = true;
    asking_ = true;
    workers_.request(
        file_user(batch->file->user), "symbolize",
        {{"addresses", std::move(addresses)}, {"build_id", batch->build_id}, {"mangled", batch->file->names_take_long}},
        fd.get(), [this, batch, alive = alive_](const Result<json>& answer) {
            if (*alive) take_answer(batch, answer);
        });
    return true;
}

void FrameNames::finish(const std::shared_ptr<Batch>& batch) {
    MappedFile& file = *batch->file;
    file.failures = 0;
    file.pending.erase(file.pending.begin(), file.pending.begin() + static_cast<long>(batch->rows.size()));
    if (!file.pending.empty()) waiting_.push(file.user, batch->file);
    // That its path names another file by now is stored rather than that it is stripped; its names are still its own.
    const bool replaced = file.row.state == FileState::rebuilt || file.row.state == FileState::deleted;
    const FileState state = replaced ? file.row.state : batch->state;
    const std::string build_id = file.row.build_id.empty() ? batch->build_id : file.row.build_id;
    if (state != file.row.state || build_id != file.row.build_id) {
        file.row.state = state;
        file.row.build_id = build_id;
        sink_.put_file(file.row);
    }
    for (SymbolRow& row : batch->rows) sink_.put_symbol(std::move(row));
    if (!waiting_.empty() && !timer_.active()) timer_ = loop_.defer([this] { ask_next(); });
    if (!is_done()) return;
    std::list<Waiter> named;
    named.swap(until_named_);
    for (Waiter& waiter : named) waiter.timer.reset();
    for (const Waiter& waiter : named) waiter.then();
}

void FrameNames::give_up(const std::shared_ptr<Batch>& batch) {
    batch->state = batch->file->row.state;
    finish(batch);
}

}  // namespace ingero
