// The sandbox from inside: a child enters it and then tries what it must not do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <new>

#include "daemon/worker/protocol.h"
#include "daemon/worker/sandbox.h"

namespace ingero {
namespace {

constexpr uint64_t memory_bytes = 64 << 20;
constexpr int refused = 40;
constexpr int allowed = 41;
constexpr int no_sandbox = 42;

/// The wait status of a child that runs `act` in the sandbox. `act` returns whether the kernel let it.
int status_in_sandbox(const std::function<bool()>& act, bool has_client = false) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        const int socket = fcntl(ends[1], F_DUPFD, 50);
        if (has_client && dup2(ends[1], worker_client_fd) < 0) _exit(no_sandbox);
        if (!keep_only_socket(socket, has_client)) _exit(no_sandbox);
        // One that is open later, as the store's are.
        const int later = fcntl(worker_socket_fd, F_DUPFD, worker_client_fd);
        if (later != (has_client ? worker_client_fd + 1 : worker_client_fd)) _exit(no_sandbox);
        if (!has_client) close(later);
        if (!enter_sandbox(memory_bytes, parent, has_client)) _exit(no_sandbox);
        _exit(act() ? allowed : refused);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    close(ends[0]);
    close(ends[1]);
    return status;
}

void expect_forbidden(const char* what, const std::function<bool()>& act) {
    const int status = status_in_sandbox(act);
    if (sanitizer_build) {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == refused) << what << ": status " << status;
    } else {
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << what << ": status " << status;
    }
}

void expect_allowed(const char* what, const std::function<bool()>& act) {
    const int status = status_in_sandbox(act);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == allowed) << what << ": status " << status;
}

void expect_refused(const char* what, const std::function<bool()>& act) {
    const int status = status_in_sandbox(act);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == refused) << what << ": status " << status;
}

bool may_map(int protection) {
    return mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

TEST(WorkerSandbox, lets_nothing_be_opened_connected_or_started) {
    expect_forbidden("open", [] { return open("/etc/passwd", O_RDONLY) >= 0; });
    expect_forbidden("openat2", [] { return syscall(SYS_openat2, AT_FDCWD, "/etc/passwd", nullptr, 0) >= 0; });
    expect_forbidden("creat", [] { return creat("/tmp/ingero-sandbox-test", 0600) >= 0; });
    expect_forbidden("socket", [] { return socket(AF_UNIX, SOCK_STREAM, 0) >= 0; });
    expect_forbidden("memfd_create", [] { return memfd_create("x", 0) >= 0; });
    expect_forbidden("fork", [] { return syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) >= 0; });
    expect_forbidden("execve", [] { return syscall(SYS_execve, "/bin/true", nullptr, nullptr) >= 0; });
    expect_forbidden("bpf", [] { return syscall(SYS_bpf, 0, nullptr, 0) >= 0 || errno != EPERM; });
}

TEST(WorkerSandbox, lets_no_other_process_be_touched) {
    const pid_t parent = getpid();
    expect_forbidden("ptrace", [=] { return ptrace(PTRACE_ATTACH, parent, nullptr, nullptr) == 0 || errno != EPERM; });
    expect_forbidden("kill", [=] { return kill(parent, 0) == 0; });
    expect_forbidden("tgkill", [=] { return syscall(SYS_tgkill, parent, parent, 0) == 0; });
    expect_forbidden("process_vm_readv",
                     [=] { return syscall(SYS_process_vm_readv, parent, nullptr, 0, nullptr, 0, 0) >= 0; });
}

TEST(WorkerSandbox, lets_no_memory_become_code) {
    expect_forbidden("mmap", [] { return may_map(PROT_READ | PROT_WRITE | PROT_EXEC); });
    expect_forbidden("mprotect", [] {
        void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0;
    });
    expect_forbidden("pkey_mprotect", [] { return syscall(SYS_pkey_mprotect, 4096, 4096, PROT_EXEC, -1) == 0; });
}

TEST(WorkerSandbox, cannot_be_undone) {
    expect_forbidden("prctl", [] { return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0; });
    expect_forbidden("setuid", [] { return syscall(SYS_setuid, 0) == 0; });
    expect_forbidden("setrlimit", [] { return syscall(SYS_prlimit64, 0, 9, nullptr, nullptr) == 0; });
    expect_forbidden("a message on another descriptor", [] {
        const char byte = 0;
        return send(worker_socket_fd + 1, &byte, 1, 0) >= 0 || errno != EPERM;
    });
}

TEST(WorkerSandbox, lets_memory_be_used_up_to_its_limit) {
    if (sanitizer_build) GTEST_SKIP() << "a sanitizer's shadow memory leaves no room for an address-space limit";
    const auto may_allocate = [](size_t bytes) {
        const std::unique_ptr<char, decltype(&free)> memory(static_cast<char*>(malloc(bytes)), free);
        return memory != nullptr;
    };
    expect_allowed("half of it", [=] { return may_allocate(memory_bytes / 2); });
    // What the sandbox itself allocated and freed again, as it set the limit, is room too.
    expect_refused("more than it", [=] { return may_allocate(memory_bytes + memory_bytes / 4); });
}

TEST(WorkerSandbox, lets_a_descriptor_at_hand_be_read) {
    expect_allowed("read, fstat and the clock", [] {
        struct stat status {};
        timespec now{};
        char byte = 0;
        return fstat(worker_socket_fd, &status) == 0 && clock_gettime(CLOCK_REALTIME, &now) == 0 &&
               read(STDIN_FILENO, &byte, 1) == 0;
    });
}

TEST(WorkerSandbox, keeps_the_socket_alone_open) {
    expect_allowed("the socket", [] { return fcntl(worker_socket_fd, F_GETFD) == FD_CLOEXEC; });
    expect_allowed("nothing above it", [] {
        for (int fd = worker_socket_fd + 1; fd < 1024; ++fd)
            if (fcntl(fd, F_GETFD) >= 0) return false;
        return true;
    });
}

/// Whether a message leaves by this descriptor.
bool may_send(int fd) {
    char byte = 0;
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    return sendmsg(fd, &message, MSG_NOSIGNAL) == 1;
}

TEST(WorkerSandbox, lets_messages_go_to_the_client_of_a_session_alone) {
    const auto status = [](int fd) { return status_in_sandbox([=] { return may_send(fd); }, true); };
    for (const int fd : {worker_socket_fd, worker_client_fd})
        EXPECT_TRUE(WIFEXITED(status(fd)) && WEXITSTATUS(status(fd)) == allowed) << fd;
    const int other = status(worker_client_fd + 1);
    const bool is_refused = WIFEXITED(other) && WEXITSTATUS(other) == refused;
    EXPECT_TRUE(sanitizer_build ? is_refused : WIFSIGNALED(other) && WTERMSIG(other) == SIGSYS) << other;
    // Without a session there is none.
    const int none = status_in_sandbox([] { return may_send(worker_client_fd) || errno == EBADF; });
    EXPECT_FALSE(WIFEXITED(none) && WEXITSTATUS(none) == allowed) << none;
}

TEST(WorkerSandbox, lets_answers_go_to_the_connection_that_came_with_a_request_and_no_descriptor_with_them) {
    const auto at_output = [](const std::function<bool()>& act) {
        return status_in_sandbox(
            [=] { return dup3(worker_socket_fd, worker_output_fd, O_CLOEXEC) == worker_output_fd && act(); });
    };
    const int answer = at_output([] { return send(worker_output_fd, "x", 1, MSG_NOSIGNAL) == 1; });
    EXPECT_TRUE(WIFEXITED(answer) && WEXITSTATUS(answer) == allowed) << answer;
    const int message = at_output([] { return may_send(worker_output_fd); });
    const int other = status_in_sandbox([] { return send(worker_socket_fd, "x", 1, MSG_NOSIGNAL) == 1; });
    for (const int status : {message, other}) {
        const bool is_refused = WIFEXITED(status) && WEXITSTATUS(status) == refused;
        EXPECT_TRUE(sanitizer_build ? is_refused : WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
    }
}

TEST(WorkerSandbox, is_refused_where_the_parent_is_another) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
        // As after a reparenting: the parent is not who started this process.
        const bool entered = keep_only_socket(ends[1]) && enter_sandbox(memory_bytes, 1);
        _exit(entered ? allowed : refused);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), refused);
    close(ends[0]);
    close(ends[1]);
}

}  // namespace
}  // namespace ingero
