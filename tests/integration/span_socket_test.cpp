// The span socket of a real daemon: who may tell what, what is refused and why, and what is stored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <set>
#include <thread>

#include "core/model/time.h"
#include "core/spans/span.h"
#include "test_paths.h"
#include "tests/support/daemon.h"
#include "tests/support/span_client.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

constexpr uint64_t second = 1'000 * ms;
constexpr uint32_t owner_uid = 12'345;

class SpanSocket : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    std::string socket() const { return directory_ / "run" + "/spans.sock"; }
    std::string annotations() const { return directory_ / "run" + "/annotate.sock"; }

    static json request(const std::string& id, uint64_t ended_before_ns = 0, uint64_t length_ns = 10 * ms) {
        const uint64_t end = monotonic_now_ns() - ended_before_ns;
        return {{"id", id}, {"start", end - length_ns}, {"end", end}};
    }

    /// All spans of a closed store.
    std::vector<SpanRow> stored() const {
        const auto reader = StoreReader::open(directory_ / "run" + "/store");
        if (!reader) return ADD_FAILURE() << reader.error().message, std::vector<SpanRow>();
        const auto snapshot = (*reader)->snapshot();
        if (!snapshot) return ADD_FAILURE() << snapshot.error().message, std::vector<SpanRow>();
        std::vector<SpanRow> spans;
        std::set<uint32_t> boots;
        for (const Session& session : (*snapshot)->sessions()) boots.insert(session.boot_index);
        for (const uint32_t boot : boots) {
            auto rows = (*snapshot)->spans(boot, {0, UINT64_MAX});
            if (!rows) return ADD_FAILURE() << rows.error().message, spans;
            spans.insert(spans.end(), rows->begin(), rows->end());
        }
        return spans;
    }

    /// What the client script prints, a reply a frame.
    std::vector<json> send_as(std::vector<std::string> command, const std::vector<json>& frames,
                              const ChildOptions& options = {}) {
        command.insert(command.end(), {"/usr/bin/python3", "-B", SPAN_CLIENT, socket()});
        for (const json& frame : frames) command.push_back(frame.dump());
        const Finished client = run(command, options);
        EXPECT_EQ(client.status, 0) << client.errors << client.output;
        std::vector<json> replies;
        std::istringstream lines(client.output);
        for (std::string line; std::getline(lines, line);) replies.push_back(json::parse(line, nullptr, false));
        EXPECT_EQ(replies.size(), frames.size()) << client.output;
        replies.resize(frames.size());
        return replies;
    }

    const TemporaryDirectory directory_;
};

json accepted(uint64_t ack, uint64_t count) {
    return {{"ack", ack}, {"accepted", count}, {"rejected", 0}, {"reasons", json::object()}};
}

json refused(uint64_t ack, const std::string& why) {
    return {{"ack", ack}, {"accepted", 0}, {"rejected", 1}, {"reasons", {{why, 1}}}};
}

TEST_F(SpanSocket, a_span_is_stored_as_it_was_told_before_its_reply_comes) {
    Daemon daemon(directory_ / "run");
    SpanClient client(socket());
    json one = request("r-1");
    one.update({{"first_token", one["start"].get<uint64_t>() + 2 * ms},
                {"scheduled", one["start"].get<uint64_t>() + ms},
                {"prompt_tokens", 17},
                {"output_tokens", 5},
                {"model", "m"},
                {"labels", {{"tenant", "a"}}},
                {"ack", 7}});
    EXPECT_EQ(client.ask(one), accepted(7, 1));
    daemon.kill();  // what was acknowledged survives

    const auto spans = stored();
    ASSERT_EQ(spans.size(), 1u);
    const SpanRow& span = spans[0];
    EXPECT_EQ(span.kind, SpanKind::request);
    EXPECT_EQ(span.id, "r-1");
    EXPECT_EQ(span.start_ns, one["start"]);
    EXPECT_EQ(span.end_ns, one["end"]);
    EXPECT_EQ(span.first_token_ns, span.start_ns + 2 * ms);
    EXPECT_EQ(span.scheduled_ns, span.start_ns + ms);
    EXPECT_EQ(span.prompt_tokens, 17u);
    EXPECT_EQ(span.output_tokens, 5u);
    EXPECT_EQ(span.model, "m");
    EXPECT_THAT(span.labels, testing::ElementsAre(testing::Pair("tenant", "a")));
    EXPECT_EQ(span.process.pid, static_cast<uint32_t>(getpid()));
    EXPECT_EQ(span.uid, getuid());
    EXPECT_FALSE(span.scope.empty());
}

TEST_F(SpanSocket, a_span_that_ended_before_the_first_call_is_stored) {
    Daemon daemon(directory_ / "run");
    json one = request("early");
    one["ack"] = 1;
    Workload workload({"calls", "--count", "10", "--op", "launch"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0);
    ASSERT_TRUE(wait_until([&] { return daemon.status()["store"]["oldest_ns"].is_number(); }));
    SpanClient client(socket());
    EXPECT_EQ(client.ask(one), accepted(1, 1));
}

TEST_F(SpanSocket, each_refusal_has_its_reason_and_harms_no_other_span_of_the_frame) {
    Daemon daemon(directory_ / "run");
    const uint64_t now = monotonic_now_ns();
    const auto with = [&](const json& fields) {
        json span = request("x");
        span.update(fields);
        return span;
    };
    json deep = "text";
    for (int i = 0; i < 5; ++i) deep = {{"a", deep}};
    const std::vector<std::pair<std::string, json>> wrong = {
        {"in-future", with({{"end", now + 60 * second}})},
        {"too-long", with({{"start", 0}, {"end", 25 * 3'600 * second}, {"clock", "realtime"}})},
        {"end-before-start", with({{"start", now}, {"end", now - 1}})},
        {"bad-id", with({{"id", std::string(129, 'x')}})},
        {"bad-id", with({{"id", ""}})},
        {"bad-field", with({{"kind", "unheard-of"}})},
        {"bad-field", with({{"labels", {{"a b", "c"}}}})},
        {"bad-field", with({{"prompt_tokens", -1}})},
        {"no-such-process", with({{"pid", 0x7fff'fff0}})},
        {"no-such-process", with({{"pid", getpid()}, {"start_time", 1}})},
    };
    SpanClient client(socket());
    uint64_t ack = 0;
    for (const auto& [why, span] : wrong) {
        json last = request("good-" + std::to_string(ack));
        last["ack"] = ++ack;
        EXPECT_EQ(client.ask(json::array({span, last})),
                  json({{"ack", ack}, {"accepted", 1}, {"rejected", 1}, {"reasons", {{why, 1}}}}))
            << span;
    }
    // Text that is none.
    const std::string not_utf8 =
        "\x84\xa2id\xa1r\xa5start\x01\xa3"
        "end\x02\xa5model\xa2\xff\xfe";
    ASSERT_TRUE(client.send_bytes(not_utf8));
    json last = request("after");
    last["ack"] = 100;
    EXPECT_EQ(client.ask(last), accepted(100, 1));
    const json counted = daemon.status()["spans"]["refused"];
    EXPECT_EQ(counted["not-utf8"], 1);
    EXPECT_EQ(counted["bad-id"], 2);
    EXPECT_EQ(counted["in-future"], 1);
    ASSERT_EQ(daemon.stop(), 0);
    EXPECT_EQ(stored().size(), ack + 1);
}

TEST_F(SpanSocket, only_bytes_that_cannot_be_read_on_end_a_connection) {
    Daemon daemon(directory_ / "run");
    for (const auto& [why, bytes] :
         std::vector<std::pair<std::string, std::string>>{{"too-large", std::string("\x81\xa1"
                                                                                    "a\xdb\x00\x02\x00\x00",
                                                                                    8) +
                                                                            std::string(70'000, 'x')},
                                                          {"too-deep", "\x91\x91\x91\x91\x91\x91\x01"},
                                                          {"bad-frame", "\xc1"}}) {
        SpanClient client(socket());
        client.send_bytes(bytes);
        const auto reply = client.reply();
        ASSERT_TRUE(reply) << why;
        EXPECT_EQ((*reply)["reasons"], json({{why, 1}}));
        EXPECT_EQ(client.reply(), std::nullopt) << "still open";
        EXPECT_EQ(daemon.status()["spans"]["refused"][why], 1);
    }
}

TEST_F(SpanSocket, what_is_sent_again_after_a_restart_is_stored_once) {
    json frame = json::array();
    for (int i = 0; i < 50; ++i) frame.push_back(request("r-" + std::to_string(i)));
    frame.back()["ack"] = 1;
    const json label = {{"kind", "label"},
                        {"start", frame[0]["start"]},
                        {"end", frame[0]["start"]},
                        {"labels", {{"epoch", "1"}}},
                        {"ack", 2}};
    {
        Daemon daemon(directory_ / "run");
        SpanClient client(socket());
        EXPECT_EQ(client.ask(frame), accepted(1, 50));
        EXPECT_EQ(client.ask(frame), accepted(1, 50));
        EXPECT_EQ(client.ask(label), accepted(2, 1));
        daemon.kill();
    }
    Daemon daemon(directory_ / "run");
    SpanClient client(socket());
    EXPECT_EQ(client.ask(frame), accepted(1, 50));
    EXPECT_EQ(client.ask(label), accepted(2, 1));
    json other = frame[0];
    other["end"] = other["end"].get<uint64_t>() - 1;
    other["ack"] = 3;
    EXPECT_EQ(client.ask(other), accepted(3, 1));
    ASSERT_EQ(daemon.stop(), 0);
    EXPECT_EQ(stored().size(), 52u);
}

TEST_F(SpanSocket, annotations_of_the_earlier_agent_are_taken_at_their_path_and_here) {
    Daemon daemon(directory_ / "run");
    const uint64_t now = ClockTriple::now().realtime_ns;
    for (const std::string& path : {annotations(), socket()}) {
        SpanClient client(path);
        const json line = {
            {"v", 1},
            {"ts", now},
            {"span_start", now - 2 * second},
            {"span_end", now - second},
            {"pid", getpid()},
            {"labels", {{"request_id", "old-" + path.substr(path.rfind('/') + 1)}, {"prompt_len", "12"}}},
            {"ack", 9}};
        ASSERT_TRUE(client.send_bytes(line.dump() + "\n"));
        const auto reply = client.reply_line();
        ASSERT_TRUE(reply);
        EXPECT_EQ(json::parse(*reply), accepted(9, 1));
    }
    ASSERT_EQ(daemon.stop(), 0);
    const auto spans = stored();
    ASSERT_EQ(spans.size(), 2u);
    for (const SpanRow& span : spans) {
        EXPECT_EQ(span.kind, SpanKind::request);
        EXPECT_TRUE(span.id.starts_with("old-"));
        EXPECT_EQ(span.prompt_tokens, 12u);
        EXPECT_EQ(span.end_ns - span.start_ns, second);
    }
}

TEST_F(SpanSocket, moments_that_earlier_emitters_label_are_steps_with_the_calls_between_them) {
    Daemon daemon(directory_ / "run");
    Workload workload({"calls", "--count", "100000000", "--rate", "500", "--pace", "sleep", "--op", "launch"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    SpanClient client(annotations());
    uint64_t sent = 0;
    const auto label = [&](json labels) {
        const json line = {{"labels", std::move(labels)}, {"pid", workload.pid()}, {"ack", ++sent}};
        ASSERT_TRUE(client.send_bytes(line.dump() + "\n"));
        const auto reply = client.reply_line();
        ASSERT_TRUE(reply);
        ASSERT_EQ(json::parse(*reply), accepted(sent, 1));
    };
    const auto recorded = [&] { return daemon.status()["events"]["recorded"].get<uint64_t>(); };
    label({{"step", "1"}, {"epoch", "0"}});
    workload.open_gate();
    // Of each launch there are a call, the wait after it, and what it calls in its turn.
    constexpr uint64_t launches = 50, events_of_one = 4;
    ASSERT_TRUE(wait_until([&] { return recorded() >= launches * events_of_one; }));
    label({{"step", "2"}, {"epoch", "0"}});
    const uint64_t before = recorded();
    ASSERT_TRUE(wait_until([&] { return recorded() >= before + launches * events_of_one; }));
    label({{"phase", "epoch_end"}, {"epoch", "0"}});
    const json answer = daemon.call_when_stored("requests", {{"since_ns", 60 * second}, {"by", "step"}});
    EXPECT_EQ(answer["by"], "step");
    ASSERT_EQ(answer["requests"].size(), 2u) << answer;
    for (const json& step : answer["requests"]) {
        EXPECT_THAT(step["id"], testing::AnyOf("1", "2"));
        EXPECT_EQ(step["pid"], workload.pid());
        EXPECT_GE(step["events"]["launches"], launches) << step;
    }
}

TEST_F(SpanSocket, a_command_runs_within_its_span_and_its_own_options_are_its_own) {
    Daemon daemon(directory_ / "run");
    const std::vector<std::string> annotate = {INGEROCTL_PROGRAM, "annotate", "--spans", socket(), "--kind", "phase"};
    std::vector<std::string> command = annotate;
    command.insert(command.end(), {"--id", "load", "/bin/sh", "-c", "echo \"$@\"; exit 7", "sh", "--json", "--pid"});
    const Finished ran = run(command);
    EXPECT_EQ(ran.status, 7) << ran.errors;
    EXPECT_EQ(ran.output, "--json --pid\n");
    command = annotate;
    command.insert(command.end(), {"--id", "moment"});
    EXPECT_EQ(run(command).status, 0);
    command = annotate;
    command.insert(command.end(), {"--", "/bin/true", "a-secret"});
    EXPECT_EQ(run(command).status, 0);
    command = annotate;
    command.insert(command.end(), {"--id=", "--", "/bin/echo", "it", "runs"});
    EXPECT_EQ(run(command).output, "it runs\n");
    EXPECT_EQ(run({INGEROCTL_PROGRAM, "--db", "", "annotate", "--spans", socket(), "--", "/bin/echo", "too"}).output,
              "too\n");
    command = annotate;
    command.insert(command.end(), {"--", directory_ / std::string(200, 'n')});
    std::filesystem::create_symlink("/bin/true", directory_ / std::string(200, 'n'));
    EXPECT_EQ(run(command).errors, "");
    EXPECT_EQ(daemon.stop(), 0);
    command = annotate;
    command.insert(command.end(), {"--id", "moment"});
    EXPECT_EQ(run(command).status, 4) << "no daemon";
    command.insert(command.end(), {"--", "/bin/true"});
    EXPECT_EQ(run(command).status, 0) << "the command's own end";
    const auto spans = stored();
    ASSERT_EQ(spans.size(), 6u);
    EXPECT_EQ(spans[0].id, "load");
    EXPECT_GT(spans[0].end_ns, spans[0].start_ns);
    EXPECT_EQ(spans[1].id, "moment");
    EXPECT_EQ(spans[2].id, "true") << "the command's name, and none of its arguments";
    EXPECT_EQ(spans[3].id, "echo") << "an empty id is none, and not the command";
    EXPECT_EQ(spans[4].id, "echo");
    EXPECT_EQ(spans[5].id, std::string(128, 'n'));
}

TEST_F(SpanSocket, two_labels_of_one_moment_are_two) {
    Daemon daemon(directory_ / "run");
    SpanClient client(annotations());
    const std::string at = std::to_string(ClockTriple::now().realtime_ns);
    ASSERT_TRUE(client.send_bytes(R"({"ts":)" + at + R"(,"labels":{"epoch":"1"}})" + "\n" + R"({"ts":)" + at +
                                  R"(,"labels":{"phase":"load"},"ack":1})" + "\n"));
    ASSERT_TRUE(client.reply_line());
    ASSERT_EQ(daemon.stop(), 0);
    EXPECT_EQ(stored().size(), 2u);
}

TEST_F(SpanSocket, tiny_frames_hold_nobody_up_and_replies_come_before_the_last_word) {
    Daemon daemon(directory_ / "run");
    SpanClient flood(socket());
    const std::string empty(60'000, '\x80');  // a map without a field: a frame of one byte
    ASSERT_TRUE(flood.send_bytes(empty));
    ChildOptions as_owner;
    as_owner.uid = owner_uid;
    EXPECT_EQ(send_as({}, {{{"id", "calm"}, {"start", 2}, {"end", 1}, {"ack", 1}}}, as_owner)[0], accepted(1, 1));
    // What cannot be read on is told after what came before it.
    SpanClient last(socket());
    json span = request("last");
    span["ack"] = 77;
    ASSERT_TRUE(last.send(span));
    ASSERT_TRUE(last.send_bytes("\xc1"));
    const auto first = last.reply(), second_one = last.reply();
    ASSERT_TRUE(first && second_one);
    EXPECT_EQ((*first)["ack"], 77);
    EXPECT_EQ((*second_one)["reasons"], json({{"bad-frame", 1}}));
    EXPECT_EQ(last.reply(), std::nullopt);
}

TEST_F(SpanSocket, what_was_sent_before_a_sudden_end_is_stored) {
    Daemon daemon(directory_ / "run");
    json frame = json::array();
    for (int i = 0; i < 600; ++i) frame.push_back(request("r" + std::to_string(i)));
    {
        SpanClient client(socket());
        for (int i = 0; i < 3; ++i) {
            for (json& span : frame) span["id"] = span["id"].get<std::string>() + "x";
            frame.back()["ack"] = i;
            ASSERT_TRUE(client.send(frame));
        }
    }
    while (daemon.status()["spans"]["connections"] != 0) {
    }
    ASSERT_EQ(daemon.stop(), 0);
    EXPECT_EQ(stored().size(), 1'800u);
}

TEST_F(SpanSocket, another_users_process_is_not_told_of_but_ones_own_is) {
    Daemon daemon(directory_ / "run");
    const std::vector<json> frames = {{{"id", "self"}, {"start", 2}, {"end", 1}, {"pid", "<self>"}, {"ack", 1}},
                                      {{"id", "child"}, {"start", 2}, {"end", 1}, {"pid", "<child>"}, {"ack", 2}},
                                      {{"id", "roots"}, {"start", 2}, {"end", 1}, {"pid", getpid()}, {"ack", 3}},
                                      {{"id", "init"}, {"start", 2}, {"end", 1}, {"pid", 1}, {"ack", 4}}};
    ChildOptions as_owner;
    as_owner.uid = owner_uid;
    const auto replies = send_as({}, frames, as_owner);
    EXPECT_EQ(replies[0], accepted(1, 1));
    EXPECT_EQ(replies[1], accepted(2, 1));
    EXPECT_EQ(replies[2], refused(3, "not-yours"));
    EXPECT_EQ(replies[3], refused(4, "not-yours"));
    // Root of the host may tell of all.
    SpanClient root(socket());
    Child other({"cat"}, as_owner);
    other.write_line("it runs as its own user");
    ASSERT_TRUE(other.read_line());
    json span = request("of another");
    span.update({{"pid", other.pid()}, {"ack", 5}});
    EXPECT_EQ(root.ask(span), accepted(5, 1));
    ASSERT_EQ(daemon.stop(), 0);
    std::map<std::string, uint32_t> uids;
    for (const SpanRow& row : stored()) {
        uids[row.id] = row.uid;
        EXPECT_EQ(row.scope, "") << "named by its pid: the process alone";
    }
    EXPECT_EQ(uids,
              (std::map<std::string, uint32_t>{{"self", owner_uid}, {"child", owner_uid}, {"of another", owner_uid}}));
}

TEST_F(SpanSocket, pids_of_a_container_are_translated_and_its_root_is_nobody_outside) {
    Daemon daemon(directory_ / "run");
    const std::vector<json> frames = {{{"id", "self"}, {"start", 2}, {"end", 1}, {"pid", "<self>"}, {"ack", 1}},
                                      {{"id", "child"}, {"start", 2}, {"end", 1}, {"pid", "<child>"}, {"ack", 2}},
                                      {{"id", "outside"}, {"start", 2}, {"end", 1}, {"pid", getpid()}, {"ack", 3}},
                                      {{"id", "whole"}, {"start", 2}, {"end", 1}, {"ack", 4}}};
    ChildOptions as_owner;
    as_owner.uid = owner_uid;
    // Its own user and pid namespaces, root in them; then root's own pid namespace, as a container has that is no
    // other user's.
    for (const auto& [command, options, uid] :
         {std::tuple(
              std::vector<std::string>{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"},
              as_owner, owner_uid),
          std::tuple(std::vector<std::string>{"unshare", "--pid", "--fork", "--mount-proc"}, ChildOptions(), 0u)}) {
        const auto replies = send_as(command, frames, options);
        EXPECT_EQ(replies[0], accepted(1, 1));
        EXPECT_EQ(replies[1], accepted(2, 1));
        EXPECT_EQ(replies[2], refused(3, "no-such-process")) << "a number that means nothing in there";
        EXPECT_EQ(replies[3], accepted(4, 1));
    }
    ASSERT_EQ(daemon.stop(), 0);
    std::map<std::string, std::set<uint32_t>> pids;
    for (const SpanRow& row : stored()) {
        pids[row.id].insert(row.process.pid);
        EXPECT_GT(row.process.pid, 2u) << row.id << ": in the daemon's numbering";
    }
    EXPECT_EQ(pids["self"].size(), 2u);
    EXPECT_EQ(pids["child"].size(), 2u);
    EXPECT_EQ(pids["self"], pids["whole"]);
    EXPECT_FALSE(pids.contains("outside"));
}

TEST_F(SpanSocket, a_thread_is_no_process) {
    Daemon daemon(directory_ / "run");
    SpanClient client(socket());
    std::atomic<int> tid{0};
    std::atomic<bool> done{false};
    std::thread thread([&] {
        tid = gettid();
        tid.notify_one();
        done.wait(false);
    });
    tid.wait(0);
    json span = request("t");
    span.update({{"pid", tid.load()}, {"ack", 1}});
    EXPECT_EQ(client.ask(span), refused(1, "no-such-process"));
    done = true;
    done.notify_one();
    thread.join();
}

TEST_F(SpanSocket, a_flood_is_counted_and_another_user_is_served) {
    // So few a second that a slow machine sends more: with a burst of twice that, 18 s would have room for all.
    std::ofstream(directory_ / "ingerod.conf") << "[spans]\nrate = 100\n";
    Daemon daemon(directory_ / "run", {"--config", directory_ / "ingerod.conf"});
    SpanClient flood(socket());
    json frame = json::array();
    for (int i = 0; i < 400; ++i) frame.push_back(request("f" + std::to_string(i)));
    uint64_t taken = 0, left_out = 0;
    for (int i = 0; i < 5; ++i) {
        for (json& span : frame) span["id"] = "f" + std::to_string(i) + span["id"].get<std::string>();
        frame.back()["ack"] = i;
        ASSERT_TRUE(flood.send(frame));
    }
    for (int i = 0; i < 5; ++i) {
        const json reply = flood.reply().value_or(json());
        ASSERT_TRUE(reply.is_object());
        EXPECT_EQ(reply["ack"], i);
        taken += reply["accepted"].get<uint64_t>();
        if (reply["rejected"] != 0) {
            EXPECT_EQ(reply["reasons"].size(), 1u) << reply;
        }
        left_out += reply["reasons"].value("rate-limit", 0u);
    }
    EXPECT_EQ(taken + left_out, 2'000u);
    EXPECT_GE(taken, 200u) << "the burst";
    EXPECT_GT(left_out, 0u);
    EXPECT_EQ(daemon.status()["spans"]["refused"]["rate-limit"], left_out);
    ChildOptions as_owner;
    as_owner.uid = owner_uid;
    EXPECT_EQ(send_as({}, {{{"id", "calm"}, {"start", 2}, {"end", 1}, {"ack", 1}}}, as_owner)[0], accepted(1, 1));
    ASSERT_EQ(daemon.stop(), 0);
    EXPECT_EQ(stored().size(), taken + 1);
}

TEST_F(SpanSocket, connections_have_a_limit_a_user_and_who_stalls_holds_nobody_up) {
    Daemon daemon(directory_ / "run");
    std::vector<std::unique_ptr<SpanClient>> clients;
    for (int i = 0; i < 16; ++i) {
        clients.push_back(std::make_unique<SpanClient>(socket()));
        // Half a frame each, and nothing more for now.
        ASSERT_TRUE(clients.back()->send_bytes(std::string("\x84\xa2id\xa1r\xa5start", 10)));
    }
    SpanClient one_more(socket());
    const auto reply = one_more.reply();
    ASSERT_TRUE(reply);
    EXPECT_EQ((*reply)["reasons"], json({{"connection-limit", 1}}));
    EXPECT_EQ(one_more.reply(), std::nullopt);
    ChildOptions as_owner;
    as_owner.uid = owner_uid;
    EXPECT_EQ(send_as({}, {{{"id", "calm"}, {"start", 2}, {"end", 1}, {"ack", 1}}}, as_owner)[0], accepted(1, 1));
    // The stalled one goes on where it was.
    json rest = request("r");
    std::string bytes;
    const uint64_t end = rest["end"];
    bytes =
        "\x01\xa3"
        "end\x02\xa3"
        "ack\x05";
    EXPECT_TRUE(clients[0]->send_bytes(bytes)) << end;
    EXPECT_TRUE(clients[0]->reply()) << "a reply, whatever it says of so old a span";
    clients.clear();
    EXPECT_EQ(daemon.status()["spans"]["refused"]["connection-limit"], 1);
    // Their places are free again once the daemon has seen them go.
    while (daemon.status()["spans"]["connections"] != 0) {
    }
    SpanClient again(socket());
    json span = request("again");
    span["ack"] = 1;
    EXPECT_EQ(again.ask(span), accepted(1, 1));
}

TEST_F(SpanSocket, ids_are_kept_as_keyed_hashes_where_the_configuration_says_so) {
    std::ofstream(directory_ / "hash.conf") << "[spans]\nhash_ids = true\n";
    std::vector<std::string> hashes;
    for (int i = 0; i < 2; ++i) {
        Daemon daemon(directory_ / "run", {"--config", directory_ / "hash.conf"});
        SpanClient client(socket());
        json span = request("secret", i);
        span["ack"] = 1;
        EXPECT_EQ(client.ask(span), accepted(1, 1));
        SpanClient older(annotations());
        ASSERT_TRUE(older.send_bytes(R"({"labels":{"request_id":"secret"},"ack":3})"
                                     "\n"));
        ASSERT_TRUE(older.reply_line());
        json step = request("12");
        step.update({{"kind", "step"}, {"ack", 2}});
        EXPECT_EQ(client.ask(step), accepted(2, 1));
        const auto named = [&](const std::string& id) {
            std::vector<std::string> ids;
            const json answer = daemon.call("requests", {{"request", id}, {"since_ns", 600'000'000'000}});
            for (const json& one : answer.at("requests")) ids.push_back(one.at("id"));
            return ids;
        };
        const auto found = named("secret");
        ASSERT_FALSE(found.empty()) << "by the id that was sent";
        EXPECT_EQ(named(found[0]), found) << "by what it is kept under";
        EXPECT_THAT(named("secrets"), testing::IsEmpty());
        ASSERT_EQ(daemon.stop(), 0);
    }
    std::set<std::string> ids;
    for (const SpanRow& row : stored()) {
        if (row.kind != SpanKind::label) ids.insert(row.id);
        for (const auto& [key, value] : row.labels) {
            EXPECT_EQ(key, "request_id");
            ids.insert(value);
        }
    }
    ASSERT_EQ(ids.size(), 2u) << "the same id has the same hash, by a key that stays";
    EXPECT_TRUE(ids.contains("12"));
    ids.erase("12");
    EXPECT_THAT(*ids.begin(), testing::MatchesRegex("[0-9a-f]{16}"));
    struct stat facts {};
    ASSERT_EQ(stat((directory_ / "run" + "/span-ids.key").c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

}  // namespace
