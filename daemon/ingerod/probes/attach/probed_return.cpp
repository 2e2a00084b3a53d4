#include "daemon/ingerod/probes/attach/probed_return.h"

#include <bpf/btf.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

namespace ingero {

namespace {

// arch/x86/entry/syscalls/syscall_64.tbl, kernel 6.11 (commit 63ded110979b).
constexpr int number_of_uretprobe = 335;
#if defined(__x86_64__)
constexpr bool has_uretprobe_number = true;
#else
constexpr bool has_uretprobe_number = false;
#endif
// An errno that the call itself never gives.
constexpr int refusal = EXDEV;
constexpr int status_of_trap = 100;
constexpr int status_of_refusal = 101;
constexpr int status_of_unknown_call = 102;
constexpr int status_of_other = 103;

bool refuse_uretprobe() {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number_of_uretprobe, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | refusal),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

[[noreturn]] void call_uretprobe(bool filtered) {
    struct sigaction action {};
    action.sa_handler = [](int) { _exit(status_of_trap); };
    if (sigaction(SIGILL, &action, nullptr) != 0) _exit(status_of_other);
    sigset_t trap;
    sigemptyset(&trap);
    sigaddset(&trap, SIGILL);
    sigprocmask(SIG_UNBLOCK, &trap, nullptr);
    if (filtered && !refuse_uretprobe()) _exit(status_of_other);
    const long result = syscall(number_of_uretprobe);
    if (result == -1 && errno == ENOSYS) _exit(status_of_unknown_call);
    // Our own filter, or one that we are under ourselves, such as a service's (EPERM).
    _exit(result == -1 ? status_of_refusal : status_of_other);
}

std::optional<bool> kernel_knows_uretprobe() {
    btf* raw = btf__load_vmlinux_btf();
    if (!raw) return std::nullopt;
    const std::unique_ptr<btf, decltype(&btf__free)> types(raw, btf__free);
    return btf__find_by_name_kind(types.get(), "__x64_sys_uretprobe", BTF_KIND_FUNC) > 0;
}

}  // namespace

UretprobeCall try_uretprobe(bool filtered) {
    const pid_t pid = fork();
    if (pid == 0) call_uretprobe(filtered);
    int status = 0;
    if (pid < 0) return UretprobeCall::unknown;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status)) return UretprobeCall::unknown;
    switch (WEXITSTATUS(status)) {
        case status_of_trap:
            return UretprobeCall::trap;
        case status_of_refusal:
            return UretprobeCall::refused;
        case status_of_unknown_call:
            return UretprobeCall::unknown_call;
        default:
            return UretprobeCall::unknown;
    }
}

ProbedReturn judge_probed_return(UretprobeCall plain, UretprobeCall filtered, std::optional<bool> in_btf) {
    if (filtered == UretprobeCall::trap) return ProbedReturn::passes_filters;
    // Under a filter of our own, which keeps the call from us, the kernel's types show whether there is one.
    const bool is_kept_from_us = plain == UretprobeCall::refused || plain == UretprobeCall::unknown;
    if (plain == UretprobeCall::unknown_call || (is_kept_from_us && in_btf && !*in_btf))
        return ProbedReturn::without_call;
    const bool has_call = plain == UretprobeCall::trap || (plain == UretprobeCall::refused && in_btf.value_or(false));
    return has_call && filtered == UretprobeCall::refused ? ProbedReturn::meets_filters : ProbedReturn::unknown;
}

ProbedReturn find_probed_return() {
    if (!has_uretprobe_number) return ProbedReturn::without_call;
    return judge_probed_return(try_uretprobe(false), try_uretprobe(true), kernel_knows_uretprobe());
}

}  // namespace ingero
