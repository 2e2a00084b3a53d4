#include "core/sql/history/history_rows.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/model/op.h"
#include "core/query/coverage.h"
#include "core/spans/span.h"
#include "core/sql/catalogue.h"
#include "core/sql/history/history_columns.h"
#include "core/sql/history/request_event_rows.h"
#include "core/sql/history/state_rows.h"
#include "core/store/rows/state_names.h"

namespace ingero {

using nlohmann::json;

namespace {

template <class Row>
bool is_shown(const Row& row, const Filter& filter) {
    return (!filter.uid || row.uid == *filter.uid) && (!filter.pid || row.process.pid == *filter.pid);
}

/// Rows that one call of the store gives, with the columns of one table.
template <class Row, class Read>
class Rows final : public HistoryRows {
  public:
    explicit Rows(std::span<const Column<Row>> columns) : columns_(columns) {}

    Result<void> load(const StoreSnapshot& snapshot, const HistoryBoot& boot, const HistoryBounds& bounds,
                      const Filter& filter) override {
        boot_ = boot;
        auto rows = Read()(snapshot, boot, bounds, filter);
        if (!rows) return tl::unexpected(rows.error());
        rows_ = std::move(*rows);
        return {};
    }
    size_t size() const override { return rows_.size(); }
    void give(size_t row, size_t column, sqlite3_context* out) const override {
        columns_[column].give(rows_[row], boot_, Out{out});
    }
    int64_t id(size_t row) const override { return Read::id_of(rows_, row, boot_); }
    std::vector<std::string_view> columns() const override { return names_of(columns_); }

  private:
    std::span<const Column<Row>> columns_;
    HistoryBoot boot_;
    std::vector<Row> rows_;
};

// Spans.

std::string labels_of(const SpanRow& row) {
    json labels = json::object();
    for (const auto& [name, value] : row.labels) labels[to_valid_utf8(name)] = to_valid_utf8(value);
    return labels.dump();
}

std::string numbers_of(const SpanRow& row) {
    json numbers = json::object();
    for (const auto& [name, value] : row.values) numbers[to_valid_utf8(name)] = value;
    return numbers.dump();
}

std::optional<uint64_t> since(std::optional<uint64_t> time_ns, uint64_t from_ns) {
    if (!time_ns) return std::nullopt;
    return *time_ns - std::min(*time_ns, from_ns);
}

constexpr Column<SpanRow> span_columns[] = {
    {"id", [](auto& row, auto&, Out out) { out.text(row.id); }},
    {"pid", [](auto& row, auto&, Out out) { out.number(visible_pid(row.process.pid)); }},
    {"start_ns", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.start_ns)); }},
    {"end_ns", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.end_ns)); }},
    {"duration_ns", [](auto& row, auto&, Out out) { out.number(since(row.end_ns, row.start_ns)); }},
    {"queue_ns", [](auto& row, auto&, Out out) { out.number(since(row.scheduled_ns, row.start_ns)); }},
    {"ttft_ns", [](auto& row, auto&, Out out) { out.number(since(row.first_token_ns, row.start_ns)); }},
    {"model", [](auto& row, auto&, Out out) { out.text(row.model); }},
    {"prompt_tokens", [](auto& row, auto&, Out out) { out.number(row.prompt_tokens); }},
    {"output_tokens", [](auto& row, auto&, Out out) { out.number(row.output_tokens); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
    {"kind", [](auto& row, auto&, Out out) { out.text(span_kind_name(row.kind)); }},
    {"labels", [](auto& row, auto&, Out out) { out.text(labels_of(row)); }},
    {"numbers", [](auto& row, auto&, Out out) { out.text(numbers_of(row)); }},
    {"uid", [](auto& row, auto&, Out out) { out.number(row.uid); }},
    {"scope", [](auto& row, auto&, Out out) { out.text(row.scope); }},
    {"received_ns", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.received_ns)); }},
    {"number", [](auto& row, auto&, Out out) { out.number(row.number); }},
};
constexpr size_t columns_of_a_request = 11;

void give_span_time(const SpanRow& row, const HistoryBoot& boot, uint64_t time_ns, Out out) {
    out.number(row.start_ns == row.end_ns ? 0 : boot.clock.to_realtime(time_ns));
}

constexpr Column<SpanRow> annotation_columns[] = {
    {"id", [](auto& row, auto&, Out out) { out.number(row.number); }},
    {"timestamp", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.start_ns)); }},
    {"labels", [](auto& row, auto&, Out out) { out.text(labels_of(row)); }},
    {"pid", [](auto& row, auto&, Out out) { out.number(visible_pid(row.process.pid)); }},
    {"start_time", [](auto& row, auto&, Out out) { give_whole(value_of(row, "start_time"), out); }},
    {"span_start", [](auto& row, auto& boot, Out out) { give_span_time(row, boot, row.start_ns, out); }},
    {"span_end", [](auto& row, auto& boot, Out out) { give_span_time(row, boot, row.end_ns, out); }},
    {"peer_uid", [](auto& row, auto&, Out out) { out.number(row.uid); }},
    {"peer_gid", [](auto& row, auto&, Out out) { give_whole(value_of(row, "peer_gid"), out); }},
    {"peer_pid", [](auto& row, auto&, Out out) { give_whole(value_of(row, "peer_pid"), out); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

/// Of one kind, or of all.
template <SpanKind kind = SpanKind::not_kept>
struct ReadSpans {
    static int64_t id_of(std::span<const SpanRow> rows, size_t row, const HistoryBoot&) {
        return static_cast<int64_t>(rows[row].number);
    }
    Result<std::vector<SpanRow>> operator()(const StoreSnapshot& snapshot, const HistoryBoot& boot,
                                            const HistoryBounds& bounds, const Filter& filter) const {
        const Window window = monotonic_of(boot, common(bounds.wall, filter.window));
        auto rows = bounds.id ? snapshot.spans_of(*bounds.id, {boot.index}) : snapshot.spans(boot.index, window);
        if (!rows) return rows;
        const Window asked = monotonic_of(boot, filter.window);
        std::erase_if(*rows, [&](const SpanRow& row) {
            const bool overlaps =
                row.start_ns < asked.to_ns && (row.end_ns > asked.from_ns || asked.contains(row.start_ns));
            return !overlaps || !is_shown(row, filter) || (kind != SpanKind::not_kept && row.kind != kind);
        });
        return rows;
    }
};

// Incidents.

struct Incident {
    IncidentRow latest;
    std::optional<uint64_t> closed_ns;
    json finding;  ///< of a finding of another tool
};

std::string culprits_of(const IncidentRow& row) {
    json culprits = json::array();
    for (const IncidentRow::Culprit& culprit : row.culprits)
        culprits.push_back({{"name", to_valid_utf8(culprit.name)}, {"pid", culprit.pid}, {"ns", culprit.ns}});
    return culprits.dump();
}

constexpr Column<Incident> incident_columns[] = {
    {"id", [](auto& row, auto&, Out out) { out.text(row.latest.id); }},
    {"kind", [](auto& row, auto&, Out out) { out.text(row.latest.kind); }},
    {"severity", [](auto& row, auto&, Out out) { out.text(row.latest.severity); }},
    {"verdict", [](auto& row, auto&, Out out) { out.text(row.latest.verdict); }},
    {"summary", [](auto& row, auto&, Out out) { out.text(row.latest.summary); }},
    {"opened_ns", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.latest.opened_ns)); }},
    {"closed_ns",
     [](auto& row, auto& boot, Out out) {
         if (row.closed_ns) out.number(boot.clock.to_realtime(*row.closed_ns));
     }},
    {"lost_ns", [](auto& row, auto&, Out out) { out.number(row.latest.lost_ns); }},
    {"explained", [](auto& row, auto&, Out out) { out.real(row.latest.explained_permille / 1e3); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
    {"pid", [](auto& row, auto&, Out out) { out.number(visible_pid(row.latest.process.pid)); }},
    {"updated_ns", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.latest.at_ns)); }},
    {"culprits", [](auto& row, auto&, Out out) { out.text(culprits_of(row.latest)); }},
    {"finding", [](auto& row, auto&, Out out) { out.text(row.latest.finding); }},
};

void give_finding(const Incident& row, const char* name, Out out) {
    const auto found = row.finding.find(name);
    if (found == row.finding.end()) return;
    if (found->is_string()) return out.text(found->template get_ref<const std::string&>());
    if (found->is_number_integer()) return sqlite3_result_int64(out.context, found->template get<int64_t>());
    if (found->is_number()) out.real(found->template get<double>());
}

constexpr Column<Incident> chain_columns[] = {
    {"id", [](auto& row, auto&, Out out) { out.text(row.latest.id); }},
    {"detected_at", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.latest.opened_ns)); }},
    {"severity", [](auto& row, auto&, Out out) { give_finding(row, "severity", out); }},
    {"summary", [](auto& row, auto&, Out out) { out.text(row.latest.summary); }},
    {"root_cause", [](auto& row, auto&, Out out) { give_finding(row, "root_cause", out); }},
    {"explanation", [](auto& row, auto&, Out out) { give_finding(row, "explanation", out); }},
    {"recommendations", [](auto& row, auto&, Out out) { give_finding(row, "recommendations", out); }},
    {"cuda_op", [](auto& row, auto&, Out out) { give_finding(row, "cuda_op", out); }},
    {"cuda_p99_us", [](auto& row, auto&, Out out) { give_finding(row, "cuda_p99_us", out); }},
    {"cuda_p50_us", [](auto& row, auto&, Out out) { give_finding(row, "cuda_p50_us", out); }},
    {"tail_ratio", [](auto& row, auto&, Out out) { give_finding(row, "tail_ratio", out); }},
    {"timeline", [](auto& row, auto&, Out out) { give_finding(row, "timeline", out); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

/// Each incident as its latest row has it. Those that other tools found are of the other table.
template <bool of_other_tools>
struct ReadIncidents {
    /// No condition leaves out the latest row and keeps an earlier one.
    static int64_t id_of(std::span<const Incident> rows, size_t row, const HistoryBoot&) {
        return static_cast<int64_t>(rows[row].latest.number);
    }
    Result<std::vector<Incident>> operator()(const StoreSnapshot& snapshot, const HistoryBoot& boot,
                                             const HistoryBounds& bounds, const Filter& filter) const {
        const Window asked = monotonic_of(boot, filter.window);
        auto rows = snapshot.incidents(boot.index, {boot.clock.to_monotonic(bounds.wall.from_ns), UINT64_MAX});
        if (!rows) return tl::unexpected(rows.error());
        std::vector<Incident> incidents;
        std::map<std::string, size_t> by_id;
        for (IncidentRow& row : *rows) {
            if ((row.kind == imported_finding) != of_other_tools || !is_shown(row, filter)) continue;
            const auto [at, added] = by_id.try_emplace(row.id, incidents.size());
            if (added) incidents.emplace_back();
            Incident& incident = incidents[at->second];
            incident.closed_ns.reset();
            if (row.event == IncidentEvent::closed) incident.closed_ns = row.at_ns;
            incident.latest = std::move(row);
        }
        for (Incident& incident : incidents)
            if (!incident.closed_ns && !of_other_tools)
                incident.closed_ns = writer_end_ns(snapshot.sessions(), boot.index, incident.latest.at_ns);
        std::erase_if(incidents, [&](const Incident& incident) {
            return incident.latest.opened_ns >= asked.to_ns || incident.closed_ns.value_or(UINT64_MAX) < asked.from_ns;
        });
        if (of_other_tools)
            for (Incident& incident : incidents)
                incident.finding = json::parse(incident.latest.finding, nullptr, false);
        return incidents;
    }
};

// States.

struct StateValue {
    uint64_t number = 0;
    uint32_t place = 0;  ///< among the values of its number
    uint64_t time_ns = 0;
    std::string source;
    std::string name;
    double value = 0;
};

constexpr Column<StateValue> state_columns[] = {
    {"id", [](auto& row, auto&, Out out) { out.number(row.number); }},
    {"timestamp", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.time_ns)); }},
    {"source", [](auto& row, auto&, Out out) { out.text(row.source); }},
    {"name", [](auto& row, auto&, Out out) { out.text(row.name); }},
    {"value", [](auto& row, auto&, Out out) { out.real(row.value); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

struct ReadStates {
    static int64_t id_of(std::span<const StateValue> rows, size_t row, const HistoryBoot&) {
        return static_cast<int64_t>(rows[row].number * max_state_values + rows[row].place);
    }
    Result<std::vector<StateValue>> operator()(const StoreSnapshot& snapshot, const HistoryBoot& boot,
                                               const HistoryBounds& bounds, const Filter& filter) const {
        std::vector<StateValue> values;
        std::optional<Error> error;
        const auto visit = [&](const StateHead& head) {
            if (head.source == library_source) return true;  // no measurement
            const auto shown = is_shown(head, filter);
            if (!shown) error = shown.error();
            if (!shown || !*shown) return !error;
            const auto row = read_state(head);
            if (!row) error = row.error();
            for (size_t i = 0; row && i < row->values.size(); ++i)
                values.push_back({row->number, static_cast<uint32_t>(i), row->time_ns, row->source,
                                  row->values[i].first, row->values[i].second});
            return !error;
        };
        auto scanned = snapshot.scan_states(boot.index, monotonic_of(boot, common(bounds.wall, filter.window)), visit);
        if (!scanned) return tl::unexpected(scanned.error());
        if (error) return tl::unexpected(*error);
        return values;
    }
};

// Rollups and clocks.

void give_quantile(const RollupRow& row, uint64_t percent, Out out) {
    const uint64_t calls = row.durations.count();
    if (calls == 0) return;
    const uint64_t rank = calls / 100 * percent + (calls % 100 * percent + 99) / 100;
    out.number(std::min(row.durations.value_at_rank(rank), row.max_ns));
}

constexpr Column<RollupRow> rollup_columns[] = {
    {"minute_ns", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.minute_ns)); }},
    {"source", [](auto& row, auto&, Out out) { out.text(sql_source_name(op_source(row.op))); }},
    {"op", [](auto& row, auto&, Out out) { out.text(op_name(row.op)); }},
    {"pid", [](auto& row, auto&, Out out) { out.number(visible_pid(row.process.pid)); }},
    {"uid",
     [](auto& row, auto&, Out out) {
         if (row.uid != UINT32_MAX) out.number(row.uid);
     }},
    {"calls", [](auto& row, auto&, Out out) { out.number(row.calls); }},
    {"errors", [](auto& row, auto&, Out out) { out.number(row.errors); }},
    {"total_ns", [](auto& row, auto&, Out out) { out.number(row.total_ns); }},
    {"max_ns", [](auto& row, auto&, Out out) { out.number(row.max_ns); }},
    {"p50_ns", [](auto& row, auto&, Out out) { give_quantile(row, 50, out); }},
    {"p95_ns", [](auto& row, auto&, Out out) { give_quantile(row, 95, out); }},
    {"p99_ns", [](auto& row, auto&, Out out) { give_quantile(row, 99, out); }},
    {"bytes", [](auto& row, auto&, Out out) { out.number(row.bytes); }},
    {"on_cpu_ns", [](auto& row, auto&, Out out) { out.number(row.on_cpu_ns); }},
    {"runnable_ns", [](auto& row, auto&, Out out) { out.number(row.runnable_ns); }},
    {"blocked_ns", [](auto& row, auto&, Out out) { out.number(row.blocked_ns); }},
    {"lost", [](auto& row, auto&, Out out) { out.number(row.lost); }},
    {"sampled_out", [](auto& row, auto&, Out out) { out.number(row.thinned); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

struct ReadRollups {
    /// Rows of a minute are returned all or none: their place in it distinguishes them.
    static int64_t id_of(std::span<const RollupRow> rows, size_t row, const HistoryBoot& boot) {
        const uint64_t minute_ns = rows[row].minute_ns;
        const auto first = std::partition_point(rows.begin(), rows.end(),
                                                [&](const RollupRow& one) { return one.minute_ns < minute_ns; });
        const auto place = static_cast<uint64_t>(rows.begin() + static_cast<std::ptrdiff_t>(row) - first);
        constexpr unsigned place_bits = 17, minute_bits = 28;  // max_rollup_rows and one of each op; since 1970
        return static_cast<int64_t>((uint64_t{boot.index} << minute_bits | minute_ns / rollup_minute_ns) << place_bits |
                                    place);
    }
    Result<std::vector<RollupRow>> operator()(const StoreSnapshot& snapshot, const HistoryBoot& boot,
                                              const HistoryBounds& bounds, const Filter& filter) const {
        auto rows = snapshot.rollups(boot.index, monotonic_of(boot, common(bounds.wall, filter.window)));
        if (rows) std::erase_if(*rows, [&](const RollupRow& row) { return !is_shown(row, filter); });
        return rows;
    }
};

constexpr Column<ClockRow> clock_columns[] = {
    {"monotonic_ns", [](auto& row, auto&, Out out) { out.number(row.clock.monotonic_ns); }},
    {"boottime_ns", [](auto& row, auto&, Out out) { out.number(row.clock.boottime_ns); }},
    {"realtime_ns", [](auto& row, auto&, Out out) { out.number(row.clock.realtime_ns); }},
    {"session", [](auto& row, auto&, Out out) { out.number(row.session); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

struct ReadClocks {
    /// All of a boot are always given.
    static int64_t id_of(std::span<const ClockRow>, size_t row, const HistoryBoot& boot) {
        return static_cast<int64_t>(uint64_t{boot.index} << 32 | row);
    }
    Result<std::vector<ClockRow>> operator()(const StoreSnapshot& snapshot, const HistoryBoot& boot,
                                             const HistoryBounds&, const Filter& filter) const {
        return snapshot.clocks(boot.index, monotonic_of(boot, filter.window));
    }
};

template <class Row, class Read, const auto& columns, size_t count = std::size(columns)>
std::unique_ptr<HistoryRows> make() {
    return std::make_unique<Rows<Row, Read>>(std::span<const Column<Row>>(columns, count));
}

}  // namespace

const HistoryTable* find_history_table(std::string_view name) {
    static const HistoryTable tables[] = {
        {"spans", {"start_ns", "end_ns"}, {"start_ns", "end_ns"}, "id", make<SpanRow, ReadSpans<>, span_columns>},
        {"requests",
         {"start_ns", "end_ns"},
         {"start_ns", "end_ns"},
         "id",
         make<SpanRow, ReadSpans<SpanKind::request>, span_columns, columns_of_a_request>},
        // A call that begins before a time may still be of a request that begins after it.
        {"request_events",
         {"timestamp", "request_start_ns", "request_end_ns"},
         {"request_start_ns", "request_end_ns"},
         "request_id",
         make_request_event_rows},
        {"annotations",
         {"timestamp"},
         {"timestamp"},
         "",
         make<SpanRow, ReadSpans<SpanKind::label>, annotation_columns>},
        // Of an incident the latest row says all: there is no end to look up to, and it may be over later than that.
        {"incidents", {"opened_ns", "updated_ns"}, {}, "", make<Incident, ReadIncidents<false>, incident_columns>},
        {"causal_chains", {"detected_at"}, {}, "", make<Incident, ReadIncidents<true>, chain_columns>},
        {"states", {"timestamp"}, {"timestamp"}, "", make<StateValue, ReadStates, state_columns>},
        {"system_snapshots", {"timestamp"}, {"timestamp"}, "", make_system_snapshot_rows},
        {"gpu_samples", {"timestamp"}, {"timestamp"}, "", make_gpu_sample_rows},
        {"gpu_events", {"timestamp"}, {"timestamp"}, "", make_gpu_event_rows},
        {"port_samples", {"timestamp"}, {"timestamp"}, "", make_port_sample_rows},
        {"libraries", {"timestamp"}, {"timestamp"}, "", make_library_rows},
        {"rollups", {"minute_ns"}, {"minute_ns"}, "", make<RollupRow, ReadRollups, rollup_columns>},
        {"clocks", {}, {}, "", make<ClockRow, ReadClocks, clock_columns>},
    };
    const auto found =
        std::find_if(std::begin(tables), std::end(tables), [&](const auto& table) { return table.name == name; });
    return found == std::end(tables) ? nullptr : &*found;
}

std::vector<HistoryBoot> history_boots(const StoreSnapshot& snapshot) {
    std::map<uint32_t, HistoryBoot> boots;
    for (const Session& session : snapshot.sessions())
        boots[session.boot_index] = {session.boot_index, session.latest_clock, session.node};
    std::vector<HistoryBoot> result;
    for (auto& [index, boot] : boots) result.push_back(std::move(boot));
    return result;
}

}  // namespace ingero
