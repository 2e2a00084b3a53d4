// Native stacks end to end: a program calls from the end of a chain of known functions, and the daemon names it.
#include "core/query/answers/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "core/model/op.h"
#include "core/query/coverage.h"
#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::Contains;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

namespace {

const std::vector<std::string> chain_names = {"chain_8", "chain_7", "chain_6", "chain_5",
                                              "chain_4", "chain_3", "chain_2", "chain_1"};

std::vector<std::string> names_of(const json& stack) {
    std::vector<std::string> names;
    for (const json& frame : stack.at("frames")) names.push_back(frame.at("name"));
    return names;
}

/// The innermost frames of a stack that begins as expected.
std::vector<std::string> first(std::vector<std::string> names, size_t count) {
    names.resize(std::min(names.size(), count));
    return names;
}

std::vector<std::string> through_chain(std::vector<std::string> names) {
    names.insert(names.end(), chain_names.begin(), chain_names.end());
    names.emplace_back("main");
    return names;
}

class Stacks : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    void copy_chain(const std::string& from = CHAIN_LIBRARY) {
        std::filesystem::copy_file(from, chain_, std::filesystem::copy_options::overwrite_existing);
    }

    /// Runs the program until a stack of the op is as wanted, and returns it; null after a minute. `before` runs when
    /// the program has loaded its libraries and made no call.
    json run_until(
        const std::string& op, const std::string& way, const std::function<bool(const json&)>& wanted,
        const std::function<void()>& before = [] {}) {
        Child program({STACKS_PROGRAM, runtime_, chain_, way});
        if (!program.wait_for_line("ready")) {
            ADD_FAILURE() << program.errors();
            return nullptr;
        }
        EXPECT_TRUE(daemon_->wait_traced(program.pid()));
        before();
        program.write_line("go");
        json found;
        answer_ = nullptr;
        Patience limit;
        // The first calls are made before the unwind tables are there: it is asked again until they are.
        while (found.is_null() && limit.lasts()) {
            answer_ = daemon_->call("stacks", {{"op", op}, {"pid", program.pid()}, {"limit", 1000}});
            for (const json& stack : answer_.at("stacks"))
                if (wanted(stack)) found = stack;
        }
        program.close_input();
        EXPECT_EQ(program.wait(), 0) << program.errors();
        return found;
    }

    const TemporaryDirectory directory_;
    const std::string chain_ = directory_ / "libchain.so";
    std::string runtime_ = CUDART_LIBRARY;
    std::optional<Daemon> daemon_;
    json answer_;  ///< the last one
};

bool is_whole(const json& stack) {
    return stack.at("truncated") == false;
}

/// Files are read each for itself, and their state is known before their names are.
bool is_named(const json& stack) {
    return std::none_of(stack.at("frames").begin(), stack.at("frames").end(), [](const json& frame) {
        return frame.at("state") == "unread" || (frame.at("state") == "ok" && frame.at("symbol").is_null());
    });
}

/// The tenth frame, chain_1, has its name and lies in a file of this state.
std::function<bool(const json&)> is_whole_in(const std::string& state) {
    return [state](const json& stack) {
        const json& frames = stack.at("frames");
        return is_whole(stack) && is_named(stack) && frames.size() > 9 && frames[9].at("state") == state &&
               !frames[9].at("symbol").is_null();
    };
}

TEST_F(Stacks, of_a_chain_without_frame_pointers_come_out_whole) {
    copy_chain();
    daemon_.emplace(directory_ / "run");
    const json stack =
        run_until("cudaDeviceSync", "plain", [](const json& one) { return is_whole(one) && is_named(one); });
    ASSERT_FALSE(stack.is_null()) << answer_.dump(1);
    const auto expected = through_chain({"cudaDeviceSynchronize", "make_calls"});
    EXPECT_THAT(first(names_of(stack), expected.size()), ElementsAreArray(expected));
    EXPECT_EQ(names_of(stack).back(), "_start");
    EXPECT_EQ(stack.at("end"), "whole");
    const json& outer = stack.at("frames").at(9);
    EXPECT_EQ(outer.at("name"), "chain_1");
    EXPECT_EQ(outer.at("file"), chain_);
    EXPECT_EQ(outer.at("build_id").get<std::string>().size(), 40U);
    EXPECT_GT(outer.at("symbol_offset"), 0);
    EXPECT_EQ(stack.at("frames").at(0).at("symbol_offset"), 0) << "the first frame is the function's entry";
    EXPECT_EQ(daemon_->stop(), 0) << daemon_->process().output();
}

TEST_F(Stacks, of_a_driver_call_go_through_the_runtime_call_whose_return_is_probed) {
    copy_chain();
    daemon_.emplace(directory_ / "run");
    const json stack = run_until("cuMemAlloc", "plain", [](const json& one) { return is_whole(one) && is_named(one); });
    ASSERT_FALSE(stack.is_null()) << answer_.dump(1);
    const auto names = names_of(stack);
    const auto runtime = std::find(names.begin(), names.end(), "cudaMalloc");
    ASSERT_NE(runtime, names.end()) << stack.dump(1);
    const auto expected = through_chain({"cudaMalloc", "make_calls"});
    EXPECT_THAT(first({runtime, names.end()}, expected.size()), ElementsAreArray(expected));
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Stacks, of_a_call_that_another_jumped_to_and_of_calls_in_it_are_those_of_whom_it_returns_to) {
    copy_chain();
    runtime_ = JUMPS_LIBRARY;
    daemon_.emplace(directory_ / "run");
    // cudaStreamSynchronize jumped: it is on no stack any more.
    const std::map<std::string, std::vector<std::string>> expected = {
        {"cudaStreamSync", through_chain({"cudaStreamSynchronize", "cudaMalloc", "make_calls"})},
        {"cudaDeviceSync", through_chain({"cudaDeviceSynchronize", "cudaMalloc", "make_calls"})},
        {"cudaEventSynchronize",
         through_chain({"cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMalloc", "make_calls"})}};
    for (const auto& [op, names] : expected) {
        const json stack = run_until(op, "plain", [&names = names](const json& one) {
            return is_whole(one) && is_named(one) && first(names_of(one), names.size()) == names;
        });
        ASSERT_FALSE(stack.is_null()) << op << " " << answer_.dump(1);
        EXPECT_GT(names_of(stack).size(), names.size()) << op;
        EXPECT_EQ(stack.at("end"), "whole") << op;
    }
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Stacks, that_end_short_are_marked_so) {
    copy_chain();
    daemon_.emplace(directory_ / "run");
    const json stack = run_until("cudaDeviceSync", "no-rules",
                                 [](const json& one) { return one.at("end") == "no-rule" && is_named(one); });
    ASSERT_FALSE(stack.is_null()) << answer_.dump(1);
    EXPECT_EQ(stack.at("truncated"), true);
    EXPECT_THAT(names_of(stack),
                testing::ElementsAre("cudaDeviceSynchronize", "make_calls", "call_without_unwind_rules"));
    for (const json& one : answer_.at("stacks")) EXPECT_EQ(one.at("truncated"), true) << one.dump(1);
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Stacks, go_on_through_code_made_at_run_time) {
    copy_chain();
    daemon_.emplace(directory_ / "run");
    const json stack =
        run_until("cudaDeviceSync", "jit", [](const json& one) { return is_whole(one) && is_named(one); });
    ASSERT_FALSE(stack.is_null()) << answer_.dump(1);
    const auto expected =
        through_chain({"cudaDeviceSynchronize", "make_calls", "[anonymous]", "through_generated_code"});
    EXPECT_THAT(first(names_of(stack), expected.size()), ElementsAreArray(expected));
    EXPECT_EQ(stack.at("frames").at(2).at("state"), "anonymous");
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Stacks, name_a_stripped_file_by_offset) {
    copy_chain(std::string(CHAIN_LIBRARY) + ".stripped");
    daemon_.emplace(directory_ / "run");
    const json stack = run_until("cudaDeviceSync", "plain", is_whole_in("stripped"));
    ASSERT_FALSE(stack.is_null()) << answer_.dump(1);
    const json& hidden = stack.at("frames").at(2);
    EXPECT_EQ(hidden.at("state"), "stripped");
    EXPECT_THAT(hidden.at("name").get<std::string>(), testing::StartsWith("libchain.so+0x"));
    EXPECT_TRUE(hidden.at("symbol").is_null());
    EXPECT_EQ(stack.at("frames").at(9).at("name"), "chain_1") << "it is exported";
    EXPECT_EQ(names_of(stack).at(10), "main");
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Stacks, name_a_deleted_file_and_what_it_was) {
    copy_chain();
    daemon_.emplace(directory_ / "run");
    const json stack =
        run_until("cudaDeviceSync", "plain", is_whole_in("deleted"), [this] { std::filesystem::remove(chain_); });
    ASSERT_FALSE(stack.is_null()) << answer_.dump(1);
    const auto expected = through_chain({"cudaDeviceSynchronize", "make_calls"});
    EXPECT_THAT(first(names_of(stack), expected.size()), ElementsAreArray(expected));
    EXPECT_EQ(stack.at("frames").at(9).at("state"), "deleted");
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Stacks, name_a_rebuilt_file_with_the_names_of_the_one_that_is_mapped) {
    copy_chain();
    daemon_.emplace(directory_ / "run");
    const json stack = run_until("cudaDeviceSync", "plain", is_whole_in("rebuilt"), [this] {
        std::filesystem::copy_file(std::string(CHAIN_LIBRARY) + ".stripped", chain_ + ".new");
        std::filesystem::rename(chain_ + ".new", chain_);
    });
    ASSERT_FALSE(stack.is_null()) << answer_.dump(1);
    const auto expected = through_chain({"cudaDeviceSynchronize", "make_calls"});
    EXPECT_THAT(first(names_of(stack), expected.size()), ElementsAreArray(expected));
    EXPECT_EQ(stack.at("frames").at(9).at("state"), "rebuilt");
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Stacks, of_a_program_before_and_after_an_exec_are_each_its_own) {
    daemon_.emplace(directory_ / "run");
    std::set<uint32_t> pids;
    for (int turn = 0; turn < 15; ++turn) {
        Child program({EXEC_PROGRAM_OLD, CUDART_LIBRARY, "4", EXEC_PROGRAM_NEW});
        ASSERT_TRUE(program.wait_for_line("ready")) << program.errors();
        ASSERT_TRUE(daemon_->wait_traced(program.pid()));
        pids.insert(static_cast<uint32_t>(program.pid()));
        program.write_line("go");
        ASSERT_EQ(program.wait(), 0) << program.errors();
    }
    ASSERT_EQ(daemon_->stop(), 0);
    const auto reader = StoreReader::open(daemon_->store());
    ASSERT_TRUE(reader) << reader.error().message;
    const auto snapshot = (*reader)->snapshot();
    ASSERT_TRUE(snapshot) << snapshot.error().message;
    std::map<std::string, size_t> calls;
    for (const Event& event : read_store(daemon_->store()).events) {
        if (event.op != op::cudaMalloc || !pids.contains(event.tgid)) continue;
        const std::string own = event.args[0] == 100 ? "old_" : "new_", other = own == "old_" ? "new_" : "old_";
        ++calls[own];
        const auto stacks = (*snapshot)->stacks({event.stack});
        ASSERT_TRUE(stacks);
        for (const auto& [id, stack] : *stacks) {
            const auto symbols = (*snapshot)->symbols({stack.frames.begin(), stack.frames.end()});
            ASSERT_TRUE(symbols);
            for (const auto& [place, symbol] : *symbols)
                EXPECT_FALSE(symbol.name.starts_with(other)) << own << " calls have " << symbol.name;
        }
    }
    EXPECT_EQ(calls["old_"], 60u);
    EXPECT_EQ(calls["new_"], 60u);
}

TEST_F(Stacks, stay_named_in_a_copied_store_when_the_files_are_gone) {
    copy_chain();
    daemon_.emplace(directory_ / "run");
    const json live =
        run_until("cudaDeviceSync", "plain", [](const json& one) { return is_whole(one) && is_named(one); });
    ASSERT_FALSE(live.is_null()) << answer_.dump(1);
    EXPECT_EQ(daemon_->stop(), 0);
    std::filesystem::remove(chain_);
    const auto reader = StoreReader::open(daemon_->store());
    ASSERT_TRUE(reader) << reader.error().message;
    const auto snapshot = (*reader)->snapshot();
    ASSERT_TRUE(snapshot) << snapshot.error().message;
    StacksQuery query;
    query.op = "cudaDeviceSync";
    query.filter.window = whole_trace(**snapshot);
    const auto offline = compute_stacks(**snapshot, query);
    ASSERT_TRUE(offline) << offline.error().message;
    std::vector<std::vector<std::string>> stacks;
    for (const StackStats& stack : offline->stacks) {
        std::vector<std::string>& names = stacks.emplace_back();
        for (const NamedFrame& frame : stack.frames) names.push_back(frame.text());
    }
    EXPECT_THAT(stacks, Contains(names_of(live)));
}

TEST_F(Stacks, get_ids_of_their_own_in_each_session) {
    copy_chain();
    std::set<uint32_t> ids;
    for (int session = 0; session < 2; ++session) {
        daemon_.emplace(directory_ / "run");
        ASSERT_FALSE(run_until("cudaDeviceSync", "plain", is_whole).is_null()) << answer_.dump(1);
        EXPECT_EQ(daemon_->stop(), 0);
        std::set<uint32_t> all;
        for (const Event& event : read_store(daemon_->store()).events)
            if (event.stack != 0) all.insert(event.stack);
        for (const uint32_t id : ids) EXPECT_TRUE(all.contains(id));
        EXPECT_GT(all.size(), ids.size());
        ids = all;
    }
}

TEST_F(Stacks, are_not_taken_where_the_configuration_says_off) {
    copy_chain();
    const std::string config = directory_ / "off.conf";
    std::ofstream(config) << "[capture]\noverhead_budget = 0\nstacks = \"off\"\n";
    daemon_.emplace(directory_ / "run", std::vector<std::string>{"--config", config});
    {
        Child program({STACKS_PROGRAM, CUDART_LIBRARY, chain_, "plain"});
        ASSERT_TRUE(program.wait_for_line("ready")) << program.errors();
        ASSERT_TRUE(daemon_->wait_traced(program.pid()));
        program.write_line("go");
        const auto enough = [&] {
            return daemon_->call("stacks", {{"op", "cudaFree"}, {"pid", program.pid()}}).at("calls") > 10;
        };
        while (!enough()) continue;
        program.close_input();
        EXPECT_EQ(program.wait(), 0);
    }
    const json answer = daemon_->call("stacks", {{"op", "cudaFree"}});
    EXPECT_TRUE(answer.at("stacks").empty());
    EXPECT_EQ(answer.at("calls"), answer.at("calls_without_stack"));
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Stacks, of_one_user_however_many_leave_room_for_those_of_others) {
    copy_chain();
    daemon_.emplace(directory_ / "run");
    const auto start = [&](uint32_t uid, const std::string& way) {
        auto program = std::make_unique<Child>(std::vector<std::string>{STACKS_PROGRAM, CUDART_LIBRARY, chain_, way},
                                               ChildOptions{.environment = {}, .uid = uid, .wanted_pid = {}});
        EXPECT_TRUE(program->wait_for_line("ready")) << program->errors();
        EXPECT_TRUE(daemon_->wait_traced(program->pid()));
        return program;
    };
    const auto stormy = start(12'345, "storm"), calm = start(12'346, "few");
    stormy->write_line("go");
    // Each second has its share: it is used up.
    json status;
    const auto lost = [&] { return (status = daemon_->status()).at("events").at("stacks_lost").get<uint64_t>(); };
    Patience limit;
    while (lost() == 0) ASSERT_TRUE(limit.lasts());
    calm->write_line("go");
    const auto calls_of = [&](const std::unique_ptr<Child>& program) {
        return daemon_->call("stacks", {{"pid", program->pid()}, {"limit", 1}});
    };
    // For some seconds, with fewer stacks than a filling ring still has room for, however late a tick is.
    while (calls_of(calm).at("calls") < 45) ASSERT_TRUE(limit.lasts());
    const json of_stormy = calls_of(stormy);
    for (const auto* program : {&stormy, &calm}) {
        (*program)->close_input();
        EXPECT_EQ((*program)->wait(), 0);
    }
    const json events = daemon_->status().at("events");
    EXPECT_GT(of_stormy.at("calls_without_stack"), 0);
    EXPECT_GT(of_stormy.at("stacks_lost"), 0);
    const Finished text = test::run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "stacks", "--limit", "1"});
    EXPECT_THAT(text.output, HasSubstr("or a user had reached their limit"));
    EXPECT_EQ(daemon_->stop(), 0);
    uint64_t without = 0;
    for (const Event& event : read_store(daemon_->store()).events)
        if (event.tgid == static_cast<uint32_t>(calm->pid()) && event.stack == 0) ++without;
    // A ring that was full, because the daemon had no processor to read it, had no room for anybody.
    EXPECT_LE(without, events.at("stacks_lost_ring").get<uint64_t>());
}

TEST_F(Stacks, are_there_as_soon_as_their_calls_are) {
    copy_chain();
    daemon_.emplace(directory_ / "run");
    Child program({STACKS_PROGRAM, CUDART_LIBRARY, chain_, "asked"});
    ASSERT_TRUE(program.wait_for_line("ready")) << program.errors();
    ASSERT_TRUE(daemon_->wait_traced(program.pid()));
    uint64_t late = 0, judged = 0;
    for (int turn = 0; turn < 100; ++turn) {
        program.write_line("go");
        ASSERT_TRUE(program.wait_for_line("made")) << program.errors();
        const json answer = daemon_->call("stacks", {{"pid", program.pid()}, {"limit", 1}});
        // Where the disk is slow an answer does not wait for it, and says so.
        if (!has_all_stored(answer)) continue;
        ++judged;
        late += answer.at("calls_without_stack").get<uint64_t>();
    }
    program.close_input();
    EXPECT_EQ(program.wait(), 0);
    EXPECT_GT(judged, 20u);
    EXPECT_EQ(late, 0u);
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Stacks, are_printed_and_folded_by_ingeroctl) {
    copy_chain();
    daemon_.emplace(directory_ / "run");
    ASSERT_FALSE(
        run_until("cudaMalloc", "plain", [](const json& one) { return is_whole(one) && is_named(one); }).is_null())
        << answer_.dump(1);
    const auto ingeroctl = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {INGEROCTL_PROGRAM, "--socket", daemon_->socket()});
        return test::run(arguments);
    };
    const Finished folded = ingeroctl({"stacks", "--folded", "--op", "cudaMalloc"});
    EXPECT_EQ(folded.status, 0) << folded.errors;
    EXPECT_THAT(folded.output, HasSubstr("main;chain_1;chain_2;chain_3;chain_4;chain_5;chain_6;chain_7;chain_8;"
                                         "make_calls;cudaMalloc "));
    EXPECT_THAT(folded.output, testing::StartsWith("cudaMalloc;"));
    const Finished text = ingeroctl({"stacks", "--by", "process"});
    EXPECT_EQ(text.status, 0) << text.errors;
    EXPECT_THAT(text.output, HasSubstr("      chain_5  (libchain.so)\n"));
    EXPECT_EQ(ingeroctl({"stacks", "--off-cpu", "--by", "kernel"}).status, 0);
    EXPECT_EQ(ingeroctl({"stacks", "--op", "noSuchOperation"}).status, 1);
    const Finished as_json = ingeroctl({"--json", "stacks"});
    const std::string file = directory_ / "stacks.json";
    std::ofstream(file) << as_json.output;
    const Finished valid =
        test::run({"/usr/bin/python3", VALIDATE_SCHEMA, std::string(SCHEMA_DIRECTORY) + "/stacks.schema.json", file});
    if (valid.status == 77) GTEST_SKIP() << "SKIPPED: python3-jsonschema is not installed";
    EXPECT_EQ(valid.status, 0) << valid.errors << as_json.output;
    EXPECT_EQ(daemon_->stop(), 0);
}

}  // namespace
