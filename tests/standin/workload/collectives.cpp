// standin-collectives: ranks that talk by NCCL, as threads of one or more processes. Options are in --help and
// ../README.md.
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <thread>

#include "../libnccl/abi.h"
#include "processes.h"
#include "workload.h"

// X(name, parameters)
#define STANDIN_NCCL_FUNCTIONS(X)                                                                        \
    X(ncclGetUniqueId, (ncclUniqueId * id))                                                              \
    X(ncclCommInitRank, (ncclComm_t * out, int ranks, ncclUniqueId id, int rank))                        \
    X(ncclCommInitRankConfig, (ncclComm_t * out, int ranks, ncclUniqueId id, int rank, ncclConfig_t*))   \
    X(ncclCommInitAll, (ncclComm_t * out, int count, const int* devices))                                \
    X(ncclCommSplit, (ncclComm_t parent, int color, int key, ncclComm_t* out, ncclConfig_t*))            \
    X(ncclCommFinalize, (ncclComm_t))                                                                    \
    X(ncclCommDestroy, (ncclComm_t))                                                                     \
    X(ncclCommAbort, (ncclComm_t))                                                                       \
    X(ncclGroupStart, ())                                                                                \
    X(ncclGroupEnd, ())                                                                                  \
    X(ncclAllReduce, (const void*, void*, size_t count, int datatype, int reduction, ncclComm_t, void*)) \
    X(ncclAllGather, (const void*, void*, size_t count, int datatype, ncclComm_t, void* stream))         \
    X(ncclReduceScatter, (const void*, void*, size_t count, int datatype, int op, ncclComm_t, void*))    \
    X(ncclBroadcast, (const void*, void*, size_t count, int datatype, int root, ncclComm_t, void*))      \
    X(ncclBcast, (void*, size_t count, int datatype, int root, ncclComm_t, void* stream))                \
    X(ncclReduce, (const void*, void*, size_t count, int datatype, int op, int root, ncclComm_t, void*)) \
    X(ncclSend, (const void*, size_t count, int datatype, int peer, ncclComm_t, void* stream))           \
    X(ncclRecv, (void*, size_t count, int datatype, int peer, ncclComm_t, void* stream))

extern "C" {
#define STANDIN_DECLARE(name, parameters) int name parameters;
STANDIN_NCCL_FUNCTIONS(STANDIN_DECLARE)
#undef STANDIN_DECLARE
}

namespace ingero::standin {

namespace {

struct Nccl {
#define STANDIN_POINTER(name, parameters) decltype(&::name) name;
    STANDIN_NCCL_FUNCTIONS(STANDIN_POINTER)
#undef STANDIN_POINTER

    static Nccl load(const std::string& path) {
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) throw std::runtime_error(dlerror());
        Nccl nccl{};
#define STANDIN_LOOK_UP(name, parameters) nccl.name = reinterpret_cast<decltype(nccl.name)>(dlsym(library, #name));
        STANDIN_NCCL_FUNCTIONS(STANDIN_LOOK_UP)
#undef STANDIN_LOOK_UP
        return nccl;
    }
};

struct Plan {
    std::string mode = "loop", log, nccl;
    int ranks = 4;
    unsigned processes = 4;
    uint64_t steps = 100, sync_every = 10;
    double compute_ms = 1, late_ms = 0, jitter_ms = 0;
    uint64_t late_from = 1, late_until = UINT64_MAX;
    int late_rank = -1, leaving_rank = -1;
    uint64_t leave_at = 0;
    bool gate = false, late_on_device = false;
};

constexpr int bytes8 = 0, int32 = 2, float32 = 7, half = 6, unknown_datatype = 99;
constexpr int sum = 0, maximum = 2;
constexpr int device_to_device = 3;
constexpr double device_bytes_per_ms = 16e6;  ///< copy_gbps of the stand-in, unless it is set

class Rank {
  public:
    Rank(const Runtime& runtime, const Nccl& nccl, const Plan& plan, std::array<ncclUniqueId, 3> ids, int rank)
        : runtime_(runtime), nccl_(nccl), plan_(plan), ids_(ids), rank_(rank) {
        expect(runtime_.cudaStreamCreateWithFlags(&stream_, 1));
    }

    void loop() {
        ncclComm_t world = init(0);
        void* on_device = nullptr;
        const auto late_bytes = size_t(plan_.late_ms * device_bytes_per_ms);
        if (plan_.late_on_device) expect(runtime_.cudaMalloc(&on_device, late_bytes));
        uint64_t next = monotonic_ns();
        std::mt19937_64 random(static_cast<uint64_t>(rank_));
        std::uniform_real_distribution<> jitter(0, plan_.jitter_ms);
        for (uint64_t step = 1; step <= plan_.steps && !stopping(); ++step) {
            const bool late = rank_ == plan_.late_rank && step >= plan_.late_from && step < plan_.late_until;
            const double late_ms = late ? plan_.late_ms : 0;
            const double ms = plan_.compute_ms + (plan_.late_on_device ? 0 : late_ms) + jitter(random);
            next = monotonic_ns() + uint64_t(ms * 1e6);
            wait_until_ns(next, Pace::sleep);
            if (late && plan_.late_on_device) {
                expect(runtime_.cudaMemcpyAsync(on_device, on_device, late_bytes, device_to_device, stream_));
                synchronize();
            }
            if (rank_ == plan_.leaving_rank && step == plan_.leave_at) _exit(1);
            expect(nccl_.ncclAllReduce(nullptr, nullptr, 1024, float32, sum, world, stream_));
            if (step % plan_.sync_every == 0) synchronize();
        }
        synchronize();
        expect(nccl_.ncclCommDestroy(world));
    }

    void every() {
        ncclComm_t world = init(0);
        collectives(world);
        messages(world);
        errors(world);
        splits(world);
        in_a_group();
        of_one_process();
        expect(nccl_.ncclCommFinalize(world));
        expect(nccl_.ncclCommDestroy(world));
        // The address may be given out again.
        world = init(2);
        expect(nccl_.ncclAllReduce(nullptr, nullptr, 5, int32, sum, world, stream_));
        synchronize();
        expect(nccl_.ncclCommDestroy(world));
    }

  private:
    static void expect(int result) {
        if (result != 0) throw std::runtime_error("a call returned " + std::to_string(result));
    }
    void synchronize() const { expect(runtime_.cudaStreamSynchronize(stream_)); }
    size_t count(size_t base) const { return base * 100 + size_t(rank_); }
    int next() const { return (rank_ + 1) % plan_.ranks; }
    int previous() const { return (rank_ + plan_.ranks - 1) % plan_.ranks; }

    ncclComm_t init(size_t id) const {
        ncclComm_t made = nullptr;
        expect(rank_ % 2 == 0 ? nccl_.ncclCommInitRank(&made, plan_.ranks, ids_[id], rank_)
                              : nccl_.ncclCommInitRankConfig(&made, plan_.ranks, ids_[id], rank_, nullptr));
        return made;
    }

    void collectives(ncclComm_t world) const {
        for (int datatype = 0; datatype < datatypes; ++datatype)
            expect(nccl_.ncclAllReduce(nullptr, nullptr, count(1), datatype, datatype % 7, world, stream_));
        expect(nccl_.ncclAllGather(nullptr, nullptr, count(2), float32, world, stream_));
        expect(nccl_.ncclReduceScatter(nullptr, nullptr, count(3), half, maximum, world, stream_));
        expect(nccl_.ncclBroadcast(nullptr, nullptr, count(4), int32, 1, world, stream_));
        expect(nccl_.ncclBcast(nullptr, count(5), bytes8, plan_.ranks - 1, world, stream_));
        expect(nccl_.ncclReduce(nullptr, nullptr, count(6), float32, sum, 2, world, stream_));
        synchronize();
    }

    void messages(ncclComm_t world) const {
        for (size_t turn = 0; turn < 3; ++turn) {
            expect(nccl_.ncclGroupStart());
            expect(nccl_.ncclSend(nullptr, count(10 + turn), float32, next(), world, stream_));
            expect(nccl_.ncclGroupStart());
            expect(nccl_.ncclRecv(nullptr, count(20 + turn), float32, previous(), world, stream_));
            expect(nccl_.ncclGroupEnd());
            expect(nccl_.ncclBcast(nullptr, count(30 + turn), half, 0, world, stream_));
            expect(nccl_.ncclGroupEnd());
        }
        synchronize();
    }

    void errors(ncclComm_t world) const {
        ncclComm_t none = nullptr;
        nccl_.ncclCommInitRank(&none, 0, ids_[0], rank_);
        nccl_.ncclCommInitRankConfig(&none, plan_.ranks, ids_[0], -1, nullptr);
        nccl_.ncclCommInitAll(&none, 0, nullptr);
        nccl_.ncclCommSplit(none, 0, 0, &none, nullptr);
        nccl_.ncclCommFinalize(none);
        nccl_.ncclCommDestroy(none);
        nccl_.ncclCommAbort(none);
        nccl_.ncclGroupEnd();
        nccl_.ncclAllReduce(nullptr, nullptr, 1, unknown_datatype, sum, world, stream_);
        nccl_.ncclAllGather(nullptr, nullptr, 1, unknown_datatype, world, stream_);
        nccl_.ncclReduceScatter(nullptr, nullptr, 1, unknown_datatype, sum, world, stream_);
        nccl_.ncclBroadcast(nullptr, nullptr, 1, int32, 1000, world, stream_);
        nccl_.ncclBcast(nullptr, 1, int32, 1000, world, stream_);
        nccl_.ncclReduce(nullptr, nullptr, 1, int32, sum, 1000, world, stream_);
        nccl_.ncclSend(nullptr, 1, int32, 1000, world, stream_);
        nccl_.ncclRecv(nullptr, 1, int32, 1000, none, stream_);
        // What failed took no number.
        expect(nccl_.ncclAllReduce(nullptr, nullptr, count(7), float32, sum, world, stream_));
        synchronize();
    }

    void splits(ncclComm_t world) const {
        ncclComm_t half_of_all = nullptr, all_but_first = nullptr, quarter = nullptr;
        expect(nccl_.ncclCommSplit(world, rank_ % 2, -rank_, &half_of_all, nullptr));
        for (size_t i = 0; i < 3; ++i)
            expect(nccl_.ncclAllReduce(nullptr, nullptr, count(40 + i), float32, sum, half_of_all, stream_));
        expect(nccl_.ncclCommSplit(world, rank_ == 0 ? -1 : 7, 3, &all_but_first, nullptr));
        if (rank_ != 0) expect(nccl_.ncclAllGather(nullptr, nullptr, count(50), half, all_but_first, stream_));
        expect(nccl_.ncclAllReduce(nullptr, nullptr, count(51), float32, sum, world, stream_));
        expect(nccl_.ncclCommSplit(half_of_all, rank_ / 2 % 2, rank_, &quarter, nullptr));
        expect(nccl_.ncclBroadcast(nullptr, nullptr, count(60), float32, 0, quarter, stream_));
        synchronize();
        expect(nccl_.ncclCommDestroy(quarter));
        expect(nccl_.ncclCommDestroy(half_of_all));
        if (rank_ != 0) expect(nccl_.ncclCommAbort(all_but_first));
    }

    void in_a_group() const {
        // Neither is looked at before the group ends.
        ncclComm_t made = reinterpret_cast<ncclComm_t>(uintptr_t(0xdead0000));
        expect(nccl_.ncclGroupStart());
        expect(nccl_.ncclCommInitRank(&made, plan_.ranks, ids_[1], rank_));
        expect(nccl_.ncclGroupEnd());
        expect(nccl_.ncclAllReduce(nullptr, nullptr, count(70), float32, sum, made, stream_));
        synchronize();
        expect(nccl_.ncclCommDestroy(made));
    }

    void of_one_process() const {
        std::array<ncclComm_t, 3> made{};
        expect(nccl_.ncclCommInitAll(made.data(), int(made.size()), nullptr));
        expect(nccl_.ncclGroupStart());
        for (size_t i = 0; i < made.size(); ++i)
            expect(nccl_.ncclAllReduce(nullptr, nullptr, 80 + i, float32, sum, made[i], stream_));
        expect(nccl_.ncclGroupEnd());
        synchronize();
        for (const ncclComm_t one : made) expect(nccl_.ncclCommDestroy(one));
    }

    const Runtime& runtime_;
    const Nccl& nccl_;
    const Plan& plan_;
    const std::array<ncclUniqueId, 3> ids_;
    const int rank_;
    void* stream_ = nullptr;
};

void run(const Plan& plan) {
    if (!plan.log.empty()) setenv("INGERO_STANDIN_LOG", plan.log.c_str(), 1);
    const std::string libraries = own_folder() + "/lib/";
    std::string error;
    const auto runtime = Runtime::load(libraries + "libcudart.so.13", error);
    if (!runtime) throw std::runtime_error(error);
    runtime->load_driver();
    const Nccl nccl = Nccl::load(plan.nccl.empty() ? libraries + "libnccl.so.2" : plan.nccl);
    if (plan.gate) {
        std::printf("ready %d\n", int(getpid()));
        std::fflush(stdout);
        std::getchar();
    }
    std::array<ncclUniqueId, 3> ids{};
    for (ncclUniqueId& id : ids) nccl.ncclGetUniqueId(&id);
    const int threads = plan.ranks / int(plan.processes);
    // Which process a child is it learns by counting down a pipe: the children start in no order.
    int turns[2];
    if (pipe(turns) != 0) throw std::runtime_error("no pipe");
    for (unsigned i = 0; i < plan.processes; ++i)
        if (write(turns[1], &i, sizeof i) != sizeof i) throw std::runtime_error("no room in the pipe");
    run_forked(plan.processes, [&](Totals&) {
        unsigned process = 0;
        if (read(turns[0], &process, sizeof process) != sizeof process) throw std::runtime_error("no number");
        std::vector<std::thread> workers;
        for (int i = 0; i < threads; ++i)
            workers.emplace_back([&, rank = int(process) * threads + i] {
                Rank one(*runtime, nccl, plan, ids, rank);
                plan.mode == "every" ? one.every() : one.loop();
            });
        for (std::thread& worker : workers) worker.join();
    });
    std::printf("done ranks=%d processes=%u\n", plan.ranks, plan.processes);
}

}  // namespace

}  // namespace ingero::standin

int main(int count, char** arguments) {
    using namespace ingero::standin;
    const pid_t parent = getppid();
    Plan plan;
    CLI::App app("Ranks that talk by NCCL, on the stand-in libraries", "standin-collectives");
    app.add_option("mode", plan.mode, "loop: compute, all-reduce, now and then synchronise; every: each function")
        ->check(CLI::IsMember({"loop", "every"}));
    app.add_option("--log", plan.log, "write the ground truth here");
    app.add_option("--nccl", plan.nccl, "the library to load (default: lib/libnccl.so.2 beside this program)");
    app.add_option("--ranks", plan.ranks)->check(CLI::Range(1, 64));
    app.add_option("--processes", plan.processes, "that the ranks are threads of, shared evenly");
    app.add_option("--steps", plan.steps, "of the loop");
    app.add_option("--sync-every", plan.sync_every, "steps")->check(CLI::PositiveNumber);
    app.add_option("--compute-ms", plan.compute_ms, "of a step, asleep");
    app.add_option("--late-rank", plan.late_rank, "computes longer than the others");
    app.add_option("--late-ms", plan.late_ms, "how much longer, each step");
    app.add_flag("--late-on-device", plan.late_on_device, "it waits for its device meanwhile, else it is asleep");
    app.add_option("--leaving-rank", plan.leaving_rank, "its process ends in the middle");
    app.add_option("--leave-at", plan.leave_at, "the step before whose collective it does");
    app.add_option("--late-from", plan.late_from, "the step from which on it does");
    app.add_option("--late-until", plan.late_until, "the step from which on it no longer does");
    app.add_option("--jitter-ms", plan.jitter_ms, "up to so much longer, each rank and step, at random");
    app.add_flag("--gate", plan.gate, "print \"ready PID\" when all is loaded, and wait for a line on stdin");
    CLI11_PARSE(app, count, arguments);
    try {
        die_with_parent(parent);
        stop_on_signals();
        if (plan.ranks % int(plan.processes) != 0) throw std::runtime_error("the ranks do not divide evenly");
        run(plan);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "standin-collectives: %s\n", error.what());
        return 1;
    }
    return 0;
}
