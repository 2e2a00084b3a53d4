// A chain of known functions without frame pointers, each with a frame of another size, up to a function that is given.
#include <alloca.h>
#include <string.h>

#define LINK(name, next, bytes)                                             \
    __attribute__((noinline, used)) static int name(void (*call)(void)) {   \
        volatile char room[bytes];                                          \
        room[0] = 1;                                                        \
        const int result = next(call) + room[0];                            \
        __asm__ volatile("" : : "r"(result) : "memory"); /* no tail call */ \
        return result;                                                      \
    }

__attribute__((noinline, used)) static int chain_8(void (*call)(void)) {
    call();
    __asm__ volatile("" : : : "memory");
    return 1;
}
LINK(chain_7, chain_8, 24)
LINK(chain_6, chain_7, 4000)
LINK(chain_5, chain_6, 8)

/* A frame whose size is known at run time only: the compiler takes a frame pointer for this one. */
__attribute__((noinline, used)) static int chain_4(void (*call)(void)) {
    volatile int bytes = 300;
    char* room = alloca((size_t)bytes);
    memset(room, 1, (size_t)bytes);
    const int result = chain_5(call) + room[bytes - 1];
    __asm__ volatile("" : : "r"(room), "r"(result) : "memory");
    return result;
}
LINK(chain_3, chain_4, 64)
LINK(chain_2, chain_3, 1)

int chain_1(void (*call)(void));
int chain_1(void (*call)(void)) {
    const int result = chain_2(call);
    __asm__ volatile("" : : "r"(result) : "memory");
    return result;
}

/* Calls on without saying how to unwind it: a stack through it ends there. */
void call_without_unwind_rules(void (*call)(void));
#if defined(__x86_64__)
__asm__(
    ".text\n.globl call_without_unwind_rules\n.type call_without_unwind_rules, %function\n"
    "call_without_unwind_rules:\n  sub $8, %rsp\n  call *%rdi\n  add $8, %rsp\n  ret\n"
    ".size call_without_unwind_rules, . - call_without_unwind_rules\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl call_without_unwind_rules\n.type call_without_unwind_rules, %function\n"
    "call_without_unwind_rules:\n  str x30, [sp, #-16]!\n  blr x0\n  ldr x30, [sp], #16\n  ret\n"
    ".size call_without_unwind_rules, . - call_without_unwind_rules\n");
#endif
