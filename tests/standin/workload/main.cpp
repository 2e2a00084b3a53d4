// standin-workload: programs as they use a GPU, for tests of the tracer. Options are in --help and ../README.md.
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "loader.h"
#include "processes.h"
#include "workload.h"

namespace ingero::standin {

namespace {

#if !defined(STANDIN_LINKED)
// A program either loads the runtime, or finds it at start, or has it inside: three programs, of which this is the
// first, and starts the one that was asked for.
void become_variant(const Settings& settings, char** arguments) {
    if (settings.load == "dlopen") return;
    const std::string variant = settings.load == "link" ? "linked" : "static";
    const std::string path = own_folder() + "/standin-workload-" + variant;
    execv(path.c_str(), arguments);
    throw std::runtime_error("cannot run " + path);
}

std::optional<Runtime> find_runtime(const Settings& settings, std::string& error) {
    return Runtime::load(settings.cudart.empty() ? own_folder() + "/lib/libcudart.so.12" : settings.cudart, error);
}
#else
void become_variant(const Settings&, char**) {}

std::optional<Runtime> find_runtime(const Settings&, std::string& error) {
    return Runtime::from(RTLD_DEFAULT, error);
}
#endif

Runtime load_runtime(const Settings& settings) {
    std::string error;
    const std::optional<Runtime> runtime = find_runtime(settings, error);
    if (!runtime) throw std::runtime_error(error);
    if (!settings.late_driver && runtime->load_driver != nullptr) runtime->load_driver();
    return *runtime;
}

// What the caller of the program set in the environment goes last, and so holds.
void set_environment(const Settings& settings, const std::string& own_options) {
    std::string options = own_options;
    if (const char* given = getenv("INGERO_STANDIN")) options += std::string(",") + given;
    if (!settings.options.empty()) options += "," + settings.options;
    setenv("INGERO_STANDIN", options.c_str(), 1);
    if (!settings.log.empty()) setenv("INGERO_STANDIN_LOG", settings.log.c_str(), 1);
}

void wait_at_gate(const char* state) {
    std::printf("%s %d\n", state, int(getpid()));
    std::fflush(stdout);
    // Read by hand: a stream would go on reading after the signal to stop.
    char byte = 0;
    while (!stopping() && read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') {
    }
}

void add_common(CLI::App& app, Settings& s) {
    app.add_option("--log", s.log, "write the ground truth here (else INGERO_STANDIN_LOG); %p becomes the process id");
    app.add_option("--cudart", s.cudart, "the runtime to load (default: lib/libcudart.so.12 beside this program)");
    app.add_option("--load", s.load, "load the runtime by dlopen, link it, or have it inside: dlopen, link, static")
        ->check(CLI::IsMember({"dlopen", "link", "static"}));
    app.add_option("--standin", s.options, "more options for the stand-in, as in INGERO_STANDIN");
    app.add_option("--cpu", s.cpu, "run on this CPU only");
    app.add_flag("--gate", s.gate, "print \"ready PID\" when all is loaded, and wait for a line on stdin");
    app.add_flag("--late-load", s.late_load, "load the libraries only after the gate");
    app.add_flag("--second-gate", s.second_gate,
                 "with --late-load: when they are loaded, print \"loaded PID\" and wait for another line");
    app.add_option("--late-load-after", s.late_load_after_s, "load the libraries only after so many seconds");
    app.add_flag("--late-driver", s.late_driver, "leave libcuda to be loaded by the first call");
    app.add_flag("--orphan", s.orphan, "live on when the parent ends");
    app.add_flag("--quiet", s.quiet, "no last line");
    app.add_option("--seed", s.seed, "of what is random");
    app.add_option("--threads", s.threads, "that make calls")->check(CLI::Range(1, 4096));
    app.add_option("--fork", s.forks, "make the calls in so many forked processes, each of them all, at once")
        ->check(CLI::Range(0, 4096));
    app.add_option("--duration", s.duration_s, "stop after so many seconds");
    app.add_option("--kernel-us", s.kernel_us, "time of a kernel (calls 0, sync-loop 100, train 50, serve 20)");
    app.add_option("--scratch", s.scratch, "folder for files that are read and written");
    const std::map<std::string, Pace> paces{{"spin", Pace::spin}, {"sleep", Pace::sleep}};
    app.add_option("--pace", s.pace, "how to keep a rate: spin or sleep")
        ->transform(CLI::CheckedTransformer(paces, CLI::ignore_case));
}

void add_measuring(CLI::App& app, Settings& s) {
    CLI::App* calls = app.add_subcommand("calls", "exactly so many calls, at a rate");
    calls->add_option("--count", s.count, "calls, of all threads together");
    calls->add_option("--rate", s.rate, "a second, of all threads together; 0: flat out");
    calls->add_option("--op", s.op, "launch, malloc (and free, in turns), memcpy, sync, mixed")
        ->check(CLI::IsMember({"launch", "malloc", "memcpy", "sync", "mixed"}));
    calls->add_option("--bytes", s.bytes, "of a malloc or memcpy");

    CLI::App* sync_loop = app.add_subcommand("sync-loop", "launch and synchronise back to back: always inside a call");
    sync_loop->callback([&s] {
        if (s.duration_s <= 0) s.duration_s = 1;
    });

    CLI::App* every = app.add_subcommand("every", "each traced function by its name, with success and with an error");
    every->add_flag("--tail-jump", s.tail_jump, "__cudaLaunchKernel_ptsz too, which returns for another function");

    CLI::App* chain = app.add_subcommand("chain", "calls from the end of a chain of known functions");
    chain->add_option("--library", s.chain_library, "omit or keep (frame pointers), stripped, or a path")
        ->check([](const std::string& text) {
            const bool known = text == "omit" || text == "keep" || text == "stripped";
            return known || text.find('/') != std::string::npos ? "" : "omit, keep, stripped or a path";
        });
    chain->add_option("--op", s.chain_op, "what the chain ends in: sync or launch")
        ->check(CLI::IsMember({"sync", "launch"}));
    chain->add_option("--count", s.turns, "calls a thread (default 20)");
}

void add_trouble(CLI::App& app, Settings& s) {
    CLI::App* blocked = app.add_subcommand("blocked", "calls that block inside for a known reason");
    blocked->add_option("--reason", s.reason, "of the block")
        ->check(CLI::IsMember(
            {"spin", "yield", "sleep", "timer", "poll", "pipe", "socket", "futex", "child", "disk", "fsync", "major"}));
    blocked->add_option("--us", s.us, "how long");
    blocked->add_option("--kib", s.kib, "how much, for disk, fsync and major");
    blocked->add_option("--count", s.turns, "calls a thread (default 20)");
    blocked->add_option("--gap-us", s.gap_us, "sleep between calls");
    blocked->add_option("--op", s.blocked_op, "the call: sync, launch, malloc, memcpy (default sync)")
        ->check(CLI::IsMember({"sync", "launch", "malloc", "memcpy"}));

    CLI::App* jump = app.add_subcommand("jump", "calls that are left without a return");
    jump->add_option("--how", s.how,
                     "longjmp, pthread-exit, cancel or all of these; thread-exit; exec by another thread, exec-inside; "
                     "signal: interrupted by a handler that calls on a stack above, and returned from")
        ->check(CLI::IsMember(
            {"longjmp", "pthread-exit", "cancel", "all", "thread-exit", "exec", "exec-inside", "signal"}));
    jump->add_option("--count", s.turns, "times each (default 20); after exec: calls of the new program");

    CLI::App* fragment = app.add_subcommand("fragment", "device memory in pieces, and an allocation larger than one");
    fragment->add_option("--piece-mib", s.piece_mib, "size of a piece")->check(CLI::Range(1, 1 << 20));
    fragment->add_option("--want-mib", s.want_mib, "what is asked for in the end (default two pieces)");
}

void add_loops(CLI::App& app, Settings& s) {
    CLI::App* train = app.add_subcommand("train", "a training loop");
    train->add_option("--steps", s.steps, "of each thread, unless --duration is given");
    train->add_option("--launches", s.launches, "a step");
    train->add_option("--backward-launches", s.backward_launches,
                      "a step, by a thread for which the one that waits for the device sleeps; 0: no such thread");
    train->add_option("--backward-cpu", s.backward_cpu, "on which it runs only");
    train->add_option("--step-rate", s.rate, "steps a second; 0: as fast as it goes");
    train->add_option("--batch-kib", s.batch_kib, "copied to the device each step");
    train
        ->add_option("--loader", s.loader,
                     "where batches come from: none, compute, read, or workers:N, processes that read and compute")
        ->check(check_loader);
    train->add_option("--loader-us", s.loader_us, "CPU time of a batch, for compute and workers");
    train->add_option("--loader-kib", s.loader_kib, "size of what is read for a batch, for read and workers")
        ->check(CLI::Range(1, 65536));
    train->add_option("--loader-cpu", s.loader_cpu, "the workers run on this CPU only");
    train->add_flag("--pageable", s.pageable, "batches in memory that is not pinned");
    train->add_flag("--loader-cold", s.loader_cold, "drop the batch from the page cache before it is read");
    train->add_option("--checkpoint-every", s.checkpoint_every, "steps; 0: never");
    train->add_option("--checkpoint-kib", s.checkpoint_kib, "written and synced each time");
    train->add_option("--ask-port", s.ask_port, "a server on this host that is asked between steps; 0: none");
    train->add_flag("--ask-keep", s.ask_keep, "over one connection, on which an answer ends with \"done\"");
    train->add_option("--ask-every", s.ask_every, "steps after which it is asked")->check(CLI::PositiveNumber);
    train->add_option("--temporary-mib", s.temporary_mib, "allocated on the device and freed in each step; 0: nothing");
    train->add_option("--leak-every", s.leak_every, "steps after which that is not freed; 0: never");

    CLI::App* serve = app.add_subcommand("serve", "an inference engine that batches (one thread)");
    serve->add_option("--request-rate", s.request_rate, "requests a second")->check(CLI::PositiveNumber);
    serve->add_option("--requests", s.requests, "stop after so many (default 20, unless --duration is given)");
    serve->add_option("--batch", s.batch, "requests decoded together")->check(CLI::Range(1, 1024));
    serve->add_option("--prefill-launches", s.prefill, "for each request");
    serve->add_option("--decode-launches", s.decode, "for each token step");
    serve->add_option("--tokens", s.tokens, "of a request, on average")->check(CLI::PositiveNumber);
    serve->add_flag("--graph", s.graph, "decode by launching a graph");
    serve->add_option("--recapture-every", s.recapture_every,
                      "steps after which --graph makes its graph anew; 0: never");
}

Workload find_workload(const std::string& name) {
    if (name == "calls") return calls_workload();
    if (name == "sync-loop") return sync_loop_workload();
    if (name == "train") return train_workload();
    if (name == "serve") return serve_workload();
    if (name == "blocked") return blocked_workload();
    if (name == "every") return every_workload();
    if (name == "chain") return chain_workload();
    if (name == "fragment") return fragment_workload();
    return jump_workload();
}

Runtime load_in_time(const Settings& settings, const Workload& workload) {
    if (settings.late_load && settings.gate) wait_at_gate("ready");
    if (settings.late_load_after_s > 0)
        wait_until_ns(monotonic_ns() + uint64_t(settings.late_load_after_s * 1e9), Pace::sleep);
    const Runtime runtime = load_runtime(settings);
    if (runtime.prepare != nullptr) runtime.prepare(workload.records(settings) * std::max(settings.forks, 1u));
    if (!settings.late_load && settings.gate) wait_at_gate("ready");
    if (settings.late_load && settings.second_gate) wait_at_gate("loaded");
    return runtime;
}

/// For how long this process's threads that still run waited for a CPU, by the scheduler's own sums.
uint64_t run_delay_ns() {
    uint64_t sum = 0, ran = 0, delay = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
        if (std::ifstream(task.path() / "schedstat") >> ran >> delay) sum += delay;
    return sum;
}

void run(const Settings& settings, const Workload& workload) {
    stop_on_signals();
    if (settings.cpu >= 0) keep_on_cpu(settings.cpu);
    set_environment(settings, workload.options(settings));
    const Runtime runtime = load_in_time(settings, workload);

    Totals totals;
    std::string own;
    const uint64_t start_ns = monotonic_ns();
    if (!stopping() && settings.forks > 0) {
        totals = run_forked(settings.forks, [&](Totals& part) { workload.run(runtime, settings, part); });
        own = " forks=" + std::to_string(settings.forks);
    } else if (!stopping()) {
        own = workload.run(runtime, settings, totals);
    }
    const double elapsed_s = double(monotonic_ns() - start_ns) / 1e9;
    if (settings.quiet) return;
    std::printf("done calls=%llu launches=%llu elapsed_s=%.6f errors=%llu run_delay_ns=%llu%s\n",
                static_cast<unsigned long long>(totals.calls), static_cast<unsigned long long>(totals.launches),
                elapsed_s, static_cast<unsigned long long>(totals.errors),
                static_cast<unsigned long long>(run_delay_ns()), own.c_str());
}

}  // namespace

}  // namespace ingero::standin

int main(int count, char** arguments) {
    using namespace ingero::standin;
    const pid_t parent = getppid();
    Settings settings;
    CLI::App app("Programs as they use a GPU, on the stand-in libraries", "standin-workload");
    app.require_subcommand(1);
    app.fallthrough();
    app.set_help_all_flag("--help-all", "this, with the options of every workload");
    add_common(app, settings);
    add_measuring(app, settings);
    add_trouble(app, settings);
    add_loops(app, settings);
    CLI11_PARSE(app, count, arguments);

    try {
        if (!settings.orphan) die_with_parent(parent);
        become_variant(settings, arguments);
        run(settings, find_workload(app.get_subcommands().front()->get_name()));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "standin-workload: %s\n", error.what());
        return 1;
    }
    return 0;
}
