#include "core/import/importer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>
#include <type_traits>

#include "core/import/call_nesting.h"
#include "core/import/thread_reads.h"
#include "core/import/trace_history.h"
#include "core/model/op.h"

namespace ingero {

namespace {

constexpr size_t max_nodes = 64;
constexpr size_t max_sessions = 4'096;
constexpr size_t max_facts = 1'000'000;  // processes, threads, cgroups, intervals of aggregates
constexpr size_t max_text_bytes = 256;
constexpr size_t batch_rows = 8'192;
/// Of rows of history; a batch of more than a quarter of the store would be refused.
constexpr size_t batch_history_bytes = 512 << 10;
/// That a rollup may come to take: a page of its own.
constexpr size_t rollup_bytes = 4'096;
constexpr uint64_t minute_ns = 60'000'000'000;

bool moves_bytes(OpId id) {
    const Op* op = find_op(id);
    return op && (op->op_class == OpClass::alloc || op->op_class == OpClass::copy);
}

std::string cut(std::string_view text, size_t most) {
    return std::string(text.substr(0, most));
}

Error too_many(const char* what) {
    return {ErrorCode::limit, std::string("the trace has more ") + what + " than one import can hold", ""};
}

}  // namespace

Result<void> Importer::plan() {
    for (const auto& step : {&Importer::plan_events, &Importer::plan_sessions, &Importer::plan_names,
                             &Importer::plan_losses, &Importer::count_left_out})
        if (auto done = (this->*step)(); !done) return done;
    return {};
}

Result<void> Importer::plan_events() {
    for (const auto& [table, width_ns] :
         {std::pair("event_aggregates_5s", minute_ns / 12), std::pair("event_aggregates", minute_ns)}) {
        const auto rows = trace_.count(table);
        if (!rows) return tl::unexpected(rows.error());
        if (*rows != 0) bucket_ns_ = width_ns;
    }
    bool within = true;
    auto read = trace_.for_each("events", event_columns(), "", [&](const TraceRow& row) {
        const auto event = read_event(row);
        if (!event) ++summary_.unreadable;
        within = !event || plan_event(*event);
        return within;
    });
    if (!read) return read;
    if (!within) return tl::unexpected(too_many("nodes, processes or threads"));
    if (nodes_.empty() && summary_.unreadable != 0)
        return fail(ErrorCode::corrupt, "none of the trace's " + std::to_string(summary_.unreadable) +
                                            " rows can be read as an event: numbers are missing or malformed");
    if (nodes_.empty()) return fail(ErrorCode::bad_request, "the trace has no events");
    return {};
}

bool Importer::plan_event(const TraceEvent& row) {
    auto found = nodes_.find(row.node);
    if (found == nodes_.end()) {
        if (nodes_.size() == max_nodes || row.node.size() > max_text_bytes) return false;
        found = nodes_.emplace(std::string(row.node), TraceNode()).first;
    }
    TraceNode& node = found->second;
    ++node.events;
    node.window.from_ns = std::min(node.window.from_ns, row.start_ns());
    node.window.to_ns = std::max(node.window.to_ns, row.end_ns() + 1);
    if (row.pid != row.tid) node.thread_group.try_emplace(row.tid, row.pid);
    if (row.op == op_sched_switch) {
        ++node.switches;
        node.switches_to_self += row.arg1 == row.pid;
        node.switched.insert(row.tid);
    }
    TraceProcess& process = node.processes[row.pid];
    process.first_ns = std::min(process.first_ns, row.start_ns());
    process.last_ns = std::max(process.last_ns, row.end_ns());
    process.only_switched &= row.op == op_sched_switch;
    if (row.cgroup != 0) process.cgroup = row.cgroup;
    if (!row.comm.empty()) process.comm = cut(row.comm, INGERO_COMM_LENGTH - 1);
    if (row.op == op_process_exit && row.pid == row.tid) process.exited_ns = row.timestamp_ns;
    if (bucket_ns_ != 0) {
        RawSums& raw = raw_[{row.timestamp_ns / bucket_ns_ * bucket_ns_, row.op, row.pid}];
        ++raw.rows;
        raw.total_ns += row.duration_ns;
        raw.arg0 += row.arg0;
    }
    return std::max({node.processes.size(), node.thread_group.size(), node.switched.size(), raw_.size()}) <= max_facts;
}

std::string Importer::node_name(const std::string& stated, const std::string& of_sessions) const {
    if (!stated.empty()) return stated;
    if (!options_.node.empty()) return options_.node;
    return of_sessions.empty() ? options_.fallback_node : of_sessions;
}

/// The first run begins with the first event, whatever it says: what came before may have been cut off.
Result<void> Importer::plan_sessions() {
    struct Row {
        std::string node;
        TraceSession session;
    };
    std::vector<Row> rows;
    auto read = trace_.for_each(
        "sessions", {"started_at", "stopped_at", "node", "ingero_ver", "kernel"}, "", [&](const TraceRow& row) {
            const int64_t started = row.integer(0).value_or(0), stopped = row.integer(1).value_or(0);
            if (started <= 0) return true;
            rows.push_back(
                {cut(row.text(2), max_text_bytes),
                 {.window = {static_cast<uint64_t>(started), static_cast<uint64_t>(std::max<int64_t>(stopped, 0))},
                  .version = cut(row.text(3), max_text_bytes),
                  .kernel = cut(row.text(4), max_text_bytes)}});
            return rows.size() < max_sessions;
        });
    if (!read) return read;
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
        return std::pair(a.session.window.from_ns, a.session.window.to_ns) <
               std::pair(b.session.window.from_ns, b.session.window.to_ns);
    });
    for (auto& [stated, node] : nodes_) {
        std::string named;
        for (const Row& row : rows) {
            if (nodes_.size() > 1 && row.node != stated) continue;
            if (!row.node.empty()) named = row.node;
            // A run that began after the last event and did not last shows nothing.
            const uint64_t from = node.sessions.empty() ? node.window.from_ns : row.session.window.from_ns;
            if (!node.sessions.empty() && node.sessions.back().window.to_ns >= from) {
                uint64_t& end = node.sessions.back().window.to_ns;
                end = std::max(end, row.session.window.to_ns);
                continue;
            }
            node.sessions.push_back(row.session);
            node.sessions.back().window = {from, std::max(row.session.window.to_ns, from + 1)};
        }
        if (node.sessions.empty()) node.sessions.push_back({.window = node.window, .version = {}, .kernel = {}});
        uint64_t& end = node.sessions.back().window.to_ns;
        end = std::max(end, node.window.to_ns);
        node.name = node_name(stated, named);
    }
    return {};
}

/// One table for all nodes: with more than one, whose pid is meant is not known.
Result<void> Importer::plan_names() {
    if (nodes_.size() != 1) return {};
    auto read = trace_.for_each("process_names", {"pid", "name"}, "", [&](const TraceRow& row) {
        const auto pid = row.integer(0);
        if (pid && *pid > 0 && *pid <= UINT32_MAX)
            names_[static_cast<uint32_t>(*pid)] = cut(row.text(1), INGERO_COMM_LENGTH - 1);
        return names_.size() < max_facts;
    });
    if (!read) return read;
    constexpr size_t longest_path = 4'096;
    return trace_.for_each("cgroup_metadata", {"cgroup_id", "cgroup_path"}, "", [&](const TraceRow& row) {
        if (const auto id = row.integer(0)) cgroups_[static_cast<uint64_t>(*id)] = cut(row.text(1), longest_path);
        return cgroups_.size() < max_facts;
    });
}

/// The agent overwrote its sums now and then: what it counted is at least the larger of sum and rows.
Result<void> Importer::plan_losses() {
    if (bucket_ns_ == 0 || nodes_.size() != 1) return {};
    std::map<std::pair<uint64_t, OpId>, uint64_t> missing;
    const auto more = [](const TraceRow& row, int column, uint64_t known) {
        const auto counted = static_cast<uint64_t>(std::max<int64_t>(row.integer(column).value_or(0), 0));
        return counted - std::min(counted, known);
    };
    auto read = trace_.for_each(
        bucket_ns_ == minute_ns ? "event_aggregates" : "event_aggregates_5s",
        {"bucket", "source", "op", "pid", "count", "sum_dur", "max_dur", "sum_arg0"}, "", [&](const TraceRow& row) {
            const int64_t bucket = row.integer(0).value_or(0), source = row.integer(1).value_or(0),
                          number = row.integer(2).value_or(0), pid = row.integer(3).value_or(0),
                          count = row.integer(4).value_or(0);
            if (bucket <= 0 || source <= 0 || source > 255 || number <= 0 || number > 255 || pid < 0 ||
                pid > UINT32_MAX || count <= 0 || bucket > INT64_MAX - static_cast<int64_t>(minute_ns))
                return true;
            const OpId op = make_op(static_cast<uint8_t>(source), static_cast<uint8_t>(number));
            const auto raw = raw_.find({static_cast<uint64_t>(bucket), op, static_cast<uint32_t>(pid)});
            const RawSums kept = raw == raw_.end() ? RawSums() : raw->second;
            if (static_cast<uint64_t>(count) <= kept.rows) return true;
            const uint64_t calls = static_cast<uint64_t>(count) - kept.rows;
            missing[{static_cast<uint64_t>(bucket), op}] += calls;
            RollupRow& rollup =
                rollups_[{static_cast<uint64_t>(bucket) / minute_ns * minute_ns, op, static_cast<uint32_t>(pid)}];
            rollup.calls += calls;
            rollup.total_ns += more(row, 5, kept.total_ns);
            rollup.max_ns = std::max(rollup.max_ns, more(row, 6, 0));
            if (moves_bytes(op)) rollup.bytes += more(row, 7, kept.arg0);
            return missing.size() < max_facts && rollups_.size() < max_facts;
        });
    if (!read) return read;
    for (const auto& [key, count] : missing) {
        LossRow loss{.from_ns = key.first, .to_ns = key.first + bucket_ns_, .op = key.second};
        loss.thinned = count;
        losses_.push_back(loss);
        summary_.sampled_out += count;
    }
    return {};
}

Result<void> Importer::count_left_out() {
    for (const char* table : {"causal_chains", "system_snapshots", "cgroup_schedstat", "annotations"}) {
        const auto rows = trace_.count(table);
        if (!rows) return tl::unexpected(rows.error());
        if (*rows != 0) summary_.left_out[table] = *rows;
    }
    return {};
}

Result<void> Importer::write(StoreWriter& writer) {
    sequence_ = writer.figures().last_sequence;
    stacks_ = std::make_unique<TraceStacks>(writer.figures().last_stack, writer.figures().last_file);
    const uint64_t dropped = writer.figures().events_dropped_for_space;
    for (size_t number = 0; number < nodes_.size(); ++number)
        if (auto written = write_node(writer, number); !written) return written;
    if (writer.figures().events_dropped_for_space != dropped)
        return fail(ErrorCode::limit, "the store is too small for the trace");
    summary_.stacks = stacks_->stacks();
    summary_.unused_stacks = stacks_->stacks() - stacks_->used();
    summary_.unreadable_stacks = stacks_->unreadable();
    summary_.lost_stacks = stacks_->lost();
    std::erase_if(summary_.left_out, [](const auto& table) { return table.second == 0; });
    return {};
}

/// The last session of the last node has the trace's own hash as its id: once it has ended, all of the trace is there.
Result<void> Importer::begin(StoreWriter& writer, size_t node_number, size_t session_number) {
    const TraceNode& node = std::next(nodes_.begin(), static_cast<std::ptrdiff_t>(node_number))->second;
    const TraceSession& from = node.sessions[session_number];
    const auto at = [](uint64_t ns) { return ClockTriple{ns, ns, ns}; };
    const bool last = node_number + 1 == nodes_.size() && session_number + 1 == node.sessions.size();
    std::array<char, 33> other{};
    std::snprintf(other.data(), other.size(), "%.16s%08x%08x", hash_.c_str(), static_cast<uint32_t>(node_number + 1),
                  static_cast<uint32_t>(session_number + 1));
    Session session;
    session.id = last ? hash_ : other.data();
    session.boot_id = std::string(import_boot_prefix) + hash_ + "-" + std::to_string(node_number + 1);
    session.node = node.name;
    session.version = from.version;
    session.kernel = from.kernel;
    session.attach_method = "imported";
    session.clock = at(from.window.from_ns);
    session.first_covered_ns = from.window.from_ns;
    session.last_covered_ns = from.window.to_ns;
    *clock_ = at(from.window.to_ns);
    covered_until_ns_ = from.window.to_ns;
    if (auto begun = writer.begin_session(session); !begun) return begun;
    batch_.gaps.push_back({.process = {},
                           .uid = 0,
                           .from_ns = from.window.from_ns,
                           .to_ns = from.window.to_ns,
                           .reason = GapReason::imported,
                           .subject = "the earlier agent did not count all events that it dropped"});
    return {};
}

Result<void> Importer::write_node(StoreWriter& writer, size_t number) {
    const TraceNode& node = std::next(nodes_.begin(), static_cast<std::ptrdiff_t>(number))->second;
    for (size_t session = 0; session < node.sessions.size(); ++session) {
        if (auto begun = begin(writer, number, session); !begun) return begun;
        if (session + 1 == node.sessions.size()) {
            if (number == 0) {
                if (auto written = write_stacks(writer); !written) return written;
                batch_.losses = std::move(losses_);
            }
            if (auto written = write_events(writer, node); !written) return written;
            const std::string& stated = std::next(nodes_.begin(), static_cast<std::ptrdiff_t>(number))->first;
            if (auto written = write_history(writer, stated, node); !written) return written;
            add_processes(node, batch_);
        }
        if (auto flushed = flush(writer, true); !flushed) return flushed;
        if (auto ended = writer.end_session(); !ended) return ended;
    }
    const Window whole{node.sessions.front().window.from_ns, node.sessions.back().window.to_ns};
    summary_.nodes.push_back({node.name, node.events, whole});
    summary_.events += node.events;
    return {};
}

Result<void> Importer::write_stacks(StoreWriter& writer) {
    Result<void> written;
    auto read = trace_.for_each("stack_traces", {"hash", "frames"}, "", [&](const TraceRow& row) {
        const auto hash = row.integer(0);
        if (!hash || *hash == 0 || stacks_->full()) return true;
        TraceStacks::Rows rows = stacks_->add(static_cast<uint64_t>(*hash), row.text(1));
        rows.stack.seen_ns = clock_->monotonic_ns;
        batch_.stacks.push_back(std::move(rows.stack));
        std::move(rows.files.begin(), rows.files.end(), std::back_inserter(batch_.files));
        std::move(rows.symbols.begin(), rows.symbols.end(), std::back_inserter(batch_.symbols));
        written = flush(writer, false);
        return written.has_value();
    });
    return read ? written : read;
}

Result<void> Importer::write_events(StoreWriter& writer, const TraceNode& node) {
    Result<void> written;
    const auto emit = [&](Event& event) {
        if (!written) return;
        event.sequence = ++sequence_;
        batch_.events.push_back(event);
        written = flush(writer, false);
    };
    CallNesting nesting(node.switched, emit);
    ThreadReads reads;
    const bool own_pid = node.switch_names_own_pid();
    const auto stated =
        std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& one) { return &one.second == &node; });
    auto read = trace_.for_each("events", event_columns(), "timestamp", [&](const TraceRow& row) {
        const auto from = read_event(row);
        if (!from || from->node != stated->first) return true;
        Event event = to_event(*from, node.tgid_of(*from), own_pid);
        if (event.tgid != 0) event.process_start_ns = node.processes.at(event.tgid).first_ns;
        event.stack = stacks_->id_of(from->stack_hash);
        const Window time{event.start_ns, event.end_ns()};
        if (event.op == op::block_read) reads.add(event.tid, time);
        if (event.op == op_sched_switch) {
            event.depth = nesting.off_cpu(event.tid, time.from_ns, time.to_ns);
            if (reads.fill(event.tid, time)) event.blocked_reason = BlockedReason::disk;
        }
        if (is_call(event.op))
            nesting.call(event);
        else
            emit(event);
        return written.has_value();
    });
    if (!read) return read;
    nesting.finish();
    return written;
}

template <class Row>
Result<void> Importer::add_row(StoreWriter& writer, std::vector<Row> Batch::*into, Row row) {
    history_bytes_ += std::max(encode_row(row).size(), std::is_same_v<Row, RollupRow> ? rollup_bytes : 0);
    (batch_.*into).push_back(std::move(row));
    return flush(writer, false);
}

template <class Row, class Make>
Result<void> Importer::write_rows(StoreWriter& writer, const char* table, const std::vector<std::string>& columns,
                                  std::vector<Row> Batch::*into, uint64_t& ret_written, const Make& make) {
    Result<void> written;
    auto read = trace_.for_each(table, columns, "", [&](const TraceRow& row) {
        std::optional<Row> made = make(row);
        if (!made) return true;
        ++ret_written;
        --summary_.left_out[table];
        written = add_row(writer, into, std::move(*made));
        return written.has_value();
    });
    return read ? written : read;
}

/// Of which node a snapshot or an annotation is they do not say: of a trace with several they are left out.
Result<void> Importer::write_history(StoreWriter& writer, const std::string& stated, const TraceNode& node) {
    if (auto written = write_chains(writer, stated); !written) return written;
    if (nodes_.size() != 1) return {};
    const auto state_of = [](const TraceRow& row) { return read_snapshot(row); };
    if (auto written =
            write_rows(writer, "system_snapshots", snapshot_columns(), &Batch::states, summary_.snapshots, state_of);
        !written)
        return written;
    const auto span_of = [&](const TraceRow& row) {
        auto span = read_annotation(row, summary_.unreadable_texts);
        if (!span) return span;
        if (const auto known = node.processes.find(span->process.pid); known != node.processes.end())
            span->process.start_ns = known->second.first_ns;
        return span;
    };
    if (auto written =
            write_rows(writer, "annotations", annotation_columns(), &Batch::spans, summary_.annotations, span_of);
        !written)
        return written;
    return write_rollups(writer, node);
}

Result<void> Importer::write_chains(StoreWriter& writer, const std::string& stated) {
    return write_rows(writer, "causal_chains", chain_columns(), &Batch::incidents, summary_.chains,
                      [&](const TraceRow& row) -> std::optional<IncidentRow> {
                          constexpr int node_column = 4;
                          if (nodes_.size() != 1 && row.text(node_column) != stated) return std::nullopt;
                          return read_chain(row, summary_.unreadable_texts);
                      });
}

/// No statistics use these rollups: nothing of the trace has gone from the store, and the coverage reports them.
Result<void> Importer::write_rollups(StoreWriter& writer, const TraceNode& node) {
    for (auto& [key, rollup] : rollups_) {
        rollup.minute_ns = key.bucket_ns;
        rollup.op = key.op;
        rollup.process.pid = key.pid;
        if (const auto known = node.processes.find(key.pid); key.pid != 0 && known != node.processes.end())
            rollup.process.start_ns = known->second.first_ns;
        ++summary_.rollups;
        if (auto added = add_row(writer, &Batch::rollups, std::move(rollup)); !added) return added;
    }
    return {};
}

void Importer::add_processes(const TraceNode& node, Batch& batch) {
    for (const auto& [pid, facts] : node.processes) {
        if (pid == 0) continue;  // an interrupt, which is nobody's
        if (facts.only_switched && node.thread_group.contains(pid)) continue;
        Process process;
        process.key = {pid, facts.first_ns};
        const auto name = names_.find(pid);
        process.comm = facts.comm.empty() && name != names_.end() ? name->second : facts.comm;
        if (const auto cgroup = cgroups_.find(facts.cgroup); cgroup != cgroups_.end()) process.cgroup = cgroup->second;
        process.first_seen_ns = facts.first_ns;
        if (facts.exited_ns >= facts.last_ns) process.exited_ns = facts.exited_ns;
        batch.processes.push_back(std::move(process));
        ++summary_.processes;
    }
}

/// Commits what there is once it is a batch.
Result<void> Importer::flush(StoreWriter& writer, bool last) {
    const size_t rows = std::max({batch_.events.size(), batch_.stacks.size() * 16, batch_.symbols.size()});
    if (!last && rows < batch_rows && history_bytes_ < batch_history_bytes) return {};
    for (StackRow& made : stacks_->take_lost()) batch_.stacks.push_back(std::move(made));
    if (last) batch_.covered_until_ns = covered_until_ns_;
    auto committed = writer.commit(batch_);
    batch_ = {};
    history_bytes_ = 0;
    return committed;
}

}  // namespace ingero
