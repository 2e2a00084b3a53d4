// A library whose functions begin with known instructions, for elf_symbols_test: versions, aliases, a resolver, data.
#define FUNCTION(name, first)                                                         \
    __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name ":\n" first \
            "\n"                                                                      \
            "ret\n.size " #name ", . - " #name "\n")

#define JUMP(name, code)                                                                                             \
    __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name ":\n" code "\n.size " #name ", . - " #name \
            "\n")

#if defined(__x86_64__)
FUNCTION(first_push, "push %rbp\n pop %rbp");
FUNCTION(first_push_high, "push %r12\n pop %r12");
FUNCTION(first_nop, "nop");
FUNCTION(first_nop_2, ".byte 0x66, 0x90");
FUNCTION(first_nop_long, "nopl 0(%rax)");
FUNCTION(first_endbr64, "endbr64");
FUNCTION(first_mov, "mov %rdi, %rax");
FUNCTION(first_sub, "sub $8, %rsp\n add $8, %rsp");
FUNCTION(first_call, "call first_mov");
JUMP(jumps, "jmp first_mov");
JUMP(jumps_far, ".byte 0xe9\n .long first_mov - . - 4");
JUMP(jumps_with_frame, "endbr64\n push %rbp\n mov %rsp, %rbp\n pop %rbp\n jmp first_mov");
JUMP(jumps_after_work, "inc %rdi\n jmp first_mov");
JUMP(jumps_inside, "jmp first_sub + 4");
JUMP(jumps_to_jump, "jmp jumps");
JUMP(jumps_if, "jz first_mov\n nop");
#elif defined(__aarch64__)
FUNCTION(first_adrp, "adrp x0, first_adrp");
FUNCTION(first_branch, "b 1f\n1:");
FUNCTION(first_nop, "nop");
FUNCTION(first_bti, "hint #34");
JUMP(jumps, "b first_nop");
JUMP(jumps_far, "b first_nop");
JUMP(jumps_with_frame, "hint #34\n b first_nop");
JUMP(jumps_after_work, "add x0, x0, #1\n b first_nop");
JUMP(jumps_inside, "b first_adrp + 4");
JUMP(jumps_to_jump, "b jumps");
JUMP(jumps_if, "b.eq first_nop\n nop");
#endif

int original(int x) {
    return x + 1;
}
int alias(int x) __attribute__((alias("original")));
int same_address(int x) __attribute__((alias("original")));

int renewed_old(int x) {
    return x + 2;
}
int renewed_new(int x) {
    return x + 3;
}
__asm__(".symver renewed_old, renewed@FIXTURE_1");
__asm__(".symver renewed_new, renewed@@FIXTURE_2");

static int implementation(int x) {
    return x + 4;
}
__attribute__((used)) static int (*resolve(void))(int) {
    return implementation;
}
int resolved(int x) __attribute__((ifunc("resolve")));

int data_not_function = 1;
extern int undefined_function(int x);
__attribute__((noinline, used)) static int only_in_symtab(int x) {
    return undefined_function(x) + 5;
}
int calls_static(int x) {
    return only_in_symtab(x) + 1;
}
