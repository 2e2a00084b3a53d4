// When a process's device had nothing to do, as far as calls show it: from the return of a synchronisation that leaves
// nothing enqueued up to the next call that enqueues, without what its thread did for another device or captured into a
// graph until then. What else that thread did meanwhile is the table of waits'.
// Of a process that is recorded in slices nothing is known: outside of them it enqueues without a row, and waits with
// one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/diagnosis/evidence/device_work.h"
#include "core/diagnosis/incidents/known_processes.h"
#include "core/model/call_time.h"
#include "core/model/event.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/query/event_filter.h"
#include "core/query/op_lookup.h"

namespace ingero {

struct DrainedGap {
    Window time;
    uint32_t tid = 0;  ///< of the thread that ended it
    OpId op = 0;       ///< the call that ended it
    /// Kernels run between such gaps: it is no mere copying, as of a model that is being loaded.
    bool after_launch = false;
    uint64_t call = 0;         ///< its sequence in the store
    uint64_t in_calls_ns = 0;  ///< of it, in calls of that thread
    uint64_t bytes_back = 0;   ///< copied from the device since the gap before
};

/// A step is what a device did between two times in which it had nothing to do.
struct StepTime {
    uint64_t busy_ns = 0;
    uint64_t newly_busy_ns = 0;  ///< in steps that ended with a call from a sequence on
    uint64_t steps = 0;
};

/// Sums of steps over equal parts of a window, by when they ended: from 10 ms on, twice as long each time there are
/// 512.
class StepTimes {
  public:
    explicit StepTimes(const Window& window = {}) : window_(window) {}
    /// In order of time, or nearly.
    void add(uint64_t end_ns, uint64_t busy_ns, uint64_t call);
    /// visit(part, sums) of each part in which steps ended.
    template <class Visit>
    void visit(uint64_t new_from_sequence, Visit visit) const {
        for (size_t number = 0; number < parts_.size(); ++number) {
            const Part& part = parts_[number];
            if (part.steps == 0) continue;
            const uint64_t from_ns = saturating_add(from_ns_, number * part_ns_);
            visit(Window{from_ns, saturating_add(from_ns, part_ns_)},
                  StepTime{part.busy_ns, part.newest_call >= new_from_sequence ? part.busy_ns : 0, part.steps});
        }
    }

  private:
    struct Part {
        uint64_t busy_ns = 0;
        uint64_t steps = 0;
        uint64_t newest_call = 0;
    };
    Window window_;
    uint64_t from_ns_ = 0;  ///< of the first part
    uint64_t part_ns_ = 10'000'000;
    std::vector<Part> parts_;
};

/// One process on one device.
struct DrainedDevice {
    StepTimes steps;
    std::vector<DrainedGap> gaps;
    uint64_t drained_ns = 0;          ///< in all, in gaps too short to be kept too
    uint64_t from_ns = 0, to_ns = 0;  ///< from its first call of these classes in the window to its last
    uint64_t enqueues = 0;            ///< by weight
    uint64_t enqueue_rows = 0;        ///< that stand for them
    uint64_t calls_ns = 0;            ///< in these calls, by weight
};

/// Of the calls of one window. Bounded: where there are too many gaps the shortest are only summed.
class DrainedGaps {
  public:
    DrainedGaps(const Window& window, const KnownProcesses* processes)
        : window_(window), processes_(1'024, processes) {}

    /// Blocks in the order in which they were recorded, rows of a block in any order. Calls count in order of their
    /// end: what a thread waits for, another may have enqueued or waited for meanwhile. Reports each thread's calls to
    /// `work` in that order.
    void take(std::span<const Event> block, EventFilter& filter, DeviceWork& work);

    struct Devices;
    /// visit(process, device ordinal, device), without processes that are recorded in slices.
    template <class Visit>
    void visit(Visit visit) const {
        for (const auto& [process, devices] : processes_)
            if (!devices.in_slices())
                for (const auto& [ordinal, device] : devices.by_ordinal) visit(process, ordinal, device.observed);
    }

    struct Stream {
        uint64_t enqueued_ns = 0;
        bool busy = false;
    };
    struct Device {
        DrainedDevice observed;
        std::map<uint64_t, Stream> streams;
        size_t busy = 0;
        uint64_t busy_from_ns = 0;  ///< of the step under way; 0: not known
        uint64_t drained_ns = 0;    ///< since when; 0: it has, or may have, something to do
        uint32_t gaps_since_launch = UINT32_MAX;
        bool overflowed = false;
        bool in_slices = false;  ///< some of what was enqueued was seen in a slice
        uint64_t bytes_back = 0;
        std::map<uint32_t, uint64_t> in_calls;  ///< since then, by thread
        uint64_t last_stream = 0;
        Stream* last = nullptr;
    };
    /// What of a thread the calls on one device do not show.
    struct Thread {
        uint16_t ordinal = INGERO_DEVICE_UNKNOWN;  ///< of the device that it last enqueued on or synchronised with
        bool captures = false;                     ///< into a graph, what it enqueues on a stream
        uint64_t captured_stream = 0;
        uint64_t captured_ns = 0;   ///< the end of its latest capture
        uint64_t used_ns = 0;       ///< the end of its latest call on that device
        uint64_t elsewhere_ns = 0;  ///< the same on any other
    };
    struct Devices {
        std::map<uint16_t, Device> by_ordinal;
        std::map<uint32_t, Thread> threads;  ///< that captured, or called while there were several devices
        size_t captures = 0;                 ///< threads that do
        bool in_slices() const {
            return std::any_of(by_ordinal.begin(), by_ordinal.end(),
                               [](const auto& one) { return one.second.in_slices; });
        }
        bool is_evidence() const { return false; }
        uint64_t worth() const { return by_ordinal.empty() ? 0 : by_ordinal.begin()->second.observed.enqueues; }
    };

  private:
    void take(Devices& devices, const Event& event, const Op& op);
    void enqueue(const Devices& devices, Device& device, const Event& event, const Op& op);
    void synchronised(Device& device, const Event& event, bool all);
    void end_gap(const Devices& devices, Device& device, const Event& event, uint64_t at_ns);
    void cut_gaps(const Devices& devices, Device& device, const Event& event);
    void add_in_call(Device& device, const Event& event);
    void drop_short();
    void drop(const Devices& gone);
    Devices& devices_of(const Event& event);
    Device* device_of(Devices& devices, const Event& event);
    Thread* thread_of(Devices& devices, uint32_t tid);  ///< nullptr where there is no room
    void note_use(Devices& devices, const Event& event);
    void begin_capture(Devices& devices, Device& device, const Event& event);
    static void end_capture(Devices& devices, Device& device, const Event& event);
    static bool is_captured(const Devices& devices, const Event& event, const Op& op);
    static uint64_t occupied_until_ns(const Devices& devices, const Event& event);

    Window window_;
    ProcessTable<Devices> processes_;
    OpLookup ops_;
    size_t gaps_ = 0, devices_ = 0, streams_ = 0, threads_ = 0;  ///< of all processes
    uint64_t shortest_ns_ = 100'000;
    ProcessKey last_process_;
    Devices* last_devices_ = nullptr;
    uint16_t last_ordinal_ = 0;
    Device* last_device_ = nullptr;
    struct Row {
        uint64_t end_ns, sequence;
        const Event* event;
    };
    static bool earlier(const Row& a, const Row& b);
    std::vector<Row> rows_;
    std::vector<size_t> runs_;
};

}  // namespace ingero
