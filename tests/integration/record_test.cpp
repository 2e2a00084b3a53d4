// ingeroctl record: the store that it makes of one process has what the daemon's store has of it, row for row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/query/coverage.h"
#include "core/store/block/block.h"
#include "core/store/rows/rows.h"
#include "core/store/verify.h"
#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

class Record : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        daemon_.emplace(directory_ / "run");
    }

    std::vector<std::string> ingeroctl(std::vector<std::string> words) const {
        words.insert(words.begin(), std::string(BUILD_DIRECTORY) + "/ctl/ingeroctl");
        return words;
    }
    /// Returns once it has begun.
    void start_recording(std::vector<std::string> options) {
        std::vector<std::string> words = {"--socket", daemon_->socket(), "--json", "record", "-o", recording_};
        words.insert(words.end(), options.begin(), options.end());
        recorder_.emplace(ingeroctl(words));
        Patience limit;
        while (!std::filesystem::exists(recording_ + "/data.mdb") && limit.lasts()) std::this_thread::yield();
        ASSERT_TRUE(std::filesystem::exists(recording_ + "/data.mdb")) << recorder_->errors();
    }
    json finish_recording() {
        EXPECT_EQ(recorder_->wait(), 0) << recorder_->errors();
        const std::string file = directory_ / "answer.json";
        std::ofstream(file) << recorder_->output();
        const Finished valid =
            run({"/usr/bin/python3", VALIDATE_SCHEMA, std::string(SCHEMA_DIRECTORY) + "/record.schema.json", file});
        EXPECT_EQ(valid.status, 0) << valid.output << valid.errors;
        return recorder_->output().empty() ? json() : json::parse(recorder_->output());
    }

    /// A store's rows of one process within the window, each as it is stored, by table.
    static std::map<std::string, std::vector<std::string>> rows_of(const std::string& store, int pid, Window window) {
        std::map<std::string, std::vector<std::string>> rows;
        const auto reader = StoreReader::open(store);
        EXPECT_TRUE(reader) << reader.error().message;
        if (!reader) return rows;
        const auto opened = (*reader)->snapshot();
        EXPECT_TRUE(opened);
        const StoreSnapshot& snapshot = **opened;
        const auto is_ours = [&](const ProcessKey& key) { return key.pid == static_cast<uint32_t>(pid); };
        std::set<uint32_t> stacks;
        std::vector<Event> events;
        EXPECT_TRUE(snapshot.scan(0, window, [&](std::span<const Event> block) {
            for (const Event& event : block)
                if (is_ours(event.process())) events.push_back(event);
            return true;
        }));
        std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.sequence < b.sequence; });
        for (const Event& event : events) {
            rows["events"].push_back(encode_block(0, std::span(&event, 1)));
            if (event.stack != 0) stacks.insert(event.stack);
        }
        const auto processes = snapshot.processes();
        for (const Process& row : *processes)
            if (is_ours(row.key)) rows["processes"].push_back(encode_row(StoredProcess{row, 0}));
        const auto functions = snapshot.functions();
        for (const FunctionRow& row : *functions)
            if (is_ours(row.process)) rows["functions"].push_back(encode_row(StoredFunction{row, 0}));
        const auto losses = snapshot.losses(0, window);
        for (const LossRow& row : *losses) rows["losses"].push_back(encode_row(row));
        const auto gaps = snapshot.gaps(0, window);
        for (const GapRow& row : *gaps)
            if (is_ours(row.process)) rows["gaps"].push_back(encode_row(row));
        const auto files = *snapshot.files();
        const auto found = *snapshot.stacks(stacks);
        for (const auto& [id, stack] : found) {
            rows["stacks"].push_back(encode_row(StoredStack{stack, 0}));
            const auto symbols = *snapshot.symbols({stack.frames.begin(), stack.frames.end()});
            for (const auto& [place, symbol] : symbols) rows["symbols"].push_back(encode_row(StoredSymbol{symbol, 0}));
            for (const StackFrame& frame : stack.frames)
                if (files.contains(frame.file))
                    rows["files"].push_back(encode_row(StoredFile{files.at(frame.file), 0}));
        }
        return rows;
    }

    const TemporaryDirectory directory_;
    const std::string recording_ = directory_ / "recording";
    std::optional<Daemon> daemon_;
    std::optional<Child> recorder_;
};

TEST_F(Record, has_of_a_process_what_the_daemon_has_row_for_row) {
    const std::vector<std::string> train = {"train", "--duration", "2", "--launches", "20", "--kernel-us", "100"};
    Workload recorded(train), other(train);
    ASSERT_TRUE(daemon_->wait_traced(recorded.pid()));
    ASSERT_TRUE(daemon_->wait_traced(other.pid()));
    const int pid = recorded.pid();
    start_recording({"--pid", std::to_string(pid)});
    recorded.open_gate();
    other.open_gate();
    EXPECT_EQ(recorded.finish(), 0);
    const json told = finish_recording();
    EXPECT_EQ(other.finish(), 0);
    EXPECT_EQ(told.at("ended"), "exit");
    EXPECT_EQ(daemon_->stop(), 0);

    const StoreContents contents = read_store(recording_);
    ASSERT_EQ(contents.sessions.size(), 1u);
    const Session& session = contents.sessions[0];
    EXPECT_TRUE(session.ended_cleanly);
    const Window window{session.first_covered_ns, session.last_covered_ns};
    auto wanted = rows_of(daemon_->store(), pid, window), found = rows_of(recording_, pid, window);
    for (const auto& [table, rows] : wanted) {
        EXPECT_EQ(found[table].size(), rows.size()) << table;
        EXPECT_TRUE(found[table] == rows) << table;
    }
    EXPECT_GT(found["events"].size(), 100u);
    EXPECT_GT(found["stacks"].size(), 0u);
    EXPECT_EQ(contents.events.size(), found["events"].size()) << "and nothing of another process";
    EXPECT_EQ(told.at("events"), contents.events.size());
    EXPECT_EQ(told.at("stacks"), found["stacks"].size());

    const auto verified = verify_store(recording_);
    ASSERT_TRUE(verified);
    EXPECT_TRUE(verified->is_clean());
    for (const std::string command : {"stats", "explain", "stacks", "processes"})
        EXPECT_EQ(run(ingeroctl({"--db", recording_, "--json", command})).status, 0) << command;
    const Finished counted = run(ingeroctl({"--db", recording_, "query", "--csv", "SELECT COUNT(*) FROM events"}));
    EXPECT_THAT(counted.output, HasSubstr(std::to_string(contents.events.size())));
}

TEST_F(Record, ends_at_its_duration_or_when_it_is_interrupted) {
    Workload workload({"train", "--duration", "60", "--launches", "20", "--kernel-us", "100"});
    ASSERT_TRUE(daemon_->wait_traced(workload.pid()));
    workload.open_gate();
    const std::string pid = std::to_string(workload.pid());
    start_recording({"--pid", pid, "--duration", "1s", "--since", "5m"});
    EXPECT_EQ(finish_recording().at("ended"), "duration");
    EXPECT_TRUE(read_store(recording_).sessions.at(0).ended_cleanly);
    const Finished again = run(ingeroctl({"--socket", daemon_->socket(), "record", "-o", recording_, "--pid", pid}));
    EXPECT_EQ(again.status, 1);
    EXPECT_THAT(again.errors, HasSubstr("already"));
    std::filesystem::remove_all(recording_);
    start_recording({"--pid", pid});
    recorder_->signal(SIGINT);
    EXPECT_EQ(finish_recording().at("ended"), "interrupt");
    EXPECT_TRUE(read_store(recording_).sessions.at(0).ended_cleanly);
}

TEST_F(Record, of_another_users_process_is_refused) {
    Workload workload({"train", "--duration", "60", "--launches", "20", "--kernel-us", "100"});
    ASSERT_TRUE(daemon_->wait_traced(workload.pid()));
    std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
    ChildOptions stranger;
    stranger.uid = 12'345;
    const std::vector<std::string> words = {
        "--socket", daemon_->socket(), "record", "-o", recording_, "--pid", std::to_string(workload.pid())};
    const Finished refused = run(ingeroctl(words), stranger);
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.errors, HasSubstr("that you may see"));
    EXPECT_FALSE(std::filesystem::exists(recording_));
}

TEST_F(Record, of_what_is_not_traced_makes_no_store) {
    const Finished refused = run(ingeroctl({"--socket", daemon_->socket(), "record", "-o", recording_, "--pid", "1"}));
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.errors, HasSubstr("no traced process 1 "));
    EXPECT_FALSE(std::filesystem::exists(recording_));
    const Finished of_unit =
        run(ingeroctl({"--socket", daemon_->socket(), "record", "-o", recording_, "--unit", "nosuch.service"}));
    EXPECT_EQ(of_unit.status, 1);
    EXPECT_THAT(of_unit.errors, HasSubstr("no traced process in nosuch.service"));
    EXPECT_FALSE(std::filesystem::exists(recording_));
    EXPECT_EQ(run(ingeroctl({"--socket", daemon_->socket(), "record", "-o", recording_})).status, 2);
}

}  // namespace
