/* Where a program of the portable archive begins: what the kernel does for a program with an interpreter, done here,
 * since the path of an interpreter cannot be relative to its program. The dynamic loader, of the archive's own libc, is
 * mapped from INGERO_LOADER, relative to the program's directory, and entered as if the kernel had mapped it.
 *
 * In place of `ld.so PROGRAM`, since /proc/self/exe then names the program: the daemon finds its helpers by it, probes
 * a function of its own in it, and starts it again.
 *
 * Nothing is relocated yet and there is no libc: no call out of this file, no data that holds an address. */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef INGERO_LOADER
#error "INGERO_LOADER is the path of the loader, relative to the directory of the program"
#endif

#define HEADERS_MAX 32
#define PATH_BYTES 4096
#define CANNOT_RUN 127 /* as a shell says it */

/* The program's own start, from crt1.o. Hidden: so its address is a distance, not a relocation. */
extern const char program_start[] __asm__("_start") __attribute__((visibility("hidden")));

/* What the loader reads as the program's headers: those of the file, and the interpreter that the file does not name.
 */
static ElfW(Phdr) headers[HEADERS_MAX];
static char loader_path[PATH_BYTES];

#if defined(__x86_64__)
/* The stack is as the kernel left it, and the loader is to find it so. */
__asm__(
    ".text\n"
    ".globl ingero_portable_entry\n"
    ".type ingero_portable_entry, @function\n"
    "ingero_portable_entry:\n"
    "xor %ebp, %ebp\n"
    "mov %rsp, %rbx\n"
    "mov %rsp, %rdi\n"
    "and $-16, %rsp\n"
    "call ingero_load_interpreter\n"
    "mov %rbx, %rsp\n"
    "xor %edx, %edx\n"
    "jmp *%rax\n"
    ".size ingero_portable_entry, .-ingero_portable_entry\n");

static long system_call(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
__asm__(
    ".text\n"
    ".globl ingero_portable_entry\n"
    ".type ingero_portable_entry, %function\n"
    "ingero_portable_entry:\n"
    "mov x29, #0\n"
    "mov x30, #0\n"
    "mov x0, sp\n"
    "bl ingero_load_interpreter\n"
    "mov x16, x0\n"
    "mov x0, #0\n"
    "br x16\n"
    ".size ingero_portable_entry, .-ingero_portable_entry\n");

static long system_call(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#else
#error "no entry for this architecture"
#endif

static size_t length_of(const char* text) {
    size_t length = 0;
    while (text[length]) ++length;
    return length;
}

static void complain(const char* text) {
    system_call(SYS_write, 2, (long)text, (long)length_of(text), 0, 0, 0);
}

__attribute__((noreturn)) static void give_up(const char* why) {
    complain("ingero: cannot start the program loader: ");
    complain(loader_path);
    complain(": ");
    complain(why);
    complain("\nhint: unpack the whole archive, leave its folders as they are, and have /proc mounted\n");
    for (;;) system_call(SYS_exit_group, CANNOT_RUN, 0, 0, 0, 0, 0);
}

/* Puts the loader's path into loader_path. */
static void find_loader(void) {
    static const char relative[] = INGERO_LOADER;
    const long length = system_call(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/exe", (long)loader_path,
                                    (long)(sizeof loader_path - sizeof relative), 0, 0);
    if (length < 0) give_up("cannot read /proc/self/exe");
    size_t end = (size_t)length;
    while (end > 0 && loader_path[end - 1] != '/') --end;
    for (size_t i = 0; i < sizeof relative; ++i) loader_path[end + i] = relative[i];
}

static int protection_of(const ElfW(Phdr) * segment) {
    return (segment->p_flags & PF_R ? PROT_READ : 0) | (segment->p_flags & PF_W ? PROT_WRITE : 0) |
           (segment->p_flags & PF_X ? PROT_EXEC : 0);
}

static int is_error(long result) {
    return result < 0 && result > -4096;
}

static void map_segment(int fd, uintptr_t base, const ElfW(Phdr) * segment, uintptr_t page) {
    const uintptr_t start = (base + segment->p_vaddr) & -page;
    const uintptr_t file_end = base + segment->p_vaddr + segment->p_filesz;
    const uintptr_t end = base + segment->p_vaddr + segment->p_memsz;
    const uintptr_t lead = segment->p_vaddr & (page - 1);
    const int protection = protection_of(segment);
    if (is_error(system_call(SYS_mmap, (long)start, (long)(segment->p_filesz + lead), protection,
                             MAP_PRIVATE | MAP_FIXED, fd, (long)(segment->p_offset - lead))))
        give_up("cannot be mapped");
    if (end == file_end) return;
    /* What the file does not hold is zero: the last page's rest, which the loader allocates from, and pages of their
     * own. */
    const uintptr_t file_page_end = (file_end + page - 1) & -page;
    for (volatile char* byte = (volatile char*)file_end; (uintptr_t)byte < file_page_end; ++byte) *byte = 0;
    if (end > file_page_end && is_error(system_call(SYS_mmap, (long)file_page_end, (long)(end - file_page_end),
                                                    protection, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0)))
        give_up("no memory");
}

/* Maps the loader; where it is, and its entry point. */
static uintptr_t map_loader(uintptr_t page, uintptr_t* ret_entry) {
    union {
        ElfW(Ehdr) header;
        char bytes[1024];
    } start;
    const long fd = system_call(SYS_openat, AT_FDCWD, (long)loader_path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (is_error(fd)) give_up("cannot be opened");
    const long size = system_call(SYS_read, fd, (long)&start, sizeof start, 0, 0, 0);
    const ElfW(Ehdr)* elf = &start.header;
    if (size < (long)sizeof *elf || elf->e_ident[EI_MAG0] != ELFMAG0 || elf->e_ident[EI_MAG1] != ELFMAG1 ||
        elf->e_ident[EI_MAG2] != ELFMAG2 || elf->e_ident[EI_MAG3] != ELFMAG3 || elf->e_type != ET_DYN ||
        elf->e_phentsize != sizeof(ElfW(Phdr)) ||
        elf->e_phoff + (uint64_t)elf->e_phnum * sizeof(ElfW(Phdr)) > (uint64_t)size)
        give_up("is not a program loader");
    const ElfW(Phdr)* segments = (const ElfW(Phdr)*)(const void*)(start.bytes + elf->e_phoff);
    uintptr_t span = 0;
    for (int i = 0; i < elf->e_phnum; ++i)
        if (segments[i].p_type == PT_LOAD) span = segments[i].p_vaddr + segments[i].p_memsz;
    const long base = system_call(SYS_mmap, 0, (long)span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (is_error(base)) give_up("no memory");
    for (int i = 0; i < elf->e_phnum; ++i)
        if (segments[i].p_type == PT_LOAD) map_segment((int)fd, (uintptr_t)base, &segments[i], page);
    system_call(SYS_close, fd, 0, 0, 0, 0, 0);
    *ret_entry = (uintptr_t)base + elf->e_entry;
    return (uintptr_t)base;
}

/* Copies the program's headers to `headers`, with one that names the loader; how many there are then. */
static size_t copy_headers(const ElfW(Phdr) * own, size_t count) {
    uintptr_t base = 0;
    for (size_t i = 0; i < count; ++i)
        if (own[i].p_type == PT_PHDR) base = (uintptr_t)own - own[i].p_vaddr;
    if (base == 0 || count + 1 > HEADERS_MAX) give_up("the program has headers that are not expected");
    size_t copied = 0;
    for (size_t i = 0; i < count; ++i) {
        /* The loader takes where the program lies from where this header says that the headers are. */
        ElfW(Phdr)* to = &headers[copied++];
        to->p_type = own[i].p_type;
        to->p_flags = own[i].p_flags;
        to->p_offset = own[i].p_offset;
        to->p_vaddr = own[i].p_type == PT_PHDR ? (uintptr_t)headers - base : own[i].p_vaddr;
        to->p_paddr = own[i].p_paddr;
        to->p_filesz = own[i].p_filesz;
        to->p_memsz = own[i].p_memsz;
        to->p_align = own[i].p_align;
    }
    ElfW(Phdr)* interpreter = &headers[copied++];
    interpreter->p_type = PT_INTERP;
    interpreter->p_flags = PF_R;
    interpreter->p_vaddr = (uintptr_t)loader_path - base;
    interpreter->p_filesz = interpreter->p_memsz = length_of(loader_path) + 1;
    interpreter->p_align = 1;
    return copied;
}

/* Takes the stack that the kernel made: argc, arguments, 0, environment, 0, pairs that describe the program. Where to
 * go on. */
__attribute__((used, visibility("hidden"))) uintptr_t ingero_load_interpreter(uintptr_t* stack) {
    uintptr_t* at = stack + 1 + stack[0] + 1;
    while (*at) ++at;
    ElfW(auxv_t)* pairs = (ElfW(auxv_t)*)(at + 1);
    ElfW(auxv_t)* base = NULL, *entry = NULL, *program = NULL, *count = NULL;
    uintptr_t page = 4096, secure = 0;
    for (ElfW(auxv_t)* pair = pairs; pair->a_type != AT_NULL; ++pair) {
        if (pair->a_type == AT_BASE) base = pair;
        if (pair->a_type == AT_ENTRY) entry = pair;
        if (pair->a_type == AT_PHDR) program = pair;
        if (pair->a_type == AT_PHNUM) count = pair;
        if (pair->a_type == AT_PAGESZ) page = pair->a_un.a_val;
        if (pair->a_type == AT_SECURE) secure = pair->a_un.a_val;
    }
    /* Started by a loader that the file names after all, as it comes from the linker. */
    if (base && base->a_un.a_val != 0) return (uintptr_t)program_start;
    find_loader();
    /* Whoever can link the program into a folder of their own could have it load what they like. */
    if (secure) give_up("setuid programs and programs with file capabilities are not supported");
    if (!base || !entry || !program || !count) give_up("the kernel did not describe the program");
    uintptr_t loader_entry = 0;
    base->a_un.a_val = map_loader(page, &loader_entry);
    count->a_un.a_val = copy_headers((const ElfW(Phdr)*)program->a_un.a_val, count->a_un.a_val);
    program->a_un.a_val = (uintptr_t)headers;
    entry->a_un.a_val = (uintptr_t)program_start;
    return loader_entry;
}
