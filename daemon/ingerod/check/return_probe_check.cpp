#include "daemon/ingerod/check/return_probe_check.h"

namespace ingero {

CheckResult check_return_probes(ProbedReturn found) {
    using State = CheckResult::State;
    constexpr const char* name = "return-probes";
    switch (found) {
        case ProbedReturn::without_call:
            return {name, State::pass, "this kernel returns from a probed call without a system call", ""};
        case ProbedReturn::passes_filters:
            return {name, State::pass, "seccomp filters of programs let the kernel's return from a probed call pass",
                    ""};
        case ProbedReturn::meets_filters:
            return {name, State::fail,
                    "this kernel returns from a probed call by a system call that seccomp filters see: a program "
                    "whose filter does not allow uretprobe, as in a container, is killed if its returns are probed. "
                    "ingerod traces no program under a filter here, and without uprobe-session none at all",
                    "update the kernel: 6.14 has the fix, and so have the stable kernels of 2025"};
        case ProbedReturn::unknown:
            break;
    }
    return {name, State::note,
            "ingerod cannot determine whether seccomp filters break the return from a probed call: it assumes that "
            "they do, and traces no program under one",
            "run ingeroctl check --probe as root, which tries it"};
}

}  // namespace ingero
