// What a thread did in a given time: in which calls and waits of its own it was, and whom or what it waited for. Of the
// latest calls and waits of the threads that it is shown, in bounded memory.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/diagnosis/evidence/wait_table.h"
#include "core/model/event.h"

namespace ingero {

/// A part of the time, of one kind and one culprit.
struct MeanwhilePart {
    std::string kind;  ///< "cpu-contention", "cpu-quota", "wake-up", "own-io-wait", "lock-wait", "memory-reclaim",
                       ///< "network", "driver-wait", "device-wait", "rank-wait", "sleep", "wait", "own-work",
                       ///< "not-known"
    std::string name;  ///< who had the CPU or the lock, what was waited for, the call; may be empty
    uint32_t pid = 0;  ///< 0: no process, or not known
    uint64_t ns = 0;

    bool is_known() const {
        return kind != "not-known" &&
               (kind != "wait" || (name != "other" && name != "none" && name != "short" && name != "thread"));
    }
};

/// "waiting for a CPU that stress-hog (pid 7) had", "waiting for the disk": what a part says.
std::string meanwhile_text(const MeanwhilePart& part);

class ThreadHistory {
  public:
    /// `keep_ns`: what ended so long before the latest is forgotten.
    explicit ThreadHistory(uint64_t keep_ns) : keep_ns_(keep_ns) {}

    /// What can say anything: waits, and calls that took long.
    static bool wants(const Event& event);
    /// In about the order of their end.
    void take(const Event& event);
    void forget(const ProcessKey& process);
    /// Forgets what ended more than `keep_ns` before `now_ns`: take() does so only of the thread whose row comes. To be
    /// called about once a second.
    void trim(uint64_t now_ns);
    /// Kept at present, of all threads.
    size_t rows() const { return rows_; }

    /// Of a thread's call that waits for the device: whether it may have been for other ranks; nothing: not known.
    using WaitsForOthers = std::function<std::optional<bool>(const Event& call)>;

    /// Sums to `time`, the largest first. Where the process's waits are recorded, what is neither a wait nor a call
    /// that took long is "own-work", but for what short waits took at that time.
    std::vector<MeanwhilePart> parts(const ProcessKey& process, uint32_t tid, const Window& time,
                                     const WaitsForOthers& waits_for_others = nullptr) const;

  private:
    struct Thread {
        std::deque<Event> rows;      ///< waits, and calls that took long
        std::deque<Event> sums;      ///< of waits that are no rows
        uint64_t known_from_ns = 0;  ///< rows of before are forgotten

        uint64_t latest_ns() const;
        size_t size() const { return rows.size() + sums.size(); }
    };
    using Threads = std::map<std::pair<ProcessKey, uint32_t>, Thread>;
    void make_room();
    void make_room_for_rows();
    void drop_row(Thread& thread);
    void drop_sum(Thread& thread);
    Threads::iterator erase(Threads::iterator thread);
    uint64_t keep_ns_;
    Threads threads_;
    size_t rows_ = 0;               ///< of all threads, sums too
    bool made_room_ = false;        ///< of a thread that comes now there may have been rows
    std::set<ProcessKey> watched_;  ///< their waits are recorded, so that the rest of the time is their own work
};

/// The same from a window's waits between calls, of one thread of `process`, in order of start. What they do not show
/// is "not-known": its calls, work, and waits too short to be recorded one by one.
std::vector<MeanwhilePart> meanwhile_parts(std::span<const Event> waits, const ProcessKey& process, const Window& time);

/// What a thread waited for in a call that waits for its device, where that may have been for other ranks.
MeanwhilePart device_wait_part(std::optional<bool> for_others, OpId op);

/// Of the time of all parts, that in which the thread was off the CPU for what is known, and not for its device or for
/// other ranks.
uint64_t waited_elsewhere_ns(const std::vector<MeanwhilePart>& parts);

/// Of the time of all parts, that of one kind.
uint64_t ns_of_kind(const std::vector<MeanwhilePart>& parts, std::string_view kind);

/// Adds parts of the same kind and culprit together, the largest first.
void add_parts(std::vector<MeanwhilePart>& sum, const std::vector<MeanwhilePart>& more);

}  // namespace ingero
