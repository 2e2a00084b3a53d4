// The simulated devices. Nothing runs: a stream is the time at which it will be done (CLOCK_MONOTONIC), an operation
// puts that off, and waiting waits for it. Work in a stream is in order; streams run beside each other without slowing
// each other; the legacy default stream and blocking streams order each other as in CUDA. Any thread may call anything.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "call.h"
#include "clock.h"
#include "options.h"

namespace ingero::standin {

/// What the caller's thread may do about its waits; from the flags of a device or of an event.
enum class Schedule : uint8_t { automatic, spin, yield, block };

/// Waits until then, as `wait` says.
void wait_until(uint64_t target_ns, Wait wait, Note& note);

/// Time that copying so many bytes takes the device.
uint64_t copy_time_ns(uint64_t bytes);

struct Kernel {
    std::string name;
    uint64_t duration_ns = 0;
    std::atomic<bool> loaded{false};
};

/// What was captured: how much time it takes the device as a whole.
struct Graph {
    uint64_t nodes = 0;
    uint64_t duration_ns = 0;
    int fault = 0;  ///< that a launch of it ends in
};

/// Work of another library on a stream or device: it ends when it says so. Who waits for it sleeps.
class ExternalWork {
  public:
    /// The number of what began, for end().
    uint64_t begin();
    void end(uint64_t number);
    /// For what had begun before.
    void wait(Note& note);

  private:
    std::mutex lock_;
    std::condition_variable changed_;
    uint64_t begun_ = 0;
    std::set<uint64_t> open_;
};

class Stream {
  public:
    Stream(int device, bool blocking, bool legacy);

    /// Puts work of that length at the end, or into the graph that is captured. Waits, spinning, while the queue is
    /// full. Returns the time at which the work will be done, 0 when captured.
    uint64_t enqueue(uint64_t duration_ns, Note& note);

    /// Not before then: for cudaStreamWaitEvent.
    void delay_until(uint64_t target_ns);

    uint64_t busy_until() const { return busy_until_ns_.load(std::memory_order_acquire); }

    /// Time when all is done that synchronising with this stream waits for: for the legacy one, all blocking streams.
    uint64_t done_at() const;

    bool begin_capture();
    bool end_capture(Graph& graph);
    bool capturing();

    int device() const { return device_; }
    ExternalWork& external() { return external_; }

  private:
    bool has_room(uint64_t now);
    uint64_t earliest_start(uint64_t now) const;

    const int device_;
    const bool blocking_;
    const bool legacy_;
    std::mutex lock_;
    std::atomic<uint64_t> busy_until_ns_{0};
    std::vector<uint64_t> finish_ns_;  ///< ring of the entries not yet found finished
    size_t oldest_ = 0;
    size_t entries_ = 0;
    bool capturing_ = false;
    Graph captured_;
    ExternalWork external_;
};

/// Table of objects behind handles. An index is used again after its object was removed, as addresses are; the object
/// itself stays until then, so that one thread removing what another still waits on does not crash.
template <typename Object, size_t most>
class Table {
  public:
    /// The object's index, or 0 when the table is full.
    uint32_t add(std::unique_ptr<Object> object) {
        const std::lock_guard guard(lock_);
        uint32_t index;
        if (!free_.empty()) {
            index = free_.back();
            free_.pop_back();
        } else if (used_ + 1 < most) {
            index = ++used_;
        } else {
            return 0;
        }
        owned_[index] = std::move(object);
        objects_[index].store(owned_[index].get(), std::memory_order_release);
        return index;
    }

    Object* find(uint32_t index) const {
        return index < most ? objects_[index].load(std::memory_order_acquire) : nullptr;
    }

    bool remove(uint32_t index) {
        const std::lock_guard guard(lock_);
        if (find(index) == nullptr) return false;
        objects_[index].store(nullptr, std::memory_order_release);
        free_.push_back(index);
        return true;
    }

  private:
    std::mutex lock_;
    uint32_t used_ = 0;
    std::vector<uint32_t> free_;
    std::array<std::atomic<Object*>, most> objects_{};
    std::array<std::unique_ptr<Object>, most> owned_{};
};

struct Event {
    std::atomic<uint64_t> done_ns{0};
    bool blocking_sync = false;
};

class Devices {
  public:
    Devices();
    static Devices& instance();

    /// Null for a handle that is no stream. `per_thread`: what stream 0 means to the caller.
    Stream* find_stream(uint64_t handle, bool per_thread);
    uint64_t create_stream(bool blocking);
    bool destroy_stream(uint64_t handle);

    uint64_t create_event(bool blocking_sync);
    Event* find_event(uint64_t handle);
    bool destroy_event(uint64_t handle);

    /// The same handle for the same name, always.
    uint64_t function(std::string_view name);
    Kernel* find_function(uint64_t handle);

    uint64_t add_graph(const Graph& graph, bool executable);
    Graph* find_graph(uint64_t handle, bool executable);
    bool destroy_graph(uint64_t handle, bool executable);

    int launch(Kernel& kernel, Stream& stream, Note& note);

    /// How a thread waits for the device that is current to it.
    Wait wait_mode() const;
    void set_schedule(int device, Schedule schedule);
    Schedule schedule(int device) const { return schedules_[size_t(device)].load(std::memory_order_relaxed); }

    void synchronize(Note& note);

    /// The device will be out of order, with that error, from then on. The first of several holds.
    void set_fault(int device, int error, uint64_t at_ns);
    void clear_fault(int device);
    /// The error that calls on the device return now, or 0.
    int fault(int device, Note& note) const {
        const Fault& fault = faults_[size_t(device)];
        const uint64_t at_ns = fault.at_ns.load(std::memory_order_acquire);
        if (at_ns == never || now_ns() < at_ns) [[likely]]
            return 0;
        note.flags |= GROUND_TRUTH_STICKY_ERROR;
        return fault.error.load(std::memory_order_relaxed);
    }

    // For Stream: the latest end of work of a device, by who has to wait for it.
    std::atomic<uint64_t>& latest(int device) { return ends_[size_t(device)].all; }
    std::atomic<uint64_t>& latest_blocking(int device) { return ends_[size_t(device)].blocking; }
    Stream& legacy_stream(int device) { return *legacy_streams_[size_t(device)]; }
    ExternalWork& external(int device) { return external_[size_t(device)]; }

  private:
    static constexpr size_t most_devices = 16;
    struct alignas(64) Ends {
        std::atomic<uint64_t> all{0};
        std::atomic<uint64_t> blocking{0};
    };
    static constexpr uint64_t never = ~uint64_t(0);
    struct Fault {
        std::atomic<uint64_t> at_ns{never};
        std::atomic<int> error{0};
    };
    std::array<Ends, most_devices> ends_;
    std::array<Fault, most_devices> faults_;
    std::array<ExternalWork, most_devices> external_;
    std::array<std::atomic<Schedule>, most_devices> schedules_{};
    std::vector<std::unique_ptr<Stream>> legacy_streams_;
    Table<Stream, 4096> streams_;
    Table<Event, 65'536> events_;
    Table<Kernel, 16'384> kernels_;
    Table<Graph, 4096> graphs_;
    Table<Graph, 4096> graph_execs_;
    std::mutex names_lock_;
    std::vector<std::pair<std::string, uint64_t>> names_;
};

}  // namespace ingero::standin
