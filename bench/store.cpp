// The event store against SQLite: the same rows into both, and the same questions to both, in one run on one core.
// SQLite is set up as the recorder is whose traces are imported: its table of events and that table's indices, WAL,
// synchronous=NORMAL, prepared inserts, and otherwise SQLite's defaults. Our commits are synchronous.
#include "core/store/store.h"

#include <sched.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>

#include "bench/figures.h"
#include "bench/rivals.h"
#include "bench/store_rows.h"
#include "core/model/time.h"
#include "core/query/answers/stats.h"

using namespace ingero;
using namespace ingero::bench;

namespace {

constexpr size_t batch_rows = 8'192;
constexpr size_t small_batch_rows = 1'000;
constexpr size_t top_rows = 100;
constexpr uint64_t parts = 10;  // that both are filled in by turns, so that noise meets them alike
constexpr int our_rounds = 9;
constexpr int their_rounds = 3;

struct Options {
    bool as_json = false;
    uint64_t rows = 1'000'000;
    std::string trace;
    std::string directory;
    bool with_text_ids = false;
};

// Ours.

struct Totals {
    uint64_t rows = 0;
    uint64_t duration_ns = 0;
    uint64_t max_ns = 0;
};
using TotalsByOp = std::map<OpId, Totals>;

uint64_t sum_of(const TotalsByOp& ops) {
    uint64_t sum = 0;
    for (const auto& [op, totals] : ops)
        sum += (op >> 8) + (op & 0xff) + totals.rows + totals.duration_ns + totals.max_ns;
    return sum;
}

void add_summary(TotalsByOp& ops, const OpSummary& summary) {
    Totals& totals = ops[summary.op];
    totals.rows += summary.rows;
    totals.duration_ns += summary.duration_ns;
    totals.max_ns = std::max(totals.max_ns, summary.max_ns);
}

class Questions {
  public:
    explicit Questions(StoreReader& reader) : reader_(reader) {}

    /// Decodes each duration, as a question has to that headers do not answer.
    uint64_t aggregate() {
        return ask({0, UINT64_MAX}, [&](BlockView& block, TotalsByOp& ops) { add_rows(block, {0, UINT64_MAX}, ops); });
    }
    uint64_t aggregate_from_headers() {
        return ask({0, UINT64_MAX}, [](BlockView& block, TotalsByOp& ops) {
            for (const OpSummary& summary : block.ops()) add_summary(ops, summary);
        });
    }
    /// Rows that start in the window.
    uint64_t range(Window window) {
        return ask(window, [&](BlockView& block, TotalsByOp& ops) {
            if (!lies_within(block.header(), window)) return add_rows(block, window, ops);
            for (const OpSummary& summary : block.ops()) add_summary(ops, summary);
        });
    }
    /// Segments with the longest maxima first, for as long as they can change the answer.
    uint64_t top() {
        struct Candidate {
            uint64_t max_ns;
            std::string_view bytes;
            uint32_t segment;
        };
        struct Found {
            uint64_t duration_ns;
            const Candidate* where;
            uint32_t row;
        };
        const auto shorter = [](const Candidate& a, const Candidate& b) { return a.max_ns < b.max_ns; };
        const auto slower = [](const Found& a, const Found& b) { return a.duration_ns > b.duration_ns; };
        const auto snapshot = must(reader_.snapshot());
        std::vector<Candidate> candidates;
        must(snapshot->scan_blocks(0, {0, UINT64_MAX}, [&](BlockView& block) {
            for (uint32_t segment = 0; segment < block.ops().size(); ++segment)
                candidates.push_back({block.ops()[segment].max_ns, block.bytes(), segment});
            return true;
        }));
        std::make_heap(candidates.begin(), candidates.end(), shorter);
        std::vector<Found> slowest;  // a heap with the least on top
        for (auto last = candidates.end(); last != candidates.begin();) {
            if (slowest.size() == top_rows && candidates.front().max_ns <= slowest.front().duration_ns) break;
            std::pop_heap(candidates.begin(), last--, shorter);
            must(block_.open(last->bytes));
            const std::vector<uint64_t>& durations = column(ColumnId::duration, last->segment);
            for (uint32_t row = 0; row < durations.size(); ++row) {
                if (slowest.size() == top_rows) {
                    if (durations[row] <= slowest.front().duration_ns) continue;
                    std::pop_heap(slowest.begin(), slowest.end(), slower);
                    slowest.pop_back();
                }
                slowest.push_back({durations[row], &*last, row});
                std::push_heap(slowest.begin(), slowest.end(), slower);
            }
        }
        // The rest of each row, segment by segment.
        std::sort(slowest.begin(), slowest.end(), [](const Found& a, const Found& b) { return a.where < b.where; });
        std::vector<std::array<uint64_t, 4>> rows(slowest.size());
        uint64_t sum = 0;
        for (size_t from = 0, to = 0; from < slowest.size(); from = to) {
            while (to < slowest.size() && slowest[to].where == slowest[from].where) ++to;
            must(block_.open(slowest[from].where->bytes));
            for (size_t place = 0;
                 const ColumnId id : {ColumnId::start, ColumnId::tgid, ColumnId::tid, ColumnId::duration}) {
                const std::vector<uint64_t>& values = column(id, slowest[from].where->segment);
                for (size_t i = from; i < to; ++i) rows[i][place] = values[slowest[i].row];
                ++place;
            }
        }
        for (const auto& row : rows) sum += row[3];
        return sum;
    }

  private:
    uint64_t ask(Window window, const std::function<void(BlockView&, TotalsByOp&)>& add) {
        const auto snapshot = must(reader_.snapshot());
        TotalsByOp ops;
        must(snapshot->scan_blocks(0, window, [&](BlockView& block) {
            add(block, ops);
            return true;
        }));
        return sum_of(ops);
    }

    void add_rows(BlockView& block, Window window, TotalsByOp& ops) {
        const bool all = lies_within(block.header(), window);
        for (uint32_t segment = 0; segment < block.ops().size(); ++segment) {
            Totals& totals = ops[block.ops()[segment].op];
            values_.resize(block.ops()[segment].rows);
            must(block.column(ColumnId::duration, segment, values_));
            if (all) {
                for (const uint64_t duration : values_) {
                    totals.duration_ns += duration;
                    totals.max_ns = std::max(totals.max_ns, duration);
                }
                totals.rows += values_.size();
                continue;
            }
            durations_ = values_;
            must(block.column(ColumnId::start, segment, values_));
            for (size_t row = 0; row < values_.size(); ++row) {
                if (!window.contains(values_[row])) continue;
                ++totals.rows;
                totals.duration_ns += durations_[row];
                totals.max_ns = std::max(totals.max_ns, durations_[row]);
            }
        }
        std::erase_if(ops, [](const auto& op) { return op.second.rows == 0; });
    }

    const std::vector<uint64_t>& column(ColumnId id, uint32_t segment) {
        values_.resize(block_.ops()[segment].rows);
        must(block_.column(id, segment, values_));
        return values_;
    }

    StoreReader& reader_;
    BlockView block_;
    std::vector<uint64_t> values_;
    std::vector<uint64_t> durations_;
};

/// What storing took, on the wall clock and of the CPU.
struct Spent {
    uint64_t wall_ns = 0;
    uint64_t cpu_ns = 0;

    void add(const std::function<void()>& run) {
        const uint64_t cpu = cpu_now_ns();
        const uint64_t wall = monotonic_now_ns();
        run();
        wall_ns += monotonic_now_ns() - wall;
        cpu_ns += cpu_now_ns() - cpu;
    }
    static uint64_t cpu_now_ns() {
        timespec now{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
    }
};

class Ours {
  public:
    Ours(const std::string& directory, const RowSource& source) : stream_(source) {
        StoreOptions options;
        options.max_size_bytes = 64ULL << 30;
        options.clock = [] { return make_session().clock; };
        writer_ = must(StoreWriter::open(directory, options));
        must(writer_->begin_session(make_session()));
        writer_->set_first_covered(1);
    }
    ~Ours() { must(writer_->end_session()); }

    void fill(uint64_t rows, size_t rows_a_commit, bool tidy) {
        for (uint64_t done = 0; done < rows; done += batch_.events.size()) {
            stream_.next(std::min<uint64_t>(rows_a_commit, rows - done), batch_.events);
            batch_.covered_until_ns = batch_.events.back().end_ns();
            spent_.add([&] {
                must(writer_->commit(batch_));
                if (tidy) must(writer_->tidy());
            });
        }
    }
    const Spent& spent() const { return spent_; }
    double bytes() const { return static_cast<double>(writer_->figures().bytes); }

  private:
    RowStream stream_;
    std::unique_ptr<StoreWriter> writer_;
    Batch batch_;
    Spent spent_;
};

class Theirs {
  public:
    Theirs(Sqlite& sqlite, const RowSource& source) : sqlite_(sqlite), stream_(source) {}

    void fill(uint64_t rows) {
        for (uint64_t done = 0; done < rows; done += events_.size()) {
            stream_.next(std::min<uint64_t>(batch_rows, rows - done), events_);
            spent_.add([&] { sqlite_.commit(events_, wall_offset); });
        }
    }
    const Spent& spent() const { return spent_; }

  private:
    Sqlite& sqlite_;
    RowStream stream_;
    std::vector<Event> events_;
    Spent spent_;
};

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
        if (argument == "--json") {
            options.as_json = true;
        } else if (argument == "--rows") {
            options.rows = strtoull(value().c_str(), nullptr, 10);
        } else if (argument == "--trace") {
            options.trace = value();
        } else if (argument == "--directory") {
            options.directory = value();
        } else if (argument == "--text-ids") {
            options.with_text_ids = true;
        } else {
            fprintf(stderr,
                    "usage: store [--json] [--rows N] [--trace FILE] [--directory DIR] [--text-ids]\n"
                    "  --rows N         rows to store, 1000000 unless given\n"
                    "  --trace FILE     replicate the events of this SQLite trace rather than made-up ones\n"
                    "  --directory DIR  where the files go, the directory for temporary files unless given\n"
                    "  --text-ids       SQLite's table as newer recorders make it, with ids of text: larger, slower\n");
            exit(2);
        }
    }
    if (options.rows < 100'000) fail_with("fewer than 100000 rows say nothing");
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);

    const RowSource source = options.trace.empty() ? bench::made_up_rows() : must(bench::rows_of_trace(options.trace));
    const double rows = static_cast<double>(options.rows);
    const Directory place(options.directory);
    for (const char* name : {"/ours", "/small"}) std::filesystem::create_directory(place.path() + name);

    Sqlite sqlite(place.path() + "/events.db", options.with_text_ids);
    double our_bytes = 0, small_bytes = 0;
    Spent our_cost, their_cost;
    {
        Ours ours(place.path() + "/ours", source);
        Theirs theirs(sqlite, source);
        for (uint64_t part = 0; part < parts; ++part) {
            const uint64_t count = options.rows / parts + (part < options.rows % parts ? 1 : 0);
            ours.fill(count, batch_rows, false);
            theirs.fill(count);
            // Else our next synchronisation would wait for what SQLite has not synchronised.
            sync();
        }
        our_bytes = ours.bytes() / rows;
        our_cost = ours.spent();
        their_cost = theirs.spent();
    }
    const uint64_t small_rows = std::min<uint64_t>(options.rows, 1'000'000);
    {
        Ours small(place.path() + "/small", source);
        small.fill(small_rows, small_batch_rows, true);
        small_bytes = small.bytes() / static_cast<double>(small_rows);
    }
    const double their_bytes = static_cast<double>(sqlite.bytes()) / rows;

    const uint64_t rounds = (options.rows + source.rows.size() - 1) / source.rows.size();
    const uint64_t span = rounds * source.round_ns;
    const Window window{RowStream::first_start_ns + span / 2, RowStream::first_start_ns + span / 2 + span / 100};
    const std::string by_op = "SELECT source, op, COUNT(*), SUM(duration), MAX(duration) FROM events ";
    const std::string in_window = "WHERE timestamp >= " + std::to_string(window.from_ns + wall_offset) +
                                  " AND timestamp < " + std::to_string(window.to_ns + wall_offset) + " ";

    auto reader = must(StoreReader::open(place.path() + "/ours"));
    Questions questions(*reader);
    struct Question {
        std::string label;
        std::string figure;
        std::function<uint64_t()> ours;
        std::string sql;
        double goal;
        double our_ms = 0;
        double their_ms = 0;
    };
    std::vector<Question> asked = {
        {"aggregate by op over all rows", "scan", [&] { return questions.aggregate(); }, by_op + "GROUP BY source, op",
         100},
        {"the same from block headers", "header_scan", [&] { return questions.aggregate_from_headers(); }, "", 0},
        {"aggregate over 1 % of the time", "range", [&] { return questions.range(window); },
         by_op + in_window + "GROUP BY source, op", 100},
        {"the 100 slowest", "top", [&] { return questions.top(); },
         "SELECT duration FROM (SELECT timestamp, pid, tid, duration FROM events ORDER BY duration DESC LIMIT 100)",
         100},
    };
    for (size_t i = 0; i < asked.size(); ++i) {
        Question& question = asked[i];
        uint64_t our_answer = 0, their_answer = 0;
        question.our_ms = median_ms(our_rounds, [&] { our_answer = question.ours(); });
        if (question.sql.empty()) {
            question.their_ms = asked[i - 1].their_ms;
            continue;
        }
        question.their_ms = median_ms(their_rounds, [&] { their_answer = sqlite.ask(question.sql); });
        if (our_answer != their_answer) fail_with(question.label + ": the answers differ");
    }

    uint64_t counted = 0;
    const double stats_ms = median_ms(our_rounds, [&] {
        const auto snapshot = must(reader->snapshot());
        const auto answer = must(compute_stats(*snapshot, {.window = whole_trace(*snapshot), .uid = {}, .pid = {}}));
        counted = 0;
        for (const OpStats& op : answer.ops) counted += op.count;
    });
    if (counted != options.rows) fail_with("statistics counted " + std::to_string(counted) + " calls");

    const auto per_s = [&](uint64_t ns) { return rows * 1e9 / static_cast<double>(ns); };
    const auto ratio = [](uint64_t ours, uint64_t theirs) {
        return static_cast<double>(theirs) / static_cast<double>(ours);
    };
    std::vector<Row> table = {
        {"ours, synchronous commits of 8,192", "ingest_rows_per_s", per_s(our_cost.wall_ns), "1/s", ""},
        {"  of CPU time", "ingest_rows_per_cpu_s", per_s(our_cost.cpu_ns), "1/s", ""},
        {"SQLite, transactions of 8,192", "sqlite_rows_per_s", per_s(their_cost.wall_ns), "1/s", ""},
        {"  of CPU time", "sqlite_rows_per_cpu_s", per_s(their_cost.cpu_ns), "1/s", ""},
        {"ingest, ours ÷ SQLite", "ingest_ratio", ratio(our_cost.wall_ns, their_cost.wall_ns), "x",
         "goal: at least 12"},
        {"  of CPU time", "ingest_cpu_ratio", ratio(our_cost.cpu_ns, their_cost.cpu_ns), "x", ""},
        {"ours, the file", "bytes_per_row", our_bytes, "B/row", ""},
        {"ours, commits of 1,000 with upkeep, " + std::to_string(small_rows) + " rows", "small_bytes_per_row",
         small_bytes, "B/row", ""},
        {"SQLite, the file", "sqlite_bytes_per_row", their_bytes, "B/row", ""},
        {"bytes, ours ÷ SQLite", "bytes_ratio", our_bytes / their_bytes, "x", "goal: at most 0.1"},
        {"bytes, ours in small commits ÷ SQLite", "small_bytes_ratio", small_bytes / their_bytes, "x",
         "goal: at most 0.1"},
    };
    for (const Question& question : asked) {
        table.push_back({question.label, question.figure + "_ms", question.our_ms, "ms", ""});
        if (!question.sql.empty())
            table.push_back({"  SQLite", "sqlite_" + question.figure + "_ms", question.their_ms, "ms", ""});
        table.push_back({"  SQLite ÷ ours", question.figure + "_ratio", question.their_ms / question.our_ms, "x",
                         question.goal > 0 ? "goal: at least 100" : ""});
    }
    table.push_back({"statistics of all calls, exact quantiles", "stats_ms", stats_ms, "ms", ""});
    if (!options.as_json) printf("%.0f rows: %s.\n", rows, source.description.c_str());
    bench::print("store", table, options.as_json);
    return 0;
}
