#include "core/store/block/block.h"

#include <xxhash.h>
#include <zstd.h>

#include <array>
#include <cstring>
#include <numeric>

#include "core/store/block/block_layout.h"
#include "core/store/block/block_view.h"

namespace ingero {

namespace {

/// Higher levels gain next to nothing on packed integers.
constexpr int zstd_level = 3;

uint64_t header_checksum(std::string_view data, size_t body_at) {
    uint64_t seed = 0;
    std::memcpy(&seed, data.data(), sizeof seed);
    return XXH3_64bits_withSeed(data.data() + layout::checked_from, body_at - layout::checked_from, seed);
}

}  // namespace

namespace layout {

Error corrupt(std::string why) {
    return {ErrorCode::corrupt, "damaged event block: " + std::move(why), {}};
}

Result<Header> read_header(std::string_view data) {
    Header header{};
    if (data.size() < sizeof header) return tl::unexpected(corrupt("shorter than a header"));
    std::memcpy(&header, data.data(), sizeof header);
    if (header.magic != block_magic) return tl::unexpected(corrupt("wrong magic"));
    if (header.version > block_version)
        return fail(ErrorCode::version,
                    "the event block has format " + std::to_string(header.version) + ", newer than the " +
                        std::to_string(block_version) + " this ingero knows",
                    "read it with the ingero that wrote it, or a newer one");
    const size_t body_at = header_bytes(header.version) + header.entries * entry_bytes(header.version);
    if (data.size() < body_at || data.size() - body_at != header.body_bytes)
        return tl::unexpected(corrupt("wrong length"));
    if (header_checksum(data, body_at) != header.header_checksum) return tl::unexpected(corrupt("header checksum"));
    if (header.version == 0 || header.rows == 0 || header.rows > max_block_rows)
        return tl::unexpected(corrupt("impossible row count"));
    return header;
}

std::string_view body_of(std::string_view data, const Header& header) {
    return data.substr(data.size() - header.body_bytes);
}

bool body_checksum_fits(std::string_view data, const Header& header) {
    const std::string_view body = body_of(data, header);
    return XXH3_64bits(body.data(), body.size()) == header.body_checksum;
}

BlockHeader to_block_header(const Header& header) {
    return {.boot_index = header.boot_index,
            .rows = header.rows,
            .first_start_ns = header.first_start_ns,
            .last_start_ns = header.last_start_ns,
            .max_end_ns = header.max_end_ns,
            .min_sequence = header.min_sequence,
            .max_sequence = header.max_sequence};
}

BlockHeader summarise(uint32_t boot_index, std::span<const Event> events) {
    constexpr uint32_t most = std::numeric_limits<uint32_t>::max();
    BlockHeader header{.boot_index = boot_index,
                       .rows = static_cast<uint32_t>(events.size()),
                       .first_start_ns = events.front().start_ns,
                       .last_start_ns = events.back().start_ns,
                       .max_end_ns = 0,
                       .min_sequence = std::numeric_limits<uint64_t>::max(),
                       .max_sequence = 0,
                       .min_tgid = most,
                       .max_tgid = 0,
                       .min_tid = most,
                       .max_tid = 0};
    for (const Event& event : events) {
        header.max_end_ns = std::max(header.max_end_ns, saturated_end_ns(event));
        header.min_sequence = std::min(header.min_sequence, event.sequence);
        header.max_sequence = std::max(header.max_sequence, event.sequence);
        header.min_tgid = std::min(header.min_tgid, event.tgid);
        header.max_tgid = std::max(header.max_tgid, event.tgid);
        header.min_tid = std::min(header.min_tid, event.tid);
        header.max_tid = std::max(header.max_tid, event.tid);
    }
    return header;
}

void add_to(OpSummary& summary, const Event& event) {
    summary.op = event.op;
    summary.max_ns = std::max(summary.max_ns, event.duration_ns);
    summary.min_ns = summary.rows == 0 ? event.duration_ns : std::min(summary.min_ns, event.duration_ns);
    ++summary.rows;
    summary.errors += event.return_code != 0;
    summary.calls = held_add(summary.calls, event.weight);
    summary.duration_ns = held_add(summary.duration_ns, event.duration_ns);
    summary.calls_duration_ns =
        held_add(summary.calls_duration_ns, held_multiply(event.duration_ns, uint64_t{event.times()}));
}

Result<void> check_truth(const BlockHeader& header, std::span<const OpSummary> ops, std::span<const Event> events) {
    if (!std::is_sorted(events.begin(), events.end(), in_order)) return tl::unexpected(corrupt("rows out of order"));
    BlockHeader truth = summarise(header.boot_index, events);
    // Version 1 does not say them.
    const BlockHeader unsaid;
    if (header.min_tgid == unsaid.min_tgid && header.max_tgid == unsaid.max_tgid && header.min_tid == unsaid.min_tid &&
        header.max_tid == unsaid.max_tid) {
        truth.min_tgid = unsaid.min_tgid;
        truth.max_tgid = unsaid.max_tgid;
        truth.min_tid = unsaid.min_tid;
        truth.max_tid = unsaid.max_tid;
    }
    if (truth != header) return tl::unexpected(corrupt("the header does not describe the rows"));
    std::vector<OpSummary> found(ops.size());
    size_t at = 0;
    for (const Event& event : events) {
        if (ops[at].op != event.op)
            at = static_cast<size_t>(std::lower_bound(ops.begin(), ops.end(), event.op,
                                                      [](const OpSummary& one, OpId op) { return one.op < op; }) -
                                     ops.begin());
        // A decoded row's op is one of the header's.
        add_to(found[at], event);
    }
    if (!std::equal(ops.begin(), ops.end(), found.begin()))
        return tl::unexpected(corrupt("the header does not describe the ops"));
    return {};
}

// By digits of the leading bits, the last first, and what these leave undone by insertion: a few times faster than
// comparing, which counts where every reader of sequences has to.
void order_by_end(std::span<const uint64_t> ends, std::vector<uint16_t>& ret_order) {
    constexpr unsigned row_bits = 12, digit_bits = 10;
    constexpr uint32_t digit_mask = (1 << digit_bits) - 1;
    static_assert(max_block_rows == size_t{1} << row_bits && row_bits + 2 * digit_bits <= 32);
    const auto [least, most] = std::minmax_element(ends.begin(), ends.end());
    const auto width = static_cast<unsigned>(std::bit_width(*most - *least));
    const unsigned left_out = width - std::min(width, 2 * digit_bits);
    std::array<std::array<uint16_t, digit_mask + 1>, 2> places{};
    std::array<uint32_t, max_block_rows> all_keys, all_sorted;
    const std::span keys = std::span(all_keys).first(ends.size()), sorted = std::span(all_sorted).first(ends.size());
    for (size_t row = 0; row < ends.size(); ++row) {
        const auto digits = static_cast<uint32_t>((ends[row] - *least) >> left_out);
        ++places[0][digits & digit_mask];
        ++places[1][digits >> digit_bits];
        keys[row] = digits << row_bits | static_cast<uint32_t>(row);
    }
    for (auto& counts : places) std::exclusive_scan(counts.begin(), counts.end(), counts.begin(), uint16_t{0});
    for (const uint32_t key : keys) sorted[places[0][key >> row_bits & digit_mask]++] = key;
    ret_order.resize(ends.size());
    for (const uint32_t key : sorted)
        ret_order[places[1][key >> (row_bits + digit_bits)]++] = static_cast<uint16_t>(key & (max_block_rows - 1));

    const auto earlier = [&](uint16_t a, uint16_t b) { return ends[a] != ends[b] ? ends[a] < ends[b] : a < b; };
    size_t moves = 0;
    for (size_t i = 1; i < ret_order.size() && moves <= 16 * max_block_rows; ++i) {
        const uint16_t row = ret_order[i];
        size_t at = i;
        for (; at > 0 && ends[ret_order[at - 1]] > ends[row]; --at) ret_order[at] = ret_order[at - 1];
        ret_order[at] = row;
        moves += i - at;
    }
    // Where nearly all ends have the same leading bits.
    if (moves > 16 * max_block_rows) std::sort(ret_order.begin(), ret_order.end(), earlier);
}

void order_by_rows(std::span<const OpSummary> ops, std::vector<uint16_t>& ret_segments) {
    ret_segments.resize(ops.size());
    std::iota(ret_segments.begin(), ret_segments.end(), uint16_t{0});
    std::stable_sort(ret_segments.begin(), ret_segments.end(),
                     [&](uint16_t a, uint16_t b) { return ops[a].rows > ops[b].rows; });
}

}  // namespace layout

uint64_t saturated_end_ns(const Event& event) {
    return layout::held_add(event.start_ns, event.duration_ns);
}

bool overlaps(const Event& event, Window window) {
    return event.start_ns < window.to_ns &&
           (saturated_end_ns(event) > window.from_ns || event.start_ns >= window.from_ns);
}

bool overlaps(const BlockHeader& header, Window window) {
    return header.first_start_ns < window.to_ns &&
           (header.max_end_ns > window.from_ns || header.last_start_ns >= window.from_ns);
}

bool lies_within(const BlockHeader& header, Window window) {
    return header.first_start_ns >= window.from_ns && header.last_start_ns < window.to_ns;
}

Result<BlockHeader> read_block_header(std::string_view data) {
    const auto header = layout::read_header(data);
    if (!header) return tl::unexpected(header.error());
    BlockHeader result = layout::to_block_header(*header);
    if (header->version == 1) return result;
    layout::MoreHeader more{};
    std::memcpy(&more, data.data() + sizeof(layout::Header), sizeof more);
    result.min_tgid = more.min_tgid;
    result.max_tgid = more.max_tgid;
    result.min_tid = more.min_tid;
    result.max_tid = more.max_tid;
    return result;
}

Result<void> decode_block(std::string_view data, std::vector<Event>& ret_events) {
    BlockView view;
    if (auto opened = view.open(data); !opened) return opened;
    const size_t before = ret_events.size();
    if (auto decoded = view.events(ret_events); !decoded) return decoded;
    // A file may come from anywhere, with checksums that fit: what the header promises is what scans rely on.
    auto checked = layout::check_truth(view.header(), view.ops(), std::span(ret_events).subspan(before));
    if (!checked) ret_events.resize(before);
    return checked;
}

Result<std::string> compress_block(std::string_view data) {
    const auto header = layout::read_header(data);
    if (!header) return tl::unexpected(header.error());
    if (header->version == 1) return std::string(data);
    const size_t body_at = data.size() - header->body_bytes;
    if (body_at < layout::header_bytes(header->version)) return std::string(data);
    layout::MoreHeader more{};
    std::memcpy(&more, data.data() + sizeof *header, sizeof more);
    if (more.compression != static_cast<uint8_t>(layout::Compression::none)) return std::string(data);
    if (!layout::body_checksum_fits(data, *header)) return tl::unexpected(layout::corrupt("body checksum"));
    std::string smaller(data.substr(0, body_at));
    smaller.resize(body_at + ZSTD_compressBound(header->body_bytes));
    const size_t written = ZSTD_compress(smaller.data() + body_at, smaller.size() - body_at, data.data() + body_at,
                                         header->body_bytes, zstd_level);
    if (ZSTD_isError(written) || written >= header->body_bytes) return std::string(data);
    smaller.resize(body_at + written);
    layout::Header changed = *header;
    changed.body_bytes = static_cast<uint32_t>(written);
    more.compression = static_cast<uint8_t>(layout::Compression::zstd);
    std::memcpy(smaller.data(), &changed, sizeof changed);
    std::memcpy(smaller.data() + sizeof changed, &more, sizeof more);
    seal_block(smaller);
    return smaller;
}

void seal_block(std::span<char> data) {
    layout::Header header{};
    if (data.size() < sizeof header) return;
    std::memcpy(&header, data.data(), sizeof header);
    const size_t body_at = layout::header_bytes(header.version) + header.entries * layout::entry_bytes(header.version);
    if (data.size() < body_at) return;
    header.body_checksum = XXH3_64bits(data.data() + body_at, data.size() - body_at);
    std::memcpy(data.data(), &header, sizeof header);
    header.header_checksum = header_checksum({data.data(), data.size()}, body_at);
    std::memcpy(data.data(), &header, sizeof header);
}

}  // namespace ingero
