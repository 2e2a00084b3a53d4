#include "daemon/ingerod/check/return_probe_check.h"

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

using State = CheckResult::State;

constexpr const char* name = "return-probes";
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
    if (pid < 0) return UretprobeCall::untold;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status)) return UretprobeCall::untold;
    switch (WEXITSTATUS(status)) {
        case status_of_trap:
            return UretprobeCall::trap;
        case status_of_refusal:
            return UretprobeCall::refused;
        case status_of_unknown_call:
            return UretprobeCall::unknown_call;
        default:
            return UretprobeCall::untold;
    }
}

CheckResult judge_return_probes(UretprobeCall plain, UretprobeCall filtered, std::optional<bool> in_btf) {
    if (filtered == UretprobeCall::trap)
        return {name, State::pass, "seccomp filters of programs let the kernel's return from a probed call pass", ""};
    // Under a filter of our own, which keeps the call from us, the kernel's types tell whether there is one.
    const bool has_call = plain == UretprobeCall::trap || (plain == UretprobeCall::refused && in_btf.value_or(false));
    const bool has_none =
        plain == UretprobeCall::unknown_call || (plain == UretprobeCall::refused && in_btf && !*in_btf);
    if (has_none) return {name, State::pass, "this kernel returns from a probed call without a system call", ""};
    if (has_call && filtered == UretprobeCall::refused)
        return {name, State::fail,
                "this kernel returns from a probed call by a system call that seccomp filters see: a program whose "
                "filter does not allow uretprobe, as in a container, is killed when it is traced",
                "update the kernel: 6.14 has the correction, and so have the stable kernels of 2025. Until then do not "
                "trace where containers run, or allow uretprobe (number 335) in their seccomp profile"};
    return {name, State::note, "it cannot be told here whether seccomp filters break the return from a probed call",
            "run ingeroctl check --probe as root, which tries it"};
}

CheckResult check_return_probes() {
    if (!has_uretprobe_number)
        return {name, State::pass, "this architecture returns from a probed call without a system call", ""};
    return judge_return_probes(try_uretprobe(false), try_uretprobe(true), kernel_knows_uretprobe());
}

}  // namespace ingero
