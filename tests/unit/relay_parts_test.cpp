// The relay's parts that need no driver: which files are trusted, which messages are taken, what is kept of them.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/query/answers/gpus.h"
#include "core/store/rows/rows.h"
#include "core/store/rows/state_names.h"
#include "core/wire/value.h"
#include "daemon/ingerod/relay/relay_message.h"
#include "daemon/ingerod/relay/relay_server.h"
#include "daemon/relay/connection.h"
#include "daemon/relay/trusted_path.h"
#include "test_paths.h"
#include "tests/unit/decode_value.h"

using namespace ingero;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t now_ns = 1'000'000'000'000;

/// As it comes over the socket.
Result<RelayMessage> parse(const json& message) {
    const auto sent = decode_value(encode_value(message), relay_limits);
    if (!sent) return tl::unexpected(sent.error());
    return parse_relay_message(*sent, now_ns);
}

json gpu_message() {
    return {{"kind", "gpu"},
            {"time_ns", now_ns - 5},
            {"uuid", "GPU-1"},
            {"name", "H100"},
            {"values", {{"power_watts", 1.5}}},
            {"processes", {{4711, 1024}, {5, nullptr}}}};
}

TEST(RelayMessage, of_a_gpu_becomes_a_row) {
    const auto message = parse(gpu_message());
    ASSERT_TRUE(message) << message.error().message;
    const auto& sample = std::get<RelaySample>(*message);
    EXPECT_EQ(sample.row.source, "gpu:GPU-1");
    EXPECT_EQ(sample.row.time_ns, now_ns - 5);
    EXPECT_THAT(sample.row.values, ElementsAre(testing::Pair("power_watts", 1.5)));
    ASSERT_EQ(sample.processes.size(), 2u);
    EXPECT_EQ(sample.processes[0].memory_bytes, 1024u);
    EXPECT_EQ(sample.processes[1].memory_bytes, std::nullopt);
}

TEST(RelayMessage, of_an_event_and_of_a_port_becomes_one_too) {
    const auto event = parse({{"kind", "gpu_event"}, {"time_ns", now_ns}, {"uuid", "GPU-1"}, {"xid", 79}});
    ASSERT_TRUE(event) << event.error().message;
    EXPECT_EQ(std::get<RelaySample>(*event).row.source, "gpu-event:GPU-1");
    const auto port = parse({{"kind", "port"},
                             {"time_ns", now_ns},
                             {"device", "mlx5_0"},
                             {"port", 1},
                             {"state", "ACTIVE"},
                             {"values", {{"symbol_errors", 3.0}}}});
    ASSERT_TRUE(port) << port.error().message;
    EXPECT_EQ(std::get<RelaySample>(*port).row.source, "port:mlx5_0/1");
    EXPECT_TRUE(parse({{"kind", "source"}, {"source", "gpus"}, {"state", "hung"}}));
}

TEST(RelayMessage, that_is_none_is_refused) {
    const auto without = [](const char* name) {
        json message = gpu_message();
        message.erase(name);
        return message;
    };
    const auto with = [](const char* name, json value) {
        json message = gpu_message();
        message[name] = std::move(value);
        return message;
    };
    for (const json& message :
         {json(),
          json(5),
          json::array(),
          without("kind"),
          without("time_ns"),
          without("uuid"),
          without("values"),
          with("kind", "gpus"),
          with("time_ns", now_ns + 2'000'000'000),
          with("time_ns", now_ns - 61'000'000'000),
          with("time_ns", -1),
          with("uuid", ""),
          with("uuid", "GPU 1"),
          with("uuid", "GPU-\x1b[31m"),
          with("uuid", std::string(97, 'x')),
          with("values", 5),
          with("values", {{"unknown", 1.0}}),
          with("values", {{"power_watts", "much"}}),
          with("values", {{"gpu_index", -1.0}}),
          with("values", {{"gpu_index", 0.5}}),
          with("values", {{"gpu_index", 1e300}}),
          with("values", {{"power_watts", std::numeric_limits<double>::infinity()}}),
          with("processes", 5),
          with("processes", {{0, 1}}),
          with("processes", {{1, 2, 3}}),
          with("processes", {{-1, 2}}),
          with("processes", {{4'294'967'295U, 2}}),
          with("processes", json(json::array_t(129, json({1, 2})))),
          json{{"kind", "gpu_event"}, {"time_ns", now_ns}, {"uuid", "GPU-1"}},
          json{{"kind", "gpu_event"}, {"time_ns", now_ns}, {"uuid", "GPU-1"}, {"xid", 1ULL << 32}},
          json{{"kind", "port"}, {"time_ns", now_ns}, {"device", "a/x"}, {"port", 1}, {"values", json::object()}},
          json{{"kind", "port"}, {"time_ns", now_ns}, {"device", "m"}, {"port", 256}, {"values", json::object()}},
          json{{"kind", "source"}, {"source", "gpus"}, {"state", "well"}},
          json{{"kind", "source"}, {"source", "others"}, {"state", "polling"}}})
        EXPECT_FALSE(parse(message)) << message.dump(-1, ' ', true, json::error_handler_t::replace);
}

TEST(RelayMessage, of_as_many_processes_as_there_may_be_comes_back_whole) {
    json message = gpu_message();
    message["processes"] = json::array();
    for (uint32_t i = 0; i < max_gpu_processes; ++i)
        message["processes"].push_back({4'194'000 + i, 85'899'345'920 + i});
    for (const StateName& one : state_names)
        if (one.name != "gpu_index") message["values"][std::string(one.name)] = 1.5;
    const auto parsed = parse(message);
    ASSERT_TRUE(parsed) << parsed.error().message;
    const auto stored = decode_state(encode_row(std::get<RelaySample>(*parsed).row));
    ASSERT_TRUE(stored);
    const json processes = gpu_processes(*stored);
    ASSERT_EQ(processes.size(), max_gpu_processes);
    EXPECT_EQ(processes.back(), (json{{"pid", 4'194'127}, {"memory_bytes", 85'899'346'047}}));
    // With the longest numbers there are, fewer come back, and each whole.
    for (json& one : message["processes"]) one = {INT32_MAX, UINT64_MAX};
    const auto longest = decode_state(encode_row(std::get<RelaySample>(*parse(message)).row));
    EXPECT_GT(gpu_processes(*longest).size(), 110u);
    EXPECT_EQ(gpu_processes(*longest).back()["memory_bytes"], UINT64_MAX);
}

TEST(RelayMessage, of_the_gpus_that_there_are_becomes_a_set) {
    const auto message = parse({{"kind", "inventory"}, {"time_ns", now_ns}, {"uuids", {"GPU-2", "GPU-1"}}});
    ASSERT_TRUE(message) << message.error().message;
    EXPECT_THAT(std::get<RelayInventory>(*message).uuids, ElementsAre("GPU-1", "GPU-2"));
    for (const json& uuids : {json(), json("GPU-1"), json({1}), json({"GPU 1"}), json(json::array_t(65, "GPU-1"))})
        EXPECT_FALSE(parse({{"kind", "inventory"}, {"time_ns", now_ns}, {"uuids", uuids}})) << uuids;
}

TEST(RelayMessage, of_hostile_text_comes_out_inert) {
    json message = gpu_message();
    message["name"] = std::string("H\x1b[2J") + std::string(500, 'x');
    const auto parsed = parse(message);
    ASSERT_TRUE(parsed);
    const auto& texts = std::get<RelaySample>(*parsed).row.texts;
    ASSERT_EQ(texts[0].first, "name");
    EXPECT_EQ(texts[0].second.substr(0, 5), "H?[2J");
    EXPECT_EQ(texts[0].second.size(), 96u);
}

TEST(StateNames, have_numbers_of_their_own) {
    for (const StateName& one : state_names) {
        EXPECT_NE(one.number, 0);
        EXPECT_EQ(state_of_number(one.number), one.name) << "two have this number";
        EXPECT_EQ(number_of_state(one.name), one.number) << "two have this name";
    }
}

TEST(StateRows, come_back_with_names_and_texts_and_take_little_room) {
    StateRow row{.time_ns = 5, .source = "gpu:GPU-1", .values = {{"power_watts", 1.5}, {"cpu_pct", 3}}, .number = 0};
    row.texts = {{"name", "H100"}};
    const std::string bytes = encode_row(row);
    EXPECT_EQ(bytes.find("power_watts"), std::string::npos) << "a number stands for the name";
    const auto back = decode_state(bytes);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->values, row.values);
    EXPECT_EQ(back->texts, row.texts);
}

TEST(StateRows, keep_each_number_as_it_is) {
    StateRow row{.time_ns = 5, .source = "gpu:GPU-1", .values = {}, .number = 0};
    for (const double value : {0.0, -0.0, 1.0, 255.0, 256.0, -1.0, 0.1, 9'007'199'254'740'991.0,
                               9'007'199'254'740'992.0, 1e300, std::numeric_limits<double>::infinity()})
        row.values.emplace_back("power_watts", value);
    const auto back = decode_state(encode_row(row));
    ASSERT_TRUE(back);
    ASSERT_EQ(back->values.size(), row.values.size());
    for (size_t i = 0; i < row.values.size(); ++i) {
        EXPECT_EQ(back->values[i].second, row.values[i].second);
        EXPECT_EQ(std::signbit(back->values[i].second), std::signbit(row.values[i].second)) << i;
    }
}

TEST(StateRows, cut_short_anywhere_are_none) {
    StateRow row{.time_ns = 5, .source = "gpu:GPU-1", .values = {{"power_watts", 1.5}, {"xid", 79}}, .number = 0};
    row.texts = {{"name", "H100"}};
    const std::string bytes = encode_row(row);
    for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode_state(bytes.substr(0, size))) << size;
}

TEST(StateRows, of_version_4_come_back) {
    const auto number = [](uint64_t value, size_t size) { return std::string(reinterpret_cast<char*>(&value), size); };
    double watts = 1.5;
    const std::string bits(reinterpret_cast<char*>(&watts), sizeof watts);
    const auto text = [&](const std::string& one) { return number(one.size(), 2) + one; };
    const std::string bytes = number(4, 1) + number(5, 8) + text("gpu:GPU-1") + number(2, 2) + text("\x01\x0b") + bits +
                              text("cpu_pct") + bits + number(1, 2) + text("name") + text("H100");
    const auto row = decode_state(bytes);
    ASSERT_TRUE(row);
    EXPECT_THAT(row->values, ElementsAre(testing::Pair("power_watts", 1.5), testing::Pair("cpu_pct", 1.5)));
    EXPECT_THAT(row->texts, ElementsAre(testing::Pair("name", "H100")));
}

TEST(ProcessRows, come_back_with_their_facts) {
    StoredProcess row{.process = {.key = {7, 80}, .comm = "train", .cgroup = "/x", .unit = ""}, .boot_index = 3};
    ProcessFacts& facts = row.process.facts;
    facts.command = "python3 train.py";
    facts.container = "abc";
    facts.pod_uid = "uid";
    facts.rank = 3;
    facts.world_size = 8;
    facts.environment = {{"A", "b"}};
    row.process.cpus_allowed = "0-3";
    const auto back = decode_process(encode_row(row));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->process.facts, facts);
    EXPECT_EQ(back->process.facts.local_rank, std::nullopt);
    EXPECT_EQ(back->process.cpus_allowed, "0-3");
}

TEST(ThrottleReasons, are_called_by_their_names) {
    EXPECT_THAT(throttle_reason_names(0), ElementsAre());
    EXPECT_THAT(throttle_reason_names(0x44), ElementsAre("sw_power_cap", "hw_thermal_slowdown"));
    EXPECT_THAT(throttle_reason_names(1ULL << 40), ElementsAre("bit-40"));
}

/// Listens at a path of its own.
class Listener {
  public:
    Listener() {
        std::string name = (fs::temp_directory_path() / "relay-XXXXXX").string();
        folder_ = mkdtemp(name.data());
        fd_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path().copy(address.sun_path, sizeof(address.sun_path) - 1);
        EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
        EXPECT_EQ(listen(fd_.get(), 4), 0);
    }
    ~Listener() { fs::remove_all(folder_); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    std::string path() const { return folder_ / "socket"; }
    UniqueFd accept_one() const { return UniqueFd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }
    UniqueFd take() { return std::move(fd_); }

  private:
    fs::path folder_;
    UniqueFd fd_;
};

TEST(RelayConnection, whose_socket_is_full_keeps_the_newest_state) {
    Listener listener;
    Connection connection(listener.path());
    ASSERT_TRUE(connection.try_connect());
    const UniqueFd peer = listener.accept_one();
    const std::string filling(1'000, 'x');
    uint64_t last = 0;
    EXPECT_EQ(connection.events(), POLLIN);
    // More than the socket takes and the queue keeps.
    for (size_t sent = 0; sent < 4 * Connection::max_unsent_bytes; sent += filling.size()) {
        connection.send({{"kind", "gpu"}, {"number", ++last}, {"filling", filling}});
        if (last == 2'000) connection.send_state("gpus", {{"state", "polling"}});
    }
    connection.send_state("gpus", {{"state", "hung"}});
    connection.send_state("ports", {{"state", "absent"}});
    EXPECT_EQ(connection.events(), POLLIN | POLLOUT);

    RpcLimits limits = relay_limits;
    limits.string_bytes = filling.size();
    ValueDecoder decoder(limits);
    std::vector<std::string> states;
    std::vector<uint64_t> numbers;
    std::array<std::byte, 65'536> buffer;
    for (;;) {
        connection.flush();
        const ssize_t got = recv(peer.get(), buffer.data(), buffer.size(), 0);
        if (got <= 0) break;
        decoder.feed(std::span(buffer).first(static_cast<size_t>(got)));
        for (auto message = decoder.next(); message && *message; message = decoder.next()) {
            if ((**message).contains("state")) states.push_back((**message)["state"]);
            if ((**message).contains("number")) numbers.push_back((**message)["number"]);
        }
    }
    EXPECT_THAT(states, ElementsAre("hung", "absent"));
    ASSERT_FALSE(numbers.empty());
    EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
    EXPECT_EQ(numbers.back(), last) << "the newest stay";
    EXPECT_LT(numbers.size(), last) << "not all do";
    EXPECT_EQ(connection.events(), POLLIN);
}

/// A server with a clock and clients of its own.
class Server : public testing::Test {
  protected:
    Server() { server_.listen(listener_.take()); }

    UniqueFd connect_one() {
        UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        listener_.path().copy(address.sun_path, sizeof(address.sun_path) - 1);
        EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
        turn();
        return fd;
    }
    void tell(const UniqueFd& client, json message) {
        if (!message.contains("time_ns")) message["time_ns"] = now_;
        const std::string bytes = encode_value(message);
        ASSERT_EQ(send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
        turn();
    }
    /// All that there is to do.
    void turn() {
        while (sd_event_run(loop_.get(), 0) > 0) {
        }
    }
    json gpu(const std::string& uuid, double index = 0) const {
        return {{"kind", "gpu"}, {"uuid", uuid}, {"values", {{"gpu_index", index}}}, {"processes", {{4711, 1024}}}};
    }
    uint64_t refused() const { return server_.status()["refused"]; }

    static constexpr uint64_t second = 1'000'000'000;
    EventLoop loop_;
    uint64_t now_ = 1'000 * second;
    std::vector<StateRow> stored_;
    Listener listener_;
    RelayServer server_{loop_, second, [this](StateRow row) { stored_.push_back(std::move(row)); },
                        [this] { return now_; }};
};

TEST_F(Server, counts_a_client_too_many_as_refused) {
    const UniqueFd first = connect_one(), second = connect_one();
    EXPECT_EQ(refused(), 0u);
    const UniqueFd third = connect_one();
    EXPECT_EQ(refused(), 1u);
}

TEST_F(Server, has_room_for_others_where_some_are_silent_for_long) {
    const UniqueFd client = connect_one();
    for (int i = 0; i < 200; ++i) tell(client, gpu("GPU-" + std::to_string(i)));
    EXPECT_EQ(stored_.size(), 192u);
    EXPECT_EQ(refused(), 8u);
    now_ += 599 * second;
    tell(client, gpu("GPU-other"));
    EXPECT_EQ(refused(), 9u);
    now_ += 2 * second;
    tell(client, gpu("GPU-other"));
    EXPECT_EQ(refused(), 9u);
    EXPECT_EQ(stored_.back().source, "gpu:GPU-other");
}

TEST_F(Server, takes_of_each_source_what_the_interval_lets_it_tell) {
    const UniqueFd client = connect_one();
    for (int i = 0; i < 20; ++i) tell(client, gpu("GPU-1"));
    EXPECT_EQ(stored_.size(), 8u) << "a few may come late";
    tell(client, gpu("GPU-2"));
    EXPECT_EQ(stored_.size(), 9u) << "others are none the worse";
    for (int i = 0; i < 100; ++i) {
        now_ += second;
        tell(client, gpu("GPU-1"));
    }
    EXPECT_EQ(stored_.size(), 109u);
}

TEST_F(Server, tells_which_gpus_were_lost_and_which_came) {
    const UniqueFd client = connect_one();
    tell(client, gpu("GPU-1"));
    const auto inventory = [](std::vector<std::string> uuids) { return json{{"kind", "inventory"}, {"uuids", uuids}}; };
    tell(client, inventory({"GPU-1", "GPU-2"}));
    EXPECT_EQ(stored_.size(), 1u) << "nothing changed";
    EXPECT_TRUE(server_.use_of({4711, 0}, {now_, now_, now_}));
    tell(client, inventory({"GPU-2", "GPU-3"}));
    ASSERT_EQ(stored_.size(), 3u);
    EXPECT_EQ(stored_[1].source, "gpu-event:GPU-1");
    EXPECT_THAT(stored_[1].texts, ElementsAre(testing::Pair("change", "lost")));
    EXPECT_EQ(stored_[2].source, "gpu-event:GPU-3");
    EXPECT_THAT(stored_[2].texts, ElementsAre(testing::Pair("change", "found")));
    EXPECT_FALSE(server_.use_of({4711, 0}, {now_, now_, now_})) << "of a GPU that is there no more";
    // Also where the driver made what measures start again.
    const UniqueFd later = connect_one();
    tell(later, inventory({"GPU-2"}));
    EXPECT_EQ(stored_.size(), 4u);
}

TEST_F(Server, knows_a_process_from_one_that_had_its_number) {
    const UniqueFd client = connect_one();
    tell(client, gpu("GPU-1", 3));
    // Boot time is a day ahead of the monotonic clock: the host slept.
    const uint64_t day = 86'400 * second;
    const ClockTriple clock{now_ + second, now_ + second + day, 0};
    const auto use = server_.use_of({4711, now_ + day - 1}, clock);
    ASSERT_TRUE(use);
    EXPECT_THAT(use->devices, ElementsAre(3));
    EXPECT_EQ(use->memory_bytes, 1024u);
    EXPECT_FALSE(server_.use_of({4711, now_ + day + 1}, clock));
    EXPECT_FALSE(server_.use_of({4712, 0}, clock));
}

class TrustedPath : public testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "needs files of root";
        std::string name = std::string(TRUSTED_DIRECTORY) + "/ingero-trusted-XXXXXX";
        ASSERT_TRUE(mkdtemp(name.data()));
        folder_ = name;
        if (!check_trusted_path(name)) GTEST_SKIP() << "the build is not root's alone";
        std::ofstream(folder_ / "lib.so.1") << "x";
        fs::create_directory(folder_ / "open");
        fs::permissions(folder_ / "open", fs::perms::all);
        std::ofstream(folder_ / "open/lib.so.1") << "x";
    }
    void TearDown() override {
        if (!folder_.empty()) fs::remove_all(folder_);
    }
    fs::path folder_;
};

TEST_F(TrustedPath, is_roots_alone_all_the_way) {
    EXPECT_TRUE(check_trusted_path(folder_ / "lib.so.1"));
    EXPECT_FALSE(check_trusted_path("lib.so.1"));
    EXPECT_EQ(check_trusted_path(folder_ / "none").error().code, ErrorCode::not_found);
    EXPECT_THAT(check_trusted_path(folder_ / "open/lib.so.1").error().message, HasSubstr("open may be changed"));
    ASSERT_EQ(chmod((folder_ / "lib.so.1").c_str(), 0664), 0);
    EXPECT_TRUE(check_trusted_path(folder_ / "lib.so.1")) << "group root";
    ASSERT_EQ(chown((folder_ / "lib.so.1").c_str(), 0, 65534), 0);
    EXPECT_FALSE(check_trusted_path(folder_ / "lib.so.1"));
    ASSERT_EQ(chown((folder_ / "lib.so.1").c_str(), 65534, 0), 0);
    EXPECT_THAT(check_trusted_path(folder_ / "lib.so.1").error().message, HasSubstr("is not owned by root"));
}

TEST_F(TrustedPath, follows_links_and_trusts_none_to_elsewhere) {
    fs::create_symlink("lib.so.1", folder_ / "link.so");
    EXPECT_TRUE(check_trusted_path(folder_ / "link.so"));
    fs::create_symlink("open/lib.so.1", folder_ / "astray.so");
    EXPECT_EQ(check_trusted_path(folder_ / "astray.so").error().code, ErrorCode::denied);
    fs::create_symlink("../lib.so.1", folder_ / "open/back.so");
    EXPECT_EQ(check_trusted_path(folder_ / "open/back.so").error().code, ErrorCode::denied);
    fs::create_symlink("loop.so", folder_ / "loop.so");
    EXPECT_EQ(check_trusted_path(folder_ / "loop.so").error().code, ErrorCode::bad_request);
}

}  // namespace
