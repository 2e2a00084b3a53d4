#include "core/store/retention/rollup.h"

#include <algorithm>
#include <array>

#include "core/model/call_time.h"
#include "core/model/op.h"

namespace ingero {

namespace {

/// More would take too much memory at once: some KiB each.
constexpr size_t most_pending_rows = 4'096;

constexpr std::array columns = {ColumnId::start,      ColumnId::duration,    ColumnId::runnable,      ColumnId::blocked,
                                ColumnId::weight,     ColumnId::return_code, ColumnId::process_start, ColumnId::tgid,
                                ColumnId::argument_0, ColumnId::time_weight};
enum Place : size_t {
    start,
    duration,
    runnable,
    blocked,
    weight,
    return_code,
    process_start,
    tgid,
    argument_0,
    time_weight
};

void add_to(uint64_t& sum, uint64_t value) {
    sum = saturating_add(sum, value);
}

}  // namespace

void add_rollup(RollupRow& row, const RollupRow& other) {
    if (row.uid == UINT32_MAX && row.process.pid != 0) row.uid = other.uid;
    add_to(row.calls, other.calls);
    add_to(row.errors, other.errors);
    add_to(row.total_ns, other.total_ns);
    row.max_ns = std::max(row.max_ns, other.max_ns);
    add_to(row.bytes, other.bytes);
    add_to(row.on_cpu_ns, other.on_cpu_ns);
    add_to(row.runnable_ns, other.runnable_ns);
    add_to(row.blocked_ns, other.blocked_ns);
    add_to(row.lost, other.lost);
    add_to(row.thinned, other.thinned);
    row.durations.add(other.durations);
}

size_t RollupWriter::Hash::operator()(const RollupKey& key) const {
    uint64_t bits = key.minute_ns * 0x9e37'79b9'7f4a'7c15 + key.boot_index;
    bits = (bits ^ bits >> 29 ^ key.process.start_ns) * 0xbf58'476d'1ce4'e5b9;
    bits = (bits ^ bits >> 32 ^ (uint64_t{key.process.pid} << 16 | key.op)) * 0x94d0'49bb'1331'11eb;
    return bits ^ bits >> 31;
}

RollupRow& RollupWriter::row_of(const RollupKey& key) {
    const auto [at, added] = rows_.try_emplace(key);
    if (added) {
        at->second.minute_ns = key.minute_ns;
        at->second.op = key.op;
        at->second.process = key.process;
    }
    return at->second;
}

void RollupWriter::add(uint32_t boot_index, const RollupRow& row) {
    const uint64_t minute_ns = row.minute_ns / rollup_minute_ns * rollup_minute_ns;
    add_rollup(row_of({boot_index, minute_ns, row.op, row.process}), row);
}

void RollupWriter::add_loss(uint32_t boot_index, const LossRow& loss) {
    const uint64_t minute_ns = loss.from_ns / rollup_minute_ns * rollup_minute_ns;
    RollupRow& row = row_of({boot_index, minute_ns, loss.op, {}});
    add_to(row.lost, loss.lost());
    add_to(row.thinned, loss.thinned);
}

int RollupWriter::add_block(std::string_view block) {
    processes_.clear();
    if (environment_.tables().rollups == Tables::no_table || !view_.open(block)) return 0;
    for (size_t segment = 0; segment < view_.ops().size(); ++segment)
        if (!add_segment(view_, segment)) break;
    return rows_.size() < most_pending_rows ? 0 : flush();  // after the block: writing may move what it lies in
}

bool RollupWriter::add_segment(BlockView& view, size_t segment) {
    static_assert(std::tuple_size_v<decltype(columns_)> == columns.size());
    const OpSummary& summary = view.ops()[segment];
    for (size_t i = 0; i < columns.size(); ++i) {
        columns_[i].resize(summary.rows);
        if (!view.column(columns[i], segment, columns_[i])) return false;
    }
    const Op* op = find_op(summary.op);
    const bool moves_bytes =
        op && (op->op_class == OpClass::alloc || op->op_class == OpClass::copy || op->op_class == OpClass::collective);
    RollupKey last{view.header().boot_index, 0, summary.op, {}};
    RollupRow* row = nullptr;
    for (size_t i = 0; i < summary.rows; ++i) {
        const ProcessKey process{static_cast<uint32_t>(columns_[tgid][i]), columns_[process_start][i]};
        if (!row || columns_[start][i] - last.minute_ns >= rollup_minute_ns || process != last.process) {
            last.minute_ns = columns_[start][i] / rollup_minute_ns * rollup_minute_ns;
            last.process = process;
            processes_.insert(process);
            row = &row_of(last);
        }
        const CallTime time = split_time(columns_[duration][i], columns_[runnable][i], columns_[blocked][i]);
        const uint64_t calls = columns_[weight][i];
        const uint64_t times = columns_[time_weight][i] != 0 ? columns_[time_weight][i] : calls;
        add_to(row->calls, calls);
        if (columns_[return_code][i] != 0) add_to(row->errors, calls);
        add_to(row->total_ns, saturating_multiply(time.duration_ns, times));
        row->max_ns = std::max(row->max_ns, time.duration_ns);
        if (moves_bytes && columns_[return_code][i] == 0)
            add_to(row->bytes, saturating_multiply(columns_[argument_0][i], calls));
        add_to(row->on_cpu_ns, saturating_multiply(time.on_cpu_ns, times));
        add_to(row->runnable_ns, saturating_multiply(time.runnable_ns, times));
        add_to(row->blocked_ns, saturating_multiply(time.blocked_ns, times));
        row->durations.add(time.duration_ns, calls);
    }
    return true;
}

int RollupWriter::flush() {
    if (environment_.tables().rollups == Tables::no_table) rows_.clear();
    std::vector<RollupKey> keys;
    keys.reserve(rows_.size());
    for (const auto& [key, row] : rows_) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    int rc = 0;
    for (size_t from = 0, to = 0; rc == 0 && from < keys.size(); from = to) {
        while (to < keys.size() && keys[to].boot_index == keys[from].boot_index &&
               keys[to].minute_ns == keys[from].minute_ns)
            ++to;
        rc = flush_minute(keys[from], {keys.begin() + static_cast<std::ptrdiff_t>(from),
                                       keys.begin() + static_cast<std::ptrdiff_t>(to)});
    }
    rows_.clear();
    return rc;
}

int RollupWriter::flush_minute(const RollupKey& minute, const std::vector<RollupKey>& keys) {
    size_t count = 0;
    if (const int rc = count_rows(minute, count)) return rc;
    std::map<OpId, RollupRow> others;
    for (const RollupKey& key : keys) {
        RollupRow& row = rows_.at(key);
        bool full = key.process.pid == 0;
        if (!full)
            if (const int rc = put(key, row, &count, full)) return rc;
        if (full) add_rollup(others[key.op], row);
    }
    for (auto& [op, row] : others) {
        row.minute_ns = minute.minute_ns;
        row.op = op;
        bool full = false;
        if (const int rc = put({minute.boot_index, minute.minute_ns, op, {}}, row, nullptr, full)) return rc;
    }
    return 0;
}

int RollupWriter::count_rows(const RollupKey& minute, size_t& ret_count) {
    ret_count = 0;
    return for_each_row(
        transaction_, environment_.tables().rollups, encode_key(RollupKey{minute.boot_index, minute.minute_ns, 0, {}}),
        [&](auto key, auto) {
            const auto fields = decode_rollup_key(key);
            if (!fields || fields->boot_index != minute.boot_index || fields->minute_ns != minute.minute_ns)
                return false;
            ret_count += fields->process.pid != 0;
            return true;
        });
}

/// Adds to the row there is. `count`: rows of the minute, a limit for new ones; none for those of `any process`.
int RollupWriter::put(const RollupKey& key, RollupRow& row, size_t* count, bool& ret_full) {
    const MDB_dbi table = environment_.tables().rollups;
    const std::string encoded = encode_key(key);
    MDB_val raw_key = to_value(encoded);
    MDB_val found{};
    const int rc = mdb_get(transaction_, table, &raw_key, &found);
    if (rc == 0) {
        const auto content = unseal(encoded, to_text(found));
        if (const auto before = content ? decode_rollup(*content) : std::nullopt) add_rollup(row, *before);
    } else if (rc != MDB_NOTFOUND) {
        return rc;
    } else if (count) {
        ret_full = *count >= max_rollup_rows;
        if (ret_full) return 0;
        ++*count;
    }
    if (key.process.pid != 0 && row.uid == UINT32_MAX) row.uid = uid_of(key.process);
    const std::string value = seal(encoded, encode_row(row));
    raw_key = to_value(encoded);
    MDB_val raw_value = to_value(value);
    return mdb_put(transaction_, table, &raw_key, &raw_value, 0);
}

std::set<uint32_t> RollupWriter::uids_of_block() {
    std::set<uint32_t> uids;
    for (const ProcessKey& process : processes_) uids.insert(uid_of(process));
    return uids;
}

/// Kept with the row: the process's own row may go before it.
uint32_t RollupWriter::uid_of(const ProcessKey& process) {
    const std::string encoded = encode_key(process);
    MDB_val raw_key = to_value(encoded);
    MDB_val found{};
    if (mdb_get(transaction_, environment_.tables().processes, &raw_key, &found) != 0) return UINT32_MAX;
    const auto content = unseal(encoded, to_text(found));
    const auto row = content ? decode_process(*content) : std::nullopt;
    return row ? row->process.uid : UINT32_MAX;
}

}  // namespace ingero
