#include "core/sql/history/request_event_rows.h"

#include "core/diagnosis/requests.h"
#include "core/model/op.h"
#include "core/query/key_index.h"
#include "core/sql/catalogue.h"
#include "core/sql/history/history_columns.h"

namespace ingero {

namespace {

struct Pair {
    const SpanRow& request;
    const RequestCall& call;
};

constexpr Column<Pair> columns_of_a_pair[] = {
    {"request_id", [](auto& row, auto&, Out out) { out.text(row.request.id); }},
    {"request_start_ns",
     [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.request.start_ns)); }},
    {"request_end_ns", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.request.end_ns)); }},
    {"event_id", [](auto& row, auto&, Out out) { out.number(row.call.sequence); }},
    {"timestamp", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.call.start_ns)); }},
    {"source", [](auto& row, auto&, Out out) { out.text(sql_source_name(op_source(row.call.op))); }},
    {"op", [](auto& row, auto&, Out out) { out.text(op_name(row.call.op)); }},
    {"pid", [](auto& row, auto&, Out out) { out.number(visible_pid(row.call.tgid)); }},
    {"tid", [](auto& row, auto&, Out out) { out.number(row.call.tid); }},
    {"duration_ns", [](auto& row, auto&, Out out) { out.number(row.call.duration_ns); }},
    {"overlap_ns", [](auto& row, auto&, Out out) { out.number(row.call.overlap_ns); }},
    {"shared_by", [](auto& row, auto&, Out out) { out.number(row.call.shared_by); }},
    {"on_cpu_ns", [](auto& row, auto&, Out out) { out.number(row.call.on_cpu_ns); }},
    {"runnable_ns", [](auto& row, auto&, Out out) { out.number(row.call.runnable_ns); }},
    {"blocked_ns", [](auto& row, auto&, Out out) { out.number(row.call.blocked_ns); }},
    {"return_code", [](auto& row, auto&, Out out) { sqlite3_result_int64(out.context, row.call.return_code); }},
    {"weight", [](auto& row, auto&, Out out) { out.number(row.call.weight); }},
    {"time_weight", [](auto& row, auto&, Out out) { out.number(row.call.time_weight); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

class RequestEventRows final : public HistoryRows {
  public:
    Result<void> load(const StoreSnapshot& snapshot, const HistoryBoot& boot, const HistoryBounds& bounds,
                      const Filter& filter) override {
        boot_ = boot;
        rows_ = {};
        RequestsQuery query;
        query.filter = filter;
        query.id = bounds.id;
        const Window all = monotonic_of(boot, filter.window);
        if (all.from_ns >= all.to_ns) return {};
        auto rows = list_request_calls(snapshot, {boot.index, all, boot.clock}, query, monotonic_of(boot, bounds.wall));
        if (!rows) return tl::unexpected(rows.error());
        rows_ = std::move(*rows);
        return {};
    }
    size_t size() const override { return rows_.calls.size(); }
    void give(size_t row, size_t column, sqlite3_context* out) const override {
        const RequestCall& call = rows_.calls[row];
        columns_of_a_pair[column].give({rows_.requests[call.request], call}, boot_, Out{out});
    }
    /// Two numbers make a pair, and there is room for one: that two pairs of a million have the same is as likely as
    /// that memory errs.
    int64_t id(size_t row) const override {
        const RequestCall& call = rows_.calls[row];
        return static_cast<int64_t>(hash_words(mix_bits(rows_.requests[call.request].number), call.sequence));
    }
    std::vector<std::string_view> columns() const override {
        return names_of(std::span<const Column<Pair>>(columns_of_a_pair));
    }

  private:
    HistoryBoot boot_;
    RequestCalls rows_;
};

}  // namespace

std::unique_ptr<HistoryRows> make_request_event_rows() {
    return std::make_unique<RequestEventRows>();
}

}  // namespace ingero
