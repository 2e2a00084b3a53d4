// The tables of what was measured or changed at a time: of hosts, GPUs, ports and traced libraries, a row each.
#include "core/sql/history/state_rows.h"

#include <nlohmann/json.hpp>

#include "core/query/answers/gpus.h"
#include "core/sql/history/history_columns.h"
#include "core/store/rows/state_names.h"

namespace ingero {

namespace {

void give_value(const StateRow& row, std::string_view name, Out out) {
    if (const auto value = value_of(row, name)) out.real(*value);
}

constexpr Column<StateRow> snapshot_columns[] = {
    {"id", [](auto& row, auto&, Out out) { out.number(row.number); }},
    {"timestamp", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.time_ns)); }},
    {"cpu_pct", [](auto& row, auto&, Out out) { give_value(row, "cpu_pct", out); }},
    {"mem_pct", [](auto& row, auto&, Out out) { give_value(row, "mem_pct", out); }},
    {"mem_avail", [](auto& row, auto&, Out out) { give_whole(value_of(row, "mem_avail"), out); }},
    {"swap_mb", [](auto& row, auto&, Out out) { give_whole(value_of(row, "swap_mb"), out); }},
    {"load_avg", [](auto& row, auto&, Out out) { give_value(row, "load_avg", out); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

std::string_view after_colon(std::string_view source) {
    return source.substr(std::min(source.find(':') + 1, source.size()));
}

void give_text(const StateRow& row, std::string_view name, Out out) {
    for (const auto& [known, text] : row.texts)
        if (known == name) return out.text(text);
}

void give_processes(const StateRow& row, Out out) {
    for (const auto& [known, text] : row.texts)
        if (known == "processes") return out.text(gpu_processes(row).dump());
}

constexpr Column<StateRow> gpu_sample_columns[] = {
    {"timestamp", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.time_ns)); }},
    {"uuid", [](auto& row, auto&, Out out) { out.text(after_colon(row.source)); }},
    {"gpu_index", [](auto& row, auto&, Out out) { give_whole(value_of(row, "gpu_index"), out); }},
    {"name", [](auto& row, auto&, Out out) { give_text(row, "name", out); }},
    {"pci", [](auto& row, auto&, Out out) { give_text(row, "pci", out); }},
    {"utilization_percent", [](auto& row, auto&, Out out) { give_value(row, "utilization_percent", out); }},
    {"memory_utilization_percent",
     [](auto& row, auto&, Out out) { give_value(row, "memory_utilization_percent", out); }},
    {"memory_used_bytes", [](auto& row, auto&, Out out) { give_whole(value_of(row, "memory_used_bytes"), out); }},
    {"memory_total_bytes", [](auto& row, auto&, Out out) { give_whole(value_of(row, "memory_total_bytes"), out); }},
    {"graphics_clock_mhz", [](auto& row, auto&, Out out) { give_value(row, "graphics_clock_mhz", out); }},
    {"sm_clock_mhz", [](auto& row, auto&, Out out) { give_value(row, "sm_clock_mhz", out); }},
    {"memory_clock_mhz", [](auto& row, auto&, Out out) { give_value(row, "memory_clock_mhz", out); }},
    {"max_sm_clock_mhz", [](auto& row, auto&, Out out) { give_value(row, "max_sm_clock_mhz", out); }},
    {"throttle_reasons", [](auto& row, auto&, Out out) { give_whole(value_of(row, "throttle_reasons"), out); }},
    {"temperature_celsius", [](auto& row, auto&, Out out) { give_value(row, "temperature_celsius", out); }},
    {"power_watts", [](auto& row, auto&, Out out) { give_value(row, "power_watts", out); }},
    {"power_limit_watts", [](auto& row, auto&, Out out) { give_value(row, "power_limit_watts", out); }},
    {"ecc_corrected", [](auto& row, auto&, Out out) { give_whole(value_of(row, "ecc_corrected"), out); }},
    {"ecc_uncorrected", [](auto& row, auto&, Out out) { give_whole(value_of(row, "ecc_uncorrected"), out); }},
    {"remapped_rows_corrected",
     [](auto& row, auto&, Out out) { give_whole(value_of(row, "remapped_rows_corrected"), out); }},
    {"remapped_rows_uncorrected",
     [](auto& row, auto&, Out out) { give_whole(value_of(row, "remapped_rows_uncorrected"), out); }},
    {"remap_pending", [](auto& row, auto&, Out out) { give_whole(value_of(row, "remap_pending"), out); }},
    {"remap_failed", [](auto& row, auto&, Out out) { give_whole(value_of(row, "remap_failed"), out); }},
    {"pcie_sent_bytes_per_s", [](auto& row, auto&, Out out) { give_value(row, "pcie_sent_bytes_per_s", out); }},
    {"pcie_received_bytes_per_s", [](auto& row, auto&, Out out) { give_value(row, "pcie_received_bytes_per_s", out); }},
    {"pcie_replays", [](auto& row, auto&, Out out) { give_whole(value_of(row, "pcie_replays"), out); }},
    {"pcie_generation", [](auto& row, auto&, Out out) { give_whole(value_of(row, "pcie_generation"), out); }},
    {"pcie_max_generation", [](auto& row, auto&, Out out) { give_whole(value_of(row, "pcie_max_generation"), out); }},
    {"pcie_width", [](auto& row, auto&, Out out) { give_whole(value_of(row, "pcie_width"), out); }},
    {"pcie_max_width", [](auto& row, auto&, Out out) { give_whole(value_of(row, "pcie_max_width"), out); }},
    {"nvlinks_active", [](auto& row, auto&, Out out) { give_whole(value_of(row, "nvlinks_active"), out); }},
    {"nvlink_crc_errors", [](auto& row, auto&, Out out) { give_whole(value_of(row, "nvlink_crc_errors"), out); }},
    {"nvlink_replays", [](auto& row, auto&, Out out) { give_whole(value_of(row, "nvlink_replays"), out); }},
    {"nvlink_recoveries", [](auto& row, auto&, Out out) { give_whole(value_of(row, "nvlink_recoveries"), out); }},
    {"numa_node", [](auto& row, auto&, Out out) { give_whole(value_of(row, "numa_node"), out); }},
    {"local_cpus", [](auto& row, auto&, Out out) { give_text(row, "local_cpus", out); }},
    {"processes", [](auto& row, auto&, Out out) { give_processes(row, out); }},
    {"processes_running", [](auto& row, auto&, Out out) { give_whole(value_of(row, "processes_running"), out); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

constexpr Column<StateRow> gpu_event_columns[] = {
    {"timestamp", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.time_ns)); }},
    {"uuid", [](auto& row, auto&, Out out) { out.text(after_colon(row.source)); }},
    {"xid", [](auto& row, auto&, Out out) { give_whole(value_of(row, "xid"), out); }},
    {"change", [](auto& row, auto&, Out out) { give_text(row, gpu_change, out); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

constexpr Column<StateRow> port_sample_columns[] = {
    {"timestamp", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.time_ns)); }},
    {"port", [](auto& row, auto&, Out out) { out.text(after_colon(row.source)); }},
    {"state", [](auto& row, auto&, Out out) { give_text(row, "state", out); }},
    {"physical_state", [](auto& row, auto&, Out out) { give_text(row, "physical_state", out); }},
    {"link_layer", [](auto& row, auto&, Out out) { give_text(row, "link_layer", out); }},
    {"rate_bits_per_s", [](auto& row, auto&, Out out) { give_whole(value_of(row, "rate_bits_per_s"), out); }},
    {"symbol_errors", [](auto& row, auto&, Out out) { give_whole(value_of(row, "symbol_errors"), out); }},
    {"link_recoveries", [](auto& row, auto&, Out out) { give_whole(value_of(row, "link_recoveries"), out); }},
    {"link_downed", [](auto& row, auto&, Out out) { give_whole(value_of(row, "link_downed"), out); }},
    {"receive_errors", [](auto& row, auto&, Out out) { give_whole(value_of(row, "receive_errors"), out); }},
    {"transmit_discards", [](auto& row, auto&, Out out) { give_whole(value_of(row, "transmit_discards"), out); }},
    {"transmit_wait", [](auto& row, auto&, Out out) { give_whole(value_of(row, "transmit_wait"), out); }},
    {"received_bytes", [](auto& row, auto&, Out out) { give_whole(value_of(row, "received_bytes"), out); }},
    {"sent_bytes", [](auto& row, auto&, Out out) { give_whole(value_of(row, "sent_bytes"), out); }},
    {"out_of_sequence", [](auto& row, auto&, Out out) { give_whole(value_of(row, "out_of_sequence"), out); }},
    {"packet_sequence_errors",
     [](auto& row, auto&, Out out) { give_whole(value_of(row, "packet_sequence_errors"), out); }},
    {"local_ack_timeouts", [](auto& row, auto&, Out out) { give_whole(value_of(row, "local_ack_timeouts"), out); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

constexpr Column<StateRow> library_columns[] = {
    {"timestamp", [](auto& row, auto& boot, Out out) { out.number(boot.clock.to_realtime(row.time_ns)); }},
    {"file", [](auto& row, auto&, Out out) { give_text(row, library_path, out); }},
    {"library", [](auto& row, auto&, Out out) { give_text(row, "library", out); }},
    {"state", [](auto& row, auto&, Out out) { give_text(row, "state", out); }},
    {"build_id", [](auto& row, auto&, Out out) { give_text(row, "build_id", out); }},
    {"functions", [](auto& row, auto&, Out out) { give_whole(value_of(row, "functions"), out); }},
    {"single_stepped", [](auto& row, auto&, Out out) { give_whole(value_of(row, "single_stepped"), out); }},
    {"method", [](auto& row, auto&, Out out) { give_text(row, "method", out); }},
    {"reason", [](auto& row, auto&, Out out) { give_text(row, "reason", out); }},
    {"node", [](auto&, auto& boot, Out out) { out.text(boot.node); }},
};

bool is_of_host(std::string_view source) {
    return source == "host";
}
/// Of sources that begin so.
template <const std::string_view& beginning>
bool is_of(std::string_view source) {
    return source.starts_with(beginning);
}

/// Of rows that are many: they stay as they lie in the store, and are decoded as they are given.
class MeasuredRows final : public HistoryRows {
  public:
    MeasuredRows(std::span<const Column<StateRow>> columns, bool (*wanted)(std::string_view))
        : columns_(columns), wanted_(wanted) {}

    Result<void> load(const StoreSnapshot& snapshot, const HistoryBoot& boot, const HistoryBounds& bounds,
                      const Filter& filter) override {
        boot_ = boot;
        rows_.clear();
        decoded_ = none;
        std::optional<Error> error;
        auto scanned = snapshot.scan_states(boot.index, monotonic_of(boot, common(bounds.wall, filter.window)),
                                            [&](const StateHead& head) {
                                                if (!wanted_(head.source)) return true;
                                                const auto shown = is_shown(head, filter);
                                                if (!shown) error = shown.error();
                                                if (shown && *shown) rows_.push_back(head);
                                                return !error;
                                            });
        if (error) return tl::unexpected(std::move(*error));
        return scanned;
    }
    size_t size() const override { return rows_.size(); }
    void give(size_t row, size_t column, sqlite3_context* out) const override {
        if (row != decoded_) {
            auto read = read_state(rows_[row]);
            if (!read) return sqlite3_result_error(out, read.error().message.c_str(), -1);
            row_ = std::move(*read);
            decoded_ = row;
        }
        columns_[column].give(row_, boot_, Out{out});
    }
    int64_t id(size_t row) const override { return static_cast<int64_t>(rows_[row].number); }
    std::vector<std::string_view> columns() const override { return names_of(columns_); }

  private:
    static constexpr size_t none = SIZE_MAX;

    std::span<const Column<StateRow>> columns_;
    bool (*wanted_)(std::string_view);
    HistoryBoot boot_;
    std::vector<StateHead> rows_;
    mutable StateRow row_;  ///< the last one given
    mutable size_t decoded_ = none;
};

template <const auto& columns>
std::unique_ptr<HistoryRows> make_measured(bool (*wanted)(std::string_view)) {
    return std::make_unique<MeasuredRows>(std::span<const Column<StateRow>>(columns), wanted);
}

}  // namespace

Result<bool> is_shown(const StateHead& head, const Filter& filter) {
    if (!filter.uid) return true;
    // Control groups are named by whoever made them, and are no matter of other users.
    if (head.source.starts_with("cgroup:")) return false;
    if (head.source != library_source) return true;
    const auto row = read_state(head);
    if (!row) return tl::unexpected(row.error());
    return value_of(*row, library_is_systems) == 1 || value_of(*row, library_uid) == *filter.uid;
}

std::unique_ptr<HistoryRows> make_system_snapshot_rows() {
    return make_measured<snapshot_columns>(is_of_host);
}

std::unique_ptr<HistoryRows> make_gpu_sample_rows() {
    return make_measured<gpu_sample_columns>(is_of<gpu_source>);
}

std::unique_ptr<HistoryRows> make_gpu_event_rows() {
    return make_measured<gpu_event_columns>(is_of<gpu_event_source>);
}

std::unique_ptr<HistoryRows> make_port_sample_rows() {
    return make_measured<port_sample_columns>(is_of<port_source>);
}

std::unique_ptr<HistoryRows> make_library_rows() {
    return make_measured<library_columns>(is_of<library_source>);
}

}  // namespace ingero
