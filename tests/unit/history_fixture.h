// A store on a clock of its own, for what it keeps besides calls, and after them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/store_fixture.h"

namespace ingero {

inline constexpr uint64_t second = 1'000'000'000;
inline constexpr uint64_t minute = 60 * second;
inline constexpr uint64_t cap = 16 << 20;

class AHistory : public testing::Test {
  protected:
    AHistory() {
        options_.max_size_bytes = cap;
        options_.clock = [this] { return now_; };
    }

    std::unique_ptr<StoreWriter> start(const std::string& boot_id = "boot-a") {
        auto writer = open_writer(directory_.path(), options_);
        if (!writer) return nullptr;
        Session session = make_session(boot_id);
        session.clock = now_;
        EXPECT_TRUE(writer->begin_session(session));
        writer->set_first_covered(std::max<uint64_t>(now_.monotonic_ns, 1));
        return writer;
    }

    void pass(uint64_t ns) {
        now_.monotonic_ns += ns;
        now_.boottime_ns += ns;
        now_.realtime_ns += ns;
    }

    static void commit(StoreWriter& writer, const Batch& batch) {
        const auto committed = writer.commit(batch);
        ASSERT_TRUE(committed) << committed.error().message;
    }

    TemporaryDirectory directory_;
    StoreOptions options_;
    ClockTriple now_{minute, minute, 1'700'000'000 * second};
};

inline SpanRow make_span(const std::string& id, uint64_t start_ns, uint64_t end_ns) {
    SpanRow span;
    span.id = id;
    span.start_ns = start_ns;
    span.end_ns = end_ns;
    span.process = {10, 20};
    return span;
}

/// Calls of a few ops and processes, as a program makes them: small enough that millions go through.
inline std::vector<Event> usual_events(uint64_t first_sequence, size_t count, uint64_t first_start_ns,
                                       uint64_t step_ns) {
    std::vector<Event> events(count);
    for (size_t i = 0; i < count; ++i) {
        Event& event = events[i];
        const uint64_t sequence = first_sequence + i;
        event.sequence = sequence;
        event.start_ns = first_start_ns + i * step_ns;
        event.duration_ns = 1'000 + noise(sequence, 1) % 100'000;
        event.runnable_ns = noise(sequence, 2) % 300;
        event.blocked_ns = noise(sequence, 3) % 700;
        event.args[0] = noise(sequence, 4) % 4'096;
        event.op = static_cast<OpId>(0x103 + noise(sequence, 5) % 5);
        event.tgid = static_cast<uint32_t>(10 + noise(sequence, 6) % 3);
        event.process_start_ns = 77;
        event.return_code = noise(sequence, 7) % 50 == 0 ? 2 : 0;
        event.weight = noise(sequence, 8) % 9 == 0 ? 4 : 1;
        event.time_weight = noise(sequence, 8) % 18 == 0 ? 3 : 0;
    }
    return events;
}

}  // namespace ingero
