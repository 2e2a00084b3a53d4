#include "daemon/ingerod/stacks/mapped_files.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "core/model/time.h"
#include "core/render/render.h"
#include "daemon/ingerod/stacks/file_answer.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr uint64_t purge_period_us = 5'000'000;
/// Processes come and go: the next that maps the file finds its table.
constexpr uint64_t keep_unused_ns = 600'000'000'000;
constexpr uint64_t retry_us = 200'000;
constexpr unsigned max_attempts = 6;
/// Each frame is looked up in all of them. More than an honest worker answers.
constexpr size_t most_segments = 256;

}  // namespace

uint64_t MappedFile::address_of(uint64_t offset) const {
    // The kernel maps whole pages: a mapping may begin before its segment does.
    const CodeSegment* best = nullptr;
    for (const CodeSegment& one : code) {
        if (offset >= one.offset + one.bytes) continue;
        if (!best || one.offset < best->offset) best = &one;
    }
    return best ? best->address + (offset - best->offset) : offset;
}

MappedFiles::MappedFiles(EventLoop& loop, WorkerPool& workers, const ProcFs& proc, WalkTables& tables, uint32_t next_id,
                         std::function<void(const MappedFile&)> on_compiled)
    : loop_(loop),
      workers_(workers),
      proc_(proc),
      tables_(tables),
      next_id_(next_id),
      on_compiled_(std::move(on_compiled)) {}

MappedFiles::~MappedFiles() {
    *alive_ = false;
}

void MappedFiles::report_shortage(const Mapping& mapping) {
    if (const auto more = log_.take())
        spdlog::warn("stacks are truncated in {}: more files are mapped than can be read at once{}",
                     escape_text(mapping.path), *more);
}

MappedFilePtr MappedFiles::find(uint32_t pid, uint32_t user, const Mapping& mapping) {
    auto opened = proc_.open_mapped_file(pid, mapping);
    if (!opened) return nullptr;
    const auto fd = std::make_shared<UniqueFd>(std::move(*opened));
    const auto asked = proc_.ask_of_file(
        mapping.file, user, [fd]() -> std::optional<struct stat> {
            struct stat status {};
            return fstat(fd->get(), &status) == 0 ? std::optional(status) : std::nullopt;
        });
    if (!asked || !*asked) return nullptr;
    const struct stat& facts = **asked;
    const MappedFile::Key key{
        mapping.file,
        static_cast<uint64_t>(facts.st_mtim.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(facts.st_mtim.tv_nsec),
        static_cast<uint64_t>(facts.st_size)};
    const auto known = files_.find(key);
    const bool is_new = known == files_.end();
    const uint64_t bytes = sizeof(MappedFile) + mapping.path.size();
    if (is_new && !make_memory(user, bytes)) {
        report_shortage(mapping);
        return nullptr;
    }
    if ((is_new || !known->second->fd) && !make_room(user)) {
        report_shortage(mapping);
        return is_new ? nullptr : known->second;
    }
    MappedFilePtr& file = is_new ? files_[key] : known->second;
    if (is_new) {
        file = std::make_shared<MappedFile>();
        file->key = key;
        file->row.id = next_id_++;
        file->row.path = mapping.path;
        file->user = user;
        file->counted_bytes = bytes;
        memory_.take(user, bytes);
    }
    if (!file->fd) {
        file->fd = std::move(*fd);
        file->opened = ++opened_;
        file->opener = user;
        descriptors_.take(user, 1);
        open_.emplace(file->opened, file.get());
    }
    if (!purge_timer_.active())
        purge_timer_ = loop_.add_periodic(
            purge_period_us, [this] { let_go(); }, purge_period_us / 5);
    if (is_new) {
        waiting_.push(file->user, file);
        compile_next();
    } else if (file->beyond_share && file->user != user) {
        ask_again(file, user);
    }
    return file;
}

/// Another user, who may have some of their share left, has it mapped too.
void MappedFiles::ask_again(const MappedFilePtr& file, uint32_t user) {
    if (!memory_.may_take(user, file->counted_bytes)) return;
    memory_.give_back(file->user, file->counted_bytes);
    memory_.take(user, file->counted_bytes);
    file->user = user;
    file->beyond_share = file->compiled = false;
    file->code.clear();
    file->attempts = 0;
    waiting_.push(file->user, file);
    compile_next();
}

void MappedFiles::close(MappedFile& file) {
    if (open_.erase(std::exchange(file.opened, 0)) != 0) descriptors_.give_back(file.opener, 1);
    file.fd.reset();
}

/// False where each file that could give its descriptor waits for its table or for names. Whoever has their share gives
/// one of their own.
bool MappedFiles::make_room(uint32_t user) {
    for (auto oldest = open_.begin(); !descriptors_.may_take(user, 1) && oldest != open_.end();) {
        MappedFile& file = *(oldest++)->second;
        const bool is_of_use = descriptors_.left() == 0 || file.opener == user;
        if (is_of_use && file.compiled && file.pending.empty()) close(file);
    }
    return descriptors_.may_take(user, 1);
}

/// Those of the user's own that nobody has mapped any more go before their time.
bool MappedFiles::make_memory(uint32_t user, uint64_t bytes) {
    for (auto one = unused_since_ns_.begin(); !memory_.may_take(user, bytes) && one != unused_since_ns_.end();) {
        const auto known = files_.find((one++)->first);
        if (known == files_.end() || known->second->user != user || known->second.use_count() > 1 ||
            !known->second->pending.empty())
            continue;
        forget(*known->second);
        unused_since_ns_.erase(known->first);
        files_.erase(known);
    }
    return memory_.may_take(user, bytes);
}

void MappedFiles::forget(MappedFile& file) {
    close(file);
    memory_.give_back(file.user, file.counted_bytes);
    tables_.remove_table(file.table);
}

MappedFilePtr MappedFiles::make_nameless(const std::string& name, FileState state) {
    auto file = std::make_shared<MappedFile>();
    file->row = {.id = next_id_++, .path = name, .build_id = {}, .state = state};
    file->compiled = true;
    return file;
}

/// One at a time: whoever asks a question meanwhile finds a worker.
void MappedFiles::compile_next() {
    while (!compiling_ && !waiting_.empty()) {
        const MappedFilePtr file = waiting_.take()->lock();
        if (!file || !file->fd || file->compiled) continue;
        compiling_ = true;
        workers_.request(file_user(file->user), "unwind", json::object(), file->fd.get(),
                         [this, file, alive = alive_](const Result<json>& answer) {
                             if (*alive) take_answer(file, answer);
                         });
    }
}

void MappedFiles::take_answer(const MappedFilePtr& file, const Result<json>& answer) {
    compiling_ = false;
    const bool files_fault =
        !answer && (answer.error().code == ErrorCode::corrupt || answer.error().code == ErrorCode::limit);
    // The workers are busy, or one was killed: that says nothing of the file yet. Meanwhile others have their turn.
    if (!answer && !files_fault && ++file->attempts < max_attempts) {
        waiting_.push(file->user, file);
        if (answer.error().code == ErrorCode::deadline) return compile_next();
        failures_ = std::min(failures_ + 1, max_attempts - 1);
        retry_timer_ = loop_.add_timer(
            retry_us << failures_, [this] { compile_next(); }, retry_us / 10);
        return;
    }
    failures_ = 0;
    file->compiled = true;
    std::string problem = answer ? "" : answer.error().message;
    try {
        if (answer) {
            std::vector<std::span<const uint8_t>> rows;
            uint64_t bytes = 0;
            for (const json& part : answer->at("rows")) {
                rows.emplace_back(part.get_binary());
                bytes += rows.back().size();
            }
            if (answer->at("code").size() > most_segments) throw std::invalid_argument("too many segments");
            std::vector<MappedFile::CodeSegment> code;
            for (const json& one : answer->at("code"))
                code.push_back({checked_number(one.at("address")), checked_number(one.at("offset")),
                                checked_number(one.at("bytes"))});
            file->row.build_id = checked_build_id(answer->at("build_id"));
            file->code = std::move(code);
            const auto table = bytes != 0 ? tables_.add_table(rows, file->user) : uint32_t{INGERO_TABLE_FRAME_POINTER};
            if (table) {
                file->table = *table;
                file->table_rows = static_cast<uint32_t>(bytes / sizeof(ingero_unwind_row));
            } else {
                problem = table.error().message;
                file->beyond_share = table.error().code == ErrorCode::busy;
            }
        }
    } catch (const std::exception& wrong) {
        problem = std::string("a worker's answer about it is invalid: ") + wrong.what();
    }
    // Code that a compiler made at run time and wrote to memory by way of a descriptor: no ELF file, frame pointers.
    if (files_fault && file->row.path.starts_with("/memfd:")) file->table = INGERO_TABLE_FRAME_POINTER;
    if (!problem.empty())
        if (const auto more = log_.take())
            spdlog::info("stacks end in {}: {}{}", escape_text(file->row.path), escape_text(problem), *more);
    on_compiled_(*file);
    compile_next();
}

/// Files that no process has mapped any more.
void MappedFiles::let_go() {
    const uint64_t now = monotonic_now_ns();
    std::erase_if(files_, [&](const auto& entry) {
        const auto& [key, file] = entry;
        if (file.use_count() > 1 || !file->pending.empty()) {
            unused_since_ns_.erase(key);
            return false;
        }
        close(*file);
        const uint64_t since = unused_since_ns_.try_emplace(key, now).first->second;
        if (file->compiled && now - since < keep_unused_ns) return false;
        forget(*file);
        unused_since_ns_.erase(key);
        return true;
    });
    if (files_.empty()) purge_timer_.reset();
}

}  // namespace ingero
