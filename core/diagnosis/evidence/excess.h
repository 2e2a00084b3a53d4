// How much longer than usual calls took: all of it by cause, in parts of the window, by process, by GPU and by
// operation. Each nanosecond counts once; the sums of each are those of the whole. What of it the program lost,
// findings say.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/diagnosis/assign.h"
#include "core/model/event.h"
#include "core/model/time.h"
#include "core/query/key_index.h"

namespace ingero {

/// What of it has no cause.
inline constexpr std::string_view unexplained = "unexplained", uncertain_split = "uncertain split";

/// Of outermost calls, each row as often as it stands for calls.
struct ExcessSums {
    uint64_t calls = 0;
    uint64_t busy_ns = 0;  ///< their durations
    uint64_t excess_ns = 0;
    std::array<uint64_t, cause_count> ns{};
    uint64_t uncertain_ns = 0;         ///< of excess_ns, in calls of which the time split is not certain
    uint64_t uncertain_device_ns = 0;  ///< of that, in calls that wait for the device

    void add(const ExcessSums& other);
    /// By cause, "unexplained" and "uncertain split" among them, largest first: sums to excess_ns.
    std::vector<std::pair<std::string, uint64_t>> by_cause() const;
    /// What a slower device is no reason for.
    uint64_t host_ns() const {
        const uint64_t device_ns = saturating_add(ns[static_cast<size_t>(Cause::device_wait)], uncertain_device_ns);
        return saturating_subtract(excess_ns, device_ns);
    }
};

struct ExcessOp {
    uint64_t calls = 0;
    uint64_t busy_ns = 0;
};

/// An equal part of the window, by when calls began.
struct ExcessSlice {
    Window wall;  ///< CLOCK_REALTIME; set in answers
    ExcessSums sums;
    std::map<OpId, ExcessOp> ops;
};

class Excess {
  public:
    /// The window is of the clock of events. Without slices only the whole is kept, by process and device.
    Excess(const Window& window, size_t slices);

    void saw(const Event& event);
    void add(const Event& event, const Assignment& assignment);
    void add_uncertain(const Event& event, uint64_t excess_ns);

    /// A process and the ordinal of its device, INGERO_DEVICE_UNKNOWN where none was recorded.
    struct Group {
        ProcessKey process;
        uint16_t device = 0;
        bool operator==(const Group&) const = default;
        uint64_t hash() const { return hash_words(process.start_ns, process.pid, device); }
    };
    const KeyIndex<Group>& groups() const { return index_; }
    const ExcessSums& of_group(uint32_t number) const { return groups_[number]; }
    /// Of those that there was no room for.
    const ExcessSums& others() const { return others_; }
    const std::vector<ExcessSlice>& slices() const { return slices_; }

  private:
    ExcessSums& group_of(const Event& event);
    ExcessSlice* slice_of(const Event& event);

    Window window_;
    std::vector<ExcessSlice> slices_;
    KeyIndex<Group> index_;
    std::vector<ExcessSums> groups_;
    ExcessSums others_;
    Group last_;
    uint32_t last_number_ = KeyIndex<Group>::none;
};

}  // namespace ingero
