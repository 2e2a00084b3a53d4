// How long it takes to explain five minutes out of a large store, in which something happens all the time: calls of ten
// minutes more are read for what is usual. One core; the time is that of a worker's answer, without its JSON.
#include "core/diagnosis/explain.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "bench/rivals.h"
#include "bench/store_rows.h"

using namespace ingero;
using namespace ingero::bench;

namespace {

constexpr size_t batch_rows = 8'192;
constexpr uint64_t explained_ns = 300'000'000'000;

constexpr int rounds = 7;

double cpu_ms() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
}

struct Stored {
    uint64_t end_ns = 0;     ///< of the last call, CLOCK_REALTIME
    uint64_t explained = 0;  ///< rows that begin in the last five minutes
};

Stored store_rows(const std::string& directory, const RowSource& source, uint64_t rows) {
    StoreOptions options;
    options.max_size_bytes = (64ULL << 20) + rows * 256;
    options.clock = [] { return make_session().clock; };
    auto writer = must(StoreWriter::open(directory, options));
    must(writer->begin_session(make_session()));
    writer->set_first_covered(RowStream::first_start_ns);
    RowStream stream(source);
    Batch batch;
    std::vector<uint64_t> starts;
    uint64_t last_ns = 0;
    for (uint64_t done = 0; done < rows; done += batch.events.size()) {
        stream.next(std::min<uint64_t>(batch_rows, rows - done), batch.events);
        for (const Event& event : batch.events) {
            starts.push_back(event.start_ns);
            last_ns = std::max(last_ns, event.end_ns());
        }
        batch.covered_until_ns = last_ns;
        must(writer->commit(batch));
    }
    must(writer->end_session());
    const auto explained = std::count_if(starts.begin(), starts.end(),
                                         [&](uint64_t start_ns) { return start_ns + explained_ns >= last_ns; });
    return {wall_offset + last_ns, static_cast<uint64_t>(explained)};
}

}  // namespace

int main(int argc, char** argv) {
    bool as_json = false;
    uint64_t rows = 1'000'000;
    std::string trace, below;
    uint64_t minutes = 0;  // over which the rows are spread; 0: as they come
    for (int i = 1; i < argc; ++i) {
        const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
        if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (strcmp(argv[i], "--rows") == 0)
            rows = strtoull(value(), nullptr, 10);
        else if (strcmp(argv[i], "--trace") == 0)
            trace = value();
        else if (strcmp(argv[i], "--directory") == 0)
            below = value();
        else if (strcmp(argv[i], "--over-minutes") == 0)
            minutes = strtoull(value(), nullptr, 10);
        else
            return fprintf(stderr,
                           "usage: explain [--json] [--rows N] [--over-minutes M] [--trace FILE] "
                           "[--directory DIR]\n"),
                   2;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);

    RowSource source = trace.empty() ? made_up_rows() : must(rows_of_trace(trace));
    // A pause after each round of them.
    if (minutes != 0 && rows != 0)
        source.round_ns = std::max(source.round_ns, minutes * 60'000'000'000 * source.rows.size() / rows);
    const Directory place(below);
    const Stored stored = store_rows(place.path(), source, rows);
    auto reader = must(StoreReader::open(place.path()));
    ExplainAnswer answer;
    std::vector<double> all_ms, all_cpu_ms;
    for (int round = 0; round < rounds; ++round) {
        const double begin_ms = cpu_ms();
        all_ms.push_back(median_ms(1, [&] {
            const auto snapshot = must(reader->snapshot());
            answer = must(explain(
                *snapshot, Filter{.window = {stored.end_ns - explained_ns, stored.end_ns}, .uid = {}, .pid = {}}));
        }));
        all_cpu_ms.push_back(cpu_ms() - begin_ms);
    }
    const std::vector<Row> table = {
        {"explain over the last 5 minutes", "explain_ms", median(all_ms), "ms", "goal: under 300"},
        {"  of it, processor time", "explain_cpu_ms", median(all_cpu_ms), "ms", ""},
        {"  rows of these minutes", "explained_rows", static_cast<double>(stored.explained), "", ""},
        {"  calls judged", "explained_calls", static_cast<double>(answer.calls), "", ""},
        {"  findings", "findings", static_cast<double>(answer.findings.size()), "", ""},
    };
    if (!as_json) printf("%llu rows: %s.\n", static_cast<unsigned long long>(rows), source.description.c_str());
    print("explain", table, as_json);
    return 0;
}
