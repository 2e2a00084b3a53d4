// Works out from the rows around a call what old traces leave out of it: how deep it was nested, and how long its
// thread was off the CPU. Rows pass in the order of their timestamps and leave once nothing more can come to them.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/model/event.h"

namespace ingero {

class CallNesting {
  public:
    using Emit = std::function<void(Event&)>;

    /// `switched`: threads whose off-CPU times are in the trace; calls of others have an uncertain split.
    CallNesting(const std::unordered_set<uint32_t>& switched, Emit emit)
        : switched_(switched), emit_(std::move(emit)) {}

    /// A library's call, in the order of starts.
    void call(const Event& event);
    /// A thread was off the CPU; in the order of ends, among the calls. In how many calls that was, one in another.
    uint8_t off_cpu(uint32_t tid, uint64_t from_ns, uint64_t to_ns);
    /// Emits what is left.
    void finish();

  private:
    static constexpr size_t max_open = 65'536;

    struct Thread {
        std::vector<Event> open;  ///< outermost first
    };
    void close_until(Thread& thread, uint64_t time_ns);
    void close_all(Thread& thread);
    void emit(Event& event);

    const std::unordered_set<uint32_t>& switched_;
    Emit emit_;
    std::unordered_map<uint32_t, Thread> threads_;
    size_t open_ = 0;
};

}  // namespace ingero
