// ingeroctl trace: calls as they come, and calls that do not come back.

#include "core/render/trace.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/model/time.h"
#include "core/wire/client.h"
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

struct TraceOptions {
    std::optional<uint32_t> pid;
    std::vector<std::string> ops;
    std::string min_duration;
    std::string duration;
    bool errors = false;
    bool in_flight = false;
    uint64_t count = 0;
};

Result<json> to_params(const TraceOptions& trace) {
    json params = json::object();
    if (trace.pid) params["pid"] = *trace.pid;
    if (!trace.ops.empty()) params["ops"] = trace.ops;
    if (trace.errors) params["errors"] = true;
    if (trace.in_flight) params["in_flight"] = true;
    if (trace.min_duration.empty()) return params;
    const auto ns = parse_duration_ns(trace.min_duration);
    if (!ns) return fail(ErrorCode::bad_request, "--min-duration: " + ns.error().message, "such as 50us, 1ms or 2s");
    params["min_duration_ns"] = *ns;
    return params;
}

int run(const Options& options, const TraceOptions& trace) {
    using std::chrono::steady_clock;
    auto params = to_params(trace);
    if (!params) return usage_error("trace", params.error());
    std::optional<steady_clock::time_point> until;
    if (!trace.duration.empty()) {
        const auto ns = parse_duration_ns(trace.duration);
        constexpr uint64_t most_ns = 1'000ULL * 24 * 3600 * 1'000'000'000;
        if (!ns || *ns > most_ns)
            return usage_error("trace", {ErrorCode::bad_request,
                                         "--duration: " + (ns ? "it is longer than 1000 days" : ns.error().message),
                                         "durations are like 90s, 5m, 2h or 1d"});
        until = steady_clock::now() + std::chrono::nanoseconds(*ns);
    }
    auto client = ControlClient::connect(options.socket, {.client = "ingeroctl " INGERO_VERSION});
    if (!client) {
        const bool absent = client.error().code == ErrorCode::not_found || client.error().code == ErrorCode::deadline;
        return report("connect", client.error(), absent ? exit_not_ready : exit_failed);
    }
    const json& name = client->server().value("node", json(""));
    const std::string node = name.is_string() ? name.get<std::string>() : "";
    if (const auto begun = client->call("trace", std::move(*params), answer_patience); !begun)
        return report("trace", begun.error(), exit_failed);
    uint64_t shown = 0;
    bool written = true;
    const auto followed = client->follow(until, STDOUT_FILENO, [&](const json& chunk) {
        for (const json& line : trace_lines(chunk, node)) {
            written = print_line(options, line, text_trace);
            if (!written || (trace.count != 0 && line["event"] != "skipped" && ++shown == trace.count)) return false;
        }
        return written = std::fflush(stdout) == 0;
    });
    if (!followed) return report("trace", followed.error(), exit_failed);
    return written && std::fflush(stdout) == 0 ? exit_done : exit_failed;
}

}  // namespace

void add_trace(CLI::App& app, Command& command) {
    const auto trace = std::make_shared<TraceOptions>();
    CLI::App* subcommand =
        app.add_subcommand("trace", "Show traced calls as they are recorded, and calls that have not returned");
    subcommand->add_option("-p,--pid", trace->pid, "Only this process")->type_name("PID")->check(process_number());
    subcommand
        ->add_option("--op", trace->ops, "Only calls of this operation, such as cudaLaunchKernel; may be repeated")
        ->type_name("NAME")
        ->take_all();
    subcommand
        ->add_option("--min-duration", trace->min_duration, "Only calls that took at least this long, such as 1ms")
        ->type_name("DURATION");
    subcommand->add_flag("--errors", trace->errors, "Only calls that failed");
    subcommand->add_flag("--in-flight", trace->in_flight,
                         "Only calls that have been in flight for longer than [capture] inflight_floor");
    subcommand->add_option("-n,--count", trace->count, "End after this many calls (default: run until interrupted)")
        ->type_name("CALLS")
        ->check(whole_number(1, uint64_t{1} << 53));
    subcommand->add_option("--duration", trace->duration, "End after this long, such as 10s")->type_name("DURATION");
    add_examples(
        *subcommand,
        {{"Slow calls as they are recorded", "ingeroctl trace --min-duration 10ms --duration 10s"},
         {"What hangs?", "ingeroctl trace --in-flight --duration 10s"},
         {"The next hundred launches of a process", "ingeroctl trace --pid 4711 --op cudaLaunchKernel --count 100"}});
    subcommand->callback(
        [&command, trace] { command = [trace](const Options& options) { return run(options, *trace); }; });
}

}  // namespace ingero::ctl
