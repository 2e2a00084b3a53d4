#include "core/store/rows/batch_stream.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>

#include "core/store/block/block.h"
#include "core/store/rows/rows.h"

namespace ingero {

namespace {

constexpr char stream_version = 1;

/// Never used again for another.
enum class RowKind : uint8_t {
    session = 1,
    block = 2,
    process = 3,
    loss = 4,
    gap = 5,
    function = 6,
    stack = 7,
    file = 8,
    symbol = 9,
    span = 10,
    communicator = 11,
};

void add(std::string& bytes, RowKind kind, std::string_view content) {
    const auto size = static_cast<uint32_t>(content.size());
    bytes.push_back(static_cast<char>(kind));
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes.append(content);
}

tl::unexpected<Error> damaged() {
    return fail(ErrorCode::corrupt, "the rows of the answer are damaged", "use an ingeroctl of the daemon's version");
}

template <class Row>
bool take(std::optional<Row> row, std::vector<Row>& ret_rows) {
    if (row) ret_rows.push_back(std::move(*row));
    return row.has_value();
}

/// False where the content is no such row.
bool take(RowKind kind, std::string_view content, SessionBatch& ret_batch) {
    Batch& batch = ret_batch.batch;
    switch (kind) {
        case RowKind::session: {
            auto session = decode_session(content);
            if (session) ret_batch.session = std::move(*session);
            return session.has_value();
        }
        case RowKind::block:
            return decode_block(content, batch.events).has_value();
        case RowKind::process: {
            auto row = decode_process(content);
            if (row) batch.processes.push_back(std::move(row->process));
            return row.has_value();
        }
        case RowKind::loss:
            return take(decode_loss(content), batch.losses);
        case RowKind::gap:
            return take(decode_gap(content), batch.gaps);
        case RowKind::function: {
            auto row = decode_function(content);
            if (row) batch.functions.push_back(std::move(row->function));
            return row.has_value();
        }
        case RowKind::stack: {
            auto row = decode_stack(content);
            if (row) batch.stacks.push_back(std::move(row->stack));
            return row.has_value();
        }
        case RowKind::file: {
            auto row = decode_file(content);
            if (row) batch.files.push_back(std::move(row->file));
            return row.has_value();
        }
        case RowKind::symbol: {
            auto row = decode_symbol(content);
            if (row) batch.symbols.push_back(std::move(row->symbol));
            return row.has_value();
        }
        case RowKind::span:
            return take(decode_span(content), batch.spans);
        case RowKind::communicator: {
            const auto row = decode_communicator(content);
            if (row) batch.communicators.push_back(row->communicator);
            return row.has_value();
        }
    }
    return false;
}

}  // namespace

std::string encode_batch(const SessionBatch& from) {
    const Batch& batch = from.batch;
    const uint32_t boot = from.session.boot_index;
    std::string bytes(1, stream_version);
    add(bytes, RowKind::session, encode_row(from.session));
    std::vector<Event> events = batch.events;
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
        return std::tie(a.start_ns, a.sequence) < std::tie(b.start_ns, b.sequence);
    });
    for (size_t at = 0; at < events.size(); at += max_block_rows) {
        const std::span<const Event> block(events.data() + at, std::min(max_block_rows, events.size() - at));
        add(bytes, RowKind::block, encode_block(boot, block));
    }
    for (const Process& row : batch.processes) add(bytes, RowKind::process, encode_row(StoredProcess{row, boot}));
    for (const LossRow& row : batch.losses) add(bytes, RowKind::loss, encode_row(row));
    for (const GapRow& row : batch.gaps) add(bytes, RowKind::gap, encode_row(row));
    for (const FunctionRow& row : batch.functions) add(bytes, RowKind::function, encode_row(StoredFunction{row, boot}));
    for (const StackRow& row : batch.stacks) add(bytes, RowKind::stack, encode_row(StoredStack{row, boot}));
    for (const FileRow& row : batch.files) add(bytes, RowKind::file, encode_row(StoredFile{row, boot}));
    for (const SymbolRow& row : batch.symbols) add(bytes, RowKind::symbol, encode_row(StoredSymbol{row, boot}));
    for (const SpanRow& row : batch.spans) add(bytes, RowKind::span, encode_row(row));
    for (const CommunicatorRow& row : batch.communicators)
        add(bytes, RowKind::communicator, encode_row(StoredCommunicator{row, boot}));
    return bytes;
}

Result<SessionBatch> decode_batch(std::string_view bytes) {
    if (bytes.empty() || bytes.front() != stream_version)
        return fail(ErrorCode::version, "the rows of the answer are of another version",
                    "use an ingeroctl of the daemon's version");
    bytes.remove_prefix(1);
    SessionBatch batch;
    while (!bytes.empty()) {
        uint32_t size = 0;
        constexpr size_t head = 1 + sizeof size;
        if (bytes.size() < head) return damaged();
        const auto kind = static_cast<RowKind>(bytes.front());
        std::memcpy(&size, bytes.data() + 1, sizeof size);
        bytes.remove_prefix(head);
        if (bytes.size() < size || !take(kind, bytes.substr(0, size), batch)) return damaged();
        bytes.remove_prefix(size);
    }
    return batch;
}

}  // namespace ingero
