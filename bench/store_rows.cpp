#include "bench/store_rows.h"

#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "core/model/op.h"

namespace ingero::bench {

namespace {

/// What the trace does not say, filled in as captured workloads have it: a thread stays on its CPU for long, most calls
/// are never off it, a few long ones sleep and a few of those were preempted.
class Filler {
  public:
    void fill(Event& event) {
        event.process_start_ns = 90'000'000'000 + event.tgid * 10'000'000ULL;
        uint32_t& cpu = cpus_[event.tid];
        if (cpu == 0 || random_() % 128 == 0) cpu = 1 + static_cast<uint32_t>(random_() % 32);
        event.cpu = cpu - 1;
        event.device = 0;
        const bool waits = event.duration_ns > 50'000 && random_() % 10 < 4;
        if (!waits) return;
        event.waits = 1 + static_cast<uint32_t>(random_() % 3);
        event.blocked_ns = event.duration_ns / 100 * (50 + random_() % 45);
        event.longest_sleep_ns = event.blocked_ns;
        event.runnable_ns = 2'000 + random_() % 30'000;
        event.blocked_reason = BlockedReason::futex;
        event.blocked_syscall = 202;
        event.waker_kind = WakerKind::task;
        event.waker_tgid = event.tgid;
        event.waker_comm = to_comm("python3");
        if (random_() % 10 != 0) return;
        event.preempted_ns = event.runnable_ns;
        event.preemptor_ns = event.runnable_ns / 2;
        event.preemptor_tgid = 3'000 + static_cast<uint32_t>(random_() % 5);
        event.preemptor_comm = to_comm("worker-" + std::to_string(event.preemptor_tgid));
    }

  private:
    std::mt19937_64 random_{37'343};
    std::map<uint32_t, uint32_t> cpus_;
};

constexpr const char* filled =
    "; CPU, device, process start of all rows and the time split of 40 % of the calls above 50 us are filled in";

RowSource finish(std::vector<Event> rows, std::string description) {
    const auto by_start = [](const Event& a, const Event& b) { return a.start_ns < b.start_ns; };
    const auto [least, most] = std::minmax_element(rows.begin(), rows.end(), by_start);
    const uint64_t first = least->start_ns;
    const uint64_t span = most->start_ns - first;
    // Calls are recorded as they end.
    std::sort(rows.begin(), rows.end(), [](const Event& a, const Event& b) { return a.end_ns() < b.end_ns(); });
    for (Event& row : rows) row.start_ns -= first;
    const uint64_t round_ns = span + span / rows.size() + 1;
    return {std::move(description) + filled, std::move(rows), round_ns};
}

}  // namespace

Result<RowSource> rows_of_trace(const std::string& path) {
    sqlite3* raw = nullptr;
    const std::string uri = "file:" + path + "?immutable=1";
    const int opened = sqlite3_open_v2(uri.c_str(), &raw, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
    const std::unique_ptr<sqlite3, decltype(&sqlite3_close)> database(raw, sqlite3_close);
    sqlite3_stmt* statement = nullptr;
    if (opened != SQLITE_OK ||
        sqlite3_prepare_v2(raw,
                           "SELECT timestamp, pid, tid, source, op, duration, arg0, arg1, ret_code, stack_hash "
                           "FROM events ORDER BY timestamp",
                           -1, &statement, nullptr) != SQLITE_OK)
        return fail(ErrorCode::not_found, path + ": " + sqlite3_errmsg(raw), "give a trace with a table of events");
    const std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> query(statement, sqlite3_finalize);
    std::vector<Event> rows;
    std::map<int64_t, uint32_t> stacks = {{0, 0}};
    Filler filler;
    while (sqlite3_step(statement) == SQLITE_ROW) {
        const auto number = [&](int column) { return static_cast<uint64_t>(sqlite3_column_int64(statement, column)); };
        Event event;
        const uint64_t source = number(3);
        event.op = static_cast<OpId>(source << 8 | number(4));
        event.duration_ns = number(5);
        // Switches, I/O and network rows say when they ended.
        const bool ended = (source == 3 && number(4) == 1) || source == 5 || source == 7;
        event.start_ns = number(0) - (ended ? event.duration_ns : 0);
        event.tgid = static_cast<uint32_t>(number(1));
        event.tid = static_cast<uint32_t>(number(2));
        event.args = {number(6), number(7), 0};
        event.return_code = static_cast<int32_t>(number(8));
        const auto next_stack = static_cast<uint32_t>(stacks.size());
        event.stack = stacks.try_emplace(sqlite3_column_int64(statement, 9), next_stack).first->second;
        if (source != 3) filler.fill(event);
        rows.push_back(event);
    }
    if (rows.empty()) return fail(ErrorCode::corrupt, path + ": no events");
    const size_t count = rows.size();
    return finish(std::move(rows), "a trace of " + std::to_string(count) + " rows, replicated");
}

RowSource made_up_rows() {
    struct Kind {
        OpId op;
        double share;      // of the calls
        double median_ns;  // of a log-normal distribution
        double sigma;
        uint32_t threads;
        uint32_t arguments;  // how many first arguments there are
        uint32_t stacks;
    };
    // As a vLLM server's trace has them; host events stand for switches.
    constexpr Kind kinds[] = {
        {0x0301, 0.714, 60'000, 2.2, 9, 1, 0},  {0x0401, 0.154, 9'000, 0.6, 1, 73, 45},
        {0x0107, 0.068, 12'000, 0.9, 1, 81, 3}, {0x0103, 0.051, 12'000, 0.8, 1, 57, 57},
        {0x0702, 0.006, 80'000, 0.5, 3, 3, 0},  {0x0105, 0.003, 5'500, 0.3, 1, 1, 1},
        {0x0106, 0.002, 400'000, 1.2, 1, 1, 2}, {0x0404, 0.002, 390'000, 1.2, 1, 1, 2},
    };
    constexpr size_t count = 100'000;
    std::mt19937_64 random(37'343);
    std::normal_distribution<double> normal;
    std::exponential_distribution<double> gap(1.0 / 40'000);
    std::uniform_real_distribution<double> any;
    std::vector<Event> rows(count);
    Filler filler;
    double now = 0;
    for (Event& event : rows) {
        now += gap(random) * (random() % 50 == 0 ? 60 : 1);
        double place = any(random);
        const Kind* kind = std::begin(kinds);
        while (place > kind->share && kind + 1 != std::end(kinds)) place -= kind++->share;
        event.start_ns = static_cast<uint64_t>(now);
        event.op = kind->op;
        event.duration_ns = 1'500 + static_cast<uint64_t>(kind->median_ns * std::exp(kind->sigma * normal(random)));
        event.tgid = 72'783;
        event.tid = 72'783 + static_cast<uint32_t>(random() % kind->threads);
        event.args[0] = kind->arguments < 2 ? 0 : 0x7f2c'4000'0000 + random() % kind->arguments * 0x1a40;
        if (kind->op == 0x0107) event.args[1] = 1 + random() % 3;
        if (kind->stacks > 0) event.stack = 1 + static_cast<uint32_t>(random() % kind->stacks);
        if (kind->op >> 8 != 3) filler.fill(event);
    }
    return finish(std::move(rows), "made-up calls at the mix of a vLLM server's trace");
}

void RowStream::next(size_t count, std::vector<Event>& events) {
    events.resize(count);
    for (Event& event : events) {
        event = source_.rows[given_ % source_.rows.size()];
        event.start_ns += first_start_ns + given_ / source_.rows.size() * source_.round_ns;
        event.sequence = ++given_;
    }
}

}  // namespace ingero::bench
