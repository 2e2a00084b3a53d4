// Answers of the control socket: who writes them, how long they may be, and traces, which have no end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "daemon/ingerod/control/control_server.h"
#include "tests/unit/control_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using test::LoopThread;
using test::RawClient;

json long_result() {
    json rows = json::array();
    for (int i = 0; i < 50'000; ++i)
        rows.push_back({{"op", "cudaLaunchKernel"}, {"count", i}, {"pad", "xxxxxxxxxxxxxx"}});
    return {{"ops", rows}};
}

TEST(ControlServer, AnswersOfAnyLengthComeWhole) {
    LoopThread server;
    const json result = long_result();
    server.answer_with([&](const std::string&, const json&) -> Result<json> { return result; });
    auto client = ControlClient::connect(server.path());
    for (int i = 0; i < 2; ++i) {
        const auto answer = client->call("stats", json::object(), test::patience);
        ASSERT_TRUE(answer.has_value()) << answer.error().message;
        EXPECT_EQ(*answer, result);
    }
    EXPECT_EQ(client->call("status", json::object(), test::patience).value()["state"], "tracing");
}

TEST(ControlServer, AnAnswerThatBreaksOffIsAnErrorThatSaysSo) {
    std::string logged;  // on the loop thread
    ControlOptions options;
    options.on_refusal = [&](const Caller&, const std::string& text) { logged = text; };
    LoopThread server(options);
    auto client = ControlClient::connect(server.path());
    std::thread worker([&] {
        server.backend().wait_for_queries(1);
        server.on_loop([&] { server.backend().queries[0].break_off(); });
    });
    const auto answer = client->call("stats", json::object(), test::patience);
    worker.join();
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::internal);
    EXPECT_THAT(answer.error().message, testing::HasSubstr("ingerod or its ingero-worker ended while sending it"));
    EXPECT_TRUE(server.wait_for_connections(0));
    EXPECT_THAT(server.on_loop([&] { return logged; }), testing::HasSubstr("it \\x1b[31mended"))
        << "what a worker says is not the terminal's";
    EXPECT_TRUE(ControlClient::connect(server.path()).has_value()) << "the server is unhurt";
}

// What a worker wrote that was taken over goes to its client, who says so, and is asked anew on another connection.
TEST(ControlServer, GarbageInPlaceOfAnAnswerIsAnErrorThatSaysSo) {
    LoopThread server;
    for (const std::string& garbage : {std::string(1 << 20, '\xff'), std::string("\x94\x01\x02", 3) + "no error",
                                       std::string("\xdd\xff\xff\xff\xff", 5)}) {
        auto client = ControlClient::connect(server.path());
        std::thread worker([&] {
            server.backend().wait_for_queries(1);
            server.on_loop([&] {
                server.backend().queries[0].garble(garbage);
                server.backend().queries.clear();
            });
        });
        const auto answer = client->call("stats", json::object(), test::patience);
        worker.join();
        ASSERT_FALSE(answer);
        const bool is_large = garbage.starts_with('\xdd');
        EXPECT_EQ(answer.error().code, is_large ? ErrorCode::limit : ErrorCode::internal);
        EXPECT_THAT(answer.error().message, testing::StartsWith("the answer cannot be read: "));
        EXPECT_THAT(answer.error().hint, testing::HasSubstr(is_large ? "shorter window" : "try again"));
        auto next = ControlClient::connect(server.path());
        EXPECT_EQ(next->call("status", json::object(), test::patience).value()["state"], "tracing");
    }
}

TEST(ControlServer, WhatNoWorkerCouldAnswerTheDaemonDoes) {
    LoopThread server;
    server.answer_with([&](const std::string&, const json&) -> Result<json> {
        return fail(ErrorCode::internal, "no worker can be started", "see the journal");
    });
    auto client = ControlClient::connect(server.path());
    for (int i = 0; i < 2; ++i) {
        const auto answer = client->call("stats", json::object(), test::patience);
        ASSERT_FALSE(answer);
        EXPECT_EQ(answer.error().message, "no worker can be started");
    }
}

// The worker's write comes back, and the connection is not kept for it.
TEST(ControlServer, AClientThatHangsUpInTheMiddleOfAnAnswerFreesWhoWritesIt) {
    LoopThread server;
    const json result = long_result();
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "stats");
    ASSERT_TRUE(server.backend().wait_for_queries(1));
    server.on_loop([&] { server.backend().queries[0].done(result); });
    char byte = 0;
    ASSERT_TRUE(client.wait_for(POLLIN));
    ASSERT_EQ(recv(client.fd(), &byte, 1, 0), 1);
    client.close();
    EXPECT_TRUE(server.wait_for_connections(0));
    server.backend().join_writers();
}

TEST(ControlServer, ATraceWaitsForItsReader) {
    LoopThread server;
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "trace", {{"pid", 7}});
    ASSERT_EQ(client.response()->result, json::object());
    constexpr int chunks = 1'000;
    server.on_loop([&] {
        EXPECT_EQ(server.backend().trace_params, (json{{"pid", 7}}));
        for (int i = 0; i < chunks; ++i)
            server.backend().trace_chunks.push_back({{"number", i}, {"pad", std::string(10'000, 'x')}});
        server.backend().trace_ready();
    });
    ASSERT_TRUE(client.wait_for(POLLIN));
    EXPECT_GT(server.on_loop([&] { return server.backend().trace_chunks.size(); }), 0u);
    for (int i = 0; i < chunks; ++i) EXPECT_EQ(client.notification()->params.at(0).at("number"), i);
    EXPECT_EQ(server.on_loop([&] { return server.backend().trace_chunks.size(); }), 0u);
    // It has the connection to itself: no worker may be handed it.
    for (const char* method : {"trace", "stats", "status"}) {
        client.request(3, method);
        EXPECT_EQ(client.error_code(), "busy") << method;
    }
    client.close();
    EXPECT_TRUE(server.wait_until([&] { return server.backend().traces == 0; }));
    server.on_loop([&] { server.backend().trace_ready(); });  // too late, and harmless
}

TEST(ControlServer, ATraceThatIsNotReadTimesOutAndIsGone) {
    ControlOptions options;
    options.stall = std::chrono::seconds(1);
    LoopThread server(options);
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "trace");
    ASSERT_EQ(client.response()->result, json::object());
    server.on_loop([&] {
        for (int i = 0; i < 1'000; ++i) server.backend().trace_chunks.push_back(std::string(10'000, 'x'));
        server.backend().trace_ready();
    });
    EXPECT_TRUE(server.wait_until([&] { return server.backend().traces == 0; }));
    EXPECT_TRUE(server.wait_for_connections(0));
}

TEST(ControlServer, AMonitorIsSentNoticesAndHasItsConnectionToItself) {
    LoopThread server;
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "monitor", {{"pid", 7}});
    EXPECT_EQ(client.error_code(), "bad-request");
    server.on_loop([&] { server.backend().trace_chunks.push_back({{"notices", json::array()}}); });
    client.request(3, "monitor");
    ASSERT_EQ(client.response()->result, json::object());
    const auto notices = client.notification();
    ASSERT_TRUE(notices);
    EXPECT_EQ(notices->method, monitor_notices);
    EXPECT_EQ(notices->params, json::array({{{"notices", json::array()}}}));
    for (const char* method : {"monitor", "trace", "stats"}) {
        client.request(4, method);
        EXPECT_EQ(client.error_code(), "busy") << method;
    }
}

TEST(ControlServer, AFootprintLastsUntilItIsFinishedOrItsClientIsGone) {
    LoopThread server;
    const auto recorded = [&] { return server.on_loop([&] { return server.backend().footprints; }); };
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "footprint");
    EXPECT_EQ(client.error_code(), "not-found");
    for (const json& params : {json{{"pid", 0}}, json{{"pid", "7"}}, json{{"finish", false}}, json{{"other", 1}},
                               json{{"pid", 7}, {"finish", true}}, json{{"pid", uint64_t{1} << 31}}}) {
        client.request(3, "footprint", params);
        EXPECT_EQ(client.error_code(), "bad-request") << params;
    }
    client.request(4, "footprint", {{"pid", 7}});
    EXPECT_EQ(client.error_code(), "no error");
    EXPECT_EQ(recorded(), 1);
    client.request(5, "footprint", {{"pid", 8}});
    EXPECT_EQ(client.error_code(), "busy");
    client.request(6, "footprint");
    EXPECT_EQ(client.response()->result, (json{{"ended", false}}));
    server.on_loop([&] { server.backend().footprint_has_ended = true; });
    client.request(7, "footprint");
    EXPECT_EQ(client.response()->result, (json{{"ended", true}}));
    client.request(8, "footprint", {{"finish", true}});
    EXPECT_EQ(client.response()->result, (json{{"pid", 7}}));
    EXPECT_EQ(recorded(), 0);
    client.request(9, "footprint", {{"pid", 9}});
    EXPECT_EQ(client.error_code(), "no error");
    EXPECT_EQ(recorded(), 1);
    client.close();
    EXPECT_TRUE(server.wait_until([&] { return server.backend().footprints == 0; }));
}

TEST(ControlClient, FollowsATraceUntilItHasEnough) {
    LoopThread server;
    server.on_loop([&] {
        for (int i = 0; i < 100; ++i) server.backend().trace_chunks.push_back({{"number", i}});
    });
    auto client = ControlClient::connect(server.path());
    ASSERT_TRUE(client);
    int seen = 0;
    std::thread ready([&] {
        EXPECT_TRUE(server.wait_until([&] {
            if (server.backend().trace_ready) server.backend().trace_ready();
            return server.backend().traces == 1;
        }));
    });
    EXPECT_TRUE(client->call("trace", json::object(), test::patience));
    EXPECT_TRUE(client->follow(std::nullopt, -1, [&](const json& chunk) {
        EXPECT_EQ(chunk.at("number"), seen);
        return ++seen < 100;
    }));
    EXPECT_EQ(seen, 100);
    ready.join();
    server.on_loop([&] { server.backend().trace_error = Error{ErrorCode::busy, "too many", ""}; });
    auto refused = ControlClient::connect(server.path());
    ASSERT_TRUE(refused);
    const auto answer = refused->call("trace", json::object(), test::patience);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::busy);
    // With an end in time, and nothing that comes.
    server.on_loop([&] { server.backend().trace_error.reset(); });
    auto waiting = ControlClient::connect(server.path());
    ASSERT_TRUE(waiting);
    ASSERT_TRUE(waiting->call("trace", json::object(), test::patience));
    EXPECT_TRUE(waiting->follow(std::chrono::steady_clock::now() + std::chrono::milliseconds(50), -1,
                                [](const json&) { return true; }));
    // With an output whose reader goes away while nothing comes.
    auto unread = ControlClient::connect(server.path());
    ASSERT_TRUE(unread);
    ASSERT_TRUE(unread->call("trace", json::object(), test::patience));
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    ::close(fds[0]);
    EXPECT_TRUE(unread->follow(std::nullopt, fds[1], [](const json&) { return true; }));
    ::close(fds[1]);
}

}  // namespace
}  // namespace ingero
