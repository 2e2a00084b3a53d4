// The GPU libraries that are mapped on this host: each file is read by a worker and attached to once, whoever maps it.
// Loop thread only.
//
// Attaching at a wrong offset changes the program, so a file is attached to only as it was read: the same time stamps,
// size and bytes at each place, looked at before and after; and one that changes later is let go.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/unique_fd.h"
#include "daemon/ingerod/check/library_check.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/event_loop.h"
#include "daemon/ingerod/probes/call_probes.h"
#include "daemon/ingerod/token_bucket.h"
#include "daemon/ingerod/worker_pool.h"

namespace ingero {

/// Of a worker's answer to "symbols". Throws where the answer makes no sense.
std::vector<FunctionSymbol> to_function_symbols(const nlohmann::json& answer);

/// The file is what it was when its symbols were asked for, and has the bytes that the worker saw. Both, since a time
/// stamp may be as coarse as a tick, and what is written through a shared mapping may come without one.
bool is_as_read(int fd, const struct stat& read_as, std::span<const ProbeSite> sites);

/// What a file is traced as.
struct TracedFile {
    Library library = Library::cuda_runtime;
    bool is_program = false;  ///< the library is linked into it: its own symbols count, exported or not
};

enum class LibraryState { reading, attached, failed };

struct LibraryEntry {
    TracedFile file;
    LibraryState state = LibraryState::reading;
    std::string path;
    std::string reason;     ///< of a failure
    uint32_t uid = 0;       ///< whose process brought it
    bool degrades = false;  ///< the failure is ours, not the file's
    EventLoop::Source disuse_timer;
    uint64_t disuse_us = 0;      ///< how long the timer runs
    bool on_root_mount = false;  ///< which nobody unmounts
    EventLoop::Source retry_timer;
    unsigned attempts = 0;   ///< to read its symbols
    struct stat read_as {};  ///< the file when its symbols were asked for
    std::unique_ptr<AttachedLibrary> attached;
    std::map<std::string_view, size_t> sets;  ///< of probes, and how many functions of each it has
    std::set<std::string> misplaced;          ///< functions not attached to: they point inside another
    int watch = -1;                           ///< inotify's, where it is attached
    std::map<OpId, size_t> functions;         ///< attached to, by op
    SymbolSummary symbols;
    size_t stepped = 0;  ///< functions whose first instruction is single-stepped

    std::string name() const { return path.substr(path.rfind('/') + 1); }
    /// Root's file, and no program: that there is one tells nothing of any user.
    bool is_system_wide() const { return !file.is_program && read_as.st_uid == 0; }
};

class Libraries {
  public:
    struct Callbacks {
        std::function<void()> on_change;            ///< any state may read differently
        std::function<void(FileId)> on_settled;     ///< attached or failed
        std::function<void(FileId)> on_let_go;      ///< of an attached one that was rewritten: it is read anew
        std::function<bool(std::string_view)> off;  ///< the probe set is turned off
        std::function<bool(FileId)> in_use;         ///< a known process has it: it is told of when that one is gone
    };
    Libraries(EventLoop& loop, const ProcFs& proc, CallProbes& probes, WorkerPool& workers, Callbacks callbacks);
    ~Libraries();

    /// A process maps the file: it is read and attached to where that has not begun. What then holds of it; `refused`
    /// says why it is not to be.
    struct Sight {
        const LibraryEntry* entry = nullptr;
        std::string refused;
        bool gone = false;  ///< no longer mapped: nothing to say
    };
    Sight see(uint32_t pid, uint32_t uid, const Mapping& mapping, TracedFile file);
    const LibraryEntry* find(FileId id) const;
    const std::map<FileId, LibraryEntry>& all() const { return entries_; }
    /// Who mapped it may be gone: it is let go where nobody maps it any more, after a few seconds, since its probes
    /// keep its mount busy; one on the root mount after a while.
    void watch_for_disuse(FileId id);
    /// All are detached; those that are seen again are read anew.
    void clear();
    /// None is being read for the first time.
    bool settled() const;

  private:
    struct Budget {
        unsigned attached = 0;
        size_t sites = 0;  ///< functions
        TokenBucket rate;
    };

    std::string why_not(Budget& budget, uint32_t uid) const;
    bool may_take_sites(uint32_t uid, size_t count) const;
    void detach(LibraryEntry& entry);
    void start_disuse_timer(FileId id, LibraryEntry& entry, uint64_t after_us);
    void on_disuse(FileId id);
    void request_symbols(FileId id, std::shared_ptr<UniqueFd> fd);
    void retry(FileId id, std::shared_ptr<UniqueFd> fd, const Error& why, bool ours);
    void attach(FileId id, std::shared_ptr<UniqueFd> fd, const nlohmann::json& answer);
    void failed(FileId id, const std::string& reason, bool degrades);
    bool is_mapped(FileId id) const;
    void watch(FileId id, LibraryEntry& entry, int fd);
    void unwatch(LibraryEntry& entry);
    void read_watch();
    void on_rewritten(FileId id);
    void find_again(FileId id);
    void later(FileId id, const Error& why);
    void forget(std::map<FileId, LibraryEntry>::iterator entry);

    EventLoop& loop_;
    const ProcFs& proc_;
    CallProbes& probes_;
    WorkerPool& workers_;
    Callbacks callbacks_;
    UniqueFd watch_;
    EventLoop::Source watch_source_;
    std::map<int, FileId> watched_;
    std::map<FileId, LibraryEntry> entries_;
    std::map<uint32_t, Budget> budgets_;                          ///< by uid
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< answers that come too late see it false
};

}  // namespace ingero
