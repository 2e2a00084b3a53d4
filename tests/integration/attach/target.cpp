// The target of attaching tests: does as told on standard input, a line a command, and answers each with a line.
//   load PATH   dlopen; "loaded"
//   call NAME   the number that the function of the library loaded last returns
//   register N  that many calls of __cudaRegisterFunction, each with a name of its own; "registered"
//   map PATH    maps the file executable and touches nothing of it; "mapped"
//   calls N     that many calls of cudaDeviceSynchronize, in this process; "done"
//   fork N      the same in a child; "child PID", when it has ended
//   storm DIR   until this process ends, children map all files of the directory executable and unmap them, as fast as
//               they can; "storming"
//   storms 0    how often they did so far
//   name TEXT   takes another command name; "named"
//   filter N    from now on this thread is under a seccomp filter, which refuses system call N; "filtered"
//   exit
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

int fail(const std::string& what) {
    std::cout << "failed: " << what << std::endl;
    return 1;
}

using Function = int (*)();

Function function_of(void* library, const std::string& name) {
    return library ? reinterpret_cast<Function>(dlsym(library, name.c_str())) : nullptr;
}

int make_calls(void* library, int count) {
    const Function function = function_of(library, "cudaDeviceSynchronize");
    if (!function) return fail("no function");
    for (int i = 0; i < count; ++i) function();
    return 0;
}

int register_functions(void* library, int count) {
    using Register = void (*)(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
    const auto function = library ? reinterpret_cast<Register>(dlsym(library, "__cudaRegisterFunction")) : nullptr;
    if (!function) return fail("no function");
    static std::vector<char> stubs(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
        std::string name = "kernel_" + std::to_string(i);
        function(nullptr, &stubs[static_cast<size_t>(i)], name.data(), name.c_str(), -1, nullptr, nullptr, nullptr,
                 nullptr, nullptr);
    }
    std::cout << "registered" << std::endl;
    return 0;
}

int fork_and_call(void* library, int count) {
    const pid_t pid = fork();
    if (pid == 0) _exit(make_calls(library, count));
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) return fail("the child");
    std::cout << "child " << pid << std::endl;
    return 0;
}

int refuse_call(unsigned number) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return fail("the filter");
    std::cout << "filtered" << std::endl;
    return 0;
}

int map_file(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail("open " + path);
    if (mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) return fail("mmap " + path);
    std::cout << "mapped" << std::endl;
    return 0;
}

std::atomic<uint64_t>* storms;

int storm(const std::string& directory) {
    std::vector<int> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
        files.push_back(open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    void* shared = mmap(nullptr, sizeof(*storms), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || files.empty()) return fail("storm " + directory);
    storms = new (shared) std::atomic<uint64_t>(0);
    for (int child = 0; child < 16; ++child) {
        const pid_t pid = fork();
        if (pid < 0) return fail("fork");
        if (pid > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (true)
            for (const int file : files) {
                void* memory = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
                if (memory == MAP_FAILED) _exit(1);
                munmap(memory, 4096);
                storms->fetch_add(1, std::memory_order_relaxed);
            }
    }
    std::cout << "storming" << std::endl;
    return 0;
}

}  // namespace

int main() {
    void* library = nullptr;
    std::cout << "ready" << std::endl;
    std::string command, argument;
    while (std::cin >> command && command != "exit") {
        std::cin >> argument;
        int result = 0;
        if (command == "load") {
            library = dlopen(argument.c_str(), RTLD_NOW | RTLD_LOCAL);
            if (!library) return fail(dlerror());
            std::cout << "loaded" << std::endl;
        } else if (command == "call") {
            const Function function = function_of(library, argument);
            if (!function) return fail("no function " + argument);
            std::cout << function() << std::endl;
        } else if (command == "calls") {
            result = make_calls(library, std::stoi(argument));
            std::cout << "done" << std::endl;
        } else if (command == "register") {
            result = register_functions(library, std::stoi(argument));
        } else if (command == "fork") {
            result = fork_and_call(library, std::stoi(argument));
        } else if (command == "filter") {
            result = refuse_call(static_cast<unsigned>(std::stoul(argument)));
        } else if (command == "name") {
            prctl(PR_SET_NAME, argument.c_str());
            std::cout << "named" << std::endl;
        } else if (command == "storm") {
            result = storm(argument);
        } else if (command == "storms") {
            std::cout << storms->load() << std::endl;
        } else if (command == "map") {
            result = map_file(argument);
        } else {
            result = fail("no command " + command);
        }
        if (result != 0) return result;
    }
    return 0;
}
