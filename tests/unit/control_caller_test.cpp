// Who the control server takes a client for: other users, groups and namespaces, each a forked process.

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "daemon/ingerod/control/control_server.h"
#include "daemon/ingerod/control/peer.h"
#include "tests/unit/control_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using test::LoopThread;

/// A process that becomes someone else and then asks the server who it is. Forked before there is a second thread.
class OtherCaller {
  public:
    explicit OtherCaller(const std::function<bool()>& become) {
        if (pipe2(go_, O_CLOEXEC) != 0 || pipe2(answer_, O_CLOEXEC) != 0) std::abort();
        pid_ = fork();
        if (pid_ == 0) child(become);
        close(go_[0]);
        close(answer_[1]);
    }
    ~OtherCaller() {
        close(go_[1]);
        close(answer_[0]);
        waitpid(pid_, nullptr, 0);
    }

    /// Who the server takes it for; an error code where it was refused; null where it could not become what it should.
    json ask(const std::string& path) {
        if (write(go_[1], (path + "\n").data(), path.size() + 1) < 0) return nullptr;
        std::string text;
        char buffer[512];
        for (ssize_t size = 0; (size = read(answer_[0], buffer, sizeof(buffer))) > 0;)
            text.append(buffer, static_cast<size_t>(size));
        return text.empty() ? json(nullptr) : json::parse(text);
    }
    pid_t pid() const { return pid_; }

  private:
    [[noreturn]] void child(const std::function<bool()>& become) {
        close(go_[1]);
        std::string path;
        char c = 0;
        while (read(go_[0], &c, 1) == 1 && c != '\n') path += c;
        if (!become()) _exit(1);
        auto client = ControlClient::connect(path);
        auto answer = client ? client->call("processes", json::object(), test::patience)
                             : Result<json>(tl::unexpected(client.error()));
        const std::string text = answer ? answer->dump() : json(std::string(to_string(answer.error().code))).dump();
        [[maybe_unused]] const ssize_t written = write(answer_[1], text.data(), text.size());
        _exit(0);
    }

    int go_[2];
    int answer_[2];
    pid_t pid_ = -1;
};

/// A process of another user that holds connections until it is told to end. Forked before there is a second thread.
class Holder {
  public:
    Holder(uid_t uid, size_t connections) {
        if (pipe2(go_, O_CLOEXEC) != 0 || pipe2(held_, O_CLOEXEC) != 0) std::abort();
        pid_ = fork();
        if (pid_ == 0) child(uid, connections);
        close(go_[0]);
        close(held_[1]);
    }
    ~Holder() {
        close(go_[1]);
        close(held_[0]);
        waitpid(pid_, nullptr, 0);
    }
    /// True once it holds them all.
    bool hold(const std::string& path) {
        char done = 0;
        return write(go_[1], (path + "\n").data(), path.size() + 1) > 0 && read(held_[0], &done, 1) == 1;
    }

  private:
    [[noreturn]] void child(uid_t uid, size_t connections) {
        close(go_[1]);
        close(held_[0]);
        std::string path;
        char c = 0;
        while (read(go_[0], &c, 1) == 1 && c != '\n') path += c;
        if (setuid(uid) != 0) _exit(1);
        std::vector<test::RawClient> clients;
        for (size_t i = 0; i < connections; ++i)
            if (!clients.emplace_back(path).hello()) _exit(1);
        [[maybe_unused]] const ssize_t written = write(held_[1], "x", 1);
        [[maybe_unused]] const ssize_t ended = read(go_[0], &c, 1);
        _exit(0);
    }

    int go_[2];
    int held_[2];
    pid_t pid_ = -1;
};

constexpr uid_t nobody = 65534;
constexpr gid_t some_group = 1;  // "daemon"

bool become_nobody(std::vector<gid_t> groups) {
    return setgroups(groups.size(), groups.data()) == 0 && setgid(nobody) == 0 && setuid(nobody) == 0;
}

#define SKIP_UNLESS_ROOT() \
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user"

TEST(ControlServerCaller, TheDaemonsOwnUserSeesEverything) {
    LoopThread server;
    const auto who = ControlClient::connect(server.path())->call("processes", json::object(), test::patience);
    EXPECT_EQ(*who, (json{{"uid", geteuid()}, {"pid", getpid()}, {"sees_all", true}}));
}

TEST(ControlServerCaller, AnotherUserSeesItsOwn) {
    SKIP_UNLESS_ROOT();
    OtherCaller other([] { return become_nobody({}); });
    LoopThread server;
    EXPECT_EQ(other.ask(server.path()), (json{{"uid", nobody}, {"pid", other.pid()}, {"sees_all", false}}));
}

TEST(ControlServerCaller, AMemberOfTheGroupSeesEverything) {
    SKIP_UNLESS_ROOT();
    OtherCaller member([] { return become_nobody({7, some_group}); });
    OtherCaller stranger([] { return become_nobody({7}); });
    ControlOptions options;
    options.group = "daemon";
    LoopThread server(options);
    EXPECT_EQ(member.ask(server.path())["sees_all"], true);
    EXPECT_EQ(stranger.ask(server.path())["sees_all"], false);
}

TEST(ControlServerCaller, LongAnswersToStrangersAreBounded) {
    SKIP_UNLESS_ROOT();
    OtherCaller too_much([] { return become_nobody({}); }), fits([] { return become_nobody({}); });
    ControlOptions options;
    options.output_bytes = 1 << 20;
    LoopThread server(options);
    server.on_loop([&] { server.backend().padding.assign(40, std::string(50'000, 'x')); });
    EXPECT_EQ(too_much.ask(server.path()), "limit");
    EXPECT_TRUE(ControlClient::connect(server.path())->call("processes", json::object(), test::patience));
    server.on_loop([&] { server.backend().padding.resize(10); });
    EXPECT_EQ(fits.ask(server.path())["uid"], nobody);
}

TEST(ControlServerCaller, RootOfAnotherUserNamespaceIsNoRoot) {
    SKIP_UNLESS_ROOT();
    const auto write_file = [](const char* path, const char* text) {
        const int fd = open(path, O_WRONLY | O_CLOEXEC);
        const bool written = fd >= 0 && write(fd, text, strlen(text)) == static_cast<ssize_t>(strlen(text));
        close(fd);
        return written;
    };
    OtherCaller other([&] {
        return unshare(CLONE_NEWUSER) == 0 && write_file("/proc/self/uid_map", "0 0 1") &&
               write_file("/proc/self/setgroups", "deny") && write_file("/proc/self/gid_map", "0 0 1");
    });
    LoopThread server;
    const json who = other.ask(server.path());
    if (who.is_null()) GTEST_SKIP() << "no user namespaces here";
    EXPECT_EQ(who["uid"], nobody_uid) << "the number of the host's root gives it nothing";
    EXPECT_EQ(who["sees_all"], false);
}

TEST(ControlServerCaller, RootOfAnotherPidNamespaceIsNoRoot) {
    SKIP_UNLESS_ROOT();
    OtherCaller other([] {
        if (unshare(CLONE_NEWPID) != 0) return false;
        const pid_t inner = fork();  // the first process inside the new namespace asks
        if (inner > 0) {
            waitpid(inner, nullptr, 0);
            _exit(0);
        }
        return inner == 0;
    });
    LoopThread server;
    const json who = other.ask(server.path());
    if (who.is_null()) GTEST_SKIP() << "no pid namespaces here";
    EXPECT_EQ(who["uid"], nobody_uid) << "the number of the host's root gives it nothing";
    EXPECT_EQ(who["sees_all"], false);
}

// Who connects and leaves a connection to somebody else cannot be looked at any more: the heir is nobody.
TEST(ControlServerCaller, TheHeirOfAConnectionIsNobody) {
    SKIP_UNLESS_ROOT();
    const test::TemporaryDirectory directory;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (directory.path() + "/s").copy(address.sun_path, sizeof(address.sun_path) - 1);
    const auto* raw_address = reinterpret_cast<const sockaddr*>(&address);
    const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(listening, raw_address, sizeof(address)), 0);
    ASSERT_EQ(listen(listening, 1), 0);
    const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const pid_t connects = fork();
    if (connects == 0) _exit(connect(client, raw_address, sizeof(address)) == 0 ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(connects, &status, 0), connects);
    ASSERT_EQ(status, 0);
    const int accepted = accept(listening, nullptr, nullptr);
    ASSERT_GE(accepted, 0);
    const Caller caller = identify_peer(accepted, std::nullopt);
    EXPECT_FALSE(caller.sees_all);
    EXPECT_EQ(caller.uid, nobody_uid);
    for (const int fd : {listening, client, accepted}) close(fd);
}

TEST(ControlServerCaller, StrangersLeaveRoomForAnOperator) {
    SKIP_UNLESS_ROOT();
    OtherCaller other([] { return become_nobody({}); });
    ControlOptions options;
    options.unprivileged_connections = 0;
    LoopThread server(options);
    EXPECT_EQ(other.ask(server.path()), "limit");
    EXPECT_TRUE(ControlClient::connect(server.path()).has_value());
}

TEST(ControlServerCaller, WhoHasMostConnectionsGivesOneUpForAnotherUser) {
    SKIP_UNLESS_ROOT();
    Holder crowd(4'000'001, 3);
    OtherCaller other([] { return become_nobody({}); });
    ControlOptions options;
    options.unprivileged_connections = 3;
    LoopThread server(options);
    ASSERT_TRUE(crowd.hold(server.path()));
    EXPECT_EQ(other.ask(server.path())["uid"], nobody);
    EXPECT_TRUE(server.wait_for_connections(2)) << "of the crowd, once the other has gone";
}

TEST(ControlServerCaller, WhoHasNoMoreThanAnotherWouldGivesNothingUp) {
    SKIP_UNLESS_ROOT();
    Holder first(4'000'001, 1), second(4'000'002, 1);
    OtherCaller other([] { return become_nobody({}); });
    ControlOptions options;
    options.unprivileged_connections = 2;
    LoopThread server(options);
    ASSERT_TRUE(first.hold(server.path()) && second.hold(server.path()));
    EXPECT_EQ(other.ask(server.path()), "limit");
    EXPECT_TRUE(server.wait_for_connections(2));
}

TEST(ControlServerCaller, UidsOfOneUserCountTogether) {
    SKIP_UNLESS_ROOT();
    Holder container(4'000'001, 2);
    OtherCaller other([] { return setuid(4'000'002) == 0; });
    ControlOptions options;
    options.connections_per_uid = 2;
    options.owner_of = [](uint32_t uid) { return uid >= 4'000'000 ? 1'000 : uid; };
    LoopThread server(options);
    ASSERT_TRUE(container.hold(server.path()));
    EXPECT_EQ(other.ask(server.path()), "limit");
}

}  // namespace
}  // namespace ingero
