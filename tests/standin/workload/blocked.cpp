// Calls that block for a known reason, and calls that are never returned from.
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

#include "processes.h"
#include "workload.h"

namespace ingero::standin {

namespace {

bool counts_bytes(const std::string& reason) {
    return reason == "disk" || reason == "fsync" || reason == "major";
}

const char* function_of(const std::string& op) {
    if (op == "malloc") return "cudaMalloc";
    if (op == "memcpy") return "cudaMemcpyAsync";
    if (op == "launch") return "cudaLaunchKernel";
    return "cudaStreamSynchronize";
}

// The latency is the stand-in's own, scripted: the program only calls.
std::string blocked_options(const Settings& settings) {
    const std::string amount =
        counts_bytes(settings.reason) ? std::to_string(settings.kib) : std::to_string(settings.us);
    return std::string("kernel_us=0,at=") + function_of(settings.blocked_op) + ":*:" + settings.reason + "=" + amount;
}

std::string run_blocked(const Runtime& runtime, const Settings& settings, Totals& totals) {
    totals.add(run_threads(runtime, settings.threads, [&](unsigned, Caller& caller) {
        for (uint64_t i = 0; i < settings.turns && !stopping(); ++i) {
            if (settings.blocked_op == "malloc")
                caller.allocate(settings.bytes);
            else if (settings.blocked_op == "memcpy")
                caller.copy(&caller, &caller, 64, host_to_device, nullptr);
            else if (settings.blocked_op == "launch")
                caller.launch(&caller, nullptr);
            else
                caller.synchronize(nullptr);
            wait_until_ns(monotonic_ns() + uint64_t(settings.gap_us * 1e3), Pace::sleep);
        }
    }));
    return " reason=" + settings.reason;
}

// What a thread that leaves a call shares with those who make it.
struct Leaver {
    const Runtime* runtime;
    jmp_buf back;
    int inside[2];  ///< a pipe: tells that the callback runs
    static constexpr size_t stack_bytes = 256 << 10;
    char* stack;  ///< two of these: a thread's, and above it the one for its signals
};

void jump_back(void* data) {
    longjmp(static_cast<Leaver*>(data)->back, 1);
}

void end_thread(void*) {
    pthread_exit(nullptr);
}

void wait_to_be_cancelled(void* data) {
    static_cast<void>(write(static_cast<Leaver*>(data)->inside[1], "x", 1) < 0);
    for (;;) pause();
}

// Three calls nest when one is left: the runtime's, the driver's, and what the callback is in.
void leave_by_jump(Leaver& leaver) {
    if (setjmp(leaver.back) == 0) leaver.runtime->cudaLaunchHostFunc(nullptr, jump_back, &leaver);
}

void* leave_by_exit(void* data) {
    auto& leaver = *static_cast<Leaver*>(data);
    leaver.runtime->cudaLaunchHostFunc(nullptr, end_thread, &leaver);
    return nullptr;
}

void* leave_by_cancel(void* data) {
    auto& leaver = *static_cast<Leaver*>(data);
    leaver.runtime->cudaLaunchHostFunc(nullptr, wait_to_be_cancelled, &leaver);
    return nullptr;
}

void leave_in_thread(Leaver& leaver, void* (*how)(void*)) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, how, &leaver) != 0) throw std::runtime_error("no thread");
    if (how == leave_by_cancel) {
        char byte;
        static_cast<void>(read(leaver.inside[0], &byte, 1) < 0);
        pthread_cancel(thread);
    }
    pthread_join(thread, nullptr);
}

// Without a word to the thread library: what a thread holds stays held.
void end_thread_at_once(void*) {
    syscall(SYS_exit, 0);
}

void* leave_by_thread_exit(void* data) {
    auto& leaver = *static_cast<Leaver*>(data);
    leaver.runtime->cudaLaunchHostFunc(nullptr, end_thread_at_once, &leaver);
    return nullptr;
}

// Of the thread whose calls a signal interrupts.
Caller* interrupted = nullptr;

void call_in_handler(int) {
    interrupted->launch(interrupted, nullptr);
}

void interrupt_itself(void*) {
    raise(SIGUSR1);
}

void* be_interrupted(void* data) {
    auto& leaver = *static_cast<Leaver*>(data);
    const stack_t above{.ss_sp = leaver.stack + Leaver::stack_bytes, .ss_flags = 0, .ss_size = Leaver::stack_bytes};
    if (sigaltstack(&above, nullptr) != 0) return nullptr;
    leaver.runtime->cudaLaunchHostFunc(nullptr, interrupt_itself, &leaver);
    return nullptr;
}

// On a stack of its own below the one for signals, which nothing in a program forbids.
void interrupt_in_thread(Leaver& leaver, Caller& caller) {
    struct sigaction action {};
    action.sa_handler = call_in_handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    if (!leaver.stack) {
        void* memory =
            mmap(nullptr, 2 * Leaver::stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("no memory");
        leaver.stack = static_cast<char*>(memory);
    }
    interrupted = &caller;
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, leaver.stack, Leaver::stack_bytes);
    if (pthread_create(&thread, &attributes, be_interrupted, &leaver) != 0) throw std::runtime_error("no thread");
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
}

// The new program makes calls, and logs them beside the old one's log, which it must not replace.
std::vector<std::string> arguments_after_exec(const Settings& settings) {
    std::vector<std::string> arguments;
    const char* log = getenv("INGERO_STANDIN_LOG");
    if (log != nullptr) arguments.insert(arguments.end(), {"--log", std::string(log) + ".exec"});
    if (!settings.cudart.empty()) arguments.insert(arguments.end(), {"--cudart", settings.cudart});
    if (settings.orphan) arguments.emplace_back("--orphan");
    if (settings.quiet) arguments.emplace_back("--quiet");
    arguments.insert(arguments.end(), {"calls", "--count", std::to_string(settings.turns)});
    return arguments;
}

void exec_at_once(void* data) {
    run_again(*static_cast<std::vector<std::string>*>(data));
}

// The thread that makes the call stays in it while another one's exec ends it.
void leave_by_exec(Leaver& leaver, std::vector<std::string> arguments) {
    std::thread other([&] {
        char byte;
        static_cast<void>(read(leaver.inside[0], &byte, 1) < 0);
        run_again(arguments);
        _exit(127);
    });
    leaver.runtime->cudaLaunchHostFunc(nullptr, wait_to_be_cancelled, &leaver);
    other.join();
}

std::string run_exec(const Runtime& runtime, const Settings& settings, Totals&) {
    Leaver leaver{};
    leaver.runtime = &runtime;
    if (pipe2(leaver.inside, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::vector<std::string> arguments = arguments_after_exec(settings);
    if (settings.how == "exec") leave_by_exec(leaver, arguments);
    runtime.cudaLaunchHostFunc(nullptr, exec_at_once, &arguments);
    throw std::runtime_error("exec failed");
}

// After each call that is left come some that return, in which a tracer has to notice what it lost.
std::string run_jump(const Runtime& runtime, const Settings& settings, Totals& totals) {
    if (settings.how.starts_with("exec")) return run_exec(runtime, settings, totals);
    Leaver leaver{};
    leaver.runtime = &runtime;
    if (pipe2(leaver.inside, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    Caller caller(runtime);
    uint64_t left = 0;
    for (uint64_t i = 0; i < settings.turns && !stopping(); ++i) {
        const bool all = settings.how == "all";
        if (all || settings.how == "longjmp") leave_by_jump(leaver), ++left;
        if (all || settings.how == "pthread-exit") leave_in_thread(leaver, leave_by_exit), ++left;
        if (all || settings.how == "cancel") leave_in_thread(leaver, leave_by_cancel), ++left;
        if (settings.how == "signal") interrupt_in_thread(leaver, caller);
        if (settings.how == "thread-exit") leave_in_thread(leaver, leave_by_thread_exit), ++left;
        caller.launch(&caller, nullptr);
        caller.synchronize(nullptr);
    }
    caller.totals.calls += left;
    totals.add(caller.totals);
    return " left=" + std::to_string(left);
}

}  // namespace

Workload blocked_workload() {
    return {
        blocked_options,
        [](const Settings& settings) { return settings.turns * settings.threads * 2 + 64; },
        run_blocked,
    };
}

Workload jump_workload() {
    return {
        [](const Settings&) { return std::string("kernel_us=0"); },
        [](const Settings& settings) { return settings.turns * 10 + 64; },
        run_jump,
    };
}

}  // namespace ingero::standin
