// Calls in flight are told to each subscriber by what it may see and asked for, whatever others have in flight.
#include "daemon/ingerod/live/live_trace.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/model/op.h"
#include "core/model/time.h"
#include "core/render/trace.h"

using namespace ingero;
using nlohmann::json;

namespace {

constexpr uint64_t second = 1'000'000'000;
constexpr uint32_t others = 1001, own = 1000;

class CallsInFlight : public testing::Test {
  protected:
    void add(uint32_t pid, uint32_t uid, size_t count) {
        Process& process = processes_[pid];
        process.key = {pid, second};
        process.uid = uid;
        for (size_t i = 0; i < count; ++i) {
            InFlightCall& one = calls_.emplace_back();
            one.call.op = op::cudaMemcpy;
            one.call.tgid = pid;
            one.call.tid = static_cast<uint32_t>(calls_.size());
            one.call.process_start_ns = second;
            one.call.start_ns = 5 * second;
            one.call.duration_ns = second;
        }
    }

    struct Told {
        size_t rows = 0;
        uint64_t skipped = 0;
    };
    /// What a subscriber has been told after one look.
    Told look(const Caller& caller, TraceFilter filter) {
        filter.in_flight = true;
        auto stream = trace_.subscribe(caller, std::move(filter), [this] { loop_.exit(0); });
        EXPECT_TRUE(stream);
        const auto timeout = loop_.add_timer(2 * 1'000'000, [this] { loop_.exit(0); });
        EXPECT_EQ(loop_.run(), 0);
        Told told;
        while (const auto chunk = (*stream)->next()) {
            told.rows += chunk->at("rows").size();
            told.skipped += chunk->at("skipped").get<uint64_t>();
        }
        return told;
    }

    EventLoop loop_;
    std::map<uint32_t, Process> processes_;
    std::vector<InFlightCall> calls_;
    LiveTrace trace_{loop_,
                     {.find_process = [this](const ProcessKey& key) -> const Process* {
                          const auto found = processes_.find(key.pid);
                          return found == processes_.end() ? nullptr : &found->second;
                      },
                      .in_flight = [this](uint64_t, const auto& visit) -> Result<void> {
                          for (const InFlightCall& call : calls_) visit(call);
                          return {};
                      },
                      .names =
                          [this](const auto& handles, auto done) {
                              asked_ += handles.size();
                              done(names_);
                          }},
                     second};
    LiveTrace::Names names_;
    size_t asked_ = 0;
};

TEST_F(CallsInFlight, of_another_user_hide_none_of_the_callers_own) {
    add(10, others, 2 * LiveTrace::max_in_flight);
    add(20, own, 3);
    const Told told = look({.uid = own, .pid = 1, .sees_all = false}, {});
    EXPECT_EQ(told.rows, 3U);
    EXPECT_EQ(told.skipped, 0U) << "what belongs to others does not even count";
}

TEST_F(CallsInFlight, of_another_process_hide_none_of_the_one_asked_for) {
    add(10, own, 2 * LiveTrace::max_in_flight);
    add(20, own, 3);
    TraceFilter filter;
    filter.pid = 20;
    const Told told = look({.uid = 0, .pid = 1, .sees_all = true}, filter);
    EXPECT_EQ(told.rows, 3U);
    EXPECT_EQ(told.skipped, 0U);
}

TEST_F(CallsInFlight, beyond_what_is_told_are_counted) {
    add(10, own, LiveTrace::max_in_flight + 7);
    const Told told = look({.uid = own, .pid = 1, .sees_all = false}, {});
    EXPECT_EQ(told.rows, LiveTrace::max_in_flight);
    EXPECT_EQ(told.skipped, 7U);
}

TEST_F(CallsInFlight, and_finished_calls_of_strangers_take_no_room_from_the_callers_own) {
    add(10, others, 0);
    add(20, own, 0);
    auto stream = trace_.subscribe({.uid = own, .pid = 1, .sees_all = false}, {}, [this] { loop_.exit(0); });
    ASSERT_TRUE(stream);
    const auto offer = [&](uint32_t pid, size_t count) {
        Event call;
        call.op = op::cudaMemcpy;
        call.tgid = call.tid = pid;
        call.process_start_ns = second;
        for (size_t i = 0; i < count; ++i) trace_.offer(call);
    };
    const auto told = [&] {
        trace_.flush();
        EXPECT_EQ(loop_.run(), 0);
        Told sum;
        while (const auto chunk = (*stream)->next()) {
            sum.rows += chunk->at("rows").size();
            sum.skipped += chunk->at("skipped").get<uint64_t>();
        }
        return sum;
    };
    // Before it is known whose the processes are, what is left out is told of the caller's alone.
    offer(10, 10'000);
    offer(20, 3);
    const Told first = told();
    EXPECT_EQ(first.rows, 0U);
    EXPECT_EQ(first.skipped, 3U);
    // Processes that began a moment ago may be anybody's: they leave room to those that are known.
    offer(20, 1);
    EXPECT_EQ(told().rows, 1U);
    for (uint32_t pid = 100; pid < 2'100; ++pid) offer(pid, 5);
    offer(10, 10'000);
    offer(20, 3);
    const Told later = told();
    EXPECT_EQ(later.rows, 3U);
    EXPECT_EQ(later.skipped, 0U);
}

// The record of a function's name may come after that of its first launch.
TEST_F(CallsInFlight, are_named_once_the_name_is_known) {
    add(10, own, 0);
    auto stream = trace_.subscribe({.uid = own, .pid = 1, .sees_all = false}, {}, [this] { loop_.exit(0); });
    ASSERT_TRUE(stream);
    const auto kernel_of_launch_at = [&](uint64_t start_ns) {
        Event launch;
        launch.op = op::cudaLaunchKernel;
        launch.tgid = launch.tid = 10;
        launch.process_start_ns = second;
        launch.start_ns = start_ns;
        launch.args[0] = 0x1234;
        trace_.offer(launch);
        trace_.flush();
        std::optional<json> chunk;
        while (!(chunk = (*stream)->next())) EXPECT_EQ(loop_.run(), 0);
        return trace_lines(*chunk, "node").at(0).at("kernel");
    };
    EXPECT_TRUE(kernel_of_launch_at(5 * second).is_null());
    names_[{{10, second}, 0x1234}] = "matmul";
    EXPECT_TRUE(kernel_of_launch_at(5 * second + second / 2).is_null()) << "it was asked for just now";
    EXPECT_EQ(asked_, 1U);
    EXPECT_EQ(kernel_of_launch_at(6 * second + second / 2), "matmul");
    EXPECT_EQ(kernel_of_launch_at(9 * second), "matmul");
    EXPECT_EQ(asked_, 2U) << "what is known is not asked for again";
}

}  // namespace
