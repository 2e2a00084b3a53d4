// The last stage of the overhead budget: processes whose calls cost too much however few of them leave a record have
// their hottest functions attached to for a moment now and then. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/loop/log_throttle.h"
#include "daemon/ingerod/slices/slice_thread.h"
#include "daemon/ingerod/slices/stage_control.h"
#include "daemon/ingerod/targets/libraries.h"
#include "daemon/ingerod/targets/processes.h"

namespace ingero {

class Slices {
  public:
    struct Host {
        bool can_attach_to_one = false;  ///< the kernel can, to a process alone
        uint64_t began_ns = 0;           ///< CLOCK_BOOTTIME: of what was called before nothing is known
        std::function<std::vector<ProcessKey>()> callers;  ///< processes that were seen to call
    };
    /// All but `host` must outlive it.
    Slices(EventLoop& loop, Processes& processes, const Libraries& libraries, ingero_slice& slice, Host host);

    void add(const StormReport& report);
    /// It called, and is not among the known processes: nothing reports its end, or what it maps.
    void note_unknown(const ProcessKey& process);
    void on_end(const ProcessKey& process);
    void on_exec(const ProcessKey& process);
    /// No process is in slices any more; those that storm will be.
    void begin_anew();
    /// What calls may cost their threads; 0: no limit, and nothing is in slices.
    void set_budget(unsigned permille);

    struct Stage {
        std::set<OpId> ops;                 ///< that are in slices; empty: none is
        double share = 0;                   ///< of the time that they are seen
        std::optional<double> count_error;  ///< by how much of themselves counts may be off; nothing: not known
        std::string why_not;                ///< it costs more than the budget, and is not in slices
    };
    /// Of a process that costs no more than the budget: nothing.
    std::optional<Stage> stage_of(const ProcessKey& process) const;

    /// Each call of a process makes the kernel ask the links of all others, and probe its return.
    static constexpr size_t max_others = 8;
    /// All are attached to one after another, again and again.
    static constexpr size_t max_sliced = 16;
    static constexpr size_t max_files = 16;

  private:
    using Files = std::map<std::shared_ptr<HotSites>, SlicedFile>;
    using Sliced = std::map<ProcessKey, std::set<OpId>>;

    void start_timer();
    void tick();
    Files plan();
    OwnLink own_link(const ProcessKey& process, std::set<OpId> sliced = {}) const;
    void add_files(const ProcessKey& process, const std::set<OpId>& ops, Files& files) const;
    std::set<ProcessKey> others_of(const std::shared_ptr<HotSites>& sites, const std::set<ProcessKey>& callers) const;
    void drop_dead();
    std::set<ProcessKey> find_callers();
    bool apply(const Files& files);
    static Sliced sliced_in(const Files& files);
    void report_gaps(const Sliced& sliced);
    void report_late(const Files& files);
    bool is_applied(uint64_t number) const;

    EventLoop& loop_;
    Processes& processes_;
    const Libraries& libraries_;
    ingero_slice& slice_;
    const Host host_;
    StageControl control_;
    EventLoop::Source timer_;
    uint64_t last_tick_ns_ = 0;
    Files files_;
    std::set<ProcessKey> unknown_;             ///< that called
    std::map<ProcessKey, uint64_t> programs_;  ///< how many a process ran, where that was more than one
    Sliced reported_;                          ///< as the open gaps have it
    /// Whose gap ends once this number of the thread's was done.
    std::map<ProcessKey, uint64_t> leaving_, late_;
    std::map<ProcessKey, std::string> why_not_;
    LogThrottle trouble_log_;
    unsigned permille_ = 0;
    uint64_t number_ = 0;                  ///< of the list that the thread got last
    std::unique_ptr<SliceThread> thread_;  ///< from when it is first needed
};

}  // namespace ingero
