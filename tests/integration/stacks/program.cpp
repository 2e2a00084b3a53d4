// Calls the CUDA runtime from the end of a chain of known functions, until its input ends.
//   stacks-program CUDART CHAIN plain|no-rules|jit|storm|few|asked
// storm: each time on another stack, as fast as it can; few: so too, on some twenty stacks a second, those of the
// driver's calls among them; asked: so too, once for each further line, and says "made".
#include <dlfcn.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using Function = void (*)();
using Caller = void (*)(Function);

int (*synchronize)();
int (*allocate)(void**, size_t);
int (*release)(void*);
int (*chain)(Function);
Caller call_without_unwind_rules;

template <class T>
void find(void* library, const char* name, T& ret_function) {
    ret_function = reinterpret_cast<T>(dlsym(library, name));
    if (ret_function) return;
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
}

/// Code made at run time, with a frame pointer, as just-in-time compilers do: calls its argument.
Caller make_code() {
#if defined(__x86_64__)
    const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
#elif defined(__aarch64__)
    const unsigned char code[] = {0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91, 0x00, 0x00,
                                  0x3f, 0xd6, 0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6};
#endif
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(1);
    memcpy(memory, code, sizeof(code));
    if (mprotect(memory, 4096, PROT_READ | PROT_EXEC) != 0) exit(1);
    __builtin___clear_cache(static_cast<char*>(memory), static_cast<char*>(memory) + sizeof(code));
    return reinterpret_cast<Caller>(memory);
}

Caller generated_code;

}  // namespace

// With names of their own in the symbol table, and no tail calls.
extern "C" {
__attribute__((noinline, used)) void make_calls() {
    synchronize();
    void* memory = nullptr;
    allocate(&memory, 4096);
    release(memory);
    __asm__ volatile("" : : : "memory");
}
__attribute__((noinline, used)) void through_no_rules() {
    call_without_unwind_rules(make_calls);
    __asm__ volatile("" : : : "memory");
}
__attribute__((noinline, used)) void through_generated_code() {
    generated_code(make_calls);
    __asm__ volatile("" : : : "memory");
}

// A path of 20 turns, told by the bits of its number: no two are the same stack.
__attribute__((noinline, used)) void go_left(unsigned path, unsigned turns);
__attribute__((noinline, used)) void go_right(unsigned path, unsigned turns) {
    if (turns == 0) return make_calls();
    (path & 1 ? go_left : go_right)(path >> 1, turns - 1);
    __asm__ volatile("" : : : "memory");
}
__attribute__((noinline, used)) void go_left(unsigned path, unsigned turns) {
    if (turns == 0) return make_calls();
    (path & 1 ? go_left : go_right)(path >> 1, turns - 1);
    __asm__ volatile("" : : : "memory");
}
}

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    void* runtime = dlopen(argv[1], RTLD_NOW);
    void* library = dlopen(argv[2], RTLD_NOW);
    if (!runtime || !library) return fprintf(stderr, "%s\n", dlerror()), 1;
    find(runtime, "cudaDeviceSynchronize", synchronize);
    find(runtime, "cudaMalloc", allocate);
    find(runtime, "cudaFree", release);
    find(library, "chain_1", chain);
    find(library, "call_without_unwind_rules", call_without_unwind_rules);
    generated_code = make_code();
    const std::string way = argv[3];
    const Function last = way == "jit" ? through_generated_code : way == "no-rules" ? through_no_rules : make_calls;
    printf("ready %d\n", getpid());
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof(line), stdin)) return 1;
    unsigned path = 0;
    while (way == "storm" || way == "few") {
        pollfd input{0, POLLIN, 0};
        if (poll(&input, 1, way == "few" ? 300 : 0) != 0) return 0;
        for (int i = 0; i < (way == "few" ? 1 : 50); ++i) go_left(path++, 20);
    }
    while (way == "asked") {
        go_left(path++, 20);
        printf("made\n");
        fflush(stdout);
        if (!fgets(line, sizeof(line), stdin)) return 0;
    }
    // Until the other end is closed, so that the test decides when it has seen enough.
    for (pollfd input{0, POLLIN, 0}; poll(&input, 1, 1) == 0;) chain(last);
    return 0;
}
