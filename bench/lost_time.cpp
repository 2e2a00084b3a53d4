// Whether what the daemon says a fault cost is what it cost: each case of tests/support/lost_time.h many times, in
// turns, told against the same calls replayed without the fault, and the replay against the program with no fault at
// all.
#include "tests/support/lost_time.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/figures.h"

using namespace ingero;
using namespace ingero::test;

namespace {

/// Beside what a program loses by all else on the machine in parts too small for a finding.
constexpr double next_to_nothing = 0.01;

struct Runs {
    size_t count = 0, failed = 0, found = 0, contained = 0, nearly_contained = 0, above_low = 0;
    double lost_ns = 0, told_ns = 0;
    std::vector<double> errors, widths;  ///< of what was lost
    std::vector<double> steps_ns;        ///< as replayed

    void add(const MeasuredLoss& loss, const LostTimeCase& one) {
        const auto lost = static_cast<double>(loss.lost()), slack = next_to_nothing * static_cast<double>(loss.took);
        // What others took of a case without a cost has findings of its own.
        ++count;
        found += loss.kind_found;
        contained += loss.low <= lost && lost <= loss.high;
        nearly_contained += loss.low <= lost + slack && lost - slack <= loss.high;
        above_low += loss.kind_above_low;
        lost_ns += lost;
        told_ns += loss.told;
        if (loss.steps > 0) steps_ns.push_back(static_cast<double>(loss.undisturbed) / static_cast<double>(loss.steps));
        if (one.costs_nothing || one.bounds_only || lost <= 0) return;
        errors.push_back(std::abs(loss.told - lost) / lost);
        widths.push_back((loss.high - loss.low) / lost);
    }
};

/// The same program with nothing amiss.
LostTimeCase without_fault(const LostTimeCase& one) {
    return {.name = "without",
            .standin = one.standin.substr(0, one.standin.find("at=")),
            .kernel_us = one.kernel_us,
            .works_us = one.works_us};
}

using Program = std::tuple<std::string, uint64_t, uint64_t>;
Program program_of(const LostTimeCase& one) {
    return {one.standin, one.kernel_us, one.works_us};
}

int fail_with(const std::string& what) {
    std::fprintf(stderr, "lost_time: %s\n", what.c_str());
    return 1;
}

}  // namespace

int main(int count, char** arguments) {
    unsigned runs = 5, seconds = 3;
    std::vector<std::string> names;
    bool as_json = false, verbose = false;
    CLI::App app("What a fault cost, as told and as it was", "lost_time");
    app.add_option("--runs", runs, "of each case");
    app.add_option("--seconds", seconds, "that each takes");
    app.add_option("--case", names, "only these");
    app.add_flag("--json", as_json, "one object");
    app.add_flag("--verbose", verbose, "each run as it ends, with its findings");
    CLI11_PARSE(app, count, arguments);

    std::vector<LostTimeCase> cases = lost_time_cases();
    std::erase_if(cases, [&](const LostTimeCase& one) {
        if (const std::string why = why_not(one); !why.empty()) {
            std::fprintf(stderr, "lost_time: without %s: %s\n", one.name.c_str(), why.c_str());
            return true;
        }
        return !names.empty() && std::find(names.begin(), names.end(), one.name) == names.end();
    });
    if (cases.empty()) return fail_with("no such case can run here");

    std::map<std::string, Runs> told;
    std::map<Program, std::vector<double>> steps_without;  ///< ns, by the program
    for (unsigned run = 0; run < runs; ++run) {
        for (const LostTimeCase& one : cases) {
            const auto loss = measure_lost_time(one, seconds);
            if (!loss) {
                ++told[one.name].failed;
                std::fprintf(stderr, "lost_time: %s: %s\n", one.name.c_str(), loss.error().message.c_str());
                continue;
            }
            told[one.name].add(*loss, one);
            if (!verbose) continue;
            std::fprintf(stderr, "%s%s: of %.0f ms really lost %.1f ms, told %.1f ms (%.1f to %.1f)\n",
                         loss->summaries.c_str(), one.name.c_str(), static_cast<double>(loss->took) / 1e6,
                         static_cast<double>(loss->lost()) / 1e6, loss->told / 1e6, loss->low / 1e6, loss->high / 1e6);
        }
        // What a step takes without a fault does not change from run to run, so it is asked now and then.
        if (run % 5 != 0) continue;
        std::map<Program, bool> asked;
        for (const LostTimeCase& one : cases) {
            const LostTimeCase without = without_fault(one);
            if (std::exchange(asked[program_of(without)], true)) continue;
            if (const auto loss = measure_lost_time(without, seconds); loss && loss->steps > 0)
                steps_without[program_of(without)].push_back(static_cast<double>(loss->took) /
                                                             static_cast<double>(loss->steps));
        }
    }

    std::vector<bench::Row> rows;
    double lost_ns = 0, told_ns = 0;
    for (const LostTimeCase& one : cases) {
        const Runs& of = told[one.name];
        const auto row = [&](const char* what, const std::string& figure, double value, const char* unit,
                             const std::string& note = {}) {
            rows.push_back({one.name + ": " + what, one.name + "." + figure, value, unit, note});
        };
        const auto share = [&](size_t part) {
            return of.count == 0 ? 0 : static_cast<double>(part) * 100 / static_cast<double>(of.count);
        };
        row("lost, told within its bounds", "contained", share(of.contained), "%",
            std::to_string(of.count) + " runs, " + std::to_string(of.failed) + " failed");
        row("the same, but for 1 % of the time", "nearly_contained", share(of.nearly_contained), "%");
        if (!one.kind.empty()) row("found", "found", share(of.found), "%");
        if (one.costs_nothing) {
            row("told as more than low", "above_low", share(of.above_low), "%");
        } else if (!one.bounds_only) {
            row("told against lost, median error", "error", bench::median(of.errors) * 100, "%");
            row("width of the bounds, median of lost", "width", bench::median(of.widths) * 100, "%");
            lost_ns += of.lost_ns;
            told_ns += of.told_ns;
        }
        row("lost, a run", "lost_ms", of.count == 0 ? 0 : of.lost_ns / 1e6 / static_cast<double>(of.count), "ms",
            "told " + std::to_string(static_cast<long>(of.count == 0 ? 0 : of.told_ns / 1e6 / double(of.count))));
        const LostTimeCase without = without_fault(one);
        const double step_ns = bench::median(steps_without[program_of(without)]);
        if (step_ns > 0)
            row("a step as replayed, of one without a fault", "replayed", bench::median(of.steps_ns) * 100 / step_ns,
                "%");
    }
    rows.push_back({"told in all, of lost in all, where there are points",
                    "sum",
                    lost_ns > 0 ? told_ns * 100 / lost_ns : 0,
                    "%",
                    {}});
    bench::print("lost_time", rows, as_json);
    return 0;
}
