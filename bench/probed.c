/*
 * The functions that are probed: all alike, each beginning with `push`, as the CUDA libraries' exports do. The
 * clobbered callee-saved register is what makes the compiler save it first.
 */
#if defined(__x86_64__)
#define SAVED_REGISTER "rbx"
#elif defined(__aarch64__)
#define SAVED_REGISTER "x19"
#endif

#define PROBED(name)                                                                \
    int name(long a, long b);                                                       \
    __attribute__((noinline)) int name(long a, long b) {                            \
        __asm__ volatile("# " #name : : "r"(a), "r"(b) : SAVED_REGISTER, "memory"); \
        return 0;                                                                   \
    }

PROBED(call_unprobed)
PROBED(call_empty_session)
PROBED(call_recorded)
PROBED(call_nested_inner)
PROBED(call_usual)
PROBED(call_bpftrace)

int call_nested_outer(long a, long b);
__attribute__((noinline)) int call_nested_outer(long a, long b) {
    const int result = call_nested_inner(a, b);
    __asm__ volatile("# call_nested_outer" : : "r"(a) : SAVED_REGISTER, "memory");
    return result;
}
