// ingero-probe-target: a program that calls one function, for `ingerod --check --probe` to trace. It needs no CUDA
// library, no file and no right. target.h says how it is talked to.
#include <seccomp.h>
#include <signal.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "daemon/probe_target/target.h"

namespace {

constexpr unsigned long most_calls = 1'000'000;

uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

/// The median time of a batch in ns.
uint64_t make_calls(unsigned long calls) {
    std::array<uint64_t, INGERO_TARGET_BATCHES> times{};
    unsigned long call = 0;
    char bytes[2] = {};
    for (size_t batch = 0; batch < times.size(); ++batch) {
        const unsigned long end = calls * (batch + 1) / times.size();
        const uint64_t begun = now_ns();
        for (; call < end; ++call)
            ingero_probe_target_copy(&bytes[0], &bytes[1], ingero_target_bytes(call), ingero_target_direction(call),
                                     reinterpret_cast<void*>(ingero_target_stream(call)));
        times[batch] = now_ns() - begun;
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
}

/// Whatever it was started with: it dies with its parent, leaves no core, and neither can gain a right nor has one.
bool give_up_rights() {
    cap_t none = cap_init();
    const bool dropped = none && cap_set_proc(none) == 0;
    cap_free(none);
    const rlimit no_core{0, 0};
    return dropped && setrlimit(RLIMIT_CORE, &no_core) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 &&
           prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

// The form of Docker's and containerd's default profile: a list of what is allowed, EPERM for all else.
bool enter_filter() {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!filter) return false;
    bool ok = true;
    for (const int call :
         {SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(clock_gettime), SCMP_SYS(exit), SCMP_SYS(exit_group),
          SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall), SCMP_SYS(futex), SCMP_SYS(brk)})
        ok = ok && seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0) == 0;
    ok = ok && seccomp_load(filter) == 0;
    seccomp_release(filter);
    return ok;
}

bool say(const char* text) {
    const size_t size = strlen(text);
    return write(STDOUT_FILENO, text, size) == static_cast<ssize_t>(size);
}

int run(unsigned long calls, bool filtered) {
    const long tid = syscall(SYS_gettid);
    // It is run by a descriptor, which would be its name else.
    prctl(PR_SET_NAME, "ingero-probe", 0, 0, 0);
    if (!give_up_rights()) return 3;
    if (filtered && !enter_filter()) return 4;
    std::array<char, 64> line{};
    snprintf(line.data(), line.size(), "ready %ld %" PRIu64 "\n", tid, make_calls(calls));
    char answer = 0;
    if (!say(line.data()) || read(STDIN_FILENO, &answer, 1) != 1) return 1;
    snprintf(line.data(), line.size(), "done %" PRIu64 "\n", make_calls(calls));
    return say(line.data()) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    char* end = nullptr;
    const unsigned long calls = argc > 1 ? strtoul(argv[1], &end, 10) : 0;
    const bool filtered = argc == 3 && strcmp(argv[2], "filtered") == 0;
    if (calls < INGERO_TARGET_BATCHES || calls > most_calls || *end != '\0' || argc > 3 || (argc == 3 && !filtered)) {
        fputs("usage: ingero-probe-target CALLS [filtered]; `ingerod --check --probe` starts it\n", stderr);
        return 2;
    }
    // Past exit handlers, which might make calls that the filter refuses.
    _exit(run(calls, filtered));
}
