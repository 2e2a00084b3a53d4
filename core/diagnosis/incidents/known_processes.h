// What is known of the processes whose calls are judged, and what a detector keeps of each of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/model/process/process.h"
#include "core/model/time.h"

namespace ingero {

/// CLOCK_MONOTONIC of its start; 0 where it is older than that clock.
uint64_t started_ns(const ProcessKey& process, const ClockTriple& clock);

/// Whether ordinals of two processes are one device: an ordinal counts among those that a process may see.
enum class SameDevice { no, yes, unknown };

class KnownProcesses {
  public:
    KnownProcesses() = default;
    /// `processes` must outlive it. `dropped_until`: of whom rows were dropped, and when the last of these ended.
    /// `clock` of their boot: starts of processes count the time in which the host was suspended, and events do not.
    explicit KnownProcesses(const std::vector<Process>& processes, std::map<ProcessKey, uint64_t> dropped_until = {},
                            const ClockTriple& clock = {});
    /// The same of one boot, in which the pids of other boots' processes are not theirs. `boots` must outlive it.
    KnownProcesses of_boot(const std::map<ProcessKey, uint32_t>& boots, uint32_t boot_index,
                           const ClockTriple& clock) const;

    const Process* find(const ProcessKey& process) const;
    /// Of those that had the pid, the one that had it at that time (CLOCK_MONOTONIC); nullptr where none is known.
    const Process* at(uint32_t pid, uint64_t time_ns) const { return during(pid, {time_ns, time_ns}); }
    /// The latest that had it at some time of the window, its end included.
    const Process* during(uint32_t pid, const Window& window) const;
    /// Empty where it is not known.
    std::string name(const ProcessKey& process) const;
    /// CLOCK_MONOTONIC; UINT64_MAX while it lives, and where nothing is known of it.
    uint64_t exited_ns(const ProcessKey& process) const;
    /// CLOCK_MONOTONIC: rows of before were dropped, as against those of others; 0 where none were.
    uint64_t dropped_until_ns(const ProcessKey& process) const;
    SameDevice same_device(const ProcessKey& a, uint16_t device_of_a, const ProcessKey& b, uint16_t device_of_b) const;

  private:
    using Rows = std::map<ProcessKey, const Process*>;
    std::shared_ptr<const Rows> processes_ = std::make_shared<Rows>();
    const std::map<ProcessKey, uint32_t>* boots_ = nullptr;
    uint32_t boot_index_ = 0;
    std::map<ProcessKey, uint64_t> dropped_until_;
    ClockTriple clock_;
};

/// One Kept a process, and no more than `limit` of them. Where there is no room a quarter goes: first those that speak
/// for no finding, of them those that have ended, and then those worth least. Kept has bool is_evidence() const and
/// uint64_t worth() const.
template <class Kept>
class ProcessTable {
  public:
    ProcessTable(size_t limit, const KnownProcesses* processes) : limit_(limit), processes_(processes) {}

    /// `drop` is called with each that goes; `now_ns` is CLOCK_MONOTONIC.
    template <class Drop>
    Kept& at(const ProcessKey& process, uint64_t now_ns, Drop drop) {
        if (last_ && last_process_ == process) return *last_;
        auto found = kept_.find(process);
        if (found == kept_.end()) {
            if (kept_.size() >= limit_) make_room(now_ns, drop);
            found = kept_.try_emplace(process).first;
        }
        last_process_ = process;
        last_ = &found->second;
        return *last_;
    }
    Kept& at(const ProcessKey& process, uint64_t now_ns) {
        return at(process, now_ns, [](const Kept&) {});
    }

    Kept* find(const ProcessKey& process) {
        const auto found = kept_.find(process);
        return found == kept_.end() ? nullptr : &found->second;
    }
    bool empty() const { return kept_.empty(); }
    auto begin() { return kept_.begin(); }
    auto end() { return kept_.end(); }
    auto begin() const { return kept_.begin(); }
    auto end() const { return kept_.end(); }

  private:
    template <class Drop>
    void make_room(uint64_t now_ns, Drop drop) {
        using Rank = std::tuple<bool, bool, uint64_t, ProcessKey>;
        std::vector<Rank> ranks;
        for (const auto& [process, kept] : kept_) {
            const bool lives = !processes_ || processes_->exited_ns(process) > now_ns;
            ranks.emplace_back(kept.is_evidence(), lives, kept.worth(), process);
        }
        const auto some = ranks.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(limit_ / 4, 1));
        std::nth_element(ranks.begin(), some - 1, ranks.end());
        for (auto rank = ranks.begin(); rank != some; ++rank) {
            const auto gone = kept_.find(std::get<ProcessKey>(*rank));
            drop(gone->second);
            kept_.erase(gone);
        }
        last_ = nullptr;
    }

    size_t limit_;
    const KnownProcesses* processes_;
    std::map<ProcessKey, Kept> kept_;
    ProcessKey last_process_;  ///< calls of one process come one after another
    Kept* last_ = nullptr;
};

}  // namespace ingero
