// What goes to the store by the queue: events are never lost because of what is told beside them.
#include "daemon/ingerod/ingest/commit_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>

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

}  // namespace
}  // namespace ingero
