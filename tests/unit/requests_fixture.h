// Requests and calls in a real store.
#pragma once

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/diagnosis/requests.h"
#include "core/model/op.h"
#include "core/spans/span.h"
#include "tests/unit/store_fixture.h"

namespace ingero::requests_fixture {

inline constexpr uint64_t ms = 1'000'000;
inline constexpr uint64_t second = 1'000'000'000;
inline constexpr uint64_t begin = 60 * second;
inline constexpr OpId device_malloc = op::cudaMalloc;
inline constexpr OpId launch = op::cudaLaunchKernel;
inline constexpr OpId copy = op::cudaMemcpy;
inline constexpr OpId stream_sync = op::cudaStreamSync;
inline constexpr OpId all_reduce = op::ncclAllReduce;
inline constexpr ProcessKey server{100, 5};
inline constexpr ProcessKey engine{200, 6};

/// Times are from `begin` on.
inline Event make_call(OpId op, uint64_t start, uint64_t duration, ProcessKey process = server) {
    Event event;
    event.op = op;
    event.start_ns = begin + start;
    event.duration_ns = duration;
    event.tgid = event.tid = process.pid;
    event.process_start_ns = process.start_ns;
    event.weight = 1;
    return event;
}

inline Event preempted(Event event, uint64_t ns, const std::string& by, uint32_t pid) {
    event.runnable_ns = event.preempted_ns = event.preemptor_ns = ns;
    event.preemptor_comm = to_comm(by);
    event.preemptor_tgid = pid;
    event.waits = 1;
    return event;
}

inline SpanRow make_span(const std::string& id, uint64_t start, uint64_t end, ProcessKey process = server) {
    SpanRow span;
    span.id = id;
    span.start_ns = begin + start;
    span.end_ns = begin + end;
    span.process = process;
    span.uid = 1'000;
    return span;
}

inline Process make_process(ProcessKey key, const std::string& cgroup = "", uint32_t uid = 1'000, uint32_t parent = 1) {
    Process process;
    process.key = key;
    process.uid = uid;
    process.parent_pid = parent;
    process.comm = "python";
    process.cgroup = cgroup;
    return process;
}

class Requests : public testing::Test {
  protected:
    Requests() { batch_.processes = {make_process(server)}; }

    void add(SpanRow span) { batch_.spans.push_back(std::move(span)); }
    void add(Event event) {
        event.sequence = batch_.events.size() + 1;
        batch_.events.push_back(event);
    }

    /// The first stands for one, the second for ten, the third for a hundred: a sum tells which of them count.
    void add_call_of_each(const std::vector<ProcessKey>& processes) {
        uint32_t weight = 1;
        for (const ProcessKey& process : processes) {
            Event event = make_call(launch, ms, ms, process);
            event.weight = weight;
            add(event);
            weight *= 10;
        }
    }

    /// Of all that was added.
    RequestsAnswer ask(RequestsQuery query = {}) {
        commit();
        const auto snapshot = open_snapshot(directory_.path());
        if (query.filter.window.to_ns == 0) query.filter.window = whole_trace(*snapshot);
        auto answer = compute_requests(*snapshot, query);
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? std::move(*answer) : RequestsAnswer{};
    }

    /// ID of a request, place of a call in the order they were added in, who shares it, ms of overlap.
    using Pair = std::tuple<std::string, uint64_t, uint32_t, uint64_t>;
    std::vector<Pair> pairs(RequestsQuery query = {}, Window wanted = {0, UINT64_MAX}) {
        commit();
        const auto snapshot = open_snapshot(directory_.path());
        const auto boot = boot_windows(*snapshot, whole_trace(*snapshot)).at(0);
        const auto calls = list_request_calls(*snapshot, boot, query, wanted);
        EXPECT_TRUE(calls) << calls.error().message;
        std::vector<Pair> pairs;
        for (const RequestCall& call : calls->calls)
            pairs.emplace_back(calls->requests.at(call.request).id, call.sequence, call.shared_by,
                               call.overlap_ns / ms);
        return pairs;
    }

    static std::vector<std::string> ids(const RequestsAnswer& answer) {
        std::vector<std::string> ids;
        for (const RequestStats& request : answer.requests) ids.push_back(request.span.id);
        return ids;
    }

    static const RequestStats& find(const RequestsAnswer& answer, const std::string& id) {
        static const RequestStats none;
        for (const RequestStats& request : answer.requests)
            if (request.span.id == id) return request;
        ADD_FAILURE() << "no request " << id;
        return none;
    }

    static void expect_stall(const std::optional<RequestStall>& stall, OpId op, uint64_t ns, const Culprit& by) {
        ASSERT_TRUE(stall);
        EXPECT_EQ(stall->op, op);
        EXPECT_EQ(stall->ns, ns);
        EXPECT_EQ(stall->kind, "cpu-contention");
        EXPECT_EQ(stall->culprit.name, by.name);
        EXPECT_EQ(stall->culprit.pid, by.pid);
    }

    static uint64_t calls(const RequestsAnswer& answer, const std::string& id) {
        return find(answer, id).sums[CallSums::calls];
    }

    Batch batch_;

  private:
    void commit() {
        if (committed_) return;
        committed_ = true;
        StoreOptions options;
        const ClockTriple now{begin, begin, 1'700'000'000 * second};
        options.clock = [now] { return now; };
        const auto writer = open_writer(directory_.path(), options);
        ASSERT_TRUE(writer);
        Session session = make_session("boot-a");
        session.clock = now;
        ASSERT_TRUE(writer->begin_session(session));
        writer->set_first_covered(begin);
        batch_.covered_until_ns = begin + 100 * second;
        const auto committed = writer->commit(batch_);
        ASSERT_TRUE(committed) << committed.error().message;
    }

    TemporaryDirectory directory_;
    bool committed_ = false;
};

}  // namespace ingero::requests_fixture
