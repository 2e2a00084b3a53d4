// The control socket over real sockets: what it answers, what it refuses, and that no client can hurt it.

#include "daemon/ingerod/control/control_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "core/wire/value.h"
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

TEST(ControlServer, HelloSaysVersionNodeAndFeatures) {
    ControlOptions options;
    options.version = "1.2.3";
    LoopThread server(options);
    const auto client = ControlClient::connect(server.path());
    ASSERT_TRUE(client.has_value()) << client.error().message;
    EXPECT_EQ(client->server()["version"], "1.2.3");
    EXPECT_EQ(client->server()["node"], "test-node");
    EXPECT_THAT(client->server()["features"].get<std::vector<std::string>>(), testing::Contains("explain"));
}

TEST(ControlServer, TheFirstRequestMustBeHello) {
    LoopThread server;
    RawClient client(server);
    client.request(1, "status");
    EXPECT_EQ(client.error_code(), "bad-request");
    EXPECT_TRUE(client.hello()) << "the connection is still good";
    client.request(2, "status");
    EXPECT_EQ(client.response()->result["state"], "tracing");
}

TEST(ControlServer, AnotherProtocolVersionIsRefusedByName) {
    LoopThread server;
    RawClient client(server);
    client.request(1, "hello", {{"version", 2}});
    EXPECT_EQ(client.error_code(), "version");
    client.request(2, "hello", {{"version", "1"}});
    EXPECT_EQ(client.error_code(), "bad-request");
    client.request(3, "status");
    EXPECT_EQ(client.error_code(), "bad-request");
}

TEST(ControlServer, QueriesGoToTheBackendWithCallerAndParameters) {
    LoopThread server;
    server.answer_with([](const std::string& method, const json& params) -> Result<json> {
        return json{{"method", method}, {"params", params}};
    });
    auto client = ControlClient::connect(server.path());
    ASSERT_TRUE(client.has_value());
    const json params = {{"from_ns", 5}, {"to_ns", 6}, {"pid", 7}, {"limit", 8}};
    EXPECT_EQ(client->call("stats", params, test::patience).value(), (json{{"method", "stats"}, {"params", params}}));
    EXPECT_EQ(client->call("explain", json::object(), test::patience).value()["method"], "explain");
    const json chosen = {{"by", "step"}, {"request", "a"}, {"slower_than_ns", 1}, {"limit", 3}};
    EXPECT_EQ(client->call("requests", chosen, test::patience).value(),
              (json{{"method", "requests"}, {"params", chosen}}));
}

TEST(ControlServer, AnErrorOfTheBackendReachesTheClient) {
    LoopThread server;
    server.answer_with([](const std::string&, const json&) -> Result<json> {
        return fail(ErrorCode::deadline, "took too long", "ask for less");
    });
    auto client = ControlClient::connect(server.path());
    const auto answer = client->call("explain", json::object(), test::patience);
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, ErrorCode::deadline);
    EXPECT_EQ(answer.error().hint, "ask for less");
}

TEST(ControlServer, RootReloadsAndLearnsWhatIsWrongWithTheConfiguration) {
    LoopThread server;
    auto client = ControlClient::connect(server.path());
    ASSERT_TRUE(client.has_value());
    EXPECT_TRUE(client->call("reload", json::object(), test::patience).has_value());
    EXPECT_FALSE(client->call("reload", {{"file", "/etc/passwd"}}, test::patience).has_value());
    server.on_loop([&] {
        server.backend().reload_answer = fail(ErrorCode::bad_request, "ingerod.conf:3: unknown key: store.pth");
    });
    const auto answer = client->call("reload", json::object(), test::patience);
    ASSERT_FALSE(answer.has_value());
    EXPECT_THAT(answer.error().message, testing::HasSubstr("ingerod.conf:3"));
    server.on_loop([&] { EXPECT_EQ(server.backend().reloads, 2u); });
}

TEST(ControlServer, ASnapshotGoesToTheFileThatCameWithTheRequest) {
    LoopThread server;
    auto client = ControlClient::connect(server.path());
    ASSERT_TRUE(client.has_value());
    const UniqueFd file(memfd_create("copy", MFD_CLOEXEC));
    const auto answer = client->call("snapshot", json::object(), test::patience, file.get());
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->at("bytes"), 4);
    EXPECT_EQ(lseek(file.get(), 0, SEEK_END), 4);
    const auto full = client->call("snapshot", json::object(), test::patience, file.get());
    ASSERT_FALSE(full) << "the file is not empty";
    EXPECT_EQ(full.error().code, ErrorCode::bad_request);
    const auto none = client->call("snapshot", json::object(), test::patience);
    ASSERT_FALSE(none) << "a descriptor counts once";
    EXPECT_EQ(none.error().code, ErrorCode::bad_request);
}

TEST(ControlServer, AnyoneChecksAndRootProbes) {
    LoopThread server;
    server.answer_with([](const std::string& method, const json& params) -> Result<json> {
        return json{{"method", method}, {"params", params}};
    });
    auto client = ControlClient::connect(server.path());
    ASSERT_TRUE(client);
    EXPECT_EQ(client->call("check", json::object(), test::patience)->at("method"), "check");
    const auto probed = client->call("check", {{"probe", true}}, test::patience);
    // Root here, unless the tests run without; the refusal of others is tested with real users.
    if (geteuid() == 0) {
        EXPECT_EQ(probed->at("params"), json({{"probe", true}}));
    }
    for (const json& params : {json{{"probe", 1}}, json{{"local", true}}, json{{"probe", true}, {"pid", 1}}})
        EXPECT_EQ(client->call("check", params, test::patience).error().code, ErrorCode::bad_request) << params;
}

TEST(ControlServer, WrongMethodsAndParametersAreNamed) {
    LoopThread server;
    auto client = ControlClient::connect(server.path());
    const auto code = [&](const char* method, const json& params) {
        const auto answer = client->call(method, params, test::patience);
        return answer ? "no error" : std::string(to_string(answer.error().code));
    };
    EXPECT_EQ(code("shutdown", json::object()), "unknown-method");
    EXPECT_EQ(code("status", {{"pid", 1}}), "bad-request");
    EXPECT_EQ(code("stats", {{"path", "/etc/shadow"}}), "bad-request");
    EXPECT_EQ(code("stats", {{"pid", "1"}}), "bad-request");
    EXPECT_EQ(code("stats", {{"sql", "SELECT 1"}}), "bad-request");
    EXPECT_EQ(code("query", json::object()), "bad-request");
    EXPECT_EQ(code("query", {{"sql", 1}}), "bad-request");
    EXPECT_EQ(code("query", {{"sql", "SELECT 1"}, {"uid", 0}}), "bad-request");
    EXPECT_EQ(code("record", {{"unit", 1}}), "bad-request");
    EXPECT_EQ(code("record", {{"pid", 1}, {"stacks", "1"}}), "bad-request");
    EXPECT_EQ(code("record", {{"pid", 1}, {"after", -1}}), "bad-request");
    EXPECT_EQ(code("record", {{"pid", 1}, {"uid", 0}}), "bad-request");
    EXPECT_EQ(code("stats", {{"after", 1}}), "bad-request");
    EXPECT_EQ(code("stats", {{"pid", 0}}), "bad-request");
    EXPECT_EQ(code("stats", {{"pid", 1ULL << 40}}), "bad-request");
    EXPECT_EQ(code("stats", {{"from_ns", 1}}), "bad-request");
    EXPECT_EQ(code("stats", {{"from_ns", 2}, {"to_ns", 2}}), "bad-request");
    EXPECT_EQ(code("stats", {{"from_ns", 2}, {"to_ns", 3}, {"since_ns", 3}}), "bad-request");
    EXPECT_EQ(code("stats", {{"outermost", 1}}), "bad-request");
    EXPECT_EQ(code("waits", {{"by", 1}}), "bad-request");
    EXPECT_EQ(code("requests", {{"by", 1}}), "bad-request");
    EXPECT_EQ(code("requests", {{"request", std::string(385, 'x')}}), "bad-request");
    EXPECT_EQ(code("requests", {{"slower_than_ns", "2s"}}), "bad-request");
    EXPECT_EQ(code("requests", {{"uid", 0}}), "bad-request");
    EXPECT_EQ(code("stats", {{"request", "a"}}), "bad-request");
    EXPECT_EQ(code("stats", {{"answer_to", 1}}), "bad-request");
}

TEST(ControlServer, AnUnknownMethodComesBackEscapedAndShort) {
    LoopThread server;
    auto client = ControlClient::connect(server.path());
    const auto answer = client->call("\x1b[31m" + std::string(1000, 'x'), json::object(), test::patience);
    EXPECT_THAT(answer.error().message, testing::HasSubstr("\\x1b[31m"));
    EXPECT_LT(answer.error().message.size(), 200u);
}

TEST(ControlServer, ARequestWaitsUntilTheOneBeforeIsAnswered) {
    LoopThread server;
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    for (uint64_t id = 2; id <= 4; ++id) client.request(id, "stats");
    client.request(5, "status");
    for (size_t asked = 1; asked <= 3; ++asked) {
        ASSERT_TRUE(server.backend().wait_for_queries(asked));
        server.on_loop([&] {
            EXPECT_EQ(server.backend().queries.size(), asked);
            server.backend().queries.back().done(json(asked));
        });
        const auto answer = client.response();
        EXPECT_EQ(answer->id, asked + 1);
        EXPECT_EQ(answer->result, asked);
    }
    EXPECT_EQ(client.response()->id, 5u);
}

TEST(ControlServer, AnAnswerGivenTwiceIsSentOnce) {
    LoopThread server;
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "check");
    ASSERT_TRUE(server.backend().wait_for_queries(1));
    server.on_loop([&] { server.backend().queries[0].done(json("first")); });
    EXPECT_EQ(client.response()->result, "first");
    client.request(2, "check");
    ASSERT_TRUE(server.backend().wait_for_queries(2));
    server.on_loop([&] {
        server.backend().queries[0].done(json("first again"));
        server.backend().queries[1].done(json("second"));
    });
    EXPECT_EQ(client.response()->result, "second");
}

TEST(ControlServer, ThousandsOfPipelinedRequestsAreAllAnswered) {
    LoopThread server;
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    std::string bytes;
    for (uint64_t id = 2; id < 2002; ++id) bytes += encode(RpcRequest{id, "status", json::object()});
    std::thread sender([&] { client.send(bytes); });
    for (uint64_t id = 2; id < 2002; ++id) EXPECT_EQ(client.response()->id, id);
    sender.join();
}

TEST(ControlServer, AClientThatFinishedSendingStillGetsItsAnswers) {
    LoopThread server;
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "stats");
    client.finish_sending();
    ASSERT_TRUE(server.backend().wait_for_queries(1));
    server.on_loop([&] { server.backend().queries[0].done(json("late")); });
    EXPECT_EQ(client.response()->result, "late");
    EXPECT_TRUE(client.ended());
}

struct KindOfGarbage {
    const char* name;
    std::string bytes;
};

void PrintTo(const KindOfGarbage& kind, std::ostream* out) {
    *out << kind.name;
}

class Garbage : public testing::TestWithParam<KindOfGarbage> {};

TEST_P(Garbage, GetsOneErrorAndIsClosed) {
    LoopThread server;
    for (const bool greeted : {false, true}) {
        RawClient client(server);
        if (greeted) {
            ASSERT_TRUE(client.hello());
        }
        client.send(GetParam().bytes);
        const auto answer = client.response();
        ASSERT_TRUE(answer.has_value());
        EXPECT_EQ(answer->id, 0u);
        ASSERT_TRUE(answer->error.has_value());
        EXPECT_THAT(answer->error->code, testing::AnyOf(ErrorCode::bad_request, ErrorCode::limit));
        EXPECT_TRUE(client.ended());
    }
    EXPECT_TRUE(server.wait_for_connections(0));
    EXPECT_TRUE(ControlClient::connect(server.path()).has_value()) << "the server is unhurt";
}

std::string pseudo_random_bytes(size_t size) {
    std::string bytes;
    uint32_t state = 12345;
    for (size_t i = 0; i < size; ++i) bytes += static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    return bytes;
}

const std::vector<KindOfGarbage> kinds_of_garbage = {
    {"Http", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
    {"Json", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}\n"},
    {"Zeroes", std::string(4096, '\0')},
    {"Random", pseudo_random_bytes(300'000)},
    {"HugeArray", std::string("\xdd\xff\xff\xff\xff", 5)},
    {"HugeMap", std::string("\x94\x00\x02\xa1m\xdf\xff\xff\xff\xff", 10)},
    {"LongMessage", std::string("\x94\x00\x02\xa1m\xdb\x7f\xff\xff\xff", 10) + std::string(2 << 20, 'x')},
    {"Deep", std::string("\x94\x00\x02\xa1m", 5) + std::string(4000, '\x91')},
    {"Response", encode(RpcResponse{1, std::nullopt, 1})},
    {"IdZero", encode(RpcRequest{0, "hello", {{"version", 1}}})},
    {"Extension", std::string("\x94\x00\x02\xa1m\x81\xa1k\xd4\x01\x00", 11)},
};

INSTANTIATE_TEST_SUITE_P(ControlServer, Garbage, testing::ValuesIn(kinds_of_garbage),
                         [](const auto& info) { return info.param.name; });

TEST(ControlServer, TheErrorIsFollowedByAnOrderlyEndEvenWhereMoreInputWaits) {
    LoopThread server;
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    // More than the server takes in one turn, all of it there before that turn.
    server.on_loop([&] { return client.send(std::string(150'000, 'x')); });
    EXPECT_EQ(client.error_code(), "bad-request");
    char byte = 0;
    EXPECT_TRUE(client.wait_for(POLLIN));
    EXPECT_EQ(recv(client.fd(), &byte, 1, 0), 0) << "the connection was reset";
}

TEST(ControlServer, HalfAMessageTimesOutEvenWhereItTricklesIn) {
    LoopThread server(impatient());
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    const std::string bytes = encode(RpcRequest{2, "stats", {{"text", std::string(60'000, 'x')}}});
    // A byte whenever the server had time to look, until it has enough of it.
    size_t sent = 0;
    while (sent < bytes.size() && client.send(bytes.substr(sent, 1))) {
        ++sent;
        pollfd poll_fd{client.fd(), POLLIN, 0};
        if (poll(&poll_fd, 1, 1) > 0) break;
    }
    EXPECT_LT(sent, bytes.size());
    EXPECT_EQ(client.error_code(), "deadline");
    EXPECT_TRUE(client.ended());
}

TEST(ControlServer, AConnectionThatNeverSaysHelloTimesOut) {
    LoopThread server(impatient());
    RawClient client(server);
    EXPECT_EQ(client.error_code(), "deadline");
    EXPECT_TRUE(client.ended());
}

TEST(ControlServer, AnIdleConnectionThatSaidHelloStays) {
    LoopThread server(impatient());
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    RawClient silent(server);
    ASSERT_EQ(silent.error_code(), "deadline") << "the stall time has passed";
    client.request(2, "status");
    EXPECT_EQ(client.response()->result["state"], "tracing");
}

TEST(ControlServer, AClientThatDoesNotReadIsClosedByTime) {
    LoopThread server(impatient());
    server.on_loop([&] { server.backend().status_answer = {{"text", std::string(60'000, 'x')}}; });
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    for (uint64_t id = 2; id < 50; ++id) client.request(id, "status");
    EXPECT_TRUE(server.wait_for_connections(0));
}

TEST(ControlServer, TheSixtyFifthConnectionIsRefusedUntilOneIsClosed) {
    ControlOptions options;
    options.connections_per_uid = 1000;
    options.unprivileged_connections = 1000;
    LoopThread server(options);
    std::vector<RawClient> clients;
    for (int i = 0; i < 64; ++i) {
        clients.emplace_back(server);
        ASSERT_TRUE(clients.back().hello());
    }
    const auto refused = ControlClient::connect(server.path());
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::limit);
    clients.back().close();
    ASSERT_TRUE(server.wait_for_connections(63));
    EXPECT_TRUE(ControlClient::connect(server.path()).has_value());
}

TEST(ControlServer, OneUserHasSixteenConnections) {
    LoopThread server;
    std::vector<RawClient> clients;
    for (int i = 0; i < 16; ++i) {
        clients.emplace_back(server);
        ASSERT_TRUE(clients.back().hello());
    }
    RawClient refused(server);
    EXPECT_EQ(refused.error_code(), "limit");
    EXPECT_TRUE(refused.ended());
}

TEST(ControlServer, AnAnswerForAClientThatIsGoneIsDropped) {
    LoopThread server;
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "stats");
    ASSERT_TRUE(server.backend().wait_for_queries(1));
    client.close();
    ASSERT_TRUE(server.wait_for_connections(0));
    server.on_loop([&] { server.backend().queries[0].done(json("too late")); });
}

TEST(ControlServer, AnAnswerForAServerThatIsGoneIsDropped) {
    LoopThread server;
    RawClient client(server);
    ASSERT_TRUE(client.hello());
    client.request(2, "stats");
    ASSERT_TRUE(server.backend().wait_for_queries(1));
    server.on_loop([&] {
        server.server().reset();
        server.backend().queries[0].done(json("too late"));
    });
    EXPECT_TRUE(client.ended());
}

TEST(ControlServer, TheSocketIsOpenToAllAndRemovedInTheEnd) {
    std::string path;
    {
        LoopThread server;
        path = server.path();
        struct stat status {};
        ASSERT_EQ(stat(path.c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 07777, 0666u);
        server.on_loop([&] { server.server().reset(); });
        EXPECT_FALSE(std::filesystem::exists(path));
    }
}

TEST(ControlServer, ASocketLeftBehindIsReplacedAndALivingOneIsNot) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path() + "/control.sock";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(::bind(dead, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    close(dead);
    EXPECT_EQ(ControlClient::connect(path).error().code, ErrorCode::not_found);

    LoopThread server({}, path);
    EXPECT_TRUE(ControlClient::connect(path).has_value());
    EventLoop loop;
    test::FakeBackend backend;
    const auto second = ControlServer::bind(loop, backend, path);
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, ErrorCode::busy);
    EXPECT_EQ(ControlServer::bind(loop, backend, std::string(200, 'x')).error().code, ErrorCode::bad_request);
    EXPECT_EQ(ControlServer::bind(loop, backend, directory.path() + "/absent/s").error().code, ErrorCode::internal);
}

TEST(ControlServer, TheLogNamesARefusedClientOnceASecondAndNeverQuotesIt) {
    std::ostringstream log;
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
    const auto start = std::chrono::steady_clock::now();
    {
        LoopThread server;
        for (int i = 0; i < 100; ++i) {
            RawClient client(server);
            client.send("evil\x1b[31m\n");
            EXPECT_EQ(client.error_code(), "bad-request");
        }
    }
    spdlog::set_default_logger(before);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start);
    const std::string text = log.str();
    const auto lines = std::count(text.begin(), text.end(), '\n');
    EXPECT_GE(lines, 1);
    EXPECT_LE(lines, seconds.count() + 2);
    EXPECT_THAT(text, testing::HasSubstr("uid " + std::to_string(geteuid()) + " pid " + std::to_string(getpid())));
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("evil")));
}

TEST(ControlClient, SaysThatNoDaemonIsThereAndHowToStartOne) {
    const auto client = ControlClient::connect("/nonexistent/control.sock");
    ASSERT_FALSE(client.has_value());
    EXPECT_EQ(client.error().code, ErrorCode::not_found);
    EXPECT_THAT(client.error().hint, testing::HasSubstr("systemctl enable --now ingerod"));
}

TEST(ControlClient, DoesNotWaitForEverForADaemonThatSaysNothing) {
    LoopThread server;
    auto client = ControlClient::connect(server.path());
    const auto answer = client->call("stats", json::object(), 20ms);
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, ErrorCode::deadline);
    EXPECT_FALSE(client->call("status", json::object(), test::patience).has_value()) << "the connection is closed";
}

TEST(ControlClient, NoticesThatTheDaemonGoesAway) {
    LoopThread server;
    auto client = ControlClient::connect(server.path());
    std::thread stopper([&] {
        server.backend().wait_for_queries(1);
        server.on_loop([&] { server.server().reset(); });
    });
    const auto answer = client->call("stats", json::object(), test::patience);
    stopper.join();
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace ingero
