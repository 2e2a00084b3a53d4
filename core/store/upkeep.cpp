#include "core/store/upkeep.h"

#include <algorithm>
#include <limits>

#include "core/store/block_view.h"
#include "core/store/tables.h"

namespace ingero {

namespace {

/// As many blocks are merged at once at most, so that a quiet store's small ones do not pile up.
constexpr size_t max_run_blocks = 64;
/// Headers looked at in one step.
constexpr size_t max_headers = 512;
constexpr size_t max_compressed = 4;
constexpr size_t page_bytes = 4096;

/// Values of this size have pages of their own in LMDB, less a header of 16 bytes.
size_t pages_of(size_t bytes) {
    return (bytes + 16 + page_bytes - 1) / page_bytes;
}

std::string_view find_block(const Environment& environment, MDB_txn* transaction, std::string_view key) {
    MDB_val raw_key = to_value(key);
    MDB_val value{};
    if (mdb_get(transaction, environment.tables().events, &raw_key, &value) != 0) return {};
    return to_text(value);
}

}  // namespace

std::vector<BlockRow> make_blocks(BlockEncoder& encoder, uint32_t boot_index, std::span<const Event> events) {
    struct Place {
        uint64_t start_ns;
        const Event* event;
    };
    std::vector<Place> order;
    order.reserve(events.size());
    for (const Event& event : events) order.push_back({event.start_ns, &event});
    std::sort(order.begin(), order.end(), [](const Place& a, const Place& b) {
        return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.event->sequence < b.event->sequence;
    });
    std::vector<BlockRow> blocks;
    std::vector<Event> rows(std::min(max_block_rows, events.size()));
    for (size_t at = 0; at < order.size(); at += rows.size()) {
        rows.resize(std::min(max_block_rows, order.size() - at));
        uint64_t first_sequence = order[at].event->sequence;
        for (size_t i = 0; i < rows.size(); ++i) {
            rows[i] = *order[at + i].event;
            first_sequence = std::min(first_sequence, rows[i].sequence);
        }
        blocks.emplace_back(encode_key(EventKey{boot_index, rows.front().start_ns, first_sequence}),
                            encoder.encode(boot_index, rows));
    }
    return blocks;
}

int Upkeep::load(const Environment& environment, MDB_txn* transaction) {
    known_.clear();
    taken_ = 0;
    rest_.reset();
    more_ = true;
    Cursor cursor;
    if (const int rc = cursor.open(transaction, environment.tables().events)) return rc;
    std::vector<std::pair<uint64_t, Known>> newest;
    MDB_val key{};
    MDB_val value{};
    int rc = cursor.get(key, value, MDB_LAST);
    for (; rc == 0 && newest.size() < max_run_blocks; rc = cursor.get(key, value, MDB_PREV)) {
        const auto header = read_block_header(to_text(value));
        if (!header || (!newest.empty() && newest.front().second.boot_index != header->boot_index)) break;
        newest.emplace_back(header->min_sequence,
                            Known{std::string(to_text(key)), header->boot_index, header->rows, value.mv_size});
    }
    std::sort(newest.begin(), newest.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [sequence, block] : newest) known_.push_back(std::move(block));
    return rc == MDB_NOTFOUND ? 0 : rc;
}

void Upkeep::note(const std::vector<BlockRow>& blocks) {
    for (const auto& [key, bytes] : blocks)
        if (const auto header = read_block_header(bytes))
            known_.push_back({key, header->boot_index, header->rows, bytes.size()});
}

size_t Upkeep::take_run(uint64_t max_bytes) const {
    size_t rows = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < known_.size(); ++i) {
        const Known& block = known_[i];
        rows += block.rows;
        bytes += block.bytes;
        const bool other_boot = block.boot_index != known_.front().boot_index;
        if (other_boot || rows > max_rows || bytes > max_bytes || i == max_run_blocks) return std::max<size_t>(i, 1);
    }
    return 0;
}

Rewrite Upkeep::plan_merge(const Environment& environment, MDB_txn* transaction, BlockEncoder& encoder,
                           uint64_t max_bytes) {
    // In front of a full block there is nothing left that it could be merged with.
    while (!known_.empty() && known_.front().rows == max_block_rows) known_.pop_front();
    taken_ = take_run(max_bytes);
    rest_.reset();
    if (taken_ == 0) return {};
    more_ = true;
    size_t rows = 0;
    for (size_t i = 0; i < taken_; ++i) rows += known_[i].rows;
    // Moving full blocks about only to make one less of many is not worth its writing.
    const size_t fewest = (rows + max_block_rows - 1) / max_block_rows;
    if (taken_ - fewest < (taken_ + 4) / 5) return {};
    std::vector<Event> events;
    Rewrite rewrite;
    for (size_t i = 0; i < taken_; ++i) {
        // What has been evicted meanwhile, or is damaged, stays as it is, and so do its neighbours.
        const std::string_view bytes = find_block(environment, transaction, known_[i].key);
        if (bytes.empty() || !decode_block(bytes, events)) return {};
        rewrite.replaced.push_back(known_[i].key);
    }
    if (events.size() != rows) return {};
    const uint32_t boot_index = known_.front().boot_index;
    rewrite.blocks = make_blocks(encoder, boot_index, events);
    if (const size_t left = rows % max_block_rows; left != 0)
        rest_ = Known{rewrite.blocks.back().first, boot_index, static_cast<uint32_t>(left),
                      rewrite.blocks.back().second.size()};
    return rewrite;
}

Rewrite Upkeep::plan_compression(const Environment& environment, MDB_txn* transaction, const Now& now) {
    Rewrite rewrite;
    compressing_up_to_ = compressed_up_to_;
    size_t seen = 0;
    BlockView view;
    for_each_row(transaction, environment.tables().events, compressed_up_to_, [&](auto key, auto value) {
        if (key == compressed_up_to_) return true;
        const auto opened = view.open(value);
        if (opened && view.header().boot_index >= now.boot_index) {
            const uint64_t end_ns = view.header().max_end_ns;
            if (view.header().boot_index > now.boot_index || end_ns > now.now_ns ||
                now.now_ns - end_ns < now.compress_after_ns)
                return false;
        }
        compressing_up_to_ = key;
        if (opened && !view.is_compressed()) {
            auto smaller = compress_block(value);
            if (smaller && pages_of(smaller->size()) < pages_of(value.size())) {
                rewrite.replaced.emplace_back(key);
                rewrite.blocks.emplace_back(key, std::move(*smaller));
            }
        }
        more_ = ++seen == max_headers || rewrite.blocks.size() == max_compressed;
        return !more_;
    });
    return rewrite;
}

Rewrite Upkeep::plan(const Environment& environment, MDB_txn* transaction, BlockEncoder& encoder, const Now& now) {
    more_ = false;
    compressing_up_to_ = compressed_up_to_;
    if (auto merge = plan_merge(environment, transaction, encoder, now.max_bytes); taken_ != 0) return merge;
    return plan_compression(environment, transaction, now);
}

void Upkeep::done() {
    known_.erase(known_.begin(), known_.begin() + static_cast<std::ptrdiff_t>(taken_));
    if (rest_) known_.push_front(std::move(*rest_));
    taken_ = 0;
    rest_.reset();
    compressed_up_to_ = compressing_up_to_;
}

}  // namespace ingero
