// What can only be asked of a real device: how waits wait, how many launches a stream holds, what a launch costs.
//   questions spin|yield|block    waits for the device in that way
//   questions queue               launches behind a kernel that runs until a launch has to wait
//   questions launch              launches an empty kernel again and again, and times it
#include <chrono>

#include "runtime.h"

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

__global__ void nothing() {}

/// Runs for so long on the device's own clock.
__global__ void run_for(unsigned long long ns) {
    unsigned long long begin = 0, now = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

int wait_as(const counted::Options& options) {
    const unsigned flags = options.what == "block"   ? cudaDeviceScheduleBlockingSync
                           : options.what == "yield" ? cudaDeviceScheduleYield
                                                     : cudaDeviceScheduleSpin;
    (void)cudaSetDeviceFlags(flags);
    begin(options);
    constexpr unsigned long long kernel_ns = 10'000'000;
    bool right = true;
    for (unsigned round = 0; round < options.rounds; ++round) {
        COUNTED_LAUNCH(run_for<<<1, 1>>>(kernel_ns));
        right = COUNTED(cudaStreamSynchronize, nullptr) == cudaSuccess && right;
    }
    return counted::finish(right);
}

int fill_queue(const counted::Options& options) {
    begin(options);
    COUNTED_LAUNCH(nothing<<<1, 1>>>());
    COUNTED(cudaDeviceSynchronize);
    constexpr unsigned long long kernel_ns = 2'000'000'000;
    constexpr double waited_ms = 100;
    constexpr int most = 1 << 17;
    COUNTED_LAUNCH(run_for<<<1, 1>>>(kernel_ns));
    int depth = 0;
    double longest_ms = 0;
    while (depth < most && longest_ms < waited_ms) {
        const auto begun = Clock::now();
        COUNTED_LAUNCH(nothing<<<1, 1>>>());
        longest_ms = ms_since(begun);
        ++depth;
    }
    const bool right = COUNTED(cudaDeviceSynchronize) == cudaSuccess;
    return counted::finish(right, {{"launches_until_one_waited", depth}, {"it_waited_ms", longest_ms}});
}

int time_launches(const counted::Options& options) {
    begin(options);
    constexpr int batch = 500;
    constexpr double ns_per_ms = 1e6;
    double least_ns = 0;
    for (unsigned round = 0; round < options.rounds; ++round) {
        const auto begun = Clock::now();
        for (int i = 0; i < batch; ++i) COUNTED_LAUNCH(nothing<<<1, 1>>>());
        const double each_ns = ms_since(begun) * ns_per_ms / batch;
        COUNTED(cudaDeviceSynchronize);
        if (round == 0 || each_ns < least_ns) least_ns = each_ns;
    }
    return counted::finish(true, {{"ns_per_launch", least_ns}});
}

}  // namespace

int main(int argc, char** argv) {
    const counted::Options options = counted::read_options(argc, argv);
    if (options.what == "queue") return fill_queue(options);
    if (options.what == "launch") return time_launches(options);
    if (options.what == "spin" || options.what == "yield" || options.what == "block") return wait_as(options);
    fprintf(stderr, "questions: one of spin, yield, block, queue, launch\n");
    return 2;
}
