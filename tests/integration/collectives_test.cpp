// Collectives of ranks in several processes and threads: what was recorded of each call of NCCL, and of its
// communicators, is what the stand-in says of it, and a rank that is late is found in the derived waits.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "core/diagnosis/evidence/collective_waits.h"
#include "core/diagnosis/explain.h"
#include "core/model/collective.h"
#include "core/model/op.h"
#include "core/model/text/error_names.h"
#include "core/query/communicators.h"
#include "core/sql/sql.h"
#include "daemon/ingerod/probes/attach/targets.h"
#include "test_paths.h"
#include "tests/support/daemon.h"
#include "tests/support/sanitized.h"
#include "tests/support/side_by_side.h"

using namespace ingero;
using namespace ingero::test;

namespace {

class Traced : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    void trace(std::vector<std::string> arguments, const std::vector<std::string>& options = {}) {
        const std::string log = directory_ / "truth";
        arguments.insert(arguments.begin(), COLLECTIVES_PROGRAM);
        arguments.insert(arguments.end(), {"--gate", "--log", log});
        Daemon daemon(directory_ / "run", options);
        Child ranks(arguments);
        ASSERT_TRUE(ranks.wait_for_line("ready")) << ranks.errors();
        ASSERT_TRUE(daemon.wait_traced(ranks.pid()));
        const auto parent = static_cast<uint32_t>(ranks.pid());
        ranks.write_line("go");
        ASSERT_EQ(ranks.wait(), 0) << ranks.output() << ranks.errors();
        // Perf uprobes are let go one by one, and each waits for the kernel.
        daemon.process().signal(SIGTERM);
        ASSERT_EQ(daemon.process().wait(milliseconds(300'000)), 0) << daemon.process().output();
        told_ = daemon.process().output();
        truth_ = standin::GroundTruth::open(log);
        ASSERT_TRUE(truth_);
        store_ = read_store(daemon.store());
        store_directory_ = daemon.store();
        EXPECT_EQ(store_.lost(), 0u);
        communicators_ = Communicators(store_.communicators);
        for (const standin::Record& record : truth_->records())
            if (record.pid != parent) pids_.insert(record.pid);
    }

    const TemporaryDirectory directory_;
    std::optional<standin::GroundTruth> truth_;
    std::string store_directory_;
    std::string told_;  ///< by the daemon
    StoreContents store_;
    Communicators communicators_;
    std::set<uint32_t> pids_;  ///< of the ranks' processes
};

/// A communicator as the log has it.
struct Made {
    uint64_t name = 0;
    uint32_t rank = 0, ranks = 0;
};

/// One thread's communicators by handle, as the log tells of them call by call.
class Handles {
  public:
    void made(uint64_t handle, const Made& one) {
        if (handle != 0)
            by_handle_[handle] = one;
        else
            unnamed_.push_back(one);  // given out at the end of a group, or by ncclCommInitAll
    }
    const Made& of(uint64_t handle) {
        if (!by_handle_.contains(handle) && !unnamed_.empty()) {
            by_handle_[handle] = unnamed_.front();
            unnamed_.erase(unnamed_.begin());
        }
        return by_handle_[handle];
    }
    void gone(uint64_t handle) { by_handle_.erase(handle); }

  private:
    std::map<uint64_t, Made> by_handle_;
    std::vector<Made> unnamed_;
};

struct Way {
    const char* name;
    std::vector<std::string> ranks;
    std::vector<std::string> options;
};

void PrintTo(const Way& way, std::ostream* out) {
    *out << way.name;
}

class EveryCollective : public Traced, public testing::WithParamInterface<Way> {
  protected:
    void compare(const Process& row);
    void compare_communicator(const Event& event, const Made& made, const std::string& name);
    void compare_collective(const Event& event, const standin::Record& call, const std::string& name, Handles& handles);

    std::map<uint64_t, uint64_t> hashes_;  ///< of the stored communicators, by the name that the library has
    std::map<std::string, size_t> succeeded_, failed_;
    size_t collectives_ = 0;
    size_t with_one_rank_ = 0;  ///< processes
};

void EveryCollective::compare_communicator(const Event& event, const Made& made, const std::string& name) {
    const Communicator* communicator = communicators_.find(event.process(), event.args[1]);
    ASSERT_TRUE(communicator) << name;
    ASSERT_NE(communicator->row.hash, 0u) << name;
    EXPECT_EQ(hashes_.try_emplace(made.name, communicator->row.hash).first->second, communicator->row.hash) << name;
    EXPECT_EQ(communicator->rank, made.rank) << name;
    EXPECT_EQ(communicator->ranks, made.ranks) << name;
}

void EveryCollective::compare_collective(const Event& event, const standin::Record& call, const std::string& name,
                                         Handles& handles) {
    const auto collective = collective_of(event);
    ASSERT_TRUE(collective) << name;
    const uint64_t word = call.args[2];
    const auto code = [&](unsigned shift) { return static_cast<uint8_t>(word >> shift & 15); };
    EXPECT_EQ(collective->bytes, call.bytes) << name;
    EXPECT_EQ(event.stream, call.stream) << name;
    EXPECT_EQ(collective->datatype, code(0)) << name;
    EXPECT_EQ(collective->count, code(0) == 15 ? std::nullopt : std::optional<uint64_t>(call.args[0])) << name;
    const uint8_t reduction = code(4) == 15 ? INGERO_REDUCTION_NONE : std::min<uint8_t>(code(4), INGERO_REDUCTION_OWN);
    EXPECT_EQ(collective->reduction, reduction) << name;
    EXPECT_EQ(collective->group_depth, code(8)) << name;
    EXPECT_EQ(collective->nested, call.depth != 0) << name;
    EXPECT_EQ(collective->sequence, call.depth != 0 ? 0 : word >> 32) << name;
    const uint32_t other = static_cast<uint32_t>(word) >> 12;
    EXPECT_EQ((is_message(event.op) ? collective->peer : collective->root).value_or(UINT32_MAX), other - 1) << name;
    EXPECT_FALSE(is_message(event.op) ? collective->root : collective->peer) << name;
    if (call.args[1] == 0) {
        EXPECT_EQ(collective->communicator, 0u) << name;
    } else {
        compare_communicator(event, handles.of(call.args[1]), name);
    }
    ++collectives_;
}

void EveryCollective::compare(const Process& row) {
    const ProcessKey process = row.key;
    const SideBySide trace = lay_side_by_side(*truth_, store_.events, process);
    std::map<uint32_t, std::set<uint32_t>> ranks_by_size;  // of the communicators that no split made
    ASSERT_EQ(trace.events.size(), trace.calls.size());
    std::map<uint32_t, Handles> threads;
    for (size_t i = 0; i < trace.calls.size(); ++i) {
        const standin::Record& call = *trace.calls[i];
        const Event& event = trace.events[i];
        const std::string name(truth_->name(call));
        ASSERT_EQ(event.tid, call.tid) << name;
        ASSERT_EQ(event.op, *op_of_function(name)) << name;
        if (!name.starts_with("nccl")) {
            expect_same(call, name, trace.depths[i], event);
            continue;
        }
        ASSERT_EQ(event.return_code, call.result) << name;
        EXPECT_EQ(event.depth, trace.depths[i]) << name;
        EXPECT_EQ(event.weight, 1u);
        (call.result == 0 ? succeeded_ : failed_)[name]++;
        Handles& handles = threads[call.tid];
        const Made made{call.args[1], static_cast<uint32_t>(call.args[2] >> 32), static_cast<uint32_t>(call.args[2])};
        if (find_op(event.op)->op_class == OpClass::collective) {
            compare_collective(event, call, name, handles);
        } else if (name.starts_with("ncclGroup")) {
            EXPECT_EQ(event.args[2], call.args[2]) << name;
        } else if (call.result != 0) {
            EXPECT_EQ(event.args[1], 0u) << name;
        } else if (name == "ncclCommInitAll") {
            for (uint32_t rank = 0; rank < made.ranks; ++rank) {
                handles.made(rank == 0 ? call.args[0] : 0, {made.name, rank, made.ranks});
                ranks_by_size[made.ranks].insert(rank);
            }
            EXPECT_EQ(event.args[0], call.args[0]) << name;
            EXPECT_EQ(event.args[2], call.args[2]) << name;
            compare_communicator(event, {made.name, 0, made.ranks}, name);
        } else if (name == "ncclCommSplit" && made.name == 0) {
            EXPECT_EQ(event.args[1], 0u) << name;
        } else if (name.starts_with("ncclCommInit") || name == "ncclCommSplit") {
            handles.made(call.args[0], made);
            EXPECT_EQ(event.args[0], call.args[0]) << name;
            if (name != "ncclCommSplit") {
                EXPECT_EQ(event.args[2], call.args[2]) << name;
                ranks_by_size[made.ranks].insert(made.rank);
            }
            compare_communicator(event, made, name);
        } else {
            EXPECT_EQ(event.args[0], call.args[0]) << name;
            compare_communicator(event, handles.of(call.args[0]), name);
            if (name != "ncclCommFinalize") handles.gone(call.args[0]);
        }
        ASSERT_FALSE(HasFailure()) << "call " << i << " of " << trace.calls.size() << ": " << name;
    }
    ASSERT_FALSE(ranks_by_size.empty());
    const auto& [size, ranks] = *ranks_by_size.rbegin();
    const bool has_one = ranks.size() == 1;
    with_one_rank_ += has_one;
    EXPECT_EQ(row.facts.rank, has_one ? std::optional(*ranks.begin()) : std::nullopt);
    EXPECT_EQ(row.facts.world_size, has_one ? std::optional(size) : std::nullopt);
    EXPECT_EQ(row.facts.rank_source, has_one ? "nccl" : "");
}

TEST_P(EveryCollective, is_recorded_as_it_was_called) {
    auto arguments = GetParam().ranks;
    arguments.insert(arguments.begin(), "every");
    ASSERT_NO_FATAL_FAILURE(trace(arguments, GetParam().options));
    EXPECT_EQ(std::to_string(pids_.size()), GetParam().ranks.back());
    for (const uint32_t pid : pids_) {
        const std::vector<Process> rows = rows_of(store_, pid);
        ASSERT_EQ(rows.size(), 1u);
        compare(rows[0]);
        ASSERT_FALSE(HasFatalFailure()) << "process " << pid;
    }
    // No two communicators are taken for one.
    std::set<uint64_t> hashes;
    for (const auto& [name, hash] : hashes_) hashes.insert(hash);
    EXPECT_EQ(hashes.size(), hashes_.size());
    for (const std::string& name : symbol_names(Library::nccl)) {
        EXPECT_GT(succeeded_[name], 0u) << name;
        EXPECT_TRUE(failed_[name] > 0 || name == "ncclGroupStart") << name;
    }
    EXPECT_EQ(with_one_rank_, GetParam().ranks[1] == GetParam().ranks[3] ? pids_.size() : 0);
    std::cout << pids_.size() << " processes, " << hashes_.size() << " communicators, " << collectives_
              << " collectives\n";
}

INSTANTIATE_TEST_SUITE_P(of, EveryCollective,
                         testing::ValuesIn(once_under_sanitizers<Way>({
                             {"4_ranks_in_4_processes", {"--ranks", "4", "--processes", "4"}, {}},
                             {"8_ranks_in_2_processes", {"--ranks", "8", "--processes", "2"}, {}},
                             {"uprobe_multi", {"--ranks", "8", "--processes", "2"}, by_uprobe_multi},
                             {"perf_uprobes", {"--ranks", "4", "--processes", "4"}, by_perf_uprobes},
                         })),
                         name_of_parameter<Way>);

using Collectives = Traced;

TEST_F(Collectives, show_in_sql_by_communicator_rank_and_number) {
    ASSERT_NO_FATAL_FAILURE(trace({"every", "--ranks", "4", "--processes", "2"}));
    auto reader = StoreReader::open(store_directory_);
    ASSERT_TRUE(reader);
    auto snapshot = (*reader)->snapshot();
    ASSERT_TRUE(snapshot);
    auto engine = SqlEngine::open();
    ASSERT_TRUE(engine);
    const auto rows = [&](const std::string& sql) {
        SqlQuery query;
        query.sql = sql;
        const auto answer = (*engine)->run(**snapshot, query);
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? answer->rows : nlohmann::json();
    };
    // The reduce-scatter, 13 + 1 + 1: the numbers are the same on all ranks.
    EXPECT_EQ(rows("SELECT rank, nranks, seq, count, bytes, datatype, reduction, peer, root FROM collectives "
                   "WHERE op = 'ncclReduceScatter' AND error IS NULL ORDER BY rank")
                  .dump(),
              R"([[0,4,14,300,600,"float16","max",null,null],[1,4,14,301,602,"float16","max",null,null],)"
              R"([2,4,14,302,604,"float16","max",null,null],[3,4,14,303,606,"float16","max",null,null]])");
    EXPECT_EQ(rows("SELECT rank, peer, count, group_depth FROM collectives WHERE op = 'ncclSend' AND error IS NULL "
                   "AND seq = 1 ORDER BY rank")
                  .dump(),
              "[[0,1,1000,1],[1,2,1001,1],[2,3,1002,1],[3,0,1003,1]]");
    // Ranks by falling key: the halves of the first split.
    EXPECT_EQ(rows("SELECT c.color, c.key, c.rank, c.nranks FROM communicators c WHERE c.origin = 'split' AND "
                   "c.key < 0 ORDER BY 1, 2")
                  .dump(),
              "[[0,-2,0,2],[1,-3,0,2],[1,-1,1,2]]");
    EXPECT_EQ(rows("SELECT COUNT(DISTINCT communicator), COUNT(*) FROM communicators WHERE nranks = 4").dump(),
              "[[3,12]]");
    EXPECT_EQ(rows("SELECT DISTINCT error FROM collectives WHERE error IS NOT NULL").dump(),
              R"([["ncclInvalidArgument"]])");
}

TEST_F(Collectives, made_before_they_were_traced_are_found_with_their_handle_and_counted_from_then_on) {
    const std::string log = directory_ / "truth";
    Child ranks({COLLECTIVES_PROGRAM, "loop", "--ranks", "2", "--processes", "1", "--steps", "1000000", "--log", log,
                 "--gate"});
    ASSERT_TRUE(ranks.wait_for_line("ready"));
    ranks.write_line("go");
    const auto first = [&]() -> std::optional<uint32_t> {
        const auto truth = standin::GroundTruth::open(log);
        if (!truth) return std::nullopt;
        for (const standin::Record& record : truth->records())
            if (truth->name(record) == "ncclAllReduce") return record.pid;
        return std::nullopt;
    };
    std::optional<uint32_t> pid;
    for (Patience limit; !pid && limit.lasts();) pid = first();
    ASSERT_TRUE(pid);
    Daemon daemon(directory_ / "run");
    ASSERT_TRUE(daemon.wait_traced(static_cast<int>(*pid)));
    const auto recorded = [&] { return daemon.status().at("events").at("recorded").get<uint64_t>(); };
    const uint64_t before = recorded();
    for (Patience limit; recorded() < before + 100 && limit.lasts();) {
    }
    ASSERT_EQ(daemon.stop(), 0);
    ranks.signal(SIGTERM);
    const StoreContents store = read_store(daemon.store());
    std::map<uint64_t, std::vector<uint32_t>> sequences;
    for (const Event& event : store.events)
        if (const auto collective = collective_of(event); collective && event.tgid == *pid)
            sequences[collective->communicator].push_back(collective->sequence);
    ASSERT_EQ(sequences.size(), 2u);
    for (const auto& [id, numbers] : sequences) {
        for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i + 1);
        const auto row = std::find_if(store.communicators.begin(), store.communicators.end(),
                                      [wanted = id](const CommunicatorRow& one) { return one.id == wanted; });
        ASSERT_NE(row, store.communicators.end());
        EXPECT_EQ(row->origin, CommunicatorOrigin::found);
        EXPECT_NE(row->handle, 0u);
        EXPECT_EQ(row->hash, 0u);
        EXPECT_EQ(row->rank, -1);
    }
}

uint64_t median(std::vector<uint64_t> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

/// When each rank began to wait for the collectives up to that one, as the log has it.
std::map<uint32_t, uint64_t> waited_from(const standin::GroundTruth& truth, uint32_t last_sequence) {
    std::map<uint32_t, uint32_t> rank_of;      // by thread
    std::map<uint32_t, uint32_t> latest;       // number of its last collective
    std::map<uint32_t, uint64_t> waited_from;  // by rank
    for (const standin::Record& record : truth.records()) {
        const std::string_view name = truth.name(record);
        if (name.starts_with("ncclCommInit")) rank_of[record.tid] = static_cast<uint32_t>(record.args[2] >> 32);
        if (name == "ncclAllReduce") latest[record.tid] = static_cast<uint32_t>(record.args[2] >> 32);
        if (name == "cudaStreamSynchronize" && latest[record.tid] == last_sequence)
            waited_from.try_emplace(rank_of[record.tid], record.start_ns);
    }
    return waited_from;
}

/// How long after the first rank the last one entered each collective, by sequence number, as the log has it.
std::map<uint32_t, uint64_t> entered_apart(const standin::GroundTruth& truth) {
    std::map<uint32_t, std::pair<uint64_t, uint64_t>> entered;
    for (const standin::Record& record : truth.records()) {
        if (truth.name(record) != "ncclAllReduce") continue;
        const auto sequence = static_cast<uint32_t>(record.args[2] >> 32);
        auto& [first_ns, last_ns] = entered.try_emplace(sequence, UINT64_MAX, uint64_t{0}).first->second;
        first_ns = std::min(first_ns, record.start_ns);
        last_ns = std::max(last_ns, record.start_ns);
    }
    std::map<uint32_t, uint64_t> apart;
    for (const auto& [sequence, between] : entered) apart[sequence] = between.second - between.first;
    return apart;
}

TEST_F(Collectives, of_a_loop_that_synchronises_every_ten_steps_show_how_late_the_late_rank_is) {
    constexpr uint32_t late_rank = 2, every = 10, steps = 80;
    ASSERT_NO_FATAL_FAILURE(
        trace({"loop", "--ranks", "4", "--processes", "4", "--steps", std::to_string(steps), "--sync-every",
               std::to_string(every), "--late-rank", std::to_string(late_rank), "--late-ms", "10"}));
    const CollectiveWaits derived = collective_waits(store_.events, communicators_);
    ASSERT_EQ(derived.ranges.size(), steps / every);
    std::vector<uint64_t> late, others;
    uint32_t next = 1;
    for (const CollectiveRange& range : derived.ranges) {
        EXPECT_EQ(range.first_sequence, next);
        EXPECT_EQ(range.last_sequence, next + every - 1);
        next += every;
        EXPECT_EQ(range.ranks, 4u);
        ASSERT_EQ(range.waits.size(), 4u);
        const std::map<uint32_t, uint64_t> truth = waited_from(*truth_, range.last_sequence);
        ASSERT_EQ(truth.size(), 4u);
        uint64_t first_ns = UINT64_MAX;
        for (const auto& [rank, ns] : truth) first_ns = std::min(first_ns, ns);
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const RankWait& wait = range.waits[rank];
            ASSERT_EQ(wait.rank, rank);
            (rank == late_rank ? late : others).push_back(wait.lateness_ns);
            if (rank != late_rank) continue;
            const auto really = static_cast<double>(truth.at(rank) - first_ns);
            EXPECT_NEAR(static_cast<double>(wait.lateness_ns), really, really / 10);
        }
    }
    const double told = static_cast<double>(median(late)) / ms;
    std::cout << "late rank: " << told << " ms a range, others " << static_cast<double>(median(others)) / ms << " ms\n";
    EXPECT_GE(told, 0.9 * 10.0 * every) << "each sleep is as long at least; more is what really was, see above";
    EXPECT_LT(median(others), 10 * ms);

    ASSERT_EQ(derived.skews.size(), steps);
    const std::map<uint32_t, uint64_t> truly = entered_apart(*truth_);
    std::vector<uint64_t> steps_late, off;
    for (const EnqueueSkew& skew : derived.skews) {
        ASSERT_EQ(skew.ranks.size(), 4u);
        EXPECT_EQ(skew.ranks.front().late_ns, 0u);
        const uint64_t really = truly.at(skew.sequence);
        off.push_back(std::max(really, skew.skew_ns()) - std::min(really, skew.skew_ns()));
        if (skew.sequence % every == 1) steps_late.push_back(skew.skew_ns());
    }
    EXPECT_LT(median(off), ms) << "as the ranks' own log has it";
    // Right after a synchronisation nobody is ahead: the first step's delay alone, and what waking up took.
    EXPECT_GE(static_cast<double>(median(steps_late)) / ms, 9.0);
}

TEST_F(Collectives, a_rank_that_keeps_coming_last_is_named_while_it_runs_and_from_the_store) {
    // Of a daemon that is slower by its sanitizer more has to be seen until it has judged enough.
    const std::string steps = sanitized ? "1200" : "400";
    ASSERT_NO_FATAL_FAILURE(trace({"loop", "--ranks", "4", "--processes", "4", "--steps", steps, "--sync-every", "10",
                                   "--late-rank", "2", "--late-ms", "10"}));
    const auto reader = StoreReader::open(store_directory_);
    ASSERT_TRUE(reader) << reader.error().message;
    const auto snapshot = (*reader)->snapshot();
    ASSERT_TRUE(snapshot) << snapshot.error().message;
    const auto answer = explain(**snapshot, {.window = whole_trace(**snapshot), .uid = {}, .pid = {}});
    ASSERT_TRUE(answer) << answer.error().message;
    size_t stragglers = 0, waits = 0;
    for (const Finding& finding : answer->findings) {
        stragglers += finding.kind == "straggler";
        waits += finding.kind == "collective-wait";
        if (finding.kind != "straggler" && finding.kind != "collective-wait") continue;
        std::cout << finding.summary << "\n";
        EXPECT_EQ(finding.verdict, Verdict::proven);
        ASSERT_FALSE(finding.culprits.empty());
        EXPECT_EQ(finding.culprits[0].name.rfind("rank 2 (", 0), 0u) << finding.culprits[0].name;
    }
    EXPECT_EQ(stragglers, 1u);
    EXPECT_EQ(waits, 3u);
    EXPECT_NE(told_.find("came last to the collectives of 4 ranks"), std::string::npos) << told_;
}

/// Four ranks of a process each, of which the last is killed amid its collectives.
class CollectivesThatHang : public Collectives {
  protected:
    void hang(Daemon& daemon) {
        ASSERT_TRUE(ranks_.wait_for_line("ready")) << ranks_.errors();
        ASSERT_TRUE(daemon.wait_traced(ranks_.pid()));
        ranks_.write_line("go");
        ASSERT_TRUE(wait_until([&] { return daemon.status()["events"]["recorded"] >= 1'000; }));
        const std::vector<int> pids = children_of(ranks_.pid());
        ASSERT_EQ(pids.size(), 4u);
        ASSERT_EQ(kill(pids[3], SIGKILL), 0);
        const std::string told = "pid " + std::to_string(pids[3]) + ") has not";
        const auto line = daemon.process().wait_for_line(told, milliseconds(40'000));
        ASSERT_TRUE(line) << told << " of " << testing::PrintToString(pids) << "\n"
                          << daemon.status() << daemon.process().output();
        std::cout << *line << "\n";
        EXPECT_NE(line->find("3 of 4 ranks"), std::string::npos) << *line;
        EXPECT_NE(line->find("its process has ended"), std::string::npos) << *line;
    }
    /// So that what others call meanwhile loses none of the ranks' calls.
    std::vector<std::string> config(const std::string& more = {}) {
        const std::string path = directory_ / "ranks.conf";
        std::ofstream(path) << "[capture]\noverhead_budget = 0\ninclude = [\"comm:standin-collec*\"]\n" << more;
        return {"--config", path};
    }

    Child ranks_{{COLLECTIVES_PROGRAM, "loop", "--ranks", "4", "--processes", "4", "--steps", "1000000", "--sync-every",
                  "1", "--gate"}};
};

TEST_F(CollectivesThatHang, name_the_rank_that_was_killed_while_the_others_wait_for_it) {
    Daemon daemon(directory_ / "run", config());
    ASSERT_NO_FATAL_FAILURE(hang(daemon));
    ranks_.signal(SIGKILL);
}

TEST_F(CollectivesThatHang, are_an_incident_for_as_long_as_ranks_wait) {
    Daemon daemon(directory_ / "run", config("[diagnosis]\nclose_after = \"3s\"\n"));
    ASSERT_NO_FATAL_FAILURE(hang(daemon));
    // Longer than the latest calls are kept.
    const auto lost_ns = [&] {
        const nlohmann::json asked = daemon.call("incidents");
        for (const nlohmann::json& incident : asked.at("incidents"))
            if (incident.at("kind") == "nccl-hang") return incident.at("lost_ns").get<uint64_t>();
        return uint64_t{0};
    };
    for (Patience limit(milliseconds(120'000)); lost_ns() < 45'000'000'000;) ASSERT_TRUE(limit.lasts());
    EXPECT_EQ(daemon.process().output().find("is over"), std::string::npos) << daemon.process().output();
    ranks_.signal(SIGKILL);
    const auto closed = daemon.process().wait_for_line("is over", milliseconds(60'000));
    ASSERT_TRUE(closed) << daemon.process().output();
    EXPECT_NE(closed->find("nccl-hang"), std::string::npos) << *closed;
}

}  // namespace
