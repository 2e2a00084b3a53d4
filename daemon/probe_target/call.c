/*
 * The function that `ingerod --check --probe` attaches to: the parameters of cudaMemcpyAsync, and a first instruction
 * like that of the CUDA libraries' exports, since it decides what a probe costs: the clobbered callee-saved register is
 * what makes the compiler save it first.
 */
#include "daemon/probe_target/target.h"

#if defined(__x86_64__)
#define SAVED_REGISTER "rbx"
#elif defined(__aarch64__)
#define SAVED_REGISTER "x19"
#endif

__attribute__((noinline)) int ingero_probe_target_copy(void *to, const void *from, unsigned long bytes, int direction,
                                                       void *stream) {
    __asm__ volatile("" : : "r"(to), "r"(from), "r"(direction), "r"(stream) : SAVED_REGISTER, "memory");
    return ingero_target_result(bytes);
}
