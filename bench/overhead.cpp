// What tracing takes from a program, with the real ingerod: an engine that waits for its device, and one that launches
// as fast as it can. Both loops run on the stand-in libraries in this process, traced and untraced in turns.
//
// Untraced means that no daemon runs: the probe sets could be turned off instead, but the scheduler's tracepoints, the
// readers of the rings and the watch on mappings would stay, and they are part of what tracing costs.
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "bench/tracing.h"
#include "daemon/ingerod/probes/call_probes.h"

using namespace ingero;
using namespace ingero::bench;

namespace {

constexpr int default_turns = 20;
constexpr int warm_up_steps = 5;
constexpr int device_steps = 50;  ///< 10 ms each
constexpr int launch_steps = 600;
constexpr int work_steps = 400;
constexpr uint64_t launches_a_turn =
    uint64_t{launches_a_step} * (warm_up_steps + device_steps + launch_steps + work_steps);

int fail_with(const std::string& what) {
    fprintf(stderr, "overhead: %s\n", what.c_str());
    return 1;
}

enum class Way { untraced, without_stacks, with_stacks };
constexpr Way ways[] = {Way::untraced, Way::without_stacks, Way::with_stacks};

/// Without a budget: the price of each call is what is looked for. Native stacks are on where nobody says otherwise,
/// and are not part of the calibrated price.
std::string config_of(Way way) {
    return std::string("[capture]\noverhead_budget = 0\n") + (way == Way::with_stacks ? "" : "stacks = \"off\"\n");
}

/// Fraction of the steps that are not made any more.
double fewer_steps(double untraced_ns, double traced_ns) {
    return 1 - untraced_ns / traced_ns;
}

/// The middle half of the turns.
std::string spread(const std::vector<double>& values) {
    char text[64];
    snprintf(text, sizeof(text), "half of the turns %.4f to %.4f", quantile(values, 0.25), quantile(values, 0.75));
    return text;
}

std::optional<uint32_t> call_cost_ns() {
    KernelFeatures features;
    auto probes = CallProbes::load(features);
    if (!probes) return std::nullopt;
    const auto cost = (*probes)->calibrate();
    return cost ? std::optional(cost->alone.call_ns()) : std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
    const auto arguments = Arguments::parse(argc, argv, default_turns);
    if (!arguments) return fail_with("usage: overhead [--json] [--turns N]");
    const int turns = arguments->turns;
    const Folder folder("ingero-overhead");
    const std::string& directory = folder.path();
    if (directory.empty()) return fail_with(strerror(errno));

    const auto cost_ns = call_cost_ns();
    if (!cost_ns) return fail_with("cannot measure what a call costs");
    const auto engine = Engine::load();
    if (!engine) return fail_with("cannot load " CUDART_LIBRARY);
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);

    std::map<Way, std::vector<Steps>> device, launch, work;
    std::map<Way, std::vector<double>> told;
    for (int turn = 0; turn < turns; ++turn) {
        // Who is first takes turns too, so that a drift of the machine's meets all.
        for (int place = 0; place < 3; ++place) {
            const Way way = ways[(turn + place) % 3];
            std::optional<Tracer> tracer;
            if (way != Way::untraced) tracer.emplace(directory, config_of(way));
            cpu_set_t all;
            sched_getaffinity(0, sizeof(all), &all);
            sched_setaffinity(0, sizeof(first), &first);
            engine->device_bound(warm_up_steps);
            device[way].push_back(engine->device_bound(device_steps));
            launch[way].push_back(engine->launch_bound(launch_steps));
            work[way].push_back(engine->amid_work(work_steps));
            if (tracer) told[way].push_back(tracer->told());
            sched_setaffinity(0, sizeof(all), &all);
            if (!tracer) continue;
            // Each launch is a call of the runtime and, inside it, of the driver.
            const uint64_t calls = tracer->calls_recorded(2 * launches_a_turn);
            tracer->stop();
            std::filesystem::remove_all(directory + "/run");
            if (calls < 2 * launches_a_turn)
                return fail_with("a call that is not recorded is cheaper than one that is: " + std::to_string(calls) +
                                 " of " + std::to_string(2 * launches_a_turn));
        }
    }

    std::vector<bench::Row> rows;
    const auto add = [&](const char* label, const char* figure, std::map<Way, std::vector<Steps>>& loop, Way way,
                         double Steps::*time, const std::string& note) {
        std::vector<double> slowdowns;
        for (size_t i = 0; i < loop[way].size(); ++i)
            slowdowns.push_back(fewer_steps(loop[Way::untraced][i].*time, loop[way][i].*time));
        rows.push_back({label, figure, bench::median(slowdowns), "", note + spread(slowdowns)});
    };
    const auto launch_ns = [](const std::vector<Steps>& loop) {
        std::vector<double> ns;
        for (const Steps& steps : loop) ns.push_back(steps.undisturbed_ns / launches_a_step);
        return bench::median(ns);
    };
    const double untraced_ns = launch_ns(launch[Way::untraced]);
    const double plain_ns = launch_ns(launch[Way::without_stacks]), stacks_ns = launch_ns(launch[Way::with_stacks]);
    add("device-bound: fewer steps", "device_bound_slowdown", device, Way::with_stacks, &Steps::undisturbed_ns,
        "at most 0.004; ");
    add("device-bound, without native stacks: fewer steps", "device_bound_plain_slowdown", device, Way::without_stacks,
        &Steps::undisturbed_ns, "");
    add("the same, by mean step, disturbed or not", "device_bound_mean_slowdown", device, Way::with_stacks,
        &Steps::mean_ns, "");
    rows.push_back({"device-bound: launches", "device_bound_launches_per_s", 1e9 / launch_ns(device[Way::untraced]),
                    "1/s", "untraced"});
    add("launch-bound: fewer steps", "launch_bound_slowdown", launch, Way::with_stacks, &Steps::undisturbed_ns, "");
    add("launch-bound, without native stacks: fewer steps", "launch_bound_plain_slowdown", launch, Way::without_stacks,
        &Steps::undisturbed_ns, "");
    rows.push_back({"calibrated price of two calls x rate, without stacks", "launch_bound_plain_price",
                    2 * *cost_ns / plain_ns, "", "what that may be at most"});
    rows.push_back({"launch-bound: launches", "launch_bound_launches_per_s", 1e9 / untraced_ns, "1/s", "untraced"});
    rows.push_back({"a probed call, calibrated", "call_cost_ns", static_cast<double>(*cost_ns), "ns", "no stack"});
    rows.push_back(
        {"a probed call, in the launch-bound loop", "call_in_loop_ns", (plain_ns - untraced_ns) / 2, "ns", "no stack"});
    rows.push_back(
        {"the same, with its native stack", "stack_call_in_loop_ns", (stacks_ns - untraced_ns) / 2, "ns", ""});
    add("amid work on 2 MiB: fewer steps", "amid_work_slowdown", work, Way::with_stacks, &Steps::undisturbed_ns, "");
    rows.push_back({"what status says of that", "amid_work_told", bench::median(told[Way::with_stacks]), "",
                    spread(told[Way::with_stacks])});
    add("amid work, without native stacks: fewer steps", "amid_work_plain_slowdown", work, Way::without_stacks,
        &Steps::undisturbed_ns, "");
    rows.push_back({"what status says of that", "amid_work_plain_told", bench::median(told[Way::without_stacks]), "",
                    spread(told[Way::without_stacks])});
    const double work_ns = launch_ns(work[Way::untraced]);
    rows.push_back({"a probed call, amid work on 2 MiB", "call_amid_work_ns",
                    (launch_ns(work[Way::without_stacks]) - work_ns) / 2, "ns", "no stack"});
    rows.push_back({"the same, with its native stack", "stack_call_amid_work_ns",
                    (launch_ns(work[Way::with_stacks]) - work_ns) / 2, "ns", ""});
    rows.push_back({"turns", "turns", static_cast<double>(turns), "", ""});
    bench::print("overhead", rows, arguments->as_json);
    return 0;
}
