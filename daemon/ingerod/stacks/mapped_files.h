// The files that traced processes have code mapped from: who they are, and their unwind tables, compiled by a worker,
// one after the other. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/model/stack.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/loop/log_throttle.h"
#include "daemon/ingerod/stacks/walk_tables.h"
#include "daemon/ingerod/workers/turn_queue.h"
#include "daemon/ingerod/workers/worker_pool.h"

namespace ingero {

/// One file as it was when it was mapped: another content in the same place is another file.
struct MappedFile {
    struct Key {
        FileId file;
        uint64_t changed_ns = 0;  ///< its mtime
        uint64_t bytes = 0;
        auto operator<=>(const Key&) const = default;
    };
    struct CodeSegment {
        uint64_t address = 0;
        uint64_t offset = 0;
        uint64_t bytes = 0;
    };
    Key key;
    FileRow row;
    bool stored = false;    ///< the row was handed on
    UniqueFd fd;            ///< while a process has it mapped, or its names are asked for
    bool compiled = false;  ///< or cannot be
    uint32_t table = INGERO_TABLE_NONE;
    uint32_t table_rows = 0;
    std::vector<CodeSegment> code;
    std::set<uint64_t> named;       ///< places whose names were asked for
    std::vector<uint64_t> pending;  ///< places whose names are to be asked for
    unsigned failures = 0;          ///< of asking for names, in a row
    bool names_take_long = false;   ///< they are asked for as the symbol table has them
    uint32_t user = 0;              ///< whose share it and its table are, see UidOwners: the first who mapped it
    uint64_t counted_bytes = 0;     ///< of memory
    uint32_t opener = 0;            ///< whose share its descriptor is
    unsigned attempts = 0;          ///< at its table, without an answer
    bool beyond_share = false;      ///< it has no table, since the user has their share of them
    uint64_t opened = 0;            ///< in which order; 0: it has no descriptor

    /// Of a place by its file offset; what the table's rows go by.
    uint64_t address_of(uint64_t offset) const;
};
using MappedFilePtr = std::shared_ptr<MappedFile>;

class MappedFiles {
  public:
    /// `on_compiled`: a file's table is there from now on. Ids of new files count up from `next_id`.
    MappedFiles(EventLoop& loop, WorkerPool& workers, const ProcFs& proc, WalkTables& tables, uint32_t next_id,
                std::function<void(const MappedFile&)> on_compiled);
    ~MappedFiles();

    /// Descriptors held at once: of a file whose table is there the oldest is closed for another.
    static constexpr size_t max_open = 512;
    /// What is remembered of files, of which anybody can map any number in time.
    static constexpr uint64_t max_bytes = 32 << 20;

    /// The file behind a mapping, with a descriptor; null where it cannot be opened, or too many of `user` are known or
    /// wait for their tables: it may be asked for again later. Its table counts as one of the first user who maps it.
    MappedFilePtr find(uint32_t pid, uint32_t user, const Mapping& mapping);
    /// A file that is none, for frames outside all files: a row of this name.
    MappedFilePtr make_nameless(const std::string& name, FileState state);

  private:
    void compile_next();
    void take_answer(const MappedFilePtr& file, const Result<nlohmann::json>& answer);
    void ask_again(const MappedFilePtr& file, uint32_t user);
    void let_go();
    bool make_room(uint32_t user);
    bool make_memory(uint32_t user, uint64_t bytes);
    void close(MappedFile& file);
    void forget(MappedFile& file);
    void report_shortage(const Mapping& mapping);

    EventLoop& loop_;
    WorkerPool& workers_;
    const ProcFs& proc_;
    WalkTables& tables_;
    uint32_t next_id_;
    std::function<void(const MappedFile&)> on_compiled_;
    std::map<MappedFile::Key, MappedFilePtr> files_;
    std::map<MappedFile::Key, uint64_t> unused_since_ns_;
    std::map<uint64_t, MappedFile*> open_;  ///< oldest first; each is in files_ too
    uint64_t opened_ = 0;
    Shares descriptors_{max_open};
    Shares memory_{max_bytes};
    LogThrottle log_;
    TurnQueue<uint32_t, std::weak_ptr<MappedFile>> waiting_;  ///< by user
    bool compiling_ = false;
    unsigned failures_ = 0;  ///< of workers, in a row
    EventLoop::Source purge_timer_;
    EventLoop::Source retry_timer_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ingero
