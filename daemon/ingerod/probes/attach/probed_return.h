// The hazard of return probes on x86-64: kernels from 6.11 on leave a probed function by a system call of their own,
// uretprobe(2), and some of them let the program's seccomp filter see it. A filter that does not know it, as that of
// container engines, then breaks the call, and the program dies. Found by what the kernel does, never by its version.
#pragma once

#include <optional>

namespace ingero {

/// What uretprobe(2), called where no probe is, does to a process.
enum class UretprobeCall {
    unknown_call,  ///< ENOSYS: the kernel has none
    trap,          ///< SIGILL: the kernel has it, and it was reached
    refused,       ///< a seccomp filter answered in its place
    unknown,       ///< none of these, or the child could not be started
};

/// Tries it in a child; `filtered`: one with a seccomp filter that refuses this call alone.
UretprobeCall try_uretprobe(bool filtered);

/// How a program leaves a call whose return is probed.
enum class ProbedReturn {
    without_call,    ///< no system call is made
    passes_filters,  ///< by one that seccomp filters do not see
    meets_filters,   ///< by one that they see: a program under a filter may be ended
    unknown,
};

/// What the two tries mean, and whether the kernel's BTF knows the call (nullopt: no BTF to be read).
ProbedReturn judge_probed_return(UretprobeCall plain, UretprobeCall filtered, std::optional<bool> in_btf);
/// Of this kernel, for which it forks twice. The children make system calls only, so threads are no matter.
ProbedReturn find_probed_return();

}  // namespace ingero
