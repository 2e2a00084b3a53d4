#include "core/store/block/block_encoder.h"

#include <array>
#include <cstring>
#include <stdexcept>
#include <unordered_map>

#include "core/store/block/block_layout.h"

namespace ingero {

namespace {

constexpr uint16_t no_segment = 0xffff;

/// What a row's bytes differ in from another's, gathered over many rows. Padding counts for nothing: no column has it.
class Difference {
  public:
    explicit Difference(const Event& reference) : reference_(words_of(reference)) {}

    void add(const Event& event) {
        const Words words = words_of(event);
        for (size_t i = 0; i < words.size(); ++i) differs_[i] |= words[i] ^ reference_[i];
    }
    bool in(size_t offset, size_t bytes) const {
        const char* at = reinterpret_cast<const char*>(differs_.data()) + offset;
        return std::any_of(at, at + bytes, [](char byte) { return byte != 0; });
    }

  private:
    using Words = std::array<uint64_t, sizeof(Event) / sizeof(uint64_t)>;
    static_assert(sizeof(Event) % sizeof(uint64_t) == 0);
    static Words words_of(const Event& event) {
        Words words;
        std::memcpy(words.data(), &event, sizeof event);
        return words;
    }

    Words reference_;
    Words differs_{};
};

struct CommHash {
    size_t operator()(const Comm& comm) const {
        return std::hash<std::string_view>()(std::string_view(comm.data(), comm.size()));
    }
};

}  // namespace

struct BlockEncoder::Work {
    std::string encode(uint32_t boot_index, std::span<const Event> events);

    void divide(std::span<const Event> events);
    void encode_start(std::span<const Event> events, std::string& ret_data);
    void encode_ranks(std::span<const Event> events, std::string& ret_data);
    layout::SequenceOrder encode_sequence(std::span<const Event> events, uint64_t first, std::string& ret_data);
    void encode_segment(std::span<const Event> events, size_t segment, std::string& ret_body);
    uint64_t number_of(const Comm& comm);
    template <class T>
    uint64_t value_of(const T& field);

    ColumnEncoder columns;
    std::vector<uint16_t> segment_of_op = std::vector<uint16_t>(size_t{1} << 16, no_segment);
    std::vector<OpSummary> ops;
    std::vector<layout::Op> stored_ops;
    std::vector<uint32_t> first_rows;
    std::vector<uint16_t> segment_of_row;
    std::vector<uint16_t> rows;  ///< by segment, in order within each
    std::vector<uint64_t> values;
    std::vector<uint64_t> ends;
    std::vector<uint16_t> order;
    std::vector<Comm> comms;
    std::unordered_map<Comm, uint32_t, CommHash> comm_numbers;
    std::string segments;
    std::string segment_data;
    std::array<uint32_t, layout::block_columns> shapes{};
};

/// Which segment each row is of, and the rows of each segment.
void BlockEncoder::Work::divide(std::span<const Event> events) {
    ops.clear();
    for (const Event& event : events) {
        uint16_t& segment = segment_of_op[event.op];
        if (segment == no_segment) {
            segment = static_cast<uint16_t>(ops.size());
            ops.push_back({.op = event.op});
        }
    }
    std::sort(ops.begin(), ops.end(), [](const OpSummary& a, const OpSummary& b) { return a.op < b.op; });
    for (size_t i = 0; i < ops.size(); ++i) segment_of_op[ops[i].op] = static_cast<uint16_t>(i);
    segment_of_row.resize(events.size());
    for (size_t row = 0; row < events.size(); ++row) {
        segment_of_row[row] = segment_of_op[events[row].op];
        layout::add_to(ops[segment_of_row[row]], events[row]);
    }
    first_rows.assign(ops.size() + 1, 0);
    for (size_t i = 0; i < ops.size(); ++i) first_rows[i + 1] = first_rows[i] + ops[i].rows;
    rows.resize(events.size());
    std::vector<uint32_t>& next = first_rows;
    for (size_t row = 0; row < events.size(); ++row) rows[next[segment_of_row[row]]++] = static_cast<uint16_t>(row);
    for (size_t i = ops.size(); i-- > 0;) {
        first_rows[i + 1] = first_rows[i];
        segment_of_op[ops[i].op] = no_segment;
    }
    first_rows[0] = 0;
}

void BlockEncoder::Work::encode_start(std::span<const Event> events, std::string& ret_data) {
    values.resize(events.size());
    values[0] = 0;
    for (size_t row = 1; row < events.size(); ++row) values[row] = events[row].start_ns - events[row - 1].start_ns;
    shapes[0] = to_stored(columns.encode(values, ret_data));
}

void BlockEncoder::Work::encode_ranks(std::span<const Event> events, std::string& ret_data) {
    layout::order_by_rows(ops, order);
    std::vector<uint64_t> rank_of_segment(ops.size());
    for (size_t rank = 0; rank < order.size(); ++rank) rank_of_segment[order[rank]] = rank;
    values.resize(events.size());
    for (size_t row = 0; row < events.size(); ++row) values[row] = rank_of_segment[segment_of_row[row]];
    shapes[1] = to_stored(columns.encode(values, ret_data));
}

/// Calls are numbered as they end, or as they begin where they were made up or sorted: in one of the two orders their
/// numbers mostly go up by one.
layout::SequenceOrder BlockEncoder::Work::encode_sequence(std::span<const Event> events, uint64_t first,
                                                          std::string& ret_data) {
    const auto differences = [&](auto row_at) {
        uint64_t expected = first;
        size_t jumps = 0;
        for (size_t i = 0; i < events.size(); ++i) {
            const uint64_t sequence = events[row_at(i)].sequence;
            values[i] = layout::zigzag(sequence - expected);
            jumps += sequence != expected;
            expected = sequence + 1;
        }
        return jumps;
    };
    values.resize(events.size());
    const auto by_start = [](size_t i) { return i; };
    auto sequence_order = layout::SequenceOrder::by_start;
    if (const size_t jumps = differences(by_start); jumps > events.size() / 64) {
        ends.resize(events.size());
        for (size_t row = 0; row < events.size(); ++row) ends[row] = saturated_end_ns(events[row]);
        layout::order_by_end(ends, order);
        sequence_order = layout::SequenceOrder::by_end;
        if (differences([&](size_t i) { return order[i]; }) > jumps) {
            differences(by_start);
            sequence_order = layout::SequenceOrder::by_start;
        }
    }
    shapes[2] = to_stored(columns.encode(values, ret_data));
    return sequence_order;
}

uint64_t BlockEncoder::Work::number_of(const Comm& comm) {
    if (comm == Comm{}) return 0;
    if (!comms.empty() && comm == comms.back()) return comms.size();
    const auto [found, added] = comm_numbers.try_emplace(comm, static_cast<uint32_t>(comms.size() + 1));
    if (added) comms.push_back(comm);
    return found->second;
}

template <class T>
uint64_t BlockEncoder::Work::value_of(const T& field) {
    if constexpr (std::is_same_v<T, Comm>)
        return number_of(field);
    else
        return static_cast<uint64_t>(field);  // extends the sign of what has one
}

void BlockEncoder::Work::encode_segment(std::span<const Event> events, size_t segment, std::string& ret_body) {
    const std::span<const uint16_t> own(rows.data() + first_rows[segment], ops[segment].rows);
    const Event& first = events[own.front()];
    Difference difference(first);
    for (const uint16_t row : own) difference.add(events[row]);

    const OpSummary& summary = ops[segment];
    layout::Op& stored = stored_ops.emplace_back();
    stored = {.op = summary.op,
              .rows = static_cast<uint16_t>(summary.rows),
              .errors = summary.errors,
              .columns = 0,
              .calls = summary.calls,
              .duration_ns = summary.duration_ns,
              .calls_duration_ns = summary.calls_duration_ns,
              .max_ns = summary.max_ns,
              .min_ns = summary.min_ns,
              .offset = static_cast<uint32_t>(ret_body.size()),
              .reserved = 0};
    const Event defaults;
    segment_data.clear();
    for_each_column([&](ColumnId id, auto get) {
        if (id == ColumnId::sequence || id == ColumnId::start || id == ColumnId::op) return;
        const auto& field = get(first);
        const auto offset =
            static_cast<size_t>(reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&first));
        if (difference.in(offset, sizeof field)) {
            values.resize(own.size());
            for (size_t i = 0; i < own.size(); ++i) values[i] = value_of(get(events[own[i]]));
        } else if (field != get(defaults)) {
            values.assign(1, value_of(field));
        } else {
            return;
        }
        stored.columns |= uint64_t{1} << static_cast<unsigned>(id);
        const uint32_t shape = to_stored(columns.encode(values, segment_data));
        ret_body.append(reinterpret_cast<const char*>(&shape), sizeof shape);
    });
    ret_body += segment_data;
}

std::string BlockEncoder::Work::encode(uint32_t boot_index, std::span<const Event> events) {
    if (events.empty() || events.size() > max_block_rows) throw std::logic_error("a block holds 1 to 4,096 events");
    const BlockHeader summary = layout::summarise(boot_index, events);
    divide(events);
    comms.clear();
    comm_numbers.clear();
    stored_ops.clear();

    std::string block_data;
    encode_start(events, block_data);
    encode_ranks(events, block_data);
    const auto sequence_order = encode_sequence(events, summary.min_sequence, block_data);
    segments.clear();
    for (size_t segment = 0; segment < ops.size(); ++segment) encode_segment(events, segment, segments);

    const size_t segments_at = sizeof shapes + comms.size() * sizeof(Comm) + block_data.size();
    const size_t body_bytes = segments_at + segments.size() + packing_slack_bytes;
    for (layout::Op& op : stored_ops) op.offset += static_cast<uint32_t>(segments_at);
    const layout::Header header{.magic = layout::block_magic,
                                .version = block_version,
                                .entries = static_cast<uint16_t>(ops.size()),
                                .header_checksum = 0,
                                .body_checksum = 0,
                                .boot_index = summary.boot_index,
                                .rows = summary.rows,
                                .first_start_ns = summary.first_start_ns,
                                .last_start_ns = summary.last_start_ns,
                                .max_end_ns = summary.max_end_ns,
                                .min_sequence = summary.min_sequence,
                                .max_sequence = summary.max_sequence,
                                .body_bytes = static_cast<uint32_t>(body_bytes),
                                .reserved = 0};
    const layout::MoreHeader more{.min_tgid = summary.min_tgid,
                                  .max_tgid = summary.max_tgid,
                                  .min_tid = summary.min_tid,
                                  .max_tid = summary.max_tid,
                                  .unpacked_bytes = header.body_bytes,
                                  .comms = static_cast<uint16_t>(comms.size()),
                                  .compression = static_cast<uint8_t>(layout::Compression::none),
                                  .sequence_order = static_cast<uint8_t>(sequence_order)};
    std::string data;
    data.reserve(sizeof header + sizeof more + stored_ops.size() * sizeof(layout::Op) + body_bytes);
    const auto append = [&](const auto* from, size_t count) {
        data.append(reinterpret_cast<const char*>(from), count * sizeof *from);
    };
    append(&header, 1);
    append(&more, 1);
    append(stored_ops.data(), stored_ops.size());
    append(shapes.data(), shapes.size());
    append(comms.data(), comms.size());
    data += block_data;
    data += segments;
    data.append(packing_slack_bytes, '\0');
    seal_block(data);
    return data;
}

BlockEncoder::BlockEncoder() : work_(std::make_unique<Work>()) {}
BlockEncoder::BlockEncoder(BlockEncoder&&) noexcept = default;
BlockEncoder& BlockEncoder::operator=(BlockEncoder&&) noexcept = default;
BlockEncoder::~BlockEncoder() = default;

std::string BlockEncoder::encode(uint32_t boot_index, std::span<const Event> events) {
    return work_->encode(boot_index, events);
}

std::string encode_block(uint32_t boot_index, std::span<const Event> events) {
    return BlockEncoder().encode(boot_index, events);
}

}  // namespace ingero
