// One trace of the earlier agent on its way into a store: read through once to learn what there is, then written.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/import/import.h"
#include "core/import/trace_database.h"
#include "core/import/trace_events.h"
#include "core/import/trace_stacks.h"
#include "core/model/op.h"
#include "core/store/rows/rows.h"

namespace ingero {

/// With which the boot id of an imported session begins.
inline constexpr std::string_view import_boot_prefix = "import-";

struct TraceProcess {
    uint64_t first_ns = UINT64_MAX;
    uint64_t last_ns = 0;
    uint64_t exited_ns = 0;
    uint64_t cgroup = 0;
    std::string comm;
    bool only_switched = true;  ///< nothing but the scheduler's rows name it
};

/// Of one agent run.
struct TraceSession {
    Window window;
    std::string version;
    std::string kernel;
};

/// What is known from the events of one node before any is stored.
struct TraceNode {
    std::string name;
    uint64_t events = 0;
    uint64_t switches = 0;
    uint64_t switches_to_self = 0;  ///< whose argument is their own task: it says nothing
    Window window{UINT64_MAX, 0};
    std::unordered_map<uint32_t, TraceProcess> processes;
    std::unordered_map<uint32_t, uint32_t> thread_group;  ///< of threads that are no processes
    std::unordered_set<uint32_t> switched;                ///< threads
    std::vector<TraceSession> sessions;

    /// The scheduler's rows have the task's id in both columns: that of a thread is no process.
    uint32_t tgid_of(const TraceEvent& row) const {
        if (row.op != op_sched_switch || row.pid != row.tid) return row.pid;
        const auto found = thread_group.find(row.tid);
        return found == thread_group.end() ? row.pid : found->second;
    }
    bool switch_names_own_pid() const { return switches == switches_to_self; }
};

struct AggregateKey {
    uint64_t bucket_ns = 0;
    OpId op = 0;
    uint32_t pid = 0;
    auto operator<=>(const AggregateKey&) const = default;
};

/// What the rows of a bucket have of it.
struct RawSums {
    uint64_t rows = 0;
    uint64_t total_ns = 0;
    uint64_t arg0 = 0;
};

class Importer {
  public:
    Importer(TraceDatabase trace, std::string hash, const ImportOptions& options, std::shared_ptr<ClockTriple> clock)
        : trace_(std::move(trace)), hash_(std::move(hash)), options_(options), clock_(std::move(clock)) {}

    Result<void> plan();
    Result<void> write(StoreWriter& writer);
    ImportSummary take_summary() { return std::move(summary_); }

  private:
    Result<void> plan_events();
    bool plan_event(const TraceEvent& row);
    Result<void> plan_sessions();
    Result<void> plan_names();
    Result<void> plan_losses();
    Result<void> count_left_out();
    std::string node_name(const std::string& stated, const std::string& of_sessions) const;

    Result<void> write_stacks(StoreWriter& writer);
    Result<void> write_node(StoreWriter& writer, size_t number);
    Result<void> write_events(StoreWriter& writer, const TraceNode& node);
    Result<void> write_history(StoreWriter& writer, const std::string& stated, const TraceNode& node);
    Result<void> write_chains(StoreWriter& writer, const std::string& stated);
    Result<void> write_rollups(StoreWriter& writer, const TraceNode& node);
    /// Reads a table, makes rows of its rows, and stores them.
    template <class Row, class Make>
    Result<void> write_rows(StoreWriter& writer, const char* table, const std::vector<std::string>& columns,
                            std::vector<Row> Batch::*into, uint64_t& ret_written, const Make& make);
    template <class Row>
    Result<void> add_row(StoreWriter& writer, std::vector<Row> Batch::*into, Row row);
    Result<void> begin(StoreWriter& writer, size_t node_number, size_t session_number);
    void add_processes(const TraceNode& node, Batch& batch);
    Result<void> flush(StoreWriter& writer, bool last);

    TraceDatabase trace_;
    std::string hash_;
    ImportOptions options_;
    std::shared_ptr<ClockTriple> clock_;
    ImportSummary summary_;
    std::map<std::string, TraceNode, std::less<>> nodes_;  ///< by what the rows say
    std::unordered_map<uint32_t, std::string> names_;
    std::unordered_map<uint64_t, std::string> cgroups_;
    std::map<AggregateKey, RawSums> raw_;
    std::map<AggregateKey, RollupRow> rollups_;  ///< by minute; the process's start is still to come
    std::vector<LossRow> losses_;
    uint64_t bucket_ns_ = 0;  ///< of the aggregates; 0: there are none
    std::unique_ptr<TraceStacks> stacks_;
    Batch batch_;
    size_t history_bytes_ = 0;  ///< of the batch
    uint64_t covered_until_ns_ = 0;
    uint64_t sequence_ = 0;
};

}  // namespace ingero
