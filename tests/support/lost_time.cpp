#include "tests/support/lost_time.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <thread>

#include "test_paths.h"
#include "tests/support/control_groups.h"
#include "tests/support/daemon.h"
#include "tests/support/others_work.h"
#include "tests/support/undisturbed.h"

namespace ingero::test {

namespace {

using enum LostTimeCase::Hog;
using Launcher = LostTimeCase::Launcher;

std::vector<std::string> turns_of(LostTimeCase::Hog hog, const std::string& word) {
    switch (hog) {
        case in_waits:
            return {"--waits", word};
        case between_waits:
            return {"--waits", word, "--while", "works"};
        case early_in_waits:
            return {"--waits", word, "--turn-us", "2000"};
        default:
            return {};
    }
}

void add_findings(MeasuredLoss& result, const nlohmann::json& findings, const LostTimeCase& one) {
    for (const nlohmann::json& finding : findings) {
        if (one.works_us != 0 && finding.at("kind") == "data-starvation") continue;
        const auto low = finding.at("lost_low_ns").get<double>(), high = finding.at("lost_high_ns").get<double>();
        result.low += low;
        result.told += finding.at("lost_ns").get<double>();
        result.high += high;
        result.summaries += "  " + finding.at("summary").get<std::string>() + "\n";
        if (finding.at("kind") != one.kind) continue;
        result.kind_found = true;
        result.kind_above_low |= finding.at("severity") != "low";
        result.low_of_kind += low;
        result.high_of_kind += high;
    }
}

}  // namespace

void PrintTo(const LostTimeCase& one, std::ostream* out) {
    *out << one.name;
}

std::vector<LostTimeCase> lost_time_cases() {
    const std::string hog = "cpu-contention", lock = "at=cudaLaunchKernel:/500:mutex=";
    return {
        {"a_hog_beside_a_wait_that_spins", "sync=spin", 190, always, hog},
        {"a_hog_beside_a_wait_that_sleeps", "sync=block", 190, always, hog},
        {"a_hog_beside_a_wait_that_yields", "sync=yield", 190, always, hog, true},
        {"a_hog_beside_launches", "call_ns=50000", 1, always, hog},
        {.name = "a_hog_beside_work_between_calls",
         .standin = "sync=spin",
         .kernel_us = 20,
         .hog = always,
         .kind = hog,
         .works_us = 8'000},
        {.name = "a_hog_beside_a_thread_that_launches_for_another",
         .standin = "call_ns=50000",
         .kernel_us = 1,
         .hog = always,
         .kind = hog,
         .launcher = Launcher::on_own_cpu},
        {.name = "a_hog_beside_two_threads_that_launch_in_turn",
         .standin = "call_ns=50000",
         .kernel_us = 1,
         .hog = always,
         .kind = hog,
         .bounds_only = true,
         .launcher = Launcher::on_same_cpu},
        {"a_hog_in_waits_only", "sync=spin", 190, in_waits, hog},
        {"a_hog_between_waits_only", "sync=spin", 190, between_waits, hog, true},
        {"a_hog_early_in_waits_only", "sync=spin", 190, early_in_waits, hog, false, true},
        {"a_lock_before_launches", lock + "20000", 190, none, "lock-wait"},
        {"a_lock_behind_which_the_device_works", lock + "5000", 190, none, "lock-wait", false, true},
        {"a_read_before_launches", "at=cudaLaunchKernel:/500:disk=16384", 190, none, "own-io-wait"},
        {"a_quota_of_its_cgroup", "sync=spin", 190, none, hog, false, false, 60'000},
        {"nothing_amiss", "sync=spin", 190, none, "", false, true},
    };
}

std::string why_not(const LostTimeCase& one) {
    if (one.quota_us != 0 && !CpuControlGroup(one.quota_us).usable()) return "no cgroup with a cpu controller";
    if (one.launcher == Launcher::on_own_cpu && std::thread::hardware_concurrency() < 2) return "one CPU only";
    return why_no_bpf();
}

Result<MeasuredLoss> measure_lost_time(const LostTimeCase& one, unsigned seconds) {
    const TemporaryDirectory directory;
    const std::string log = directory / "truth", word = directory / "waits";
    std::ofstream(word).write("\0\0\0\0", 4);
    std::ofstream(directory / "with-waits.conf") << "[capture]\noverhead_budget = 0\n";
    Daemon daemon(directory / "run", {"--config", directory / "with-waits.conf"});
    const bool in_turns = !turns_of(one.hog, word).empty();
    std::vector<std::string> options{"--standin",
                                     one.standin + (in_turns ? ",waits=" + word : ""),
                                     "--kernel-us",
                                     std::to_string(one.kernel_us),
                                     "--cpu",
                                     one.launcher == Launcher::on_own_cpu ? "1" : "0",
                                     "--log",
                                     log,
                                     "--duration",
                                     std::to_string(seconds),
                                     "train",
                                     "--batch-kib",
                                     "1",
                                     "--loader",
                                     one.works_us == 0 ? "none" : "compute",
                                     "--loader-us",
                                     std::to_string(one.works_us)};
    if (one.launcher == Launcher::none)
        options.insert(options.end(), {"--launches", "50"});
    else
        options.insert(options.end(), {"--launches", "10", "--backward-launches", "40", "--backward-cpu", "0"});
    Workload workload(options);
    const int pid = workload.pid();
    if (!daemon.wait_traced(pid)) return fail(ErrorCode::internal, "the program is not traced");
    std::optional<CpuControlGroup> group;
    if (one.quota_us != 0) group.emplace(one.quota_us).take(pid);
    std::optional<Hog> hog;
    if (one.hog != none) hog.emplace(0, "cpu-hog", turns_of(one.hog, word));
    workload.open_gate();
    if (const int code = workload.finish(); code != 0)
        return fail(ErrorCode::internal, "the program ended with " + std::to_string(code));
    hog.reset();
    const uint64_t had_no_cpu = run_delay_ns(workload.child().output());
    const Finished explain =
        run({INGEROCTL_PROGRAM, "--socket", daemon.socket(), "--json", "explain", "--pid", std::to_string(pid)});
    if (const int code = daemon.stop(); code != 0)
        return fail(ErrorCode::internal, "the daemon ended with " + std::to_string(code));

    const auto answer = nlohmann::json::parse(explain.output, nullptr, false);
    if (!answer.is_object()) return fail(ErrorCode::internal, "no answer: " + explain.output + explain.errors);
    const auto truth = standin::GroundTruth::open(log);
    if (!truth) return fail(ErrorCode::internal, "the log of the program's calls cannot be read");
    const auto replayed = replay_undisturbed(*truth, static_cast<uint32_t>(pid), one.kernel_us * 1'000);
    if (!replayed) return fail(ErrorCode::internal, "the program waited for its device less than ten times");
    MeasuredLoss result{.took = replayed->took_ns,
                        .steps = replayed->waits,
                        .undisturbed = replayed->undisturbed_ns,
                        .had_no_cpu = had_no_cpu,
                        .answer = explain.output};
    add_findings(result, answer.at("findings"), one);
    return result;
}

}  // namespace ingero::test
