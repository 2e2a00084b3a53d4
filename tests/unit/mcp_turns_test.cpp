// Of all MCP sessions few look into the store at a time, each user's one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "core/model/unique_fd.h"
#include "daemon/ingerod/control/listening_socket.h"
#include "daemon/ingerod/mcp/mcp_server.h"
#include "test_paths.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using testing::SizeIs;

/// A client of a user of its own: its worker does what it says (session_worker.cpp).
class TurnClient {
  public:
    TurnClient(EventLoop& loop, const std::string& path, uint32_t uid)
        : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof(address.sun_path) - 1);
        // The kernel notes who connects.
        EXPECT_EQ(seteuid(uid), 0);
        EXPECT_EQ(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
        EXPECT_EQ(seteuid(0), 0);
        source_ = loop.add_io(fd_.get(), EPOLLIN, [this](uint32_t) { read(); });
    }
    TurnClient(const TurnClient&) = delete;

    void say(char letter) const { EXPECT_EQ(send(fd_.get(), &letter, 1, MSG_NOSIGNAL), 1); }
    /// The letters whose meaning is done.
    const std::string& heard() const { return heard_; }
    bool is_ended() const { return is_ended_; }
    void hang_up() {
        source_.reset();
        fd_.reset();
    }

  private:
    void read() {
        std::array<char, 64> buffer;
        const ssize_t n = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (n > 0) return void(heard_.append(buffer.data(), static_cast<size_t>(n)));
        is_ended_ = true;
        source_.reset();
    }

    UniqueFd fd_;
    std::string heard_;
    bool is_ended_ = false;
    EventLoop::Source source_;
};

class McpTurns : public testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "only root can be several users";
        std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
        auto socket = listen_at(path());
        ASSERT_TRUE(socket) << socket.error().message;
        McpServer::Host host;
        host.worker_options = [this] {
            WorkerOptions options;
            options.program = SESSION_WORKER;
            options.deadline = deadline_;
            return options;
        };
        server_ = std::make_unique<McpServer>(loop_, std::move(host));
        server_->listen(std::move(*socket), path());
    }

    std::string path() const { return directory_.path() + "/mcp.sock"; }
    std::unique_ptr<TurnClient> connect(uint32_t uid) { return std::make_unique<TurnClient>(loop_, path(), uid); }
    template <class Condition>
    void run_until(const Condition& condition) {
        constexpr uint64_t patience_us = 60'000'000;
        while (!condition())
            if (sd_event_run(loop_.get(), patience_us) <= 0) FAIL() << "the loop has nothing left to do";
    }
    void wait_for(const TurnClient& client, const std::string& letters) {
        run_until([&] { return client.heard() == letters || client.is_ended(); });
        EXPECT_EQ(client.heard(), letters);
    }
    void wait_for_waiting(size_t count) {
        run_until([&] { return server_->waiting() == count; });
    }

    TemporaryDirectory directory_;
    EventLoop loop_;
    std::chrono::milliseconds deadline_{600'000};
    std::unique_ptr<McpServer> server_;
};

TEST_F(McpTurns, are_of_two_sessions_at_a_time_and_of_one_of_each_user) {
    const auto first = connect(5'000), second = connect(5'000), other = connect(5'001), third = connect(5'002);
    first->say('t');
    wait_for(*first, "t");
    second->say('t');
    wait_for_waiting(1);
    // One user's waiting holds up no other.
    other->say('t');
    wait_for(*other, "t");
    third->say('t');
    wait_for_waiting(2);
    other->say('i');
    wait_for(*third, "t");
    EXPECT_EQ(second->heard(), "") << "a user has one turn at a time";
    first->say('i');
    wait_for(*second, "t");
    EXPECT_EQ(server_->waiting(), 0u);
    // Again and again.
    first->say('t');
    wait_for_waiting(1);
    second->say('i');
    wait_for(*first, "tit");
}

TEST_F(McpTurns, go_to_users_in_turns_however_many_sessions_one_has) {
    const auto holder = connect(5'000), other_holder = connect(5'001);
    for (const auto* one : {&holder, &other_holder}) {
        (*one)->say('t');
        wait_for(**one, "t");
    }
    const auto greedy = connect(5'002), greedy_too = connect(5'002), modest = connect(5'003);
    size_t asked = 0;
    for (const auto* one : {&greedy, &greedy_too, &modest}) {
        (*one)->say('t');
        wait_for_waiting(++asked);
    }
    holder->say('i');
    wait_for(*greedy, "t");
    greedy->say('i');
    wait_for(*modest, "t");
    EXPECT_EQ(greedy_too->heard(), "");
    other_holder->say('i');
    wait_for(*greedy_too, "t");
}

TEST_F(McpTurns, are_given_back_by_sessions_that_end) {
    const auto first = connect(5'000), second = connect(5'000), third = connect(5'000);
    for (const auto* one : {&first, &second, &third}) {
        (*one)->say('t');
        // Each is known to have come, and in this order.
        if (one == &first)
            wait_for(*first, "t");
        else
            wait_for_waiting(one == &second ? 1 : 2);
    }
    ASSERT_THAT(server_->pids(), SizeIs(3));
    // One that waits is not waited for.
    ASSERT_EQ(kill(server_->pids()[1], SIGKILL), 0);
    wait_for_waiting(1);
    first->hang_up();
    wait_for(*third, "t");
    EXPECT_EQ(server_->waiting(), 0u);
    EXPECT_EQ(server_->sessions(), 1u);
}

TEST_F(McpTurns, last_no_longer_than_the_deadline) {
    deadline_ = std::chrono::milliseconds(50);
    const auto first = connect(5'000), second = connect(5'000);
    for (const auto* one : {&first, &second}) (*one)->say('t');
    // Neither ever says that it is done, and the one that waits is not kept waiting.
    run_until([&] { return first->is_ended() && second->is_ended(); });
    run_until([&] { return server_->sessions() == 0; });
    EXPECT_EQ(server_->waiting(), 0u);
}

TEST_F(McpTurns, are_not_for_workers_that_are_out_of_step) {
    for (const char letter : {'w', 'i'}) {
        const auto client = connect(5'000);
        client->say(letter);
        run_until([&] { return client->is_ended(); });
        run_until([&] { return server_->sessions() == 0; });
    }
    const auto next = connect(5'000);
    next->say('t');
    wait_for(*next, "t");
}

}  // namespace
}  // namespace ingero
