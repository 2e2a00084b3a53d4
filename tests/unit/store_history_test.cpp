// Spans, incidents, state and clocks: what the store keeps besides calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lmdb.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "core/model/call_time.h"
#include "core/query/answers/stats.h"
#include "core/store/rows/rows.h"
#include "tests/unit/history_fixture.h"

namespace ingero {
namespace {

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
    const auto is_r2 = [](const SpanRow& span) { return span.id == "r2"; };
    EXPECT_EQ(snapshot->spans(0, {200, 300}, is_r2)->size(), 2u);
    EXPECT_EQ(snapshot->spans(0, {1, 3}, is_r2)->size(), 0u);
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
