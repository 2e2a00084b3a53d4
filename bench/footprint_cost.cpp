// What a footprint takes from system calls while it is recorded: of the process that is recorded, and of others, which
// pass the same probes. In turns with none, the fastest round of each.
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "bench/figures.h"
#include "core/model/time.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/footprint/footprint_probes.h"

using namespace ingero;

namespace {

constexpr int turns = 3;
constexpr int rounds = 10;
constexpr int calls_a_round = 100'000;
constexpr int files_a_round = 1'000;

/// ns, of the fastest round.
double fastest(int times, const std::function<void()>& work) {
    double best = std::numeric_limits<double>::max();
    for (int round = 0; round < rounds; ++round) {
        const uint64_t begin_ns = monotonic_now_ns();
        for (int i = 0; i < times; ++i) work();
        best = std::min(best, static_cast<double>(monotonic_now_ns() - begin_ns) / times);
    }
    return best;
}

struct Cost {
    double call_ns = std::numeric_limits<double>::max();
    double open_ns = std::numeric_limits<double>::max();

    void measure(FootprintProbes* probes) {
        call_ns = std::min(call_ns, fastest(calls_a_round, [] { syscall(SYS_getppid); }));
        open_ns = std::min(open_ns, fastest(files_a_round, [] { close(open("/dev/null", O_RDONLY)); }));
        if (probes) probes->consume(std::numeric_limits<size_t>::max(), [](const auto&, auto) {});
    }
};

/// nullptr where it cannot be recorded, which has been said.
std::unique_ptr<FootprintProbes> record(pid_t pid) {
    const auto process = ProcFs().read_process(static_cast<uint32_t>(pid));
    auto probes = process ? FootprintProbes::load(process->key, std::nullopt) : tl::unexpected(process.error());
    if (probes) return std::move(*probes);
    std::fprintf(stderr, "footprint_cost: %s\n", probes.error().message.c_str());
    return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    const bool as_json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
    const pid_t other = fork();
    if (other == 0) {
        pause();
        _exit(0);
    }
    Cost none, beside, recorded;
    bool done = true;
    for (int turn = 0; turn < turns && done; ++turn) {
        none.measure(nullptr);
        if (const auto probes = record(other))
            beside.measure(probes.get());
        else
            done = false;
        if (const auto probes = done ? record(getpid()) : nullptr) recorded.measure(probes.get());
    }
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
    if (!done) return 1;
    bench::print("footprint_cost",
                 {{"getppid", "call_ns", none.call_ns, "ns", ""},
                  {"getppid, while another process is recorded", "call_beside_ns", beside.call_ns, "ns", ""},
                  {"getppid, recorded", "call_recorded_ns", recorded.call_ns, "ns", ""},
                  {"open and close", "open_ns", none.open_ns, "ns", ""},
                  {"open and close, while another process is recorded", "open_beside_ns", beside.open_ns, "ns", ""},
                  {"open and close, recorded", "open_recorded_ns", recorded.open_ns, "ns", ""}},
                 as_json);
    return 0;
}
