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
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/unique_fd.h"
#include "core/store/rows/history.h"
#include "daemon/ingerod/check/library_check.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/discovery/process_walk.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/limits/uid_owners.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/probes/as_read.h"
#include "daemon/ingerod/probes/attach/attach_thread.h"
#include "daemon/ingerod/probes/call_probes.h"
#include "daemon/ingerod/workers/worker_pool.h"

namespace ingero {

/// Of a worker's answer to "symbols". Throws where the answer makes no sense.
std::vector<FunctionSymbol> to_function_symbols(const nlohmann::json& answer);

/// What a file is traced as.
struct TracedFile {
    Library library = Library::cuda_runtime;
    bool is_program = false;  ///< the library is linked into it: its own symbols count, exported or not
    auto operator<=>(const TracedFile&) const = default;
};

/// A file as what its name said it is: whoever maps it under another name changes nothing for others. Which version of
/// the library it is, its symbols say where they can.
struct LibraryKey {
    FileId file;
    TracedFile as;
    auto operator<=>(const LibraryKey&) const = default;
};

enum class LibraryState { reading, attached, failed };

struct LibraryEntry {
    TracedFile file;
    LibraryState state = LibraryState::reading;
    std::string path;
    std::string reason;       ///< of a failure
    std::string build_id;     ///< as it was read; may be empty
    uint32_t payer = 0;       ///< whose share its copy and its probes are, see UidOwners
    size_t sites = 0;         ///< taken of it, from when it is being attached to
    size_t sites_wanted = 0;  ///< of one that failed for want of them
    bool degrades = false;    ///< the failure is ours, not the file's
    EventLoop::Source disuse_timer;
    uint64_t disuse_us = 0;      ///< how long the timer runs
    bool on_root_mount = false;  ///< which nobody unmounts
    EventLoop::Source retry_timer;
    unsigned attempts = 0;   ///< to read its symbols
    uint64_t question = 0;   ///< the latest about them: the answer to another is not about this entry
    struct stat read_as {};  ///< the file when its symbols were asked for
    AttachThread::Pending attaching;
    std::unique_ptr<AttachedLibrary> attached;
    FileId real;                              ///< in which its probes lie: of an overlay's file, the one in a layer
    std::set<uint64_t> places;                ///< that it is or is being attached to, by file offset
    bool borrows = false;                     ///< others are attached to for the same file, by another name or as
                                              ///< something else
    std::map<std::string_view, size_t> sets;  ///< of probes, and how many functions of each it has
    std::set<std::string> misplaced;          ///< functions not attached to: they point inside another
    int watch = -1;                           ///< inotify's, where it is attached
    std::map<OpId, size_t> functions;         ///< attached to, by op
    SymbolSummary symbols;
    size_t stepped = 0;  ///< functions whose first instruction is single-stepped

    std::string name() const { return path.substr(path.rfind('/') + 1); }
    /// Root's file, and no program: that there is one reveals nothing about any user.
    bool is_system_wide() const { return !file.is_program && read_as.st_ino != 0 && read_as.st_uid == 0; }
};

/// How long a library stays attached to once no known process has it.
struct DisuseTimes {
    /// The next program that maps it finds it attached to.
    uint64_t usual_us = 600'000'000;
    /// Where it may lie on a mount that somebody wants to take away. Doubled while processes map it that are not known.
    uint64_t short_us = 3'000'000;
};

class Libraries {
  public:
    /// Those that are not given do nothing.
    struct Callbacks {
        /// Any state may read differently.
        std::function<void()> on_change = [] {};
        /// Attached or failed.
        std::function<void(const LibraryKey&)> on_settled = [](const LibraryKey&) {};
        /// Of an attached one, which is read anew.
        std::function<void(const LibraryKey&)> on_let_go = [](const LibraryKey&) {};
        /// One that had its probes has them no more for a while: after on_let_go().
        std::function<void(const LibraryKey&)> on_missed = [](const LibraryKey&) {};
        /// To be stored: it was attached to, is no longer, or that failed.
        std::function<void(StateRow)> put_state = [](StateRow) {};
        /// The probe set is turned off.
        std::function<bool(std::string_view)> off = [](std::string_view) { return false; };
        /// A known process has it: watch_for_disuse() follows when that is gone.
        std::function<bool(const LibraryKey&)> in_use = [](const LibraryKey&) { return true; };
        /// Of the known processes that map it.
        std::function<std::vector<uint32_t>(const LibraryKey&)> uids = [](const LibraryKey&) {
            return std::vector<uint32_t>();
        };
    };
    /// What attaches to a file's functions: CallProbes, or what stands in for it in tests.
    struct Attacher {
        AttachThread::Attach attach;
        std::string method;
        RealFileOf real_file_of = {};  ///< may be empty
    };
    /// All but `callbacks` and `attacher` must outlive it, and what `attacher` uses.
    Libraries(EventLoop& loop, const ProcFs& proc, Attacher attacher, WorkerPool& workers, const UidOwners& owners,
              Callbacks callbacks, const DisuseTimes& disuse = {});
    ~Libraries();

    /// A process maps the file: it is read and attached to where that has not begun. What then holds of it; `refused`
    /// says why it is not to be.
    struct Sight {
        const LibraryEntry* entry = nullptr;
        std::string refused;
        bool gone = false;  ///< no longer mapped: nothing to say
    };
    Sight see(uint32_t pid, uint32_t uid, const Mapping& mapping, TracedFile file);
    const LibraryEntry* find(const LibraryKey& key) const;
    const std::map<LibraryKey, LibraryEntry>& all() const { return entries_; }
    /// Who mapped it may be gone: it is let go where nobody maps it any more, after a few seconds, since its probes
    /// keep its mount busy; one on the root mount after a while.
    void watch_for_disuse(const LibraryKey& key);
    /// All are let go; those that are seen again are read anew.
    void clear();
    /// As clear(), and waits until all are detached. For good.
    void stop();
    /// None is being read for the first time.
    bool settled() const;

    /// A host may have many copies of a library (one a container image); more from one user is an attack or a mistake.
    static constexpr uint64_t max_libraries_a_user = 64;
    /// All functions of some 50 copies of the runtime, or of 30 of the driver, which has most.
    static constexpr uint64_t max_sites_a_user = 4'096;

  private:
    using Entries = std::map<LibraryKey, LibraryEntry>;

    std::string why_not(uint32_t payer);
    struct FileFacts {
        struct stat stat {};
        bool is_roots = false;
        bool on_root_mount = false;
        std::optional<FileId> real;  ///< of an overlay's file, where it is known
    };
    /// nullopt where whoever serves the file does not answer in time. Errors: internal.
    std::optional<Result<FileFacts>> facts_of(FileId file, uint32_t owner, const std::shared_ptr<UniqueFd>& fd) const;
    /// is_as_read(); nullopt as above.
    std::optional<bool> is_still_as_read(const LibraryKey& key, const LibraryEntry& entry,
                                         const std::shared_ptr<UniqueFd>& fd,
                                         const std::vector<ProbeSite>& sites) const;
    bool find_payer(const LibraryKey& key, LibraryEntry& entry, size_t sites);
    void pay(LibraryEntry& entry, uint32_t payer);
    std::set<uint64_t> places_of_others(const LibraryKey& key) const;
    void reread_borrowers(FileId real);
    void reread(const LibraryKey& key, LibraryEntry& entry);
    bool may_try_for(const LibraryEntry& entry, uint32_t user) const;
    void try_for(const LibraryKey& key, LibraryEntry& entry, uint32_t user, std::shared_ptr<UniqueFd> fd);
    void detach(LibraryEntry& entry);
    void request_symbols(const LibraryKey& key, std::shared_ptr<UniqueFd> fd);
    void retry(const LibraryKey& key, std::shared_ptr<UniqueFd> fd, const Error& why, bool ours);
    void attach(const LibraryKey& key, std::shared_ptr<UniqueFd> fd, const nlohmann::json& answer);
    void on_attached(const LibraryKey& key, const std::shared_ptr<UniqueFd>& fd, std::vector<ProbeSite> sites,
                     bool watched, Result<std::unique_ptr<AttachedLibrary>> attached);
    void settle(const LibraryKey& key, LibraryEntry& entry, const std::vector<ProbeSite>& sites);
    void give_back(LibraryEntry& entry);
    void failed(const LibraryKey& key, const std::string& reason, bool degrades);
    void put_state(const LibraryEntry& entry, std::string_view state);
    void watch(const LibraryKey& key, LibraryEntry& entry, int fd);
    void unwatch(const LibraryKey& key, LibraryEntry& entry);
    void read_watch();
    void on_rewritten(LibraryKey key);
    void later(const LibraryKey& key, const Error& why);
    void forget(Entries::iterator entry);

    // library_search.cpp
    /// What one pass over all processes is to find out.
    struct Search {
        std::set<LibraryKey> again;   ///< which process maps them: they are read anew
        std::set<LibraryKey> unused;  ///< whether any process maps them: no known one does
        std::set<FileId> mapped;      ///< of those
        bool held_up = false;         ///< the mappings of a process could not be read
        bool is_empty() const { return again.empty() && unused.empty(); }
    };
    void find_again(const LibraryKey& key);
    void start_disuse_timer(const LibraryKey& key, LibraryEntry& entry, uint64_t after_us);
    void on_disuse(const LibraryKey& key);
    void search_soon();
    void begin_search();
    void search_in(uint32_t pid);
    /// The process maps the file: read anew by it where that is looked for.
    void open_again(uint32_t pid, const Mapping& mapping);
    void end_search();
    void on_not_found(const LibraryKey& key, bool held_up);
    void release_unless_used(const LibraryKey& key, bool is_mapped, bool held_up);

    EventLoop& loop_;
    const ProcFs& proc_;
    const std::string method_;
    const RealFileOf real_file_of_;
    std::optional<AttachThread> attacher_;
    WorkerPool& workers_;
    const UidOwners& owners_;
    Callbacks callbacks_;
    UniqueFd watch_;
    EventLoop::Source watch_source_;
    std::map<int, std::set<LibraryKey>> watched_;  ///< by watch: a file has one, whatever it is traced as
    Entries entries_;
    Shares copies_{Shares::without_limit, max_libraries_a_user};
    Shares sites_{Shares::without_limit, max_sites_a_user};
    RateShares looks_, arrivals_;
    const DisuseTimes disuse_;
    Search search_;       ///< of the pass that is under way
    Search next_search_;  ///< and of the next one
    EventLoop::Source search_timer_;
    ProcessWalk walk_{loop_, proc_, [this](uint32_t pid) { search_in(pid); }, [this] { end_search(); }};
    uint64_t last_question_ = 0;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< answers that come too late see it false
};

}  // namespace ingero
