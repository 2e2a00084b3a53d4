// standin-hog: takes CPU time from others. Knows nothing of CUDA.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "../engine/waiting_word.h"

namespace {

using ingero::standin::now_ns;
using ingero::standin::WaitingWord;

std::atomic<bool> stop{false};

void burn_a_little() {
    static thread_local volatile uint64_t value = 1;
    for (int i = 0; i < 1000; ++i) value = value * 6364136223846793005u + 1;
}

// Busy for its part of each 10 ms, by the clock: a hog that is itself held up does not make up for it.
void burn(uint64_t end_ns, double duty) {
    constexpr uint64_t period_ns = 10'000'000;
    for (uint64_t start = now_ns(); start < end_ns && !stop; start = now_ns()) {
        const uint64_t busy_until = std::min(end_ns, start + uint64_t(duty * double(period_ns)));
        while (now_ns() < busy_until && !stop) burn_a_little();
        if (duty >= 1) continue;
        const uint64_t next = start + period_ns;
        const timespec wake{time_t(next / 1'000'000'000), long(next % 1'000'000'000)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, nullptr);
    }
}

// Busy while another program waits for its device, or while it does not, each time for at most so long.
void burn_in_turns(const WaitingWord& word, bool waits, uint64_t most_ns, uint64_t end_ns) {
    while (!stop && now_ns() < end_ns) {
        const uint32_t turn = word.value();
        const uint64_t start = now_ns();
        while (WaitingWord::waits(turn) == waits && word.value() == turn && now_ns() - start < most_ns && !stop)
            burn_a_little();
        while (word.value() == turn && !stop && now_ns() < end_ns) word.sleep_while(turn);
    }
}

void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(size_t(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        std::fprintf(stderr, "standin-hog: no such CPU: %d\n", cpu);
        std::exit(1);
    }
}

}  // namespace

int main(int count, char** arguments) {
    const pid_t parent = getppid();
    int cpu = -1;
    double duration_s = 0;
    double duty = 1;
    unsigned threads = 1;
    std::string comm;
    std::string waits_of, while_it = "waits";
    double turn_us = 0;
    bool orphan = false;
    CLI::App app("Takes CPU time", "standin-hog");
    app.add_option("--cpu", cpu, "on this CPU only");
    app.add_option("--duration", duration_s, "for so many seconds (0: until it is ended)");
    app.add_option("--comm", comm, "under this name, of at most 15 characters");
    app.add_option("--threads", threads, "so many at once")->check(CLI::Range(1, 256));
    app.add_option("--duty", duty, "for this part of each 10 ms")->check(CLI::Range(0.01, 1.0));
    app.add_option("--waits", waits_of, "only in turns with a program that has this file as its option 'waits'");
    app.add_option("--while", while_it, "the program waits for its device, or works")
        ->check(CLI::IsMember({"waits", "works"}));
    app.add_option("--turn-us", turn_us, "at most so long a turn (0: all of it)");
    app.add_flag("--orphan", orphan, "live on when the parent ends");
    CLI11_PARSE(app, count, arguments);

    if (!orphan) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) return 1;
    }
    if (cpu >= 0) pin(cpu);
    if (!comm.empty()) prctl(PR_SET_NAME, comm.c_str());  // threads take it over
    struct sigaction action {};
    action.sa_handler = [](int) { stop = true; };
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);

    std::printf("ready %d\n", int(getpid()));
    std::fflush(stdout);
    const uint64_t end_ns = duration_s > 0 ? now_ns() + uint64_t(duration_s * 1e9) : ~uint64_t(0);
    const WaitingWord word(waits_of.c_str());
    if (!waits_of.empty() && !word.exists()) {
        std::fprintf(stderr, "standin-hog: not a file of four bytes: %s\n", waits_of.c_str());
        return 1;
    }
    const auto work = [&] {
        if (!word.exists()) return burn(end_ns, duty);
        burn_in_turns(word, while_it == "waits", turn_us > 0 ? uint64_t(turn_us * 1e3) : ~uint64_t(0), end_ns);
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    return 0;
}
