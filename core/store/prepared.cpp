#include "core/store/prepared.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace ingero {

namespace {

/// Leaf and branch pages a commit rewrites besides its own data, with the free list.
constexpr uint64_t commit_overhead_bytes = 256 << 10;
/// Rows of history, which are only ever added. Spans, incidents and states are numbered together.
void prepare_history(const Batch& batch, const std::vector<size_t>& repeats, uint32_t boot_index, uint64_t last_row,
                     Prepared& prepared) {
    for (size_t i = 0; i < batch.spans.size(); ++i) {
        if (std::binary_search(repeats.begin(), repeats.end(), i)) continue;
        const SpanRow& span = batch.spans[i];
        const HistoryKey key{boot_index, span.start_ns, ++last_row};
        SpanRow row = span;
        row.id.resize(std::min(row.id.size(), max_span_id_bytes));
        prepared.add_row(&Tables::spans, key, row);
        if (row.id.empty()) continue;
        const std::string by_id = encode_key(SpanIdKey{row.id, key});
        prepared.rows.push_back({&Tables::span_ids, by_id, seal(by_id, {})});
    }
    for (const IncidentRow& incident : batch.incidents)
        prepared.add_row(&Tables::incidents, HistoryKey{boot_index, incident.at_ns, ++last_row}, incident);
    for (const StateRow& state : batch.states)
        prepared.add_row(&Tables::states, HistoryKey{boot_index, state.time_ns, ++last_row}, state);
}

}  // namespace

uint64_t Prepared::bytes() const {
    const auto add = [](uint64_t sum, const BlockRow& block) {
        return sum + block.key.size() + block.bytes.size() + 16;
    };
    const auto add_row = [](uint64_t sum, const Prepared::Row& row) {
        return sum + row.key.size() + row.value.size() + 16;
    };
    // Small rows land on pages of their own in the worst case of a random key, and so does the row that says
    // whose a block is.
    return std::accumulate(blocks.begin(), blocks.end(), uint64_t{0}, add) + blocks.size() * 8192 +
           4 * std::accumulate(rows.begin(), rows.end(), uint64_t{0}, add_row) + losses.size() * 256 +
           rollups.size() * 4096 + commit_overhead_bytes;
}

void prepare_clocks(const Batch& batch, uint32_t boot_index, uint32_t session, Prepared& prepared) {
    for (ClockRow row : batch.clocks) {
        row.session = session;
        prepared.add_row(&Tables::clocks, HistoryKey{boot_index, row.clock.monotonic_ns, session}, row);
    }
}

Prepared prepare(const Batch& batch, const std::vector<size_t>& repeats, uint32_t boot_index, uint64_t last_row,
                 BlockEncoder& encoder, const UserOf& user_of) {
    Prepared prepared;
    prepared.blocks = make_blocks(encoder, boot_index, batch.events, user_of);
    for (const Process& process : batch.processes)
        prepared.add_row(&Tables::processes, process.key, StoredProcess{process, boot_index});
    for (const GapRow& gap : batch.gaps)
        prepared.add_row(&Tables::gaps, GapKey{boot_index, gap.from_ns, gap.process, gap.reason}, gap);
    for (const FunctionRow& function : batch.functions)
        prepared.add_row(&Tables::functions, FunctionKey{function.process, function.handle},
                         StoredFunction{function, boot_index});
    for (const CommunicatorRow& communicator : batch.communicators)
        prepared.add_row(&Tables::communicators, CommunicatorKey{communicator.process, communicator.id},
                         StoredCommunicator{communicator, boot_index});
    for (const StackRow& stack : batch.stacks)
        prepared.add_row(&Tables::stacks, stack.id, StoredStack{stack, boot_index});
    for (const FileRow& file : batch.files) prepared.add_row(&Tables::files, file.id, StoredFile{file, boot_index});
    for (const SymbolRow& symbol : batch.symbols)
        prepared.add_row(&Tables::symbols, StackFrame{symbol.file, symbol.offset}, StoredSymbol{symbol, boot_index});
    std::copy_if(batch.losses.begin(), batch.losses.end(), std::back_inserter(prepared.losses),
                 [](const LossRow& row) { return !row.is_empty(); });
    prepared.rollups = batch.rollups;
    prepare_history(batch, repeats, boot_index, last_row, prepared);
    return prepared;
}

}  // namespace ingero
