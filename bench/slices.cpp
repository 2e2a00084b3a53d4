// What a program that launches as fast as it can loses with the default budget, with the real ingerod: once its
// launches are seen in slices. Traced and untraced in turns, on the stand-in libraries in this process; untraced means
// that no daemon runs.
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "bench/tracing.h"

using namespace ingero;
using namespace ingero::bench;

namespace {

constexpr int default_turns = 5;
constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t measured_ns = 10 * second;
constexpr uint64_t storm_ns = 2 * second;  ///< from its start: then it has to be in slices
constexpr const char* launch_op = "cudaLaunchKernel";

int fail_with(const std::string& what) {
    fprintf(stderr, "slices: %s\n", what.c_str());
    return 1;
}

struct Launches {
    double per_s = 0, p99_ns = 0, longest_ns = 0;
    uint64_t count = 0;
    uint64_t from_ns = 0, to_ns = 0;  ///< CLOCK_REALTIME: right before the first, right after the last
    Engine::TimedLaunches each;
};

double p99_of(std::vector<uint32_t> ns) {
    if (ns.empty()) return 0;
    const auto place = ns.begin() + static_cast<std::ptrdiff_t>(ns.size() * 99 / 100);
    std::nth_element(ns.begin(), place, ns.end());
    return *place;
}

Launches measure(const Engine& engine, uint64_t duration_ns) {
    const ClockTriple from = ClockTriple::now();
    Launches launches{.from_ns = from.realtime_ns, .each = engine.time_launches(duration_ns)};
    const ClockTriple to = ClockTriple::now();
    const std::vector<uint32_t>& ns = launches.each.ns;
    launches.to_ns = to.realtime_ns;
    launches.count = ns.size();
    launches.per_s = static_cast<double>(ns.size()) * second / static_cast<double>(to.monotonic_ns - from.monotonic_ns);
    launches.p99_ns = p99_of(ns);
    launches.longest_ns = *std::max_element(ns.begin(), ns.end());
    return launches;
}

struct Span {
    uint64_t from_ns = 0, to_ns = 0;
};

/// The slices between the two, CLOCK_REALTIME: from the first launch of this process that was seen in one to its last.
std::vector<Span> slices_in(Tracer& tracer, uint64_t from_ns, uint64_t to_ns) {
    constexpr uint64_t between_slices_ns = 100'000'000;
    const auto answer = tracer.ask(
        "query", {{"sql", "SELECT timestamp, timestamp + duration_ns FROM events WHERE weight > 1 AND pid = " +
                              std::to_string(getpid()) + " AND op = '" + launch_op + "' AND timestamp BETWEEN " +
                              std::to_string(from_ns) + " AND " + std::to_string(to_ns) + " ORDER BY timestamp"},
                  {"limit", 100'000}});
    std::vector<Span> slices;
    const auto rows = answer.value("rows", nlohmann::json::array());
    for (const auto& row : rows) {
        const Span call{row.at(0), row.at(1)};
        if (slices.empty() || call.from_ns > slices.back().to_ns + between_slices_ns) slices.push_back(call);
        slices.back().to_ns = std::max(slices.back().to_ns, call.to_ns);
    }
    return slices;
}

/// Of the launches that no slice saw.
std::vector<uint32_t> outside(const Launches& launches, const std::vector<Span>& slices) {
    const ClockTriple now = ClockTriple::now();
    const uint64_t to_realtime = now.realtime_ns - now.monotonic_ns;
    std::vector<uint32_t> ns;
    size_t slice = 0;
    for (size_t i = 0; i < launches.each.ns.size(); i += launches_a_step) {
        uint64_t at = launches.each.step_began_ns[i / launches_a_step] + to_realtime;
        for (size_t j = i; j < i + launches_a_step; ++j) {
            const uint64_t began = at;
            at += launches.each.ns[j];
            while (slice < slices.size() && slices[slice].to_ns < began) ++slice;
            if (slice == slices.size() || at < slices[slice].from_ns) ns.push_back(launches.each.ns[j]);
        }
    }
    return ns;
}

/// Of this process, as its `processes` and `stats` say.
nlohmann::json slices_of(Tracer& tracer) {
    for (const auto& process : tracer.ask("processes").value("processes", nlohmann::json::array()))
        if (process.at("pid") == getpid()) return process.at("slices");
    return nullptr;
}

double counted(Tracer& tracer, uint64_t from_ns, uint64_t to_ns) {
    const auto stats = tracer.ask("stats", {{"pid", getpid()}, {"from_ns", from_ns}, {"to_ns", to_ns}});
    for (const auto& op : stats.value("ops", nlohmann::json::array()))
        if (op.at("op") == launch_op) return op.at("count").get<double>();
    return 0;
}

/// Calls on, a hundred launches in 50 ms, until it is seen in full again: how long that took.
double leave(const Engine& engine, Tracer& tracer) {
    const uint64_t from = monotonic_now_ns();
    while (!slices_of(tracer).is_null() && monotonic_now_ns() - from < 60 * second) {
        engine.launch_bound(1);
        const timespec a_while{0, 50'000'000};
        nanosleep(&a_while, nullptr);
    }
    return static_cast<double>(monotonic_now_ns() - from) / second;
}

}  // namespace

int main(int argc, char** argv) {
    const auto arguments = Arguments::parse(argc, argv, default_turns);
    if (!arguments) return fail_with("usage: slices [--json] [--turns N]");
    const int turns = arguments->turns;
    const Folder folder("ingero-slices");
    const std::string& directory = folder.path();
    if (directory.empty()) return fail_with(strerror(errno));
    const auto engine = Engine::load();
    if (!engine) return fail_with("cannot load " CUDART_LIBRARY);
    cpu_set_t first, all;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_getaffinity(0, sizeof(all), &all);

    std::vector<double> within, slowdown, p99, p99_outside, longest, untraced_longest, count_error, count_bias, stated,
        cpu, share, rate, left_s;
    for (int turn = 0; turn < turns; ++turn) {
        std::optional<Launches> untraced, traced;
        double outside_ns = 0;
        for (int place = 0; place < 2; ++place) {
            const bool with_tracer = (turn + place) % 2 == 1;
            std::optional<Tracer> tracer;
            if (with_tracer) tracer.emplace(directory, "");
            sched_setaffinity(0, sizeof(first), &first);
            measure(*engine, storm_ns);
            const double cpu_before = tracer ? tracer->cpu_seconds() : 0;
            Launches launches = measure(*engine, measured_ns);
            if (tracer) cpu.push_back((tracer->cpu_seconds() - cpu_before) * second / measured_ns);
            sched_setaffinity(0, sizeof(all), &all);
            if (!tracer) {
                untraced = std::move(launches);
                continue;
            }
            const auto slices = slices_of(*tracer);
            if (!slices.is_object() || !slices.at("share").is_number())
                return fail_with("its launches are not seen in slices: " + slices.dump());
            share.push_back(slices.at("share").get<double>());
            const auto made = static_cast<double>(launches.count);
            count_bias.push_back(counted(*tracer, launches.from_ns, launches.to_ns) / made - 1);
            count_error.push_back(std::abs(count_bias.back()));
            if (slices.at("count_error").is_number()) {
                stated.push_back(slices.at("count_error").get<double>());
                within.push_back(count_error.back() <= stated.back());
            }
            const auto seen = slices_in(*tracer, launches.from_ns, launches.to_ns);
            if (seen.empty()) return fail_with("the store has none of its slices");
            const auto outside_slices = outside(launches, seen);
            if (outside_slices.size() < launches.count * 9 / 10) return fail_with("it was seen in full for a time");
            outside_ns = p99_of(outside_slices);
            traced = std::move(launches);
            left_s.push_back(leave(*engine, *tracer));
            tracer->stop();
            std::filesystem::remove_all(directory + "/run");
        }
        slowdown.push_back(1 - traced->per_s / untraced->per_s);
        p99.push_back(traced->p99_ns / untraced->p99_ns);
        p99_outside.push_back(outside_ns / untraced->p99_ns);
        longest.push_back(traced->longest_ns / 1e6);
        untraced_longest.push_back(untraced->longest_ns / 1e6);
        rate.push_back(untraced->per_s);
    }

    std::vector<bench::Row> rows;
    rows.push_back({"launch-bound: fewer launches", "launch_bound_slowdown", bench::median(slowdown), "",
                    "at most 0.03; from 2 s after the start"});
    rows.push_back({"launch-bound: p99 of a launch outside slices, traced to untraced", "launch_bound_p99_ratio",
                    bench::median(p99_outside), "x", "at most 1.05"});
    rows.push_back({"the same, of all launches", "p99_ratio_of_all", bench::median(p99), "x", ""});
    rows.push_back({"the longest launch, traced", "longest_launch_ms", bench::median(longest), "ms", ""});
    rows.push_back({"the longest launch, untraced", "longest_untraced_ms", bench::median(untraced_longest), "ms", ""});
    rows.push_back({"launches counted in 10 s, off by", "count_error", bench::median(count_error), "", "at most 0.03"});
    rows.push_back({"the same, at most", "count_error_max", quantile(count_error, 1), "", ""});
    rows.push_back({"the same, with its sign", "count_bias", bench::median(count_bias), "", ""});
    if (!stated.empty()) {
        rows.push_back(
            {"by how much they may be off, as is said", "stated_count_error", bench::median(stated), "", ""});
        rows.push_back({"off by no more than that, of the turns", "within_stated",
                        std::accumulate(within.begin(), within.end(), 0.0) / static_cast<double>(turns), "", ""});
    }
    rows.push_back({"launches seen, share of the time", "share", bench::median(share), "", ""});
    rows.push_back({"seen in full again after it calmed down", "leaves_after_s", bench::median(left_s), "s", ""});
    rows.push_back({"ingerod's own CPU", "daemon_cpu", bench::median(cpu), "", "of a core; at most 0.05"});
    rows.push_back({"launches", "launches_per_s", bench::median(rate), "1/s", "untraced"});
    rows.push_back({"turns", "turns", static_cast<double>(turns), "", ""});
    bench::print("slices", rows, arguments->as_json);
    return 0;
}
