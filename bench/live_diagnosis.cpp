// What the live diagnosis takes of a core while calls come in at a steady rate: the time of its thread by the time that
// passes.
#include "daemon/ingerod/live/live_diagnosis.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <set>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "bench/store_rows.h"
#include "core/model/time.h"

using namespace ingero;
using namespace ingero::bench;

namespace {

constexpr uint64_t tick_us = 20'000;

uint64_t cpu_us(int who) {
    rusage used{};
    getrusage(who, &used);
    return static_cast<uint64_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1'000'000 +
           static_cast<uint64_t>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/// CPU time of all threads but this one, by the time that passed, while so many calls a second come in.
double share_at(uint64_t calls_a_second, uint64_t seconds, size_t& ret_passes, size_t& ret_findings) {
    EventLoop loop;
    LiveDiagnosis diagnosis(loop, "boot", {}, [&](const DiagnosisPass& pass) {
        ++ret_passes;
        ret_findings += pass.findings.size();
    });
    const RowSource source = made_up_rows();
    RowStream stream(source);
    std::vector<Event> events;
    std::set<ProcessKey> told;
    const uint64_t begin_ns = monotonic_now_ns();
    uint64_t given = 0, counted_from_ns = 0, others_us = 0;
    const EventLoop::Source feed = loop.add_periodic(tick_us, [&] {
        const uint64_t now_ns = monotonic_now_ns();
        // The window is full from then on.
        constexpr uint64_t filling_ns = 10'000'000'000;
        if (counted_from_ns == 0 && now_ns - begin_ns >= filling_ns) {
            counted_from_ns = now_ns;
            others_us = cpu_us(RUSAGE_SELF) - cpu_us(RUSAGE_THREAD);
            ret_passes = 0;
        }
        if (counted_from_ns != 0 && now_ns - counted_from_ns >= seconds * 1'000'000'000) return loop.exit(0);
        const uint64_t wanted = (now_ns - begin_ns) / 1'000 * calls_a_second / 1'000'000 - given;
        if (wanted == 0) return;
        stream.next(wanted, events);
        for (size_t i = 0; i < events.size(); ++i) {
            Event& event = events[i];
            const uint64_t ended_ns = now_ns - tick_us * 1'000 * (events.size() - i) / events.size();
            event.start_ns = ended_ns - event.duration_ns;
            if (!told.insert(event.process()).second) continue;
            Process process;
            process.key = event.process();
            process.comm = "bench";
            diagnosis.put_process(process);
        }
        given += wanted;
        diagnosis.add(std::move(events));
        events = {};
    });
    loop.run();
    const auto passed_us = static_cast<double>(monotonic_now_ns() - counted_from_ns) / 1'000;
    return static_cast<double>(cpu_us(RUSAGE_SELF) - cpu_us(RUSAGE_THREAD) - others_us) / passed_us;
}

}  // namespace

int main(int argc, char** argv) {
    bool as_json = false;
    uint64_t seconds = 20;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = strtoull(argv[++i], nullptr, 10);
        else
            return fprintf(stderr, "usage: live_diagnosis [--json] [--seconds N]\n"), 2;
    }
    std::vector<Row> table;
    for (const uint64_t rate : {5'000ull, 50'000ull}) {
        size_t passes = 0, findings = 0;
        const double share = share_at(rate, seconds, passes, findings);
        const std::string calls = std::to_string(rate / 1000) + "k";
        table.push_back({"of a core, at " + std::to_string(rate) + " calls a second", "core_percent_" + calls,
                         share * 100, "%", rate == 50'000 ? "goal: under 2" : ""});
        table.push_back({"  passes a second", "passes_a_second_" + calls,
                         static_cast<double>(passes) / static_cast<double>(seconds), "", ""});
        table.push_back({"  findings in all", "findings_" + calls, static_cast<double>(findings), "", ""});
    }
    print("live_diagnosis", table, as_json);
    return 0;
}
