// What the host and the control groups of traced processes went through in each second: pressure, time that a
// hypervisor took, interrupts, clock rates, quotas used up. Rows of the store's states. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/process/process.h"
#include "core/model/time.h"
#include "core/store/rows/history.h"
#include "daemon/ingerod/discovery/proc_fs.h"

namespace ingero {

/// Sums since boot, by the names that rows have them under; empty where the file has none.
using Counters = std::map<std::string, double>;

/// /proc/pressure/NAME: "NAME_some_us" and "NAME_full_us".
Counters parse_pressure(std::string_view name, std::string_view text);
/// The line of all CPUs of /proc/stat: "steal_ms", "irq_ms", "softirq_ms".
Counters parse_cpu_times(std::string_view text, long ticks_per_second);
/// cpu.stat of either version: "periods", "throttled_periods", "throttled_us".
Counters parse_cpu_quota(std::string_view text);
/// memory.events: "memory_high", "memory_max", "oom_kills".
Counters parse_memory_events(std::string_view text);
/// Folders of a process's control groups by /proc/PID/cgroup, below where they are mounted: of cpu, and of memory.
struct ControlGroup {
    std::string path;  ///< as the process has it
    std::string cpu, memory;
    auto operator<=>(const ControlGroup&) const = default;
};
ControlGroup find_control_group(std::string_view text, const std::string& mounted);

class HostState {
  public:
    /// `root` stands in for / in tests, `clock` for CLOCK_MONOTONIC.
    explicit HostState(std::function<void(StateRow)> put, std::string root = "",
                       std::function<uint64_t()> clock = monotonic_now_ns)
        : put_(std::move(put)), root_(std::move(root)), clock_(std::move(clock)), proc_(root_ + "/proc") {}

    /// What has changed since it was called last; rows without a change are left out, but for pressure and clock rates.
    /// Those, "cpu_mhz_lowest" and "cpu_mhz_mean", are of the latest known rate of each CPU.
    void measure(const std::set<ProcessKey>& traced, uint64_t now_ns);

  private:
    Counters read_host();
    /// Of some CPUs at a time, in turns.
    void read_clock_rates();
    Counters clock_rates() const;
    /// Of newcomers at once, of a tenth of the others: whoever is moved to another group is found there some ten calls
    /// later.
    void look_up_groups(const std::set<ProcessKey>& traced);
    /// As what was counted since the last time; nothing at the first.
    void put_row(const std::string& source, const Counters& now, uint64_t time_ns, bool always, Counters gauges);

    std::function<void(StateRow)> put_;
    std::string root_;
    std::function<uint64_t()> clock_;
    ProcFs proc_;
    std::map<std::string, Counters> before_;
    std::map<ProcessKey, ControlGroup> groups_;
    ProcessKey looked_up_{};   ///< the last that was looked up again
    std::vector<double> mhz_;  ///< by CPU, none from before the latest pass over all of them
    size_t next_cpu_ = 0;
    unsigned slow_rounds_ = 0;    ///< the latest, in a row
    uint64_t next_rates_ns_ = 0;  ///< not read before
};

}  // namespace ingero
