// Incidents as a store tells of them: their latest state, the rows around the worst of them, whether they are over; and
// what changed from one window to another.
#include "core/diagnosis/incidents/incident_history.h"

#include <gmock/gmock.h>

#include <random>

#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/render/incidents.h"
#include "tests/support/memory_snapshot.h"
#include "tests/unit/ranks_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t us = 1'000, ms = 1'000 * us, second = 1'000 * ms;
constexpr uint32_t python = 123, hog = 777;
constexpr uint64_t epoch = MemorySnapshot::realtime_at_zero_ns;

class History : public MemorySnapshot {
  public:
    using MemorySnapshot::MemorySnapshot;
    Result<std::vector<IncidentRow>> incidents(uint32_t, Window) const override { return rows; }
    std::vector<IncidentRow> rows;
};

class IncidentHistoryTest : public testing::Test {
  protected:
    explicit IncidentHistoryTest(uint64_t covered_ns = 1'000 * second) : snapshot_(covered_ns) { add_process(python); }

    void add_process(uint32_t pid, uint32_t uid = 1'000, uint64_t exited_ns = 0) {
        Process row;
        row.key = {pid, 5};
        row.uid = uid;
        row.comm = "python";
        row.exited_ns = exited_ns;
        snapshot_.add(row);
    }
    Event& call(uint64_t on_cpu_ns, uint32_t pid = python) {
        Event event;
        event.op = *op_of_name("cudaLaunchKernel");
        event.tgid = event.tid = pid;
        event.process_start_ns = 5;
        event.start_ns = now_ + ms;
        event.duration_ns = on_cpu_ns;
        now_ = event.end_ns();
        return snapshot_.add(event);
    }
    /// Of launches, every tenth is held up.
    void run(uint64_t for_ns, uint64_t held_up_ns, uint32_t pid = python) {
        const uint64_t until_ns = now_ + for_ns;
        for (int i = 0; now_ < until_ns; ++i) {
            Event& event = call(std::uniform_int_distribution<uint64_t>(9 * us, 11 * us)(random_), pid);
            if (held_up_ns == 0 || i % 10 != 0) continue;
            event.duration_ns += held_up_ns;
            event.runnable_ns = event.preempted_ns = event.preemptor_ns = held_up_ns;
            event.preemptor_tgid = hog;
            event.preemptor_comm = to_comm("stress-hog");
            now_ += held_up_ns;
            if (held_up_ns > worst_.duration_ns) worst_ = event;
            latest_held_up_ = event.sequence;
        }
    }
    void add(IncidentEvent event, const std::string& id, uint64_t at_ns, uint64_t lost_ns,
             const std::string& kind = "cpu-contention", uint32_t uid = 1'000) {
        IncidentRow row;
        row.id = id;
        row.event = event;
        row.at_ns = at_ns;
        row.opened_ns = opened_ns_;
        row.kind = kind;
        row.severity = "high";
        row.verdict = "proven";
        row.summary = "stress-hog ran";
        row.process = {python, 5};
        row.uid = uid;
        row.lost_ns = lost_ns;
        row.culprits = {{"stress-hog", hog, lost_ns}};
        row.finding = finding_.dump();
        snapshot_.rows.push_back(row);
    }
    /// Held up for 10 s, which is an incident, and then well.
    void incident_that_is_over() {
        run(10 * second, 5 * ms);
        finding_ = {{"confirm", "look again"},
                    {"window_share", 0.4},
                    {"evidence", {worst_.sequence, latest_held_up_}},
                    {"worst",
                     {{"call", worst_.sequence},
                      {"tid", worst_.tid},
                      {"from_ns", worst_.start_ns},
                      {"to_ns", worst_.end_ns()}}}};
        opened_ns_ = 2 * second;
        add(IncidentEvent::opened, "abcd000000000001", 2 * second, second);
        add(IncidentEvent::updated, "abcd000000000001", 5 * second, 2 * second);
        add(IncidentEvent::closed, "abcd000000000001", now_, 4 * second);
    }
    Filter filter(std::optional<uint32_t> uid = {}) const {
        return {.window = {epoch, epoch + now_}, .uid = uid, .pid = {}};
    }
    IncidentHistory found(const std::string& id) {
        auto one = find_incident(snapshot_, filter(), id);
        EXPECT_TRUE(one) << one.error().message;
        return one ? std::move(*one) : IncidentHistory();
    }
    IncidentVerified verified() {
        auto answer = verify_incident(snapshot_, filter(), found("abcd"), {epoch, epoch + now_});
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? std::move(*answer) : IncidentVerified();
    }

    History snapshot_;
    uint64_t now_ = second, opened_ns_ = 0;
    uint64_t latest_held_up_ = 0;
    Event worst_;
    json finding_ = json::object();
    std::mt19937_64 random_{3};
};

TEST_F(IncidentHistoryTest, FindingsNameTheLatestIncidentOfTheirKindAndProcessThatTheCallerMaySee) {
    add(IncidentEvent::opened, "abcd000000000001", 2 * second, second);
    add(IncidentEvent::closed, "abcd000000000001", 3 * second, second);
    add(IncidentEvent::opened, "abcd000000000002", 4 * second, second);
    add(IncidentEvent::opened, "abcd000000000003", 5 * second, second, "lock-wait");
    add(IncidentEvent::opened, "abcd000000000004", 6 * second, second, "own-io-wait", 1'001);
    const auto id_of = [&](const std::string& kind, uint32_t pid) {
        std::vector<Finding> findings(1);
        findings[0].kind = kind;
        findings[0].worst.event.tgid = pid;
        findings[0].worst.event.process_start_ns = 5;
        name_incidents(snapshot_, filter(1'000), findings);
        return findings[0].incident_id;
    };
    EXPECT_EQ(id_of("cpu-contention", python), "abcd000000000002");
    EXPECT_EQ(id_of("lock-wait", python), "abcd000000000003");
    EXPECT_EQ(id_of("own-io-wait", python), "") << "another user's";
    EXPECT_EQ(id_of("cpu-contention", hog), "") << "another process's";
    EXPECT_EQ(id_of("memory-reclaim", python), "");
}

TEST_F(IncidentHistoryTest, AnIncidentIsAsItsLatestRowHasIt) {
    incident_that_is_over();
    add(IncidentEvent::opened, "abce000000000002", 3 * second, 9 * second);
    add(IncidentEvent::opened, "ffff000000000003", 3 * second, 99 * second, std::string(imported_finding));
    const auto all = read_incidents(snapshot_, filter());
    ASSERT_TRUE(all);
    ASSERT_THAT(*all, SizeIs(2));
    EXPECT_EQ((*all)[0].latest.id, "abce000000000002") << "the most lost time comes first";
    EXPECT_FALSE((*all)[0].closed_ns);
    const IncidentHistory& over = (*all)[1];
    EXPECT_EQ(over.latest.lost_ns, 4 * second);
    EXPECT_EQ(over.opened_ns, epoch + 2 * second);
    EXPECT_TRUE(over.closed_ns);
    EXPECT_EQ(over.comm, "python");
    ASSERT_THAT(over.steps, SizeIs(3));
    EXPECT_EQ(over.steps[1].lost_ns, 2 * second);
    const auto before = read_incidents(snapshot_, {.window = {epoch, epoch + second}, .uid = {}, .pid = {}});
    ASSERT_TRUE(before);
    EXPECT_THAT(*before, IsEmpty());
}

// Nobody tells of its end.
TEST_F(IncidentHistoryTest, OneThatWasOpenWhenItsDaemonEndedIsOverSinceThen) {
    const auto closed_of_both = [&] {
        std::map<std::string, std::optional<uint64_t>> closed;
        const auto all = read_incidents(snapshot_, filter());
        for (const IncidentHistory& one : *all) closed[one.latest.id] = one.closed_ns;
        return std::pair(closed["abcd000000000001"], closed["abcd000000000002"]);
    };
    add(IncidentEvent::opened, "abcd000000000001", 2 * second, second);
    EXPECT_EQ(closed_of_both().first, std::nullopt);
    snapshot_.add_session(4 * second, 60 * second);
    add(IncidentEvent::opened, "abcd000000000002", 5 * second, second);
    const auto [first, second_one] = closed_of_both();
    EXPECT_EQ(first, epoch + 4 * second);
    EXPECT_EQ(second_one, std::nullopt);
}

TEST_F(IncidentHistoryTest, OneIsFoundByItsFirstDigitsAndOnlyByWhoMaySeeIt) {
    incident_that_is_over();
    add(IncidentEvent::opened, "abce000000000002", 3 * second, 9 * second);
    EXPECT_EQ(found("abcd").latest.id, "abcd000000000001");
    EXPECT_EQ(find_incident(snapshot_, filter(), "abc").error().code, ErrorCode::bad_request);
    EXPECT_EQ(find_incident(snapshot_, filter(), "x").error().code, ErrorCode::not_found);
    EXPECT_EQ(find_incident(snapshot_, filter(), "").error().code, ErrorCode::not_found);
    EXPECT_TRUE(find_incident(snapshot_, filter(1'000), "abcd"));
    EXPECT_EQ(find_incident(snapshot_, filter(1'001), "abcd").error().code, ErrorCode::not_found);
}

TEST_F(IncidentHistoryTest, TheRowsAroundTheWorstAndTheEvidenceAreShown) {
    incident_that_is_over();
    Event wait = worst_;
    wait.op = op_wait;
    wait.sequence = 0;
    wait.depth = 1;
    snapshot_.add(wait);
    const auto detail = read_incident_detail(snapshot_, filter(), found("abcd"));
    ASSERT_TRUE(detail);
    EXPECT_LE(detail->around.from_ns, worst_.start_ns);
    EXPECT_GE(detail->around.to_ns, worst_.end_ns());
    ASSERT_THAT(detail->rows, testing::Contains(testing::Field(&Event::sequence, worst_.sequence)));
    EXPECT_LT(detail->rows.size(), 20u);
    EXPECT_THAT(detail->evidence, SizeIs(2));
    ASSERT_THAT(detail->chains, SizeIs(1));
    const json told = incident_json(found("abcd"), *detail, {}, {});
    EXPECT_EQ(told["detail_from"], "store");
    EXPECT_FALSE(told["finding"].contains("worst"));
    EXPECT_THAT(text_incident(told), testing::AllOf(HasSubstr("Around the worst of it"), HasSubstr("stress-hog"),
                                                    HasSubstr("Evidence"), HasSubstr("closed, 4 s lost by then")));
}

TEST_F(IncidentHistoryTest, FunctionsHaveTheirNames) {
    finding_ = {{"culprits", json::array({{{"name", "function 0x1a2b"}, {"ns", 0}, {"pid", nullptr}},
                                          {{"name", "function 0x1a2c"}, {"ns", 0}, {"pid", nullptr}},
                                          {{"name", "function 0x1a2bz"}, {"ns", 0}, {"pid", nullptr}}})}};
    add(IncidentEvent::opened, "abcd000000000001", 2 * second, second, "device-fault");
    snapshot_.rows.back().culprits = {{"function 0x1a2b", 0, 0}};
    snapshot_.add(FunctionRow{.process = {python, 5}, .handle = 0x1a2b, .name = "_Z4gemmPf"});
    snapshot_.add(FunctionRow{.process = {hog, 5}, .handle = 0x1a2c, .name = "another_process"});
    const IncidentHistory incident = found("abcd");
    EXPECT_EQ(incident.latest.culprits.at(0).name, "gemm(float*)");
    EXPECT_EQ(incident.finding["culprits"][0]["name"], "gemm(float*)");
    EXPECT_EQ(incident.finding["culprits"][1]["name"], "function 0x1a2c");
    EXPECT_EQ(incident.finding["culprits"][2]["name"], "function 0x1a2bz");
    EXPECT_THAT(text_incident(incident_json(incident, {}, {}, {})), HasSubstr("Culprits    gemm(float*)\n"));
}

TEST_F(IncidentHistoryTest, WhatWasWrittenAgainIsNoNews) {
    incident_that_is_over();
    add(IncidentEvent::updated, "abce000000000002", 3 * second, second);
    add(IncidentEvent::updated, "abce000000000002", 4 * second, second);
    add(IncidentEvent::updated, "abce000000000002", 5 * second, 2 * second);
    add(IncidentEvent::closed, "abce000000000002", 6 * second, 2 * second);
    const std::string text = text_incident(incident_json(found("abce"), {}, {}, {}));
    EXPECT_EQ(text.find("updated, 1 s lost"), text.rfind("updated, 1 s lost"));
    EXPECT_THAT(text, testing::AllOf(HasSubstr("updated, 1 s lost by then\n"), HasSubstr("updated, 2 s lost by then\n"),
                                     HasSubstr("closed, 2 s lost by then\n")));
}

TEST_F(IncidentHistoryTest, WhereTheCallsHaveGoneWhatWasKeptIsShown) {
    incident_that_is_over();
    const auto detail = read_incident_detail(snapshot_, filter(), found("abcd"));
    ASSERT_TRUE(detail);
    const json kept = detail_json(*detail, found("abcd").boot.clock);
    json finding = finding_;
    finding["detail"] = kept;
    snapshot_.rows.back().finding = finding.dump();
    snapshot_.events().clear();
    const auto none = read_incident_detail(snapshot_, filter(), found("abcd"));
    ASSERT_TRUE(none);
    EXPECT_TRUE(none->is_empty());
    const json told = incident_json(found("abcd"), *none, {}, {});
    EXPECT_EQ(told["detail_from"], "incident");
    EXPECT_EQ(told["detail"], kept);
    EXPECT_THAT(text_incident(told), HasSubstr("as kept with the incident"));
}

TEST_F(IncidentHistoryTest, OneIsFixedWhereTheProgramIsWellSince) {
    incident_that_is_over();
    run(20 * second, 0);
    const IncidentVerified answer = verified();
    EXPECT_EQ(answer.fixed, Fixed::yes) << answer.why;
    EXPECT_GT(answer.calls, 1'000u);
    EXPECT_EQ(answer.share_before, 0.4);
}

TEST_F(IncidentHistoryTest, OneIsFixedWhereLittleOfItIsLeft) {
    incident_that_is_over();
    run(10 * second, 0);
    run(150 * ms, 5 * ms);
    run(10 * second, 0);
    const IncidentVerified answer = verified();
    EXPECT_GT(answer.lost_ns, 10 * ms);
    EXPECT_EQ(answer.fixed, Fixed::yes) << answer.why;
    EXPECT_THAT(answer.why, HasSubstr("little cpu-contention"));
}

TEST_F(IncidentHistoryTest, OneIsFixedWhereTheProgramIsWellAsAnotherProcess) {
    incident_that_is_over();
    add_process(200);
    run(20 * second, 0, 200);
    EXPECT_EQ(verified().fixed, Fixed::yes);
}

TEST_F(IncidentHistoryTest, OneIsNotFixedWhereItComesBackInAnotherProcess) {
    incident_that_is_over();
    add_process(200);
    run(20 * second, 5 * ms, 200);
    const IncidentVerified answer = verified();
    EXPECT_EQ(answer.fixed, Fixed::no);
    EXPECT_GT(answer.share, 0.1);
    EXPECT_THAT(answer.why, HasSubstr("stress-hog"));
}

TEST_F(IncidentHistoryTest, NothingIsSaidOfItWhereTheProgramDidLittleOrNothingSince) {
    incident_that_is_over();
    EXPECT_EQ(verified().fixed, Fixed::not_known);
    run(second, 0);
    EXPECT_EQ(verified().fixed, Fixed::not_known);
    add_process(200, 1'001);
    run(20 * second, 0, 200);
    EXPECT_EQ(verified().fixed, Fixed::yes) << "20 s later, its own calls of a second count";
}

class ShownOnce : public IncidentHistoryTest {
  protected:
    ShownOnce() : IncidentHistoryTest(20'000 * second) {}

    /// Of python, once it has run for so long; over a second later.
    void incident_of(const std::string& kind, uint64_t after_ns = 600 * second) {
        now_ = opened_ns_ = after_ns;
        finding_ = {{"window_share", 1e-5}};
        add(IncidentEvent::opened, "abcd000000000001", now_, 0, kind);
        now_ += second;
        add(IncidentEvent::closed, "abcd000000000001", now_, 0, kind);
    }
    /// A launch each second.
    void serve(uint64_t for_ns, uint32_t pid) {
        for (const uint64_t until_ns = now_ + for_ns; now_ < until_ns; now_ += second) call(10 * us, pid);
    }
    Event& call_to(const std::string& op, uint32_t pid, uint64_t argument) {
        Event& event = call(20 * us, pid);
        event.op = op_of_name(op).value();
        event.device = 0;
        event.args[0] = argument;
        return event;
    }
    void happens(const std::string& kind, uint32_t pid) {
        if (kind == "gpu-oom") call_to("cudaMalloc", pid, 1 << 30).return_code = 2;
        if (kind == "device-fault") call_to("cudaStreamSync", pid, 0).return_code = 700;
        if (kind != "gpu-leak") return;
        // Every tenth is kept.
        for (uint64_t number = 1; number <= 500; ++number) {
            call_to("cudaMalloc", pid, 1 << 20).args[1] = number << 20;
            if (number % 10 != 0) call_to("cudaFree", pid, number << 20);
        }
    }
};

class EachShownOnce : public ShownOnce, public testing::WithParamInterface<std::string> {};

TEST_P(EachShownOnce, IsNotFixedWhereItIsFoundAgainHoweverLittleTimeItTakes) {
    incident_of(GetParam());
    add_process(200);
    serve(700 * second, 200);
    happens(GetParam(), 200);
    const IncidentVerified answer = verified();
    EXPECT_EQ(answer.fixed, Fixed::no) << answer.why;
    EXPECT_LT(answer.share, 5e-6);
}

TEST_P(EachShownOnce, IsNotKnownToBeFixedSoonAfter) {
    incident_of(GetParam());
    add_process(200);
    run(11 * second, 0, 200);
    const IncidentVerified answer = verified();
    EXPECT_EQ(answer.fixed, Fixed::not_known);
    EXPECT_THAT(answer.why,
                AllOf(HasSubstr("the program ran for 10 min"), HasSubstr("before " + GetParam() + " showed"),
                      HasSubstr("longest run since took 11 s, and 10 min are needed")));
}

TEST_P(EachShownOnce, IsFixedWhereTheProgramHasRunForAsLongAsItHadBefore) {
    incident_of(GetParam());
    add_process(200);
    serve(601 * second, 200);
    const IncidentVerified answer = verified();
    EXPECT_EQ(answer.fixed, Fixed::yes) << answer.why;
    EXPECT_THAT(answer.why, HasSubstr("no " + GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachShownOnce, testing::Values("gpu-leak", "gpu-oom", "device-fault"),
                         [](const auto& info) {
                             std::string name = info.param;
                             std::erase(name, '-');
                             return name;
                         });

// Whatever it still calls fails.
TEST_F(ShownOnce, AProcessThatHadADeviceFaultDoesNotShowThatItIsFixed) {
    incident_of("device-fault");
    serve(700 * second, python);
    const IncidentVerified answer = verified();
    EXPECT_EQ(answer.fixed, Fixed::not_known);
    EXPECT_THAT(answer.why, HasSubstr("only 0 calls of other processes of the program"));
    add_process(200);
    serve(601 * second, 200);
    EXPECT_EQ(verified().fixed, Fixed::yes) << verified().why;
}

TEST_F(ShownOnce, TheTimeAfterTheProgramHasEndedDoesNotCount) {
    incident_of("device-fault");
    add_process(200, 1'000, now_ + 15 * second);
    run(14 * second, 0, 200);
    now_ += 700 * second;
    const IncidentVerified answer = verified();
    EXPECT_EQ(answer.fixed, Fixed::not_known);
    EXPECT_THAT(answer.why, HasSubstr("longest run since took 15 s"));
}

TEST_F(ShownOnce, AnHourIsLongEnoughHoweverLongItRanBefore) {
    incident_of("gpu-oom", 7'200 * second);
    serve(3'500 * second, python);
    const IncidentVerified answer = verified();
    EXPECT_EQ(answer.fixed, Fixed::not_known);
    EXPECT_THAT(answer.why, AllOf(HasSubstr("ran for 2 h"), HasSubstr("and 1 h are needed")));
    serve(150 * second, python);
    EXPECT_EQ(verified().fixed, Fixed::yes) << verified().why;
}

// What is learnt from reaches back to before the incident's end.
TEST_F(ShownOnce, WhatAnEndedProcessHadLeakedHasNotComeBack) {
    now_ = 600 * second;
    happens("gpu-leak", python);
    add_process(python, 1'000, now_);
    incident_of("gpu-leak", now_);
    add_process(200);
    serve(610 * second, 200);
    EXPECT_EQ(verified().fixed, Fixed::yes) << verified().why;
}

class HangOfRanks : public test::Ranks {
  protected:
    IncidentVerified verified(uint32_t rank, uint64_t opened_ns, uint64_t closed_ns, uint64_t until_ns) {
        IncidentHistory incident;
        incident.latest.kind = "nccl-hang";
        incident.latest.process = test::process_of(rank);
        incident.latest.opened_ns = opened_ns;
        incident.boot = boot_windows(snapshot_, {0, INT64_MAX}).at(0);
        incident.opened_ns = epoch + opened_ns;
        incident.closed_ns = incident.updated_ns = epoch + closed_ns;
        const auto answer = verify_incident(snapshot_, {.window = {}, .uid = {}, .pid = {}}, incident,
                                            {epoch + closed_ns, epoch + until_ns});
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? *answer : IncidentVerified();
    }
};

TEST_F(HangOfRanks, IsNotFixedWhereRanksHangAgainForALittleOfTheWindow) {
    make(3);
    for (int number = 0; number < 50; ++number) step(usual(3));
    now_ += 3'000 * second;
    last_rank_ends(3);
    const IncidentVerified answer = verified(1, 200 * ms, 500 * ms, now_ + 20 * second);
    EXPECT_EQ(answer.fixed, Fixed::no) << answer.why << ": rank 0 was first this time";
    EXPECT_LT(answer.share, 0.01);
}

TEST_F(HangOfRanks, ItsRanksThatEndAfterTheIncidentIsOverAreNoOtherHang) {
    make(3);
    for (int number = 0; number < 50; ++number) step(usual(3));
    for (uint32_t rank = 0; rank < 2; ++rank) {
        add_process(rank, now_ + 30'500 * ms);
        collective(rank, sequence_ + 1, now_ + rank * ms);
    }
    add_process(2, now_ + 5 * ms);
    const IncidentVerified answer = verified(0, now_ + 10 * second, now_ + 30 * second, now_ + 700 * second);
    EXPECT_EQ(answer.fixed, Fixed::not_known);
    EXPECT_THAT(answer.why, HasSubstr("only 0 calls"));
}

TEST_F(IncidentHistoryTest, WhatWasBeyondTheUsualSumsUpByCauseInEachGroup) {
    add_process(200);
    run(10 * second, 5 * ms);
    run(10 * second, 2 * ms, 200);
    snapshot_.events().back().flags |= INGERO_CALL_SPLIT_UNCERTAIN;
    snapshot_.events().back().duration_ns += 7 * ms;
    const auto answer = explain(snapshot_, filter(), {.slices = 4});
    ASSERT_TRUE(answer);
    EXPECT_GT(answer->excess_ns, 4 * second);
    const auto sum = [](const ExcessSums& sums) {
        uint64_t total = 0;
        for (const auto& [cause, ns] : sums.by_cause()) total += ns;
        return total;
    };
    EXPECT_EQ(sum(answer->excess), answer->excess_ns);
    EXPECT_EQ(answer->excess.by_cause().front().first, "cpu-contention");
    EXPECT_GE(answer->excess.uncertain_ns, 6 * ms);
    ASSERT_THAT(answer->by_process, SizeIs(2));
    EXPECT_EQ(answer->by_process[0].pid, python);
    EXPECT_EQ(answer->by_process[0].sums.excess_ns + answer->by_process[1].sums.excess_ns, answer->excess_ns);
    ASSERT_THAT(answer->by_gpu, SizeIs(1));
    EXPECT_EQ(answer->by_gpu[0].sums.calls, answer->calls);
    ASSERT_THAT(answer->slices, SizeIs(4));
    uint64_t excess = 0, calls = 0;
    for (const ExcessSlice& slice : answer->slices) {
        excess += slice.sums.excess_ns;
        calls += slice.sums.calls;
    }
    EXPECT_EQ(excess, answer->excess_ns);
    EXPECT_EQ(calls, answer->calls);
    const json told = to_json(*answer, {});
    EXPECT_THAT(text_excess_by_process(told), testing::AllOf(HasSubstr("python (200)"), HasSubstr("cpu-contention")));
    EXPECT_THAT(text_excess_by_gpu(told), HasSubstr("cpu-contention"));
}

class ExplainDiff : public IncidentHistoryTest {
  protected:
    json explained(uint64_t from_ns, uint64_t to_ns) {
        const auto answer =
            explain(snapshot_, {.window = {epoch + from_ns, epoch + to_ns}, .uid = {}, .pid = {}}, {.slices = 10});
        EXPECT_TRUE(answer);
        return to_json(*answer, {});
    }
    static json cause(const json& diff, const std::string& name) {
        for (const json& one : diff["causes"])
            if (one["cause"] == name) return one;
        return nullptr;
    }
};

TEST_F(ExplainDiff, WhatBeganIsTheLargestChangeAndCertain) {
    run(20 * second, 0);
    const uint64_t began_ns = now_;
    run(20 * second, 5 * ms);
    const auto diff = explain_diff(explained(0, began_ns), explained(began_ns, now_));
    ASSERT_TRUE(diff);
    const json& first = (*diff)["causes"][0];
    EXPECT_EQ(first["cause"], "cpu-contention");
    EXPECT_EQ(first["certain"], true);
    // One in ten waits 5 ms, of about 15 ms that ten take.
    EXPECT_NEAR(first["change_ns"].get<double>(), 1e9 / 3, 0.5e8);
    EXPECT_LT(first["uncertainty_ns"], 5e7);
    ASSERT_EQ((*diff)["findings_new"].size(), 1u);
    EXPECT_EQ((*diff)["findings_new"][0]["kind"], "cpu-contention");
    EXPECT_EQ((*diff)["ops"][0]["op"], "cudaLaunchKernel");
    EXPECT_EQ((*diff)["ops"][0]["certain"], true);
    EXPECT_THAT(text_explain_diff(*diff), testing::AllOf(HasSubstr("cpu-contention"), HasSubstr("worse")));
    const auto back = explain_diff(explained(began_ns, now_), explained(0, began_ns));
    EXPECT_THAT(text_explain_diff(*back), HasSubstr("better"));
    EXPECT_EQ((*back)["findings_gone"].size(), 1u);
}

TEST_F(ExplainDiff, WhatOnlyVariesIsNotCertain) {
    run(20 * second, 0);
    const uint64_t middle_ns = now_;
    run(20 * second, 0);
    const auto diff = explain_diff(explained(0, middle_ns), explained(middle_ns, now_));
    ASSERT_TRUE(diff);
    EXPECT_TRUE(cause(*diff, "cpu-contention").is_null());
    for (const json& one : (*diff)["ops"]) EXPECT_EQ(one["certain"], false) << one;
}

TEST_F(ExplainDiff, RatesAreOfTheTimeThatWasRecorded) {
    run(20 * second, 5 * ms);
    const auto whole = explained(0, now_);
    // Nine tenths of the first window lie before the recording.
    json longer = explained(0, now_);
    const uint64_t from_ns = longer["window"]["from_ns"], to_ns = longer["window"]["to_ns"];
    const uint64_t before_ns = from_ns - 9 * (to_ns - from_ns);
    const uint64_t step_ns = (from_ns - before_ns) / 90;
    for (uint64_t slice = 0; slice < 90; ++slice)
        longer["slices"].push_back({{"from_ns", before_ns + slice * step_ns},
                                    {"to_ns", before_ns + (slice + 1) * step_ns},
                                    {"excess", json::array()},
                                    {"ops", json::array()}});
    longer["window"]["from_ns"] = before_ns;
    longer["coverage"]["gaps"] = {
        {{"from_ns", before_ns}, {"to_ns", from_ns}, {"partial", false}, {"reason", nullptr}}};
    const auto diff = explain_diff(longer, whole);
    ASSERT_TRUE(diff) << diff.error().message;
    const json contention = cause(*diff, "cpu-contention");
    EXPECT_EQ(contention["a_ns"], contention["b_ns"]);
    EXPECT_EQ(contention["certain"], false);
    longer["coverage"]["gaps"][0]["to_ns"] = to_ns;
    EXPECT_FALSE(explain_diff(longer, whole)) << "nothing is known of one side";
}

TEST_F(ExplainDiff, AChangeIsTheDifferenceOfTheMeans) {
    run(20 * second, 0);
    const uint64_t middle_ns = now_;
    run(3 * second, 0);
    run(17 * second, 5 * ms);
    const auto diff = explain_diff(explained(0, middle_ns), explained(middle_ns, now_));
    ASSERT_TRUE(diff);
    ASSERT_FALSE((*diff)["ops"].empty());
    for (const json& one : (*diff)["ops"])
        EXPECT_NEAR(one["change_ns"].get<double>(), one["b_mean_ns"].get<double>() - one["a_mean_ns"].get<double>(), 1)
            << one;
}

TEST_F(ExplainDiff, AWindowWithoutCallsIsNoSide) {
    run(20 * second, 0);
    json without = explained(0, now_);
    without.erase("slices");
    EXPECT_FALSE(explain_diff(without, explained(0, now_)));
}

}  // namespace
}  // namespace ingero
