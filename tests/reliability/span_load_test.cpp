// The span socket under load: nothing that was acknowledged is lost, and no client harms another.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>

#include "core/model/op.h"
#include "test_paths.h"
#include "tests/support/control_groups.h"
#include "tests/support/daemon.h"
#include "tests/support/span_client.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

constexpr uint32_t first_uid = 21'000;
constexpr int users = 8, writers = 8;
constexpr int spans_per_s = 10'000;

class SpanLoad : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }
    std::string socket() const { return directory_ / "run" + "/spans.sock"; }

    std::vector<std::string> client(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), {"/usr/bin/python3", "-B", SPAN_LOAD, socket()});
        return arguments;
    }

    static json result_of(Child& child) {
        EXPECT_EQ(child.wait(milliseconds(300'000)), 0) << child.errors();
        const std::string& output = child.output();
        const json result = json::parse(output.substr(std::min(output.find('{'), output.size())), nullptr, false);
        EXPECT_TRUE(result.is_object()) << child.output() << child.errors();
        return result;
    }

    std::vector<SpanRow> stored() const {
        const auto reader = StoreReader::open(directory_ / "run" + "/store");
        if (!reader) return ADD_FAILURE() << reader.error().message, std::vector<SpanRow>();
        const auto snapshot = (*reader)->snapshot();
        if (!snapshot) return ADD_FAILURE() << snapshot.error().message, std::vector<SpanRow>();
        auto rows = (*snapshot)->spans((*snapshot)->sessions().back().boot_index, {0, UINT64_MAX});
        return rows ? *rows : (ADD_FAILURE() << rows.error().message, std::vector<SpanRow>());
    }

    const std::string seconds_ = long_form() ? "60" : "8";
    const TemporaryDirectory directory_;
};

/// Tells of nothing and takes places: more connections than the daemon has, again and again.
uint64_t crowd(const std::string& socket, uint64_t count) {
    uint64_t turned_away = 0;
    std::vector<std::unique_ptr<SpanClient>> held;
    for (uint64_t i = 0; i < count; ++i) {
        held.push_back(std::make_unique<SpanClient>(socket));
        if (held.size() < 400) continue;
        for (const auto& one : held) turned_away += one->reply(milliseconds(50)).has_value();
        held.clear();
    }
    return turned_away;
}

TEST_F(SpanLoad, what_is_acknowledged_is_stored_and_crowds_floods_and_stalls_harm_nobody_else) {
    ControlGroups groups;
    if (!groups.exist()) GTEST_SKIP() << "no control group can be made in the unified hierarchy";
    Daemon daemon(directory_ / "run");
    Workload calls({"calls", "--op", "launch", "--count", long_form() ? "120000" : "16000", "--rate", "2000"});
    ASSERT_TRUE(daemon.wait_traced(calls.pid()));
    const auto pid = static_cast<uint32_t>(calls.pid());

    std::vector<std::unique_ptr<Child>> clients;
    const auto start = [&](uint32_t uid, std::vector<std::string> arguments, const std::string& group) {
        ChildOptions options;
        options.uid = uid;
        clients.push_back(std::make_unique<Child>(client(std::move(arguments)), options));
        groups.move(clients.back()->pid(), group);
    };
    for (int i = 0; i < users; ++i) {
        const std::string name = "w" + std::to_string(i);
        start(first_uid + static_cast<uint32_t>(i),
              {"rate", name, seconds_, std::to_string(spans_per_s / users), std::to_string(writers)},
              name + ".service");
    }
    start(first_uid + users, {"flood", seconds_}, "flood.service");
    SpanClient stalled(socket());
    stalled.send_bytes(std::string("\x84\xa2id\xa1r\xa5start", 10));
    for (const auto& one : clients) one->write_line("go");
    calls.open_gate();
    const uint64_t turned_away = crowd(socket(), 10'000);

    uint64_t sent = 0, accepted = 0;
    for (int i = 0; i < users; ++i) {
        const json result = result_of(*clients[static_cast<size_t>(i)]);
        EXPECT_EQ(result.value("rejected", uint64_t{1}), 0u) << result;
        sent += result.value("sent", uint64_t{0});
        accepted += result.value("accepted", uint64_t{0});
    }
    const json flooded = result_of(*clients.back());
    EXPECT_EQ(calls.finish(), 0);
    const json spans = daemon.status()["spans"];
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    std::cout << sent << " spans sent, " << accepted << " acknowledged; flood of " << flooded["bytes"] << " bytes; "
              << turned_away << " connections turned away; " << spans << "\n";
    EXPECT_EQ(accepted, sent);
    EXPECT_GE(sent, static_cast<uint64_t>(std::stoi(seconds_) * spans_per_s) * 9 / 10);
    EXPECT_GT(turned_away, 5'000u);
    if (!sanitized) {
        EXPECT_GT(spans["refused"].value("rate-limit", uint64_t{0}), 0u);  // a slow daemon reads no faster than that
    }
    std::set<std::string> ids;
    for (const SpanRow& row : stored())
        if (row.kind == SpanKind::request && row.id != "flood") ids.insert(row.id);
    EXPECT_EQ(ids.size(), accepted);

    const StoreContents store = read_store(daemon.store());
    uint64_t launches = 0;
    for (const Event& event : store.events) launches += event.tgid == pid && op_name(event.op) == "cudaLaunchKernel";
    EXPECT_EQ(launches, long_form() ? 120'000u : 16'000u) << "lost: " << store.lost();
}

TEST_F(SpanLoad, emitters_outlive_the_daemon_and_lose_nothing) {
    auto daemon = std::make_unique<Daemon>(directory_ / "run");
    std::vector<std::unique_ptr<Child>> emitters;
    for (int i = 0; i < 4; ++i)
        emitters.push_back(
            std::make_unique<Child>(client({"emitter", "e" + std::to_string(i), seconds_, "250", EMITTER_SOURCE})));
    for (const auto& one : emitters) one->write_line("go");
    for (int restart = 0; restart < 3; ++restart) {
        const auto accepted = [&] { return daemon->status()["spans"]["accepted"].get<uint64_t>(); };
        const uint64_t before = accepted();
        // Where starting took so long that the emitters are done, there is no more.
        for (Patience limit(milliseconds(10'000)); accepted() < before + 200 && limit.lasts();) {
        }
        daemon->kill();
        daemon.reset();
        daemon = std::make_unique<Daemon>(directory_ / "run");
    }
    // Nobody waits for the daemon: what it costs is emitter.Price's to say.
    emitters.push_back(std::make_unique<Child>(client({"emitter", "still", "1", "250", EMITTER_SOURCE})));
    daemon->process().signal(SIGSTOP);
    emitters.back()->write_line("go");
    EXPECT_TRUE(emitters.back()->wait_for_line("all are sent", milliseconds(60'000)))
        << "a daemon that stands still holds up its host";
    daemon->process().signal(SIGCONT);
    uint64_t sent = 0;
    for (const auto& one : emitters) {
        const json result = result_of(*one);
        std::cout << result << "\n";
        sent += result.value("sent", uint64_t{0});
        EXPECT_EQ(result["stats"].value("dropped", json::object()), json::object()) << result;
        if (full_form() && !sanitized) {
            EXPECT_LT(result.value("p99_us", 1e9), 2'000) << "it holds its host up";
        }
    }
    ASSERT_EQ(daemon->stop(), 0);
    std::set<std::string> ids;
    uint64_t rows = 0;
    for (const SpanRow& row : stored()) {
        if (row.kind != SpanKind::request) continue;
        ids.insert(row.id);
        rows++;
    }
    EXPECT_EQ(ids.size(), sent);
    EXPECT_EQ(ids.size(), rows) << "one is there twice";
}

}  // namespace
