// What goes to the store by the queue: events are never lost because of what is told beside them.
#include "daemon/ingerod/ingest/commit_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/file_size_limit.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

constexpr uint32_t names = 4'096;

class ACommitQueue : public testing::Test {
  protected:
    void start(uint64_t cap_bytes) {
        auto writer = open_writer(directory_.path(), {.max_size_bytes = cap_bytes});
        ASSERT_TRUE(writer);
        ASSERT_TRUE(writer->begin_session(make_session("boot-a")));
        queue_ = std::make_unique<CommitQueue>(std::move(writer), [](const CommitQueue::Call& call) { call(); });
        queue_->set_covered_since(1);
        queue_->start();
    }

    /// Some 8 MB by what the store makes sure of: twice what one commit of a store of 16 MiB may be.
    void put_many_names(uint32_t count = names) {
        for (uint32_t i = 1; i <= count; ++i) {
            StackRow stack;
            stack.id = i;
            stack.process = {7, 7};
            for (uint32_t depth = 0; depth < 20; ++depth) stack.frames.push_back({1, noise(i, depth) >> 16});
            queue_->put(stack);
            queue_->put(SymbolRow{.file = 1, .offset = i, .name = std::string(300, 'n'), .demangled = {}});
        }
    }

    /// Returns once it was stored or given up.
    void push(size_t events) {
        std::promise<void> settled;
        const uint64_t first = next_;
        next_ += events;
        queue_->push(make_events(first, events, first * 1'000), {}, next_ * 1'000, {[&] { settled.set_value(); }});
        settled.get_future().wait();
    }

    void expect_all_events_and_names() {
        const auto snapshot = open_snapshot(directory_.path());
        ASSERT_TRUE(snapshot);
        EXPECT_EQ(scan_all(*snapshot)->size(), next_ - 1);
        EXPECT_TRUE(snapshot->losses(0, everything)->empty());
        EXPECT_EQ(snapshot->sessions().back().last_covered_ns, next_ * 1'000);
        std::set<uint32_t> ids;
        std::set<StackFrame> places;
        for (uint32_t i = 1; i <= names; ++i) ids.insert(i), places.insert({1, i});
        EXPECT_EQ(snapshot->stacks(ids)->size(), names);
        EXPECT_EQ(snapshot->symbols(places)->size(), names);
    }

    TemporaryDirectory directory_;
    std::unique_ptr<CommitQueue> queue_;
    uint64_t next_ = 1;
};

TEST_F(ACommitQueue, StoresNamesThatAreTooManyForOneCommitInSeveral) {
    start(16 << 20);
    put_many_names();
    std::vector<SpanRow> spans(3);
    for (size_t i = 0; i < spans.size(); ++i) spans[i].start_ns = spans[i].end_ns = 10 + i;
    std::optional<bool> spans_stored;
    queue_->put(spans, [&](bool stored) { spans_stored = stored; });
    push(1'000);
    push(1'000);
    queue_->finish();
    EXPECT_EQ(spans_stored, true);
    EXPECT_EQ(queue_->figures().dropped, 0u);
    EXPECT_EQ(queue_->figures().failed_commits, 0u);
    EXPECT_EQ(queue_->figures().store_error, "");
    expect_all_events_and_names();
    EXPECT_EQ(open_snapshot(directory_.path())->spans(0, everything)->size(), 3u);
}

TEST_F(ACommitQueue, StoresSpansWithoutWaitingForABatch) {
    start(64 << 20);
    for (size_t round = 1; round <= 3; ++round) {
        std::promise<bool> settled;
        std::vector<SpanRow> spans(2);
        for (size_t i = 0; i < spans.size(); ++i) spans[i].start_ns = spans[i].end_ns = 10 * round + i;
        queue_->put(spans, [&](bool stored) { settled.set_value(stored); });
        std::future<bool> stored = settled.get_future();
        ASSERT_EQ(stored.wait_for(std::chrono::minutes(1)), std::future_status::ready);
        EXPECT_TRUE(stored.get());
        EXPECT_EQ(open_snapshot(directory_.path())->spans(0, everything)->size(), 2 * round);
    }
    queue_->finish();
}

TEST_F(ACommitQueue, LeavesOutARowThatIsTooLargeAloneAndNothingElse) {
    start(16 << 20);
    put_many_names();
    StateRow state;
    for (int i = 0; i < 1'000; ++i) state.values.emplace_back(std::string(4'000, 'x'), i);
    queue_->put(state);
    push(1'000);
    queue_->finish();
    expect_all_events_and_names();
    EXPECT_TRUE(open_snapshot(directory_.path())->states(0, everything)->empty());
}

TEST_F(ACommitQueue, StoresRowsThatFoundNoRoomBeforeNewerOnesOfABatchThatWaits) {
    auto writer = open_writer(directory_.path(), {.max_size_bytes = 16 << 20});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->begin_session(make_session("boot-a")));
    auto full = std::make_unique<FileSizeLimit>(std::filesystem::file_size(directory_.data_file()));
    queue_ = std::make_unique<CommitQueue>(std::move(writer), [](const CommitQueue::Call& call) { call(); });
    constexpr size_t more_than_half_a_commit = 12'000;
    Process process;
    process.key = {7, 7};
    process.comm = "before";
    queue_->put(process);
    put_many_names(1'000);
    std::promise<void> settled;
    queue_->push(make_events(1, more_than_half_a_commit, 1'000), {}, 0, {[&] { full.reset(); }});
    process.comm = "after";
    queue_->put(process);
    queue_->push(make_events(1 + more_than_half_a_commit, more_than_half_a_commit, 20'000'000), {}, 0,
                 {[&] { settled.set_value(); }});
    queue_->start();
    settled.get_future().wait();
    EXPECT_GT(queue_->figures().failed_commits, 0u);
    queue_->push({}, {}, 0, {});
    queue_->finish();
    const auto processes = open_snapshot(directory_.path())->processes();
    ASSERT_EQ(processes->size(), 1u);
    EXPECT_EQ(processes->front().comm, "after");
}

TEST_F(ACommitQueue, StoresEventsOnAFullDiskThatHasNoRoomForTheNamesBesideThem) {
    start(64 << 20);
    push(1'000);
    {
        const FileSizeLimit full(std::filesystem::file_size(directory_.data_file()));
        put_many_names();
        for (int i = 0; i < 3; ++i) push(100);
        EXPECT_EQ(scan_all(*open_snapshot(directory_.path()))->size(), 1'300u);
        EXPECT_GT(queue_->figures().failed_commits, 0u);
        EXPECT_EQ(queue_->figures().dropped, 0u);
    }
    push(1'000);
    queue_->finish();
    expect_all_events_and_names();
}

TEST_F(ACommitQueue, CountsWhatComesAfterTheStoreWasRemovedAndSaysWhy) {
    start(64 << 20);
    push(1'000);
    std::filesystem::remove_all(directory_.path());
    uint64_t calls = 0;
    for (const Event& event : make_events(next_, 100, next_ * 1'000)) calls += event.weight;
    push(100);
    queue_->finish();
    EXPECT_EQ(queue_->figures().dropped, calls);
    EXPECT_EQ(queue_->figures().committed_sequence, 1'000u);
    EXPECT_THAT(queue_->figures().store_error, testing::HasSubstr("file was removed"));
}

/// What a store of which the disk is read-only was asked, by the queue's thread.
struct Asked {
    std::atomic<bool> refuses = true;
    size_t most_processes = 0;  ///< in one batch
    std::vector<Process> stored;
};

class ReadOnlyStore : public StoreWriter {
  public:
    explicit ReadOnlyStore(Asked& asked) : asked_(asked) {}
    Result<void> begin_session(Session) override { return {}; }
    void set_first_covered(uint64_t) override {}
    Result<void> commit(const Batch& batch) override {
        asked_.most_processes = std::max(asked_.most_processes, batch.processes.size());
        if (asked_.refuses) return fail(ErrorCode::internal, "cannot write to the event store: it is read-only");
        asked_.stored.insert(asked_.stored.end(), batch.processes.begin(), batch.processes.end());
        return {};
    }
    bool fits(const Batch&) override { return true; }
    Result<void> end_session() override { return {}; }
    StoreFigures figures() const override { return {.cap_bytes = 64 << 20}; }
    Result<bool> tidy() override { return false; }

  private:
    Asked& asked_;
};

class WhileTheStoreRefuses : public testing::Test {
  protected:
    WhileTheStoreRefuses() { queue_.start(); }

    void put(uint32_t pid, uint64_t exited_ns = 0, const std::string& comm = "") {
        Process process;
        process.key = {pid, 7};
        process.exited_ns = exited_ns;
        process.comm = comm;
        queue_.put(process);
    }
    /// Returns once all that was put was stored or given up.
    void push() {
        std::promise<void> settled;
        queue_.push({}, {}, 0, {[&] { settled.set_value(); }});
        settled.get_future().wait();
    }
    void let_it_store() {
        asked_.refuses = false;
        push();
        queue_.finish();
    }
    std::set<uint32_t> stored() const {
        std::set<uint32_t> pids;
        for (const Process& process : asked_.stored) pids.insert(process.key.pid);
        return pids;
    }

    Asked asked_;
    CommitQueue queue_{std::make_unique<ReadOnlyStore>(asked_), [](const CommitQueue::Call& call) { call(); }};
};

TEST_F(WhileTheStoreRefuses, OneRowOfEachProcessWaits) {
    for (int i = 0; i < 100; ++i) {
        put(1, 0, "changes " + std::to_string(i));
        put(2);
        push();
    }
    EXPECT_LE(asked_.most_processes, 4u) << "those that wait, and those put since";
    put(2, 5);
    let_it_store();
    ASSERT_EQ(stored(), (std::set<uint32_t>{1, 2}));
    std::map<uint32_t, Process> latest;
    for (const Process& process : asked_.stored) latest[process.key.pid] = process;
    EXPECT_EQ(latest[1].comm, "changes 99");
    EXPECT_EQ(latest[2].exited_ns, 5u) << "an older row does not come after a newer one";
}

TEST_F(WhileTheStoreRefuses, ProcessesThatHaveEndedGoBeforeOthersAndTheOldestFirst) {
    constexpr uint32_t most = 16'384;
    put(1);
    for (uint32_t pid = 2; pid <= 201; ++pid) put(pid, pid);
    for (uint32_t pid = 202; pid <= most + 100; ++pid) put(pid);
    push();
    EXPECT_EQ(asked_.most_processes, most + 100);
    asked_.most_processes = 0;
    push();
    EXPECT_EQ(asked_.most_processes, most);
    for (uint32_t pid = 2'000'000; pid < 2'000'105; ++pid) put(pid);
    push();
    let_it_store();
    std::set<uint32_t> expected;
    for (uint32_t pid = 202; pid <= most + 100; ++pid) expected.insert(pid);
    for (uint32_t pid = 2'000'000; pid < 2'000'105; ++pid) expected.insert(pid);
    // All that had ended have gone, and of the others the first ones.
    const auto first_kept = std::next(expected.begin(), static_cast<std::ptrdiff_t>(expected.size() - most));
    expected.erase(expected.begin(), first_kept);
    EXPECT_EQ(stored(), expected);
}

TEST_F(WhileTheStoreRefuses, WhatIsPutWithoutABatchIsBoundedToo) {
    constexpr uint32_t most = 16'384;
    for (uint32_t pid = 1; pid <= 5 * most + 1; ++pid) put(pid);
    push();
    EXPECT_LT(asked_.most_processes, 2 * most);
    let_it_store();
    EXPECT_EQ(asked_.stored.size(), most);
    EXPECT_EQ(*stored().rbegin(), 5 * most + 1) << "the latest";
}

}  // namespace
}  // namespace ingero
