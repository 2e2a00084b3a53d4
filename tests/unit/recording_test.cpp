// What `ingeroctl record` copies by: pages of one process's rows, and the bytes they come as.
#include "core/query/sources/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/query/coverage.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t wall = 1'700'000'000 * second;  ///< minus CLOCK_MONOTONIC
constexpr ProcessKey ours{100, 7}, theirs{200, 8}, helper{101, 9};

class ARecording : public testing::Test {
  protected:
    ARecording() {
        StoreOptions options;
        options.clock = [this] { return ClockTriple{now_, now_, wall + now_}; };
        writer_ = open_writer(directory_.path(), options);
        Session session = make_session("boot");
        session.clock = {second, second, wall + second};
        EXPECT_TRUE(writer_->begin_session(session));
        writer_->set_first_covered(second);
        Batch batch;
        batch.processes = {process(ours, 1'000, "ours.service"), process(theirs, 2'000, "theirs.service"),
                           process(helper, 1'000, "")};
        batch.processes.back().cgroup = "/system.slice/ours.service/payload";
        commit(batch);
    }

    static Process process(const ProcessKey& key, uint32_t uid, const std::string& unit) {
        Process row;
        row.key = key;
        row.uid = uid;
        row.unit = unit;
        return row;
    }

    void commit(Batch& batch) {
        now_ += second;
        batch.covered_until_ns = now_;
        const auto committed = writer_->commit(batch);
        ASSERT_TRUE(committed) << committed.error().message;
    }

    /// A call that begins `ago` before now, and is the next to be told.
    Event call(const ProcessKey& process, uint64_t ago = 1'000, uint64_t duration_ns = 500) {
        Event event = make_event(++sequence_, now_ - ago, duration_ns);
        event.tgid = process.pid;
        event.process_start_ns = process.start_ns;
        event.stack = process.pid;
        return event;
    }

    RecordPage page(const RecordQuery& query) {
        auto page = record_page(*open_snapshot(directory_.path()), query);
        EXPECT_TRUE(page) << page.error().message;
        return page ? std::move(*page) : RecordPage();
    }

    static std::vector<uint64_t> sequences(const RecordPage& page) {
        std::vector<uint64_t> found;
        for (const Event& event : page.rows.batch.events) found.push_back(event.sequence);
        std::sort(found.begin(), found.end());
        return found;
    }

    TemporaryDirectory directory_;
    uint64_t now_ = 10 * second;
    uint64_t sequence_ = 0;
    std::unique_ptr<StoreWriter> writer_;
};

TEST_F(ARecording, PagesHaveEachCallOfTheProcessOnce) {
    std::vector<uint64_t> wanted;
    for (int commits = 0; commits < 5; ++commits) {
        Batch batch;
        for (uint64_t i = 0; i < 40; ++i) {
            // Later ones may have begun earlier.
            batch.events.push_back(call(i % 3 == 0 ? ours : theirs, 5'000 + (i * 7 % 11) * 100));
            if (i % 3 == 0) wanted.push_back(sequence_);
        }
        commit(batch);
    }
    std::vector<uint64_t> found;
    RecordQuery query{.uid = {}, .pid = 100, .unit = {}, .limit = 9, .stacks = {}};
    for (bool more = true; more;) {
        const RecordPage one = page(query);
        EXPECT_LE(one.rows.batch.events.size(), 9u);
        for (const uint64_t sequence : sequences(one)) found.push_back(sequence);
        query.after = one.after;
        more = one.more;
    }
    EXPECT_EQ(found, wanted) << "each once, and in order";
    EXPECT_EQ(query.after, sequence_) << "those of others count as looked at";

    Batch batch;
    batch.events = {call(theirs), call(ours)};
    commit(batch);
    EXPECT_THAT(sequences(page(query)), ElementsAre(sequence_));
}

TEST_F(ARecording, BeginsWhenItIsToldTo) {
    Batch batch;
    batch.events = {call(ours, 5 * second, 1'000), call(ours, 5 * second, 4 * second), call(ours)};
    commit(batch);
    const RecordPage one =
        page({.uid = {}, .pid = 100, .unit = {}, .start_ns = wall + now_ - 4 * second, .stacks = {}});
    EXPECT_THAT(sequences(one), ElementsAre(2, 3)) << "what lasts into it is of it";
    EXPECT_EQ(one.start_ns, now_ - 4 * second);
    EXPECT_EQ(page({.uid = {}, .pid = 100, .unit = {}, .stacks = {}}).start_ns, second)
        << "where the session is covered";
}

TEST_F(ARecording, OfAUnitIsOfAllItsProcesses) {
    Batch batch;
    batch.events = {call(ours), call(theirs), call(helper)};
    commit(batch);
    const RecordPage one = page({.uid = {}, .unit = "ours.service", .stacks = {}});
    EXPECT_THAT(sequences(one), ElementsAre(1, 3));
    EXPECT_THAT(one.rows.batch.processes, SizeIs(2));
    EXPECT_THAT(sequences(page({.uid = {}, .unit = "service", .stacks = {}})), SizeIs(0));
}

TEST_F(ARecording, OnesOwnProcessesAreSeen) {
    Batch batch;
    batch.events = {call(ours), call(theirs)};
    StackRow stack;
    stack.id = 100;
    stack.process = ours;
    batch.stacks = {stack};
    stack.id = 200;
    stack.process = theirs;
    batch.stacks.push_back(stack);
    batch.gaps = {{ours, 1'000, now_, 0, GapReason::late_attach, "a"},
                  {theirs, 2'000, now_, 0, GapReason::refused, "b"},
                  {{}, 2'000, now_, 0, GapReason::too_many, "c"},
                  {{}, 0, now_, 0, GapReason::turned_off, "d"}};
    commit(batch);
    const auto refused =
        record_page(*open_snapshot(directory_.path()), {.uid = 1'000, .pid = 200, .unit = {}, .stacks = {}});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::not_found);
    EXPECT_THAT(sequences(page({.uid = 1'000, .unit = "theirs.service", .stacks = {}})), SizeIs(0));
    const RecordPage own = page({.uid = 1'000, .pid = 100, .unit = {}, .stacks = {}});
    EXPECT_THAT(sequences(own), ElementsAre(1));
    std::vector<std::string> gaps;
    for (const GapRow& gap : own.rows.batch.gaps) gaps.push_back(gap.subject);
    EXPECT_THAT(gaps, testing::UnorderedElementsAre("a", "d"));
    const RecordPage stacks = page({.uid = 1'000, .pid = 100, .unit = {}, .stacks = {100, 200}});
    ASSERT_THAT(stacks.rows.batch.stacks, SizeIs(1));
    EXPECT_EQ(stacks.rows.batch.stacks[0].id, 100u);
}

TEST_F(ARecording, EndsWithTheProcess) {
    EXPECT_FALSE(page({.uid = {}, .pid = 100, .unit = {}, .stacks = {}}).has_ended);
    Batch batch;
    batch.events = {call(ours), call(ours), call(ours)};
    batch.processes = {process(ours, 1'000, "ours.service")};
    batch.processes[0].exited_ns = now_;
    commit(batch);
    EXPECT_FALSE(page({.uid = {}, .pid = 100, .unit = {}, .limit = 2, .stacks = {}}).has_ended) << "not all is told";
    EXPECT_TRUE(page({.uid = {}, .pid = 100, .unit = {}, .stacks = {}}).has_ended);
}

TEST_F(ARecording, BytesAreTheRowsAgain) {
    SessionBatch rows;
    rows.session = make_session("boot");
    Batch& batch = rows.batch;
    batch.events = make_events(1, 9'000, 1'000);
    batch.processes = {process(ours, 1'000, "ours.service")};
    LossRow loss;
    loss.to_ns = 5;
    loss.lost_ring = 7;
    batch.losses = {loss};
    batch.gaps = {{ours, 1'000, 5, 6, GapReason::refused, "lib"}};
    batch.functions = {{ours, 77, 600, "kernel"}};
    CommunicatorRow communicator;
    communicator.process = ours;
    communicator.hash = 99;
    batch.communicators = {communicator};
    StackRow stack;
    stack.id = 3;
    stack.frames = {{1, 64}};
    batch.stacks = {stack};
    batch.files = {{1, "/lib/a.so", "abcd", FileState::ok}};
    batch.symbols = {{1, 64, "name", "demangled", 0}};
    SpanRow span;
    span.id = "request";
    batch.spans = {span};
    const std::string bytes = encode_batch(rows);
    const auto back = decode_batch(bytes);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(encode_batch(*back), bytes);
    ASSERT_EQ(back->batch.events.size(), 9'000u);
    for (size_t i = 0; i < batch.events.size(); ++i)
        ASSERT_EQ(all_fields(back->batch.events[i]), all_fields(batch.events[i]));
    EXPECT_EQ(back->session.boot_id, "boot");
    EXPECT_EQ(back->batch.symbols[0].demangled, "demangled");
    EXPECT_EQ(back->batch.spans[0].id, "request");
    ASSERT_EQ(back->batch.communicators.size(), 1u);
    EXPECT_EQ(back->batch.communicators[0].hash, 99u);
    for (size_t cut = 0; cut < 2'000; ++cut) {
        // A cut between two rows is a stream of fewer of them.
        const auto part = decode_batch(std::string_view(bytes).substr(0, cut));
        EXPECT_TRUE(!part || part->batch.events.empty()) << cut;
    }
    for (size_t at = 0; at < bytes.size(); at += bytes.size() / 100) {
        std::string flipped = bytes;
        flipped[at] = static_cast<char>(flipped[at] ^ 0x55);
        (void)decode_batch(flipped);
    }
    EXPECT_FALSE(decode_batch("\x02"));
    EXPECT_FALSE(decode_batch(bytes + '\x0b'));
}

}  // namespace
}  // namespace ingero
