// Native stacks of traced processes: keeps the kernel side's list of what they have mapped current, and turns the
// addresses of each new stack into places in files, which are stored and named. Loop thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "bpf/stack_event.h"
#include "core/model/stack.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/limits/uid_owners.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/probes/call_probes.h"
#include "daemon/ingerod/stacks/frame_names.h"
#include "daemon/ingerod/stacks/mapped_files.h"
#include "daemon/ingerod/stacks/walk_tables.h"
#include "daemon/ingerod/workers/worker_pool.h"

namespace ingero {

class NativeStacks {
  public:
    /// Where rows go, and what ids the store has given out already.
    struct Store {
        std::function<void(StackRow)> put_stack;
        std::function<void(FileRow)> put_file;
        std::function<void(SymbolRow)> put_symbol;
        uint32_t last_stack = 0;
        uint32_t last_file = 0;
    };

    /// What is remembered of all that processes have mapped, and had a moment ago.
    static constexpr uint64_t max_list_bytes = 64 << 20;

    /// All but `store` must outlive it. Stacks are taken from now on where `on`.
    NativeStacks(EventLoop& loop, const StackMaps& maps, WorkerPool& workers, const ProcFs& proc,
                 const UidOwners& owners, Store store, bool on);
    ~NativeStacks();

    void enable(bool on);
    /// A process that may be traced was found.
    void add_process(const ProcessKey& process);
    /// It runs another program now.
    void on_exec(const ProcessKey& process);
    /// A process mapped code; any process, known or not.
    void on_executable_mapping(uint32_t pid);
    void on_process_gone(const ProcessKey& process);
    void on_stack(const ingero_stack_record& record);

    /// As FrameNames::when_named, of all stacks there are.
    void when_named(std::function<void()> then) { names_.when_named(std::move(then)); }

    /// Calls whose stack got no id since the start: too many new ones at once or of one user, or no room in the ring.
    uint64_t lost() const { return tables_.lost_stacks(); }
    /// Of these, those for which the ring had no room.
    uint64_t lost_in_ring() const { return tables_.stacks_lost_in_ring(); }
    /// Of max_list_bytes.
    uint64_t list_bytes() const { return lists_.total() - lists_.left(); }

  private:
    /// Without its path, which the file has.
    struct ListedMapping {
        uint64_t start = 0, end = 0, offset = 0;
        FileId id;
        MappedFilePtr file;  ///< null where it could not be opened

        Mapping as_mapping() const;
    };
    using List = std::vector<ListedMapping>;
    static bool same_mapping(const ListedMapping& a, const ListedMapping& b) {
        return a.start == b.start && a.end == b.end && a.offset == b.offset && a.id == b.id;
    }
    struct ToldList {
        uint32_t generation = 0;
        std::shared_ptr<const List> list;
        uint64_t read_ns = 0;
    };
    struct ProcessMappings {
        ProcessKey key;
        std::optional<uint32_t> uid;
        std::shared_ptr<const List> list;
        uint32_t generation = 0;
        /// What the generations before stood for: a stack may be read after its list was replaced.
        std::deque<ToldList> history;
        uint64_t read_ns = 0;   ///< when the reading of the list began
        uint64_t tried_ns = 0;  ///< when it last began, whether or not it could be read
        uint64_t retry_ns = 0;  ///< when files that could not be opened were tried again
        uint64_t gone_ns = 0;
    };

    ProcessMappings* find(const ProcessKey& key);
    uint32_t user_of(const ProcessMappings& process) const;
    void set_uid(ProcessMappings& process, uint32_t uid);
    List read_list(ProcessMappings& process);
    /// Null where the user has their share of lists.
    std::shared_ptr<const List> keep(ProcessMappings& process, List list);
    void refresh(ProcessMappings& process);
    void publish(ProcessMappings& process);
    void on_compiled(const MappedFile& file);
    void schedule();
    void work_off();
    void tick();
    void allow_new();
    /// False where the stack ends with this frame, whatever the record says.
    bool resolve(ProcessMappings* process, const ingero_stack_record& record, size_t frame, StackRow& row);
    void add_frame(StackRow& row, const MappedFilePtr& file, uint64_t offset);
    const MappedFilePtr& nameless(MappedFilePtr& file, const char* name, FileState state);

    EventLoop& loop_;
    const ProcFs& proc_;
    const UidOwners& owners_;
    Store store_;
    Shares lists_{max_list_bytes};  ///< before all that holds lists
    WalkTables tables_;
    MappedFiles files_;
    FrameNames names_;
    std::map<uint32_t, ProcessMappings> processes_;  ///< by pid
    std::set<uint32_t> changed_;                     ///< pids whose mappings are to be read again
    std::set<uint32_t> changing_;                    ///< those of a round that has begun
    std::set<uint32_t> outdated_;                    ///< pids whose tables are to be set anew
    EventLoop::Source work_timer_;
    EventLoop::Source tick_timer_;
    MappedFilePtr anonymous_;
    MappedFilePtr unknown_;
    LogThrottle log_;
};

}  // namespace ingero
