// The control socket's streams: long results and traces, acknowledged a window at a time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/wire/value.h"
#include "daemon/ingerod/control/control_server.h"
#include "tests/unit/control_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using test::LoopThread;
using test::RawClient;
using namespace std::chrono_literals;

/// Long enough for a client on a busy machine to do its part in time.
ControlOptions impatient() {
    ControlOptions options;
    options.stall = 1s;
    return options;
}

json long_result() {
    json rows = json::array();
    for (int i = 0; i < 50'000; ++i)
        rows.push_back({{"op", "cudaLaunchKernel"}, {"count", i}, {"pad", "xxxxxxxxxxxxxx"}});
    return {{"ops", rows}};
}

TEST(ControlServer, ALongResultIsPutTogetherByTheClient) {
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

TEST(ControlServer, AResultOfManySmallElementsIsAStreamToo) {
    LoopThread server;
    const json result = json::array_t(5000, json(1));
    server.answer_with([&](const std::string&, const json&) -> Result<json> { return result; });
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "stats");
    EXPECT_EQ(client.response()->result, (json{{"stream", 1}}));
    auto again = ControlClient::connect(server.path());
    EXPECT_EQ(again->call("stats", json::object(), test::patience).value(), result);
}

TEST(ControlServer, AStreamWaitsForAcknowledgementsAndCancelEndsIt) {
    LoopThread server;
    const json result = long_result();
    server.answer_with([&](const std::string&, const json&) -> Result<json> { return result; });
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "stats");
    ASSERT_EQ(client.response()->result, (json{{"stream", 1}}));
    for (uint64_t seq = 0; seq < stream_window; ++seq) {
        const auto message = client.message();
        ASSERT_EQ(std::get<RpcNotification>(*message).params[1], seq);
    }
    // What comes next is the answer to cancel, and not a ninth chunk.
    client.request(3, "cancel", {{"stream", 1}});
    const auto cancelled = client.message();
    ASSERT_TRUE(std::holds_alternative<RpcResponse>(*cancelled));
    EXPECT_FALSE(std::get<RpcResponse>(*cancelled).error.has_value());
    client.request(4, "cancel", {{"stream", 1}});
    EXPECT_FALSE(client.response()->error.has_value()) << "cancelling what is over is no error";
    client.send(encode(RpcNotification{"ack", json::array({1, 3})}));
    client.request(5, "status");
    EXPECT_EQ(client.response()->id, 5u);
}

TEST(ControlServer, AStreamThatIsNotAcknowledgedTimesOut) {
    LoopThread server(impatient());
    const json result = long_result();
    server.answer_with([&](const std::string&, const json&) -> Result<json> { return result; });
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "stats");
    ASSERT_EQ(client.response()->result, (json{{"stream", 1}}));
    EXPECT_EQ(client.error_code(), "deadline");
    EXPECT_TRUE(client.ended());
}

TEST(ControlServer, ATraceGoesOnAsLongAsItsChunksAreAcknowledged) {
    LoopThread server;
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "trace", {{"pid", 7}});
    ASSERT_EQ(client.response()->result, (json{{"stream", 1}}));
    server.on_loop([&] {
        EXPECT_EQ(server.backend().trace_params, (json{{"pid", 7}}));
        for (int i = 0; i < 12; ++i) server.backend().trace_chunks.push_back({{"number", i}});
        server.backend().trace_ready();
    });
    const auto number_of = [](const RpcNotification& chunk) {
        const auto& bytes = chunk.params[2].get_binary();
        return decode_value({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {})->at("number").get<int>();
    };
    for (int i = 0; i < static_cast<int>(stream_window); ++i) EXPECT_EQ(number_of(*client.notification()), i);
    EXPECT_EQ(server.on_loop([&] { return server.backend().trace_chunks.size(); }), 12 - stream_window);
    client.send(encode(RpcNotification{"ack", json::array({1, stream_window - 1})}));
    for (int i = static_cast<int>(stream_window); i < 12; ++i) EXPECT_EQ(number_of(*client.notification()), i);
    client.request(3, "trace");
    EXPECT_EQ(client.response()->error->code, ErrorCode::busy);
    client.request(4, "cancel", {{"stream", 1}});
    EXPECT_FALSE(client.response()->error);
    EXPECT_EQ(server.on_loop([&] { return server.backend().traces; }), 0);
    server.on_loop([&] { server.backend().trace_ready(); });  // too late, and harmless
    client.request(5, "trace");
    EXPECT_EQ(client.response()->result, (json{{"stream", 2}}));
}

TEST(ControlServer, ATraceThatIsNotAcknowledgedTimesOutAndIsGone) {
    ControlOptions options;
    options.stall = std::chrono::milliseconds(200);
    LoopThread server(options);
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "trace");
    ASSERT_EQ(client.response()->result, (json{{"stream", 1}}));
    server.on_loop([&] {
        server.backend().trace_chunks.push_back({{"number", 1}});
        server.backend().trace_ready();
    });
    ASSERT_TRUE(client.notification());
    const auto refusal = client.response();
    ASSERT_TRUE(refusal && refusal->error);
    EXPECT_EQ(refusal->error->code, ErrorCode::deadline);
    EXPECT_TRUE(server.wait_until([&] { return server.backend().traces == 0; }));
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
    EXPECT_TRUE(client->follow("trace", json::object(), std::nullopt, [&](const json& chunk) {
        EXPECT_EQ(chunk.at("number"), seen);
        return ++seen < 100;
    }));
    EXPECT_EQ(seen, 100);
    ready.join();
    server.on_loop([&] { server.backend().trace_error = Error{ErrorCode::busy, "too many", ""}; });
    auto refused = ControlClient::connect(server.path());
    ASSERT_TRUE(refused);
    const auto answer = refused->follow("trace", json::object(), std::nullopt, [](const json&) { return true; });
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::busy);
    // With an end in time, and nothing that comes.
    server.on_loop([&] { server.backend().trace_error.reset(); });
    auto waiting = ControlClient::connect(server.path());
    ASSERT_TRUE(waiting);
    EXPECT_TRUE(waiting->follow("trace", json::object(),
                                std::chrono::steady_clock::now() + std::chrono::milliseconds(50),
                                [](const json&) { return true; }));
}

TEST(ControlServer, LongResultsAreBoundedOneByOneAndTogether) {
    const json result = long_result();
    const size_t size = encode_value(result).size();
    ControlOptions options;
    options.all_stream_bytes = 2 * size;
    LoopThread server(options);
    server.answer_with([&](const std::string&, const json&) -> Result<json> { return result; });
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    for (uint64_t id = 2; id <= 4; ++id) client.request(id, "stats");
    EXPECT_EQ(client.response()->result, (json{{"stream", 1}}));
    EXPECT_EQ(client.response()->result, (json{{"stream", 2}}));
    EXPECT_EQ(client.error_code(), "busy");
    client.close();
    ASSERT_TRUE(server.wait_for_connections(0));
    EXPECT_TRUE(ControlClient::connect(server.path())->call("stats", json::object(), test::patience).has_value())
        << "the room was not given back";

    options.stream_bytes = size - 1;
    LoopThread strict(options);
    strict.answer_with([&](const std::string&, const json&) -> Result<json> { return result; });
    const auto refused = ControlClient::connect(strict.path())->call("stats", json::object(), test::patience);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::limit);
}

}  // namespace
}  // namespace ingero
