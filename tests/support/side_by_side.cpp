#include "tests/support/side_by_side.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/model/op.h"

namespace ingero::test {

namespace {

/// By thread and start, each with the number of traced calls that it lies in. The log's own depth says when a call that
/// never returned is over: at the next one of its thread that is no deeper.
void add_depths(const standin::GroundTruth& truth, const std::vector<const standin::Record*>& records,
                SideBySide& trace) {
    std::vector<std::pair<const standin::Record*, bool>> open;
    uint32_t tid = 0;
    for (const standin::Record* record : records) {
        if (std::exchange(tid, record->tid) != record->tid) open.clear();
        while (!open.empty() && open.back().first->depth >= record->depth) open.pop_back();
        const bool traced = op_of_function(truth.name(*record)).has_value();
        if (traced && standin::finished(*record)) {
            trace.calls.push_back(record);
            trace.depths.push_back(static_cast<unsigned>(
                std::count_if(open.begin(), open.end(), [](const auto& outer) { return outer.second; })));
        } else if (traced) {
            trace.left.push_back(record);
        }
        open.emplace_back(record, traced);
    }
}

}  // namespace

SideBySide lay_side_by_side(const standin::GroundTruth& truth, const std::vector<Event>& events,
                            const ProcessKey& process, uint32_t logged_pid) {
    SideBySide trace;
    std::vector<const standin::Record*> records;
    for (const standin::Record& record : truth.records())
        if (record.start_ns != 0 && record.pid == (logged_pid ? logged_pid : process.pid)) records.push_back(&record);
    std::stable_sort(records.begin(), records.end(), [](const auto* a, const auto* b) {
        return std::pair(a->tid, a->start_ns) < std::pair(b->tid, b->start_ns);
    });
    add_depths(truth, records, trace);
    for (const Event& event : events)
        if (event.process() == process) trace.events.push_back(event);
    std::stable_sort(trace.events.begin(), trace.events.end(), [](const Event& a, const Event& b) {
        return std::tuple(a.tid, a.start_ns, a.depth) < std::tuple(b.tid, b.start_ns, b.depth);
    });
    return trace;
}

void expect_same(const standin::Record& call, std::string_view name, unsigned depth, const Event& event) {
    EXPECT_EQ(op_name(event.op), op_name(*op_of_function(name))) << name;
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(event.args[i], call.args[i]) << name << ", argument " << i;
    EXPECT_EQ(event.stream, call.stream) << name;
    EXPECT_EQ(event.return_code, call.result) << name;
    EXPECT_EQ(event.depth, depth) << name;
    EXPECT_LE(event.start_ns, call.start_ns) << name;
    EXPECT_GE(event.end_ns(), call.end_ns) << name;
    EXPECT_EQ(event.weight, 1u) << name;
}

void expect_all_the_same(const standin::GroundTruth& truth, const SideBySide& trace) {
    std::map<uint32_t, uint64_t> known_from_ns;  // of each thread, when a call first returned with its device
    for (const Event& event : trace.events) {
        if (event.device == INGERO_DEVICE_UNKNOWN) continue;
        const auto [known, added] = known_from_ns.try_emplace(event.tid, event.end_ns());
        known->second = std::min(known->second, event.end_ns());
    }
    for (size_t i = 0; i < trace.calls.size(); ++i) {
        const standin::Record& call = *trace.calls[i];
        const std::string_view name = truth.name(call);
        ASSERT_LT(i, trace.events.size()) << "nothing was recorded of " << name << " of thread " << call.tid;
        const Event& event = trace.events[i];
        EXPECT_EQ(event.tid, call.tid) << name;
        expect_same(call, name, trace.depths[i], event);
        const auto known = known_from_ns.find(event.tid);
        if (event.device != INGERO_DEVICE_UNKNOWN ||
            (known != known_from_ns.end() && event.end_ns() >= known->second)) {
            EXPECT_EQ(event.device, call.device) << name;
        }
        ASSERT_FALSE(testing::Test::HasFailure()) << "call " << i << " of " << trace.calls.size();
    }
    EXPECT_EQ(trace.events.size(), trace.calls.size());
}

std::vector<Process> rows_of(const StoreContents& store, uint32_t pid) {
    std::vector<Process> rows;
    std::copy_if(store.processes.begin(), store.processes.end(), std::back_inserter(rows),
                 [pid](const Process& row) { return row.key.pid == pid; });
    std::sort(rows.begin(), rows.end(), [](const Process& a, const Process& b) { return a.key < b.key; });
    return rows;
}

}  // namespace ingero::test
