#include "daemon/ingerod/check/probe_check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <vector>

#include "core/model/time.h"
#include "core/render/table.h"
#include "core/wire/child_process.h"
#include "daemon/ingerod/check/symbol_reader.h"
#include "daemon/ingerod/ingest/ingest.h"
#include "daemon/ingerod/probes/attach/targets.h"
#include "daemon/ingerod/probes/call_probes.h"
#include "daemon/probe_target/target.h"

namespace ingero {

namespace {

using State = CheckResult::State;
using Clock = std::chrono::steady_clock;

constexpr const char* events_name = "probe-events";
constexpr const char* seccomp_name = "probe-seccomp";
constexpr const char* cost_name = "probe-cost";
/// Fewer records than the smallest ring holds.
constexpr uint64_t calls_a_run = 1'000;
constexpr std::chrono::seconds run_deadline{15};
constexpr const char* install_again = "install the package again: ingero-probe-target belongs to it";

/// As which op the program's function is traced: it has the parameters of this one.
const Target* model_of_target() {
    for (const Target& target : targets_of(Library::cuda_runtime))
        if (target.symbol == "cudaMemcpyAsync") return &target;
    return nullptr;
}

/// What it takes to run and trace the program.
struct Bench {
    UniqueFd program;  ///< the file that is probed is the file that is run
    ProbeSite site;
    std::unique_ptr<CallProbes> probes;
    std::vector<Event> events;
};

/// One run of the program, traced.
struct Traced {
    TargetRun run;
    uint64_t untraced_ns = 0;  ///< of a median batch
    uint64_t traced_ns = 0;
    int status = 0;          ///< wait status
    std::string difference;  ///< from what was called; empty: none
};

Result<ProbeSite> find_site(int fd, SymbolReader& symbols) {
    const Target* model = model_of_target();
    const auto found = symbols.read(fd, {INGERO_TARGET_SYMBOL});
    if (!found) return tl::unexpected(found.error());
    if (found->empty() || !model)
        return fail(ErrorCode::internal, "the program has no function " INGERO_TARGET_SYMBOL, install_again);
    const FunctionSymbol& function = found->front();
    return ProbeSite{function.file_offset, model->cookie, function.name, function.emulated, model->op};
}

Result<std::unique_ptr<Bench>> set_up(KernelFeatures& features, const std::string& program, SymbolReader& symbols) {
    auto bench = std::make_unique<Bench>();
    bench->program.reset(open(program.c_str(), O_RDONLY | O_CLOEXEC));
    if (!bench->program) return fail(ErrorCode::not_found, errno_message(program, errno), install_again);
    auto site = find_site(bench->program.get(), symbols);
    if (!site) return tl::unexpected(site.error());
    bench->site = std::move(*site);
    auto probes = CallProbes::load(features);
    if (!probes) return tl::unexpected(probes.error());
    bench->probes = std::move(*probes);
    bench->probes->set_record_callback([&bench = *bench](std::span<const std::byte> record) {
        if (Event event; decode_call(record, event)) bench.events.push_back(event);
    });
    return bench;
}

/// Reads the line that the program prints as it is through, draining the rings meanwhile. False where it ended without.
bool await_done(ChildProcess& target, CallProbes& probes, Clock::time_point deadline, std::string& text) {
    while (text.find('\n') == std::string::npos && Clock::now() < deadline) {
        probes.consume();
        constexpr int turn_ms = 10;
        pollfd output{target.output(), POLLIN, 0};
        if (poll(&output, 1, turn_ms) > 0 && !target.read_available(text)) break;
    }
    probes.consume();
    return text.find('\n') != std::string::npos;
}

Result<Traced> run_traced(Bench& bench, bool filtered) {
    const auto deadline = Clock::now() + run_deadline;
    std::vector<std::string> command = {"ingero-probe-target", std::to_string(calls_a_run)};
    if (filtered) command.emplace_back("filtered");
    auto target = ChildProcess::start(
        command, {.program = "/proc/self/fd/" + std::to_string(bench.program.get()), .keep = {}, .with_input = true});
    if (!target) return tl::unexpected(target.error());

    Traced traced;
    std::string ready, done;
    if (!target->read_line(ready, deadline) ||
        sscanf(ready.c_str(), "ready %" SCNu32 " %" SCNu64, &traced.run.tid, &traced.untraced_ns) != 2) {
        target->kill();
        return fail(ErrorCode::internal,
                    "ingero-probe-target " + describe_wait_status(target->wait()) + " before it was traced",
                    install_again);
    }
    traced.run.pid = static_cast<uint32_t>(target->pid());
    traced.run.calls = calls_a_run;
    bench.events.clear();
    const auto attached = bench.probes->attach(bench.program.get(), {&bench.site, 1});
    if (!attached) return tl::unexpected(attached.error());
    traced.run.begun_ns = monotonic_now_ns();
    if (auto sent = target->write("go\n"); !sent) return tl::unexpected(sent.error());
    if (await_done(*target, *bench.probes, deadline, done)) sscanf(done.c_str(), "done %" SCNu64, &traced.traced_ns);
    traced.run.ended_ns = monotonic_now_ns();
    const auto status = target->wait_until(deadline);
    if (!status) return tl::unexpected(status.error());
    traced.status = *status;
    traced.difference = compare_events(traced.run, bench.events);
    return traced;
}

bool exited_well(int status) {
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Nanoseconds that a call takes more while it is traced.
uint64_t cost_of_call(const Traced& traced) {
    constexpr uint64_t calls_a_batch = calls_a_run / INGERO_TARGET_BATCHES;
    return traced.traced_ns > traced.untraced_ns ? (traced.traced_ns - traced.untraced_ns) / calls_a_batch : 0;
}

CheckResult result_of(const char* name, const Error& error) {
    return {name, State::fail, error.message, error.hint.empty() ? "see the lines above" : error.hint};
}

CheckResult judge_events(const Traced& traced, const std::string& method) {
    const std::string report_it = "report this, with all that this command prints";
    if (!exited_well(traced.status))
        return {events_name, State::fail,
                "the traced program " + describe_wait_status(traced.status) + " (" + method + ")",
                "stop ingerod on this host, and report this: tracing harms programs here"};
    if (!traced.difference.empty()) return {events_name, State::fail, traced.difference, report_it};
    return {events_name, State::pass,
            format_count(traced.run.calls) + " calls came back as " + format_count(traced.run.calls) +
                " events, each with its arguments, return code, thread and duration (" + method + ")",
            ""};
}

CheckResult judge_filtered(const Traced& traced, bool spared) {
    if (!exited_well(traced.status))
        return {seccomp_name, State::fail,
                "a traced program under a seccomp filter like a container's " + describe_wait_status(traced.status),
                "update the kernel: 6.14 and the stable kernels of 2025 let the return from a probed call pass such "
                "filters. Until then do not trace where containers run, or allow uretprobe (number 335) in their "
                "seccomp profile"};
    if (spared)
        return {seccomp_name, State::note,
                "a program under a seccomp filter is not traced, since tracing might kill it",
                "update the kernel: see return-probes"};
    if (!traced.difference.empty())
        return {seccomp_name, State::fail, "under a seccomp filter like a container's: " + traced.difference,
                "report this, with all that this command prints"};
    return {seccomp_name, State::pass, "a program under a seccomp filter like a container's is traced unharmed", ""};
}

CheckResult judge_cost(const Traced& traced, const ProbeSite& site) {
    return {cost_name, State::pass,
            format_count(cost_of_call(traced)) + " ns a traced call, " +
                (site.emulated ? "its first instruction emulated as in the CUDA libraries" : "single-stepped"),
            ""};
}

}  // namespace

std::string compare_events(const TargetRun& run, std::span<const Event> events) {
    std::vector<Event> own;
    for (const Event& event : events)
        if (event.tgid == run.pid) own.push_back(event);
    if (own.size() != run.calls)
        return format_count(run.calls) + " calls came back as " + format_count(own.size()) + " events";
    std::stable_sort(own.begin(), own.end(), [](const Event& a, const Event& b) { return a.start_ns < b.start_ns; });
    for (uint64_t i = 0; i < own.size(); ++i) {
        const Event& event = own[i];
        const auto differs = [&](const char* what, uint64_t found, uint64_t wanted) {
            return "call " + std::to_string(i + 1) + " came back with " + what + " " + std::to_string(found) +
                   " in place of " + std::to_string(wanted);
        };
        const uint64_t bytes = ingero_target_bytes(i), stream = ingero_target_stream(i);
        const auto direction = static_cast<uint64_t>(ingero_target_direction(i));
        const auto result = static_cast<uint64_t>(ingero_target_result(bytes));
        if (event.tid != run.tid) return differs("thread", event.tid, run.tid);
        if (event.args[0] != bytes) return differs("bytes", event.args[0], bytes);
        if (event.args[1] != direction) return differs("direction", event.args[1], direction);
        if (event.stream != stream) return differs("stream", event.stream, stream);
        if (event.return_code < 0 || static_cast<uint64_t>(event.return_code) != result)
            return differs("return code", static_cast<uint64_t>(event.return_code), result);
        if (event.duration_ns == 0) return "call " + std::to_string(i + 1) + " came back without a duration";
        if (event.start_ns < run.begun_ns || event.end_ns() > run.ended_ns)
            return "call " + std::to_string(i + 1) + " came back with a time outside the run";
    }
    return {};
}

CheckResults check_by_probing(KernelFeatures& features, const std::string& target_program, SymbolReader& symbols,
                              std::optional<ProbeFigures>& ret_figures) {
    auto bench = set_up(features, target_program, symbols);
    if (!bench) return {result_of(events_name, bench.error())};
    const std::string method(to_string((*bench)->probes->method()));
    const auto plain = run_traced(**bench, false);
    if (!plain) return {result_of(events_name, plain.error())};
    CheckResults results = {judge_events(*plain, method)};
    if (results.front().state == State::pass) {
        results.push_back(judge_cost(*plain, (*bench)->site));
        ret_figures = ProbeFigures{method, plain->run.calls, plain->run.calls, cost_of_call(*plain)};
    }
    const auto filtered = run_traced(**bench, true);
    results.push_back(filtered ? judge_filtered(*filtered, (*bench)->probes->spares_filtered())
                               : result_of(seccomp_name, filtered.error()));
    return results;
}

}  // namespace ingero
