// Requests of a stored window at three sizes: the answer of `ingeroctl requests` from the store on, on one core.
// Checked against making every pair, for some requests.
#include <sched.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "bench/rivals.h"
#include "bench/store_rows.h"
#include "core/diagnosis/requests.h"
#include "core/model/op.h"

using namespace ingero;
using namespace ingero::bench;

namespace {

constexpr size_t batch_rows = 8'192;
constexpr int rounds = 5;
constexpr uint64_t calls_a_request = 10;
constexpr uint64_t most_calls = 1'000'000;
/// Requests that overlap at any time.
constexpr uint64_t beside_each_other = 50;
constexpr const char* service = "/system.slice/vllm.service";

struct Call {
    Window window;
    bool outermost = false;
};

/// What was stored, to compare with.
struct Filled {
    std::vector<Call> calls;
    std::vector<SpanRow> spans;
};

/// `calls` rows and a tenth as many spans over the same time, all of one service.
Filled fill(const std::string& directory, const RowSource& source, uint64_t calls) {
    StoreOptions options;
    options.max_size_bytes = 64ULL << 30;
    options.clock = [] { return make_session().clock; };
    auto writer = must(StoreWriter::open(directory, options));
    must(writer->begin_session(make_session()));
    writer->set_first_covered(RowStream::first_start_ns);
    RowStream stream(source);
    std::map<ProcessKey, Process> processes;
    Filled filled;
    uint64_t last = 0;
    for (uint64_t done = 0; done < calls; done += batch_rows) {
        Batch batch;
        stream.next(std::min<uint64_t>(batch_rows, calls - done), batch.events);
        for (const Event& event : batch.events) {
            last = std::max(last, event.end_ns());
            filled.calls.push_back({{event.start_ns, event.end_ns()}, event.depth == 0});
            Process& process = processes[event.process()];
            if (process.key == event.process()) continue;
            process.key = event.process();
            process.cgroup = service;
            batch.processes.push_back(process);
        }
        batch.covered_until_ns = last;
        must(writer->commit(batch));
    }
    const uint64_t count = calls / calls_a_request, whole = last - RowStream::first_start_ns;
    const uint64_t usual_ns = std::max<uint64_t>(whole / count * beside_each_other, 2);
    std::mt19937_64 random(7);
    Batch batch;
    for (uint64_t i = 0; i < count; ++i) {
        SpanRow span;
        span.id = "request-" + std::to_string(i);
        span.start_ns = RowStream::first_start_ns + random() % whole;
        span.first_token_ns = span.start_ns + usual_ns / 4;
        span.end_ns = span.start_ns + usual_ns / 2 + random() % usual_ns;
        span.process = processes.begin()->first;
        span.scope = service;
        batch.spans.push_back(span);
        if (batch.spans.size() < batch_rows && i + 1 < count) continue;
        filled.spans.insert(filled.spans.end(), batch.spans.begin(), batch.spans.end());
        batch.covered_until_ns = last;
        must(writer->commit(batch));
        batch = {};
    }
    must(writer->end_session());
    return filled;
}

bool overlap(Window a, Window b) {
    return a.from_ns < std::max(b.to_ns, b.from_ns + 1) && b.from_ns < std::max(a.to_ns, a.from_ns + 1);
}

void check(const RequestsAnswer& answer, const Filled& filled) {
    if (answer.found != filled.spans.size() || answer.requests.empty()) fail_with("requests are missing");
    for (const RequestStats& request : answer.requests) {
        const Window span{request.span.start_ns, request.span.end_ns};
        uint64_t calls = 0, others = 0;
        for (const Call& call : filled.calls) calls += call.outermost && overlap(call.window, span);
        for (const SpanRow& other : filled.spans) others += overlap({other.start_ns, other.end_ns}, span);
        if (calls != request.sums[CallSums::calls] || others != request.co_resident + 1)
            fail_with("request " + request.span.id + " is counted wrongly: " +
                      std::to_string(request.sums[CallSums::calls]) + " calls instead of " + std::to_string(calls));
    }
}

/// One median answer, in seconds.
double seconds_of(const std::string& directory, const RowSource& source, uint64_t calls) {
    std::filesystem::create_directory(directory);
    const Filled filled = fill(directory, source, calls);
    auto reader = must(StoreReader::open(directory));
    RequestsQuery query;
    RequestsAnswer answer;
    const double ms = median_ms(rounds, [&] {
        const auto snapshot = must(reader->snapshot());
        query.filter.window = whole_trace(*snapshot);
        answer = must(compute_requests(*snapshot, query));
    });
    check(answer, filled);
    return ms / 1'000;
}

}  // namespace

int main(int argc, char** argv) {
    bool as_json = false;
    std::string trace, below;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
        if (argument == "--json") {
            as_json = true;
        } else if (argument == "--trace") {
            trace = value();
        } else if (argument == "--directory") {
            below = value();
        } else {
            fprintf(stderr, "usage: by_request [--json] [--trace FILE] [--directory DIR]\n");
            return 2;
        }
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);

    RowSource source = trace.empty() ? made_up_rows() : must(rows_of_trace(trace));
    std::erase_if(source.rows, [](const Event& event) { return !is_call(event.op); });
    if (source.rows.empty()) fail_with("there is no call in " + trace);
    const Directory place(below);
    const double small = seconds_of(place.path() + "/small", source, most_calls / 16);
    const double middle = seconds_of(place.path() + "/middle", source, most_calls / 4);
    const double large = seconds_of(place.path() + "/large", source, most_calls);
    // Time as size to this power, from the smallest to the largest.
    const double exponent = std::log(large / small) / std::log(16.0);
    if (!as_json) printf("Of %s, the calls alone; median of %d answers.\n", source.description.c_str(), rounds);
    print("by_request",
          {{"62,500 calls, 6,250 requests", "seconds_62k_6k", small, "s", ""},
           {"250,000 calls, 25,000 requests", "seconds_250k_25k", middle, "s", ""},
           {"1,000,000 calls, 100,000 requests", "seconds_1m_100k", large, "s", "goal: under 1"},
           {"grows as size to the power of", "growth_exponent", exponent, "", "goal: at most 1.2"}},
          as_json);
    return 0;
}
