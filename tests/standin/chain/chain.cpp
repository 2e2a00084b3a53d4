// Every function has a frame of another kind, as an unwinder meets them: next to nothing, saved registers, a large
// frame, one that is sized as it runs. None ends in a jump, since each has something to do after its call.
#include "chain.h"

#include <alloca.h>

#if defined(__clang__)
#define CHAIN_OWN_FRAME __attribute__((noinline))
#else
#define CHAIN_OWN_FRAME __attribute__((noipa))
#endif
#define CHAIN_EXPORT extern "C" CHAIN_OWN_FRAME __attribute__((visibility("default")))
#define CHAIN_HIDDEN extern "C" CHAIN_OWN_FRAME __attribute__((visibility("hidden")))

// Nothing that the optimiser may see through: the value is used, and memory may have changed.
#define CHAIN_USE(value) asm volatile("" : "+r"(value) : : "memory")

#if defined(__x86_64__)
#define CHAIN_SAVE_REGISTERS asm volatile("" : : : "rbx", "r12", "r13", "r14", "r15")
#elif defined(__aarch64__)
#define CHAIN_SAVE_REGISTERS asm volatile("" : : : "x19", "x20", "x21", "x22", "x23")
#else
#define CHAIN_SAVE_REGISTERS
#endif

extern "C" {
int standin_chain_f2(const standin_chain_call* call);
int standin_chain_f3(const standin_chain_call* call);
int standin_chain_f4(const standin_chain_call* call);
int standin_chain_f5(const standin_chain_call* call);
int standin_chain_f6(const standin_chain_call* call);
int standin_chain_f7(const standin_chain_call* call);
int standin_chain_f8(const standin_chain_call* call);
}

CHAIN_HIDDEN int standin_chain_f8(const standin_chain_call* call) {
    int result = call->launch != nullptr ? call->launch(call->kernel, {8, 1, 1}, {64, 1, 1}, nullptr, 0, call->stream)
                                         : call->call(call->argument);
    CHAIN_USE(result);
    return result;
}

CHAIN_HIDDEN int standin_chain_f7(const standin_chain_call* call) {
    CHAIN_SAVE_REGISTERS;
    int result = standin_chain_f8(call);
    CHAIN_USE(result);
    return result;
}

CHAIN_EXPORT int standin_chain_f6(const standin_chain_call* call) {
    char large[5000];
    char* place = large;
    CHAIN_USE(place);
    int result = standin_chain_f7(call);
    CHAIN_USE(place);
    return result;
}

CHAIN_EXPORT int standin_chain_f5(const standin_chain_call* call) {
    int result = standin_chain_f6(call);
    CHAIN_USE(result);
    return result;
}

CHAIN_EXPORT int standin_chain_f4(const standin_chain_call* call) {
    size_t size = 200;
    CHAIN_USE(size);
    void* place = alloca(size);
    CHAIN_USE(place);
    int result = standin_chain_f5(call);
    CHAIN_USE(place);
    return result;
}

CHAIN_EXPORT int standin_chain_f3(const standin_chain_call* call) {
    char small[40];
    char* place = small;
    CHAIN_USE(place);
    CHAIN_SAVE_REGISTERS;
    int result = standin_chain_f4(call);
    CHAIN_USE(place);
    return result;
}

CHAIN_EXPORT int standin_chain_f2(const standin_chain_call* call) {
    int result = standin_chain_f3(call);
    const standin_chain_call* kept = call;
    CHAIN_USE(kept);
    return result;
}

CHAIN_EXPORT int standin_chain_f1(const standin_chain_call* call) {
    int result = standin_chain_f2(call);
    CHAIN_USE(result);
    return result;
}

CHAIN_EXPORT void standin_chain_addresses(const void* addresses[standin_chain_length]) {
    int (*const functions[standin_chain_length])(const standin_chain_call*) = {
        standin_chain_f1, standin_chain_f2, standin_chain_f3, standin_chain_f4,
        standin_chain_f5, standin_chain_f6, standin_chain_f7, standin_chain_f8};
    for (int i = 0; i < standin_chain_length; ++i) addresses[i] = reinterpret_cast<const void*>(functions[i]);
}
