// Spans, incidents, state, clocks and rollups: what the store keeps besides calls, and after them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lmdb.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "core/model/call_time.h"
#include "core/query/stats.h"
#include "core/store/rows/rows.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t minute = 60 * second;
constexpr uint64_t cap = 16 << 20;

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

SpanRow make_span(const std::string& id, uint64_t start_ns, uint64_t end_ns) {
    SpanRow span;
    span.id = id;
    span.start_ns = start_ns;
    span.end_ns = end_ns;
    span.process = {10, 20};
    return span;
}

TEST_F(AHistory, GivesBackEveryFieldOfASpan) {
    const auto writer = start();
    Batch batch;
    SpanRow span = make_span(std::string("a\0\xff", 3), 100, 200);
    span.kind = SpanKind::step;
    span.first_token_ns = 150;
    span.output_tokens = 0;
    span.model = "m";
    span.labels = {{"tenant", "x"}, {"", "\x01"}};
    span.uid = 1'000;
    span.scope = "/system.slice/x.service";
    span.received_ns = 201;
    batch.spans = {span};
    commit(*writer, batch);
    const auto rows = open_snapshot(directory_.path())->spans(0, everything);
    ASSERT_TRUE(rows) << rows.error().message;
    ASSERT_EQ(rows->size(), 1u);
    const SpanRow& back = rows->front();
    EXPECT_EQ(std::tie(back.kind, back.id, back.start_ns, back.end_ns, back.first_token_ns, back.scheduled_ns,
                       back.prompt_tokens, back.output_tokens, back.model, back.labels, back.process, back.uid,
                       back.scope, back.received_ns),
              std::tie(span.kind, span.id, span.start_ns, span.end_ns, span.first_token_ns, span.scheduled_ns,
                       span.prompt_tokens, span.output_tokens, span.model, span.labels, span.process, span.uid,
                       span.scope, span.received_ns));
}

TEST_F(AHistory, HasASpanThatIsToldAgainOnce) {
    auto writer = start();
    Batch batch;
    batch.spans = {make_span("r", 100, 200), make_span("", 100, 200), make_span("r", 100, 200)};
    commit(*writer, batch);
    commit(*writer, batch);
    const auto stored = [&] { return open_snapshot(directory_.path())->spans(0, everything)->size(); };
    EXPECT_EQ(stored(), 2u);
    writer.reset();
    writer = start();  // another session of the same boot
    commit(*writer, batch);
    EXPECT_EQ(stored(), 2u);
    std::vector<SpanRow> others(4, make_span("r", 100, 200));
    others[0].id = "s";
    others[1].end_ns++;
    others[2].kind = SpanKind::step;
    others[3].process.start_ns++;
    batch.spans = others;
    commit(*writer, batch);
    EXPECT_EQ(stored(), 6u);
}

TEST_F(AHistory, FindsSpansByWindowAndById) {
    const auto writer = start();
    Batch batch;
    batch.spans = {make_span("r", 100, 200), make_span("r2", 100, 900), make_span("r", 300, 300), make_span("", 1, 2)};
    commit(*writer, batch);
    for (SpanRow& span : batch.spans) span.process.pid++;
    commit(*writer, batch);
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_EQ(snapshot->spans(0, everything)->size(), 8u) << "rows are added, not replaced";
    EXPECT_EQ(snapshot->spans(0, {200, 300})->size(), 2u);
    EXPECT_EQ(snapshot->spans(0, {300, 301})->size(), 4u);
    EXPECT_EQ(snapshot->spans(1, everything)->size(), 0u);
    const auto found = snapshot->spans_of("r", {});
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->size(), 4u);
    EXPECT_EQ(found->back().start_ns, 300u);
    EXPECT_TRUE(snapshot->spans_of("", {})->empty());
    EXPECT_TRUE(snapshot->spans_of("r3", {})->empty());
}

TEST_F(AHistory, OfAnIncidentIsKeptInFull) {
    const auto writer = start();
    Batch batch;
    IncidentRow row;
    row.id = "0123456789abcdef";
    row.at_ns = row.opened_ns = 500;
    row.kind = "cpu-contention";
    row.severity = "high";
    row.verdict = "proven";
    row.summary = "12 ms lost";
    row.process = {10, 20};
    row.uid = 7;
    row.lost_ns = 12'000'000;
    row.explained_permille = 987;
    row.culprits = {{"stress", 99, 11}, {"\xff", 0, 1}};
    row.finding = std::string(max_finding_bytes, '{');
    batch.incidents = {row};
    commit(*writer, batch);
    row.event = IncidentEvent::closed;
    row.at_ns = 900;
    row.finding += '}';
    batch.incidents = {row};
    commit(*writer, batch);
    const auto snapshot = open_snapshot(directory_.path());
    const auto rows = snapshot->incidents(0, everything);
    ASSERT_TRUE(rows) << rows.error().message;
    ASSERT_EQ(rows->size(), 2u);
    const IncidentRow& back = rows->front();
    EXPECT_EQ(std::tie(back.id, back.kind, back.severity, back.verdict, back.summary, back.process, back.uid,
                       back.lost_ns, back.explained_permille, back.culprits),
              std::tie(row.id, row.kind, row.severity, row.verdict, row.summary, row.process, row.uid, row.lost_ns,
                       row.explained_permille, row.culprits));
    EXPECT_EQ(back.finding.size(), max_finding_bytes);
    EXPECT_EQ(rows->back().event, IncidentEvent::closed);
    EXPECT_EQ(rows->back().finding, "") << "what does not fit is left out, not cut";
    EXPECT_EQ(snapshot->incidents(0, {500, 900})->size(), 1u);
}

TEST_F(AHistory, KeepsStatesWithTheirNumbers) {
    const auto writer = start();
    Batch batch;
    batch.states = {{500, "nvml", {{"clock_mhz", 1'410}, {"watts", 61.25}}}, {500, "host", {}}};
    commit(*writer, batch);
    const auto rows = open_snapshot(directory_.path())->states(0, {500, 501});
    ASSERT_TRUE(rows);
    ASSERT_EQ(rows->size(), 2u);
    EXPECT_EQ(rows->front().values, batch.states.front().values);
    EXPECT_TRUE(open_snapshot(directory_.path())->states(0, {501, 900})->empty());
}

TEST_F(AHistory, KeepsAClockAMinuteAndSession) {
    for (int session = 0; session < 2; ++session) {
        const auto writer = start();
        for (int commits = 0; commits < 150; ++commits, pass(second)) commit(*writer, {});
    }
    const auto rows = open_snapshot(directory_.path())->clocks(0, everything);
    ASSERT_TRUE(rows);
    ASSERT_EQ(rows->size(), 6u);
    EXPECT_EQ((*rows)[0].clock.monotonic_ns, minute);
    EXPECT_EQ((*rows)[1].clock.monotonic_ns, 2 * minute);
    EXPECT_EQ((*rows)[5].session, 1u);
}

TEST_F(AHistory, IsAddedToAStoreThatHasNoTablesForIt) {
    { start(); }
    MDB_env* env = nullptr;
    ASSERT_EQ(mdb_env_create(&env), 0);
    ASSERT_EQ(mdb_env_set_maxdbs(env, 32), 0);
    ASSERT_EQ(mdb_env_open(env, directory_.path().c_str(), 0, 0600), 0);
    MDB_txn* txn = nullptr;
    ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
    for (const char* name : {"spans", "span_ids", "incidents", "snapshots", "rollups", "clocks"}) {
        MDB_dbi table = 0;
        ASSERT_EQ(mdb_dbi_open(txn, name, 0, &table), 0);
        ASSERT_EQ(mdb_drop(txn, table, 1), 0);
    }
    ASSERT_EQ(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    {
        const auto snapshot = open_snapshot(directory_.path());
        EXPECT_TRUE(snapshot->spans(0, everything)->empty());
        EXPECT_TRUE(snapshot->spans_of("r", {})->empty());
        EXPECT_TRUE(snapshot->rollups(0, everything)->empty());
    }
    const auto writer = start();
    Batch batch;
    batch.spans = {make_span("r", 1, 2)};
    commit(*writer, batch);
    EXPECT_EQ(open_snapshot(directory_.path())->spans_of("r", {})->size(), 1u);
}

/// Calls of a few ops and processes, as a program makes them: small enough that millions go through.
std::vector<Event> usual_events(uint64_t first_sequence, size_t count, uint64_t first_start_ns, uint64_t step_ns) {
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
    }
    return events;
}

struct Sums {
    uint64_t calls = 0, errors = 0, total_ns = 0, on_cpu_ns = 0, runnable_ns = 0, blocked_ns = 0, sketched = 0;
    bool operator==(const Sums&) const = default;
};
using SumsByOp = std::map<OpId, Sums>;

void add(SumsByOp& sums, const std::vector<Event>& events) {
    for (const Event& event : events) {
        const CallTime time = call_time(event);
        Sums& sum = sums[event.op];
        sum.calls += event.weight;
        sum.errors += event.return_code != 0 ? event.weight : 0;
        sum.total_ns += time.duration_ns * event.weight;
        sum.on_cpu_ns += time.on_cpu_ns * event.weight;
        sum.runnable_ns += time.runnable_ns * event.weight;
        sum.blocked_ns += time.blocked_ns * event.weight;
        sum.sketched += event.weight;
    }
}

/// Of rollups and rows together.
SumsByOp stored_sums(const StoreSnapshot& snapshot) {
    SumsByOp sums;
    const auto events = scan_all(snapshot);
    EXPECT_TRUE(events);
    add(sums, *events);
    const auto rollups = snapshot.rollups(0, everything);
    EXPECT_TRUE(rollups) << rollups.error().message;
    for (const RollupRow& row : *rollups) {
        Sums& sum = sums[row.op];
        sum.calls += row.calls;
        sum.errors += row.errors;
        sum.total_ns += row.total_ns;
        sum.on_cpu_ns += row.on_cpu_ns;
        sum.runnable_ns += row.runnable_ns;
        sum.blocked_ns += row.blocked_ns;
        sum.sketched += row.durations.count();
    }
    return sums;
}

class ARollup : public AHistory {
  protected:
    Batch next_batch(size_t count = 8'192, uint64_t step_ns = second / 100) {
        Batch batch;
        batch.events = usual_events(next_, count, now_.monotonic_ns, step_ns);
        next_ += count;
        pass(count * step_ns);
        batch.covered_until_ns = now_.monotonic_ns;
        return batch;
    }

    void fill_twice(StoreWriter& writer, SumsByOp& sums) {
        while (writer.figures().events_dropped_for_space < 1'000'000) {
            const Batch batch = next_batch();
            add(sums, batch.events);
            commit(writer, batch);
            ASSERT_TRUE(writer.tidy());
        }
    }

    uint64_t next_ = 1;
};

TEST_F(ARollup, AndTheRowsThatAreLeftCountEachCallOnce) {
    const auto writer = start();
    SumsByOp sums;
    fill_twice(*writer, sums);
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_EQ(stored_sums(*snapshot), sums);
    const auto rollups = snapshot->rollups(0, everything);
    EXPECT_EQ(rollups->front().minute_ns, minute);
    for (const RollupRow& row : *rollups) ASSERT_EQ(row.minute_ns % minute, 0u);
    const Session& session = snapshot->sessions().front();
    EXPECT_EQ(session.rolled_up_from_ns, minute);
    EXPECT_GT(session.first_covered_ns, minute + 1'000'000 * (second / 100));
}

TEST_F(ARollup, HasTheQuantilesOfItsCallsWithinItsAccuracy) {
    const auto writer = start();
    std::map<std::pair<OpId, uint32_t>, std::vector<uint64_t>> durations;
    while (writer->figures().events_dropped_for_space < 50'000) {
        const Batch batch = next_batch();
        for (const Event& event : batch.events)
            if (event.start_ns < 2 * minute)
                durations[{event.op, event.tgid}].insert(durations[{event.op, event.tgid}].end(), event.weight,
                                                         event.duration_ns);
        commit(*writer, batch);
    }
    const auto rows = open_snapshot(directory_.path())->rollups(0, {minute, 2 * minute});
    ASSERT_TRUE(rows);
    ASSERT_EQ(rows->size(), durations.size());
    for (const RollupRow& row : *rows) {
        auto& values = durations.at({row.op, row.process.pid});
        std::sort(values.begin(), values.end());
        ASSERT_EQ(row.calls, values.size());
        EXPECT_EQ(row.max_ns, values.back());
        for (const uint64_t percent : {1, 50, 95, 99}) {
            const uint64_t rank = (values.size() * percent + 99) / 100;
            const auto exact = static_cast<double>(values[rank - 1]);
            EXPECT_NEAR(static_cast<double>(row.durations.value_at_rank(rank)), exact, exact * 0.008);
        }
    }
}

TEST_F(ARollup, IsRightAfterTheWriterWasKilled) {
    constexpr int batches_a_round = 25;
    std::mt19937 random(11);
    SumsByOp sums;
    uint64_t last = 0;
    bool rolled_up = false;
    // A slow machine needs more rounds until there is something to roll up.
    for (int round = 0; round < 10 || (!rolled_up && round < 100); ++round) {
        const pid_t child = fork();
        if (child == 0) {
            const auto writer = start();
            pass(last * (second / 100));
            next_ = last + 1;
            // No more than what rollups have room for, however fast the machine is.
            for (int count = 0; count < batches_a_round; ++count) {
                if (!writer->commit(next_batch())) _exit(2);
                if (!writer->tidy()) _exit(3);
            }
            for (;;) pause();
        }
        usleep(static_cast<useconds_t>(200'000 + random() % 300'000));
        kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
        const auto snapshot = open_snapshot(directory_.path());
        ASSERT_TRUE(snapshot);
        const uint64_t reached = snapshot->figures().last_sequence;
        for (; last < reached; last += 8'192) add(sums, usual_events(last + 1, 8'192, 0, 1));
        ASSERT_EQ(last, reached);
        const auto kept = snapshot->rollups(0, everything);
        rolled_up = !kept->empty();
        ASSERT_TRUE(!rolled_up || kept->front().minute_ns == minute) << "so many that the first had to go";
        ASSERT_EQ(stored_sums(*snapshot), sums) << "round " << round;
    }
    EXPECT_TRUE(rolled_up) << "the load was too small";
}

TEST_F(ARollup, TellsTheProcessesOfACrowdedMinuteTogether) {
    const auto writer = start();
    SumsByOp sums;
    while (writer->figures().events_dropped_for_space < 100'000) {
        Batch batch = next_batch(4'000, 1'000);
        for (Event& event : batch.events) event.tgid = static_cast<uint32_t>(1 + event.sequence);
        add(sums, batch.events);
        commit(*writer, batch);
    }
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_EQ(stored_sums(*snapshot), sums);
    EXPECT_EQ(snapshot->rollups(0, everything)->size(), max_rollup_rows + 5);
}

TEST_F(ARollup, TellsOfLossesAndOfTheUser) {
    const auto writer = start();
    Batch first = next_batch();
    const uint64_t at = first.events.front().start_ns;
    first.losses = {{.from_ns = at, .to_ns = at + second, .op = 0x103, .lost_ring = 5, .thinned = 3},
                    {.from_ns = at + second, .to_ns = at + 2 * second, .op = 0x103, .lost_depth = 1}};
    first.processes = {
        {.key = {10, 77}, .uid = 1'234, .comm = "x", .cgroup = "", .unit = "", .first_seen_ns = 1, .exited_ns = 2}};
    commit(*writer, first);
    SumsByOp sums;
    fill_twice(*writer, sums);
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_TRUE(snapshot->losses(0, everything)->empty());
    uint64_t lost = 0, thinned = 0;
    const auto rollups = snapshot->rollups(0, everything);
    for (const RollupRow& row : *rollups) {
        lost += row.lost;
        thinned += row.thinned;
        if (row.minute_ns == minute && row.process.pid != 0) {
            EXPECT_EQ(row.uid, row.process.pid == 10 ? 1'234 : UINT32_MAX);
        }
    }
    EXPECT_EQ(lost, 6u);
    EXPECT_EQ(thinned, 3u);
}

TEST_F(ARollup, ReplacesCallsThatAreTooOld) {
    options_.max_age_ns = 30 * minute;
    options_.max_rollup_age_ns = 120 * minute;
    const auto writer = start();
    SumsByOp sums;
    for (int round = 0; round < 60; ++round) {
        Batch batch = next_batch(600, second / 10);
        batch.spans = {make_span("r" + std::to_string(round), batch.events.front().start_ns, now_.monotonic_ns)};
        add(sums, batch.events);
        commit(*writer, batch);
    }
    {
        const auto snapshot = open_snapshot(directory_.path());
        EXPECT_EQ(stored_sums(*snapshot), sums);
        EXPECT_NEAR(static_cast<double>(scan_all(*snapshot)->size()), 30 * 600, 2 * 600);
        EXPECT_NEAR(static_cast<double>(snapshot->spans(0, everything)->size()), 30, 2);
        EXPECT_TRUE(snapshot->spans_of("r0", {})->empty());
        EXPECT_EQ(snapshot->spans_of("r59", {})->size(), 1u);
        EXPECT_NEAR(static_cast<double>(snapshot->rollups(0, everything)->back().minute_ns), 31.0 * minute,
                    2.0 * minute);
    }
    EXPECT_EQ(writer->figures().events_dropped_for_space, 0u) << "age is not space";
    for (int round = 0; round < 100; ++round, pass(minute)) commit(*writer, {});
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_TRUE(scan_all(*snapshot)->empty());
    const auto rollups = snapshot->rollups(0, everything);
    ASSERT_FALSE(rollups->empty());
    EXPECT_NEAR(static_cast<double>(rollups->front().minute_ns), static_cast<double>(now_.monotonic_ns - 120 * minute),
                2.0 * minute);
    EXPECT_GE(snapshot->clocks(0, everything)->front().clock.monotonic_ns, rollups->front().minute_ns - minute);
    EXPECT_LE(snapshot->sessions().front().rolled_up_from_ns, rollups->front().minute_ns);
    EXPECT_GT(snapshot->sessions().front().rolled_up_from_ns, rollups->front().minute_ns - 2 * minute);
}

TEST_F(ARollup, OfEarlierBootsAgesByTheWallClock) {
    options_.max_age_ns = 30 * minute;
    options_.max_rollup_age_ns = 60 * minute;
    {
        const auto writer = start("boot-a");
        for (int round = 0; round < 10; ++round) commit(*writer, next_batch(600, second / 10));
    }
    now_.monotonic_ns = now_.boottime_ns = second;
    now_.realtime_ns += 25 * minute;
    const auto writer = start("boot-b");
    commit(*writer, {});
    EXPECT_NEAR(static_cast<double>(scan_all(*open_snapshot(directory_.path()))->size()), 5 * 600, 600);
    pass(10 * minute);
    commit(*writer, {});
    EXPECT_TRUE(scan_all(*open_snapshot(directory_.path()))->empty());
    EXPECT_EQ(open_snapshot(directory_.path())->rollups(0, everything)->size(), 10u * 15);
    pass(60 * minute);
    commit(*writer, {});
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_TRUE(snapshot->rollups(0, everything)->empty());
    ASSERT_EQ(snapshot->sessions().size(), 1u) << "nothing tells of the first session any more";
    EXPECT_EQ(snapshot->sessions().front().boot_id, "boot-b");
}

TEST_F(ARollup, AnswersStatisticsOfCallsThatHaveGone) {
    const ClockTriple begun = now_;
    const auto writer = start();
    SumsByOp all, early;
    std::map<OpId, std::vector<uint64_t>> durations;
    while (writer->figures().events_dropped_for_space < 500'000) {
        Batch batch = next_batch();
        add(all, batch.events);
        commit(*writer, batch);
        std::erase_if(batch.events, [](const Event& event) { return event.start_ns >= 11 * minute; });
        add(early, batch.events);
        for (const Event& event : batch.events)
            durations[event.op].insert(durations[event.op].end(), event.weight, event.duration_ns);
    }
    const auto snapshot = open_snapshot(directory_.path());
    const auto stats = [&](Window realtime, Filter filter = {}, StatsBy by = StatsBy::op) {
        filter.window = realtime;
        auto answer = compute_stats(*snapshot, filter, by);
        EXPECT_TRUE(answer);
        return answer ? std::move(*answer) : StatsAnswer{};
    };
    const auto sums = [](const StatsAnswer& answer) {
        SumsByOp result;
        for (const OpStats& op : answer.ops) {
            Sums& sum = result[op.op];
            sum.calls += op.count;
            sum.sketched += op.count;
            sum.errors += op.errors;
            sum.total_ns += op.total_ns;
            sum.on_cpu_ns += op.on_cpu_ns + op.device_wait_ns;
            sum.runnable_ns += op.runnable_ns;
            sum.blocked_ns += op.blocked_ns;
        }
        return result;
    };
    const uint64_t wall = begun.realtime_ns;
    const Window first_minutes{wall, wall + 10 * minute};
    const StatsAnswer gone = stats(first_minutes);
    EXPECT_EQ(sums(gone), early);
    EXPECT_FALSE(gone.coverage.complete);
    ASSERT_EQ(gone.coverage.gaps.size(), 1u);
    EXPECT_TRUE(gone.coverage.gaps[0].partial);
    EXPECT_EQ(gone.coverage.gaps[0].reason, "rolled-up: whole minutes");
    EXPECT_EQ(gone.coverage.gaps[0].to_ns, wall + 10 * minute);
    ASSERT_EQ(gone.ops.size(), 15u);
    for (const OpStats& op : gone.ops) {
        EXPECT_TRUE(op.approximate);
        auto& values = durations.at(op.op);
        std::sort(values.begin(), values.end());
        const auto exact = static_cast<double>(values[(values.size() * 95 + 99) / 100 - 1]);
        EXPECT_NEAR(static_cast<double>(op.p95_ns), exact, exact * 0.03) << "of one process of three";
        EXPECT_LE(op.p99_ns, op.max_ns);
    }
    const StatsAnswer whole = stats({wall - minute, now_.realtime_ns});
    EXPECT_EQ(sums(whole), all) << "rows and rollups together";
    EXPECT_FALSE(whole.coverage.gaps.front().partial) << "before the first record";
    // What is still there in rows alone is answered by them alone.
    const Window rest = whole_trace(*snapshot);
    const StatsAnswer exact = stats(rest);
    EXPECT_TRUE(exact.coverage.gaps.empty());
    uint64_t calls = 0;
    const Session& session = snapshot->sessions().front();
    const auto left = scan_all(*snapshot, 0, {session.first_covered_ns, session.last_covered_ns});
    for (const Event& event : *left) calls += event.weight;
    uint64_t counted = 0;
    for (const OpStats& op : exact.ops) counted += op.count;
    EXPECT_EQ(counted, calls);
    EXPECT_TRUE(stats(first_minutes, {.window = {}, .uid = 5, .pid = {}}).ops.empty()) << "nobody knows whose they are";
    EXPECT_EQ(stats(first_minutes, {.window = {}, .uid = {}, .pid = 11}).ops.size(), 5u);
    const StatsAnswer by_kernel = stats(first_minutes, {}, StatsBy::kernel);
    EXPECT_TRUE(by_kernel.ops.empty());
    EXPECT_FALSE(by_kernel.coverage.gaps.front().partial);
}

TEST_F(ARollup, NeverTakesMoreThanItsShare) {
    const auto writer = start();
    for (int round = 0; round < 900; ++round) {
        Batch batch = next_batch(2'000, second / 20);
        for (Event& event : batch.events) event.tgid = static_cast<uint32_t>(1 + event.sequence % 900);
        commit(*writer, batch);
        ASSERT_LE(std::filesystem::file_size(directory_.data_file()), cap);
    }
    const auto snapshot = open_snapshot(directory_.path());
    const auto rollups = snapshot->rollups(0, everything);
    ASSERT_TRUE(rollups);
    uint64_t bytes = 0;
    for (const RollupRow& row : *rollups) bytes += encode_row(row).size();
    EXPECT_LT(bytes, cap / 4);
    EXPECT_GT(bytes, cap / 16);
    EXPECT_GT(snapshot->sessions().front().rolled_up_from_ns, 2 * minute) << "the oldest went";
    EXPECT_GT(scan_all(*snapshot)->size(), 100'000u) << "calls keep theirs";
}

TEST_F(AHistory, GoesWhereNoCallIsLeftToGoAndIncidentsGoLast) {
    const auto writer = start();
    Batch batch;
    IncidentRow incident;
    incident.id = "first";
    incident.at_ns = 5;
    batch.incidents = {incident};
    commit(*writer, batch);
    batch.incidents.clear();
    uint64_t written = 0;
    while (written < 3 * cap) {
        batch.spans.clear();
        for (int i = 0; i < 500; ++i) {
            SpanRow span =
                make_span(std::to_string(written + static_cast<uint64_t>(i)), now_.monotonic_ns, now_.monotonic_ns);
            span.model.assign(1'000, 'x');
            batch.spans.push_back(std::move(span));
        }
        written += 500 * 1'100;
        pass(second);
        commit(*writer, batch);
        ASSERT_LE(std::filesystem::file_size(directory_.data_file()), cap);
    }
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_EQ(snapshot->incidents(0, everything)->size(), 1u);
    EXPECT_TRUE(snapshot->spans_of("0", {})->empty());
    const auto spans = snapshot->spans(0, everything);
    ASSERT_FALSE(spans->empty());
    for (const SpanRow& span : *spans) ASSERT_EQ(snapshot->spans_of(span.id, {})->size(), 1u);
}

TEST_F(AHistory, OfSpansGoesBeforeAnyCallWhereTheyHaveMoreThanTheirShare) {
    const auto writer = start();
    Batch batch;
    uint64_t sequence = 0;
    for (int i = 0; i < 10'000; ++i) batch.events.push_back(make_event(++sequence, now_.monotonic_ns, 100));
    commit(*writer, batch);
    batch.events.clear();
    uint64_t spans = 0;
    // Each as long as it may be, so that none ends before the calls do.
    for (uint64_t written = 0; written < 2 * cap; written += 500 * 1'100) {
        batch.spans.clear();
        pass(second);
        for (int i = 0; i < 500; ++i) {
            batch.spans.push_back(make_span(std::to_string(++spans), now_.monotonic_ns - minute, now_.monotonic_ns));
            batch.spans.back().model.assign(1'000, 'x');
        }
        commit(*writer, batch);
        ASSERT_LE(std::filesystem::file_size(directory_.data_file()), cap);
    }
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_EQ(scan_all(*snapshot)->size(), 10'000u);
    EXPECT_EQ(writer->figures().events_dropped_for_space, 0u);
    const auto left = snapshot->spans(0, everything);
    EXPECT_EQ(left->size() + writer->figures().spans_dropped_for_space, spans);
    EXPECT_GT(left->size() * 1'000, cap / 5) << "their share is theirs";
    EXPECT_EQ(left->back().id, std::to_string(spans)) << "the newest stay";
}

TEST_F(AHistory, OfStatesGoesBeforeAnyCallWhereTheyHaveMoreThanTheirShare) {
    const auto writer = start();
    Batch batch;
    uint64_t sequence = 0;
    for (int i = 0; i < 10'000; ++i) batch.events.push_back(make_event(++sequence, now_.monotonic_ns, 100));
    commit(*writer, batch);
    batch.events.clear();
    uint64_t states = 0;
    for (uint64_t written = 0; written < 2 * cap; written += 500 * 1'100) {
        batch.states.clear();
        pass(second);
        for (int i = 0; i < 500; ++i) {
            StateRow state{.time_ns = now_.monotonic_ns, .source = "gpu:x", .values = {}, .number = 0};
            state.values = {{"xid", static_cast<double>(++states)}};
            state.texts = {{"name", std::string(1'000, 'x')}};
            batch.states.push_back(std::move(state));
        }
        commit(*writer, batch);
        ASSERT_LE(std::filesystem::file_size(directory_.data_file()), cap);
    }
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_EQ(scan_all(*snapshot)->size(), 10'000u);
    EXPECT_EQ(writer->figures().events_dropped_for_space, 0u);
    const auto left = snapshot->states(0, everything);
    EXPECT_EQ(left->size() + writer->figures().states_dropped_for_space, states);
    EXPECT_GT(left->size() * 1'000, cap / 10) << "their share is theirs";
    EXPECT_EQ(left->back().values[0].second, states) << "the newest stay";
}

TEST_F(AHistory, OfStatesIsToldOneByOneWithoutBeingDecoded) {
    const auto writer = start();
    Batch batch;
    for (uint64_t i = 1; i <= 3; ++i)
        batch.states.push_back({.time_ns = i * second, .source = "s" + std::to_string(i), .values = {{"xid", 1.5}}});
    commit(*writer, batch);
    const auto snapshot = open_snapshot(directory_.path());
    std::vector<StateRow> told;
    const auto visit = [&](const StateHead& head) {
        EXPECT_EQ(head.source, "s" + std::to_string(head.time_ns / second));
        told.push_back(*read_state(head));
        return told.size() < 2;
    };
    ASSERT_TRUE(snapshot->scan_states(0, {2 * second, 4 * second}, visit));
    ASSERT_EQ(told.size(), 2u) << "in the window, until it is said to be enough";
    EXPECT_EQ(told[0].source, "s2");
    EXPECT_EQ(told[0].values, batch.states[1].values);
    EXPECT_EQ(told[0].number, (*snapshot->states(0, everything))[1].number);
    told.clear();
    ASSERT_TRUE(snapshot->scan_states(1, everything, visit));
    EXPECT_TRUE(told.empty()) << "of another boot";
}

TEST(QuantileSketch, AddsUpAndComesBackFromItsBytes) {
    std::mt19937_64 random(4);
    QuantileSketch all, a, b;
    for (int i = 0; i < 10'000; ++i) {
        const uint64_t value = random() >> random() % 64;
        const uint64_t times = 1 + random() % 1'000;
        all.add(value, times);
        (i % 3 ? a : b).add(value, times);
    }
    a.add(b);
    EXPECT_EQ(a, all);
    const auto back = QuantileSketch::decode(all.encode());
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, all);
    all.add(UINT64_MAX, UINT64_MAX);
    EXPECT_EQ(all.count(), UINT64_MAX);
    EXPECT_EQ(QuantileSketch::decode(all.encode()), all);
}

TEST(QuantileSketch, IsNotMadeOfBytesThatAreNone) {
    const auto is_one = [](std::string_view bytes) { return QuantileSketch::decode(bytes).has_value(); };
    EXPECT_TRUE(is_one(""));
    EXPECT_TRUE(is_one(std::string_view("\x00\x01", 2)));
    EXPECT_FALSE(is_one(std::string_view("\x00\x01\x00\x01", 4))) << "the same bucket again";
    EXPECT_FALSE(is_one(std::string_view("\x05\x00", 2))) << "an empty bucket";
    EXPECT_FALSE(is_one("\x05")) << "cut short";
    EXPECT_FALSE(is_one("\xff\x7f\x01")) << "no such bucket";
    EXPECT_FALSE(is_one(std::string_view("\x85\x00\x01", 3))) << "not the shortest form";
    EXPECT_FALSE(is_one("\x05\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")) << "more than 64 bits";
}

}  // namespace
}  // namespace ingero
