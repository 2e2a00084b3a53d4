#include "core/store/upkeep.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "core/store/block/block_view.h"
#include "core/store/file/tables.h"

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

std::vector<BlockRow> make_blocks(BlockEncoder& encoder, uint32_t boot_index, std::span<const Event> events,
                                  const UserOf& user_of) {
    struct Place {
        uint32_t user;
        uint64_t start_ns;
        const Event* event;
    };
    std::vector<Place> order;
    order.reserve(events.size());
    ProcessKey process;
    uint32_t user = user_of(process);
    for (const Event& event : events) {
        if (const ProcessKey own{event.tgid, event.process_start_ns}; own != process) user = user_of(process = own);
        order.push_back({user, event.start_ns, &event});
    }
    std::sort(order.begin(), order.end(), [](const Place& a, const Place& b) {
        return std::tie(a.user, a.start_ns, a.event->sequence) < std::tie(b.user, b.start_ns, b.event->sequence);
    });
    std::vector<BlockRow> blocks;
    std::vector<Event> rows;
    for (size_t at = 0; at < order.size(); at += rows.size()) {
        rows.clear();
        uint64_t first_sequence = UINT64_MAX;
        for (size_t i = at; i < order.size() && rows.size() < max_block_rows && order[i].user == order[at].user; ++i) {
            rows.push_back(*order[i].event);
            first_sequence = std::min(first_sequence, rows.back().sequence);
        }
        blocks.push_back({encode_key(EventKey{boot_index, rows.front().start_ns, first_sequence}),
                          encoder.encode(boot_index, rows), order[at].user});
    }
    return blocks;
}

int Upkeep::load(const Environment& environment, MDB_txn* transaction, const Holders& holders) {
    known_.clear();
    taken_ = 0;
    rest_.reset();
    more_ = true;
    std::vector<std::string> keys;
    for (const auto& [user, holder] : holders.users()) {
        if (const int rc = holders.last_blocks(environment, transaction, user, max_run_blocks, keys)) return rc;
        std::vector<std::pair<uint64_t, Known>> newest;
        for (std::string& key : keys) {
            const std::string_view bytes = find_block(environment, transaction, key);
            const auto header = read_block_header(bytes);
            if (!header || (!newest.empty() && newest.front().second.boot_index != header->boot_index)) break;
            newest.emplace_back(header->min_sequence,
                                Known{std::move(key), header->boot_index, header->rows, bytes.size()});
        }
        std::sort(newest.begin(), newest.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        for (auto& [sequence, block] : newest) known_[user].push_back(std::move(block));
    }
    return 0;
}

void Upkeep::note(const std::vector<BlockRow>& blocks) {
    for (const BlockRow& block : blocks)
        if (const auto header = read_block_header(block.bytes))
            known_[block.user].push_back({block.key, header->boot_index, header->rows, block.bytes.size()});
}

size_t Upkeep::take_run(const std::deque<Known>& known, uint64_t max_bytes) {
    size_t rows = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < known.size(); ++i) {
        const Known& block = known[i];
        rows += block.rows;
        bytes += block.bytes;
        const bool other_boot = block.boot_index != known.front().boot_index;
        if (other_boot || rows > max_rows || bytes > max_bytes || i == max_run_blocks) return std::max<size_t>(i, 1);
    }
    return 0;
}

Rewrite Upkeep::plan_merge(const Environment& environment, MDB_txn* transaction, BlockEncoder& encoder,
                           uint64_t max_bytes) {
    taken_ = 0;
    rest_.reset();
    for (size_t left = known_.size(); left != 0 && taken_ == 0; --left) {
        auto user = known_.upper_bound(taken_of_);  // in turn
        if (user == known_.end()) user = known_.begin();
        taken_of_ = user->first;
        auto& known = user->second;
        // In front of a full block there is nothing left that it could be merged with.
        while (!known.empty() && known.front().rows == max_block_rows) known.pop_front();
        taken_ = take_run(known, max_bytes);
        if (known.empty()) known_.erase(user);
    }
    if (taken_ == 0) return {};
    more_ = true;
    const auto& known = known_.at(taken_of_);
    size_t rows = 0;
    for (size_t i = 0; i < taken_; ++i) rows += known[i].rows;
    // Moving full blocks about only to make one less of many is not worth its writing.
    const size_t fewest = (rows + max_block_rows - 1) / max_block_rows;
    if (taken_ - fewest < (taken_ + 4) / 5) return {};
    std::vector<Event> events;
    Rewrite rewrite;
    for (size_t i = 0; i < taken_; ++i) {
        // What has been evicted meanwhile, or is damaged, stays as it is, and so do its neighbours.
        const std::string_view bytes = find_block(environment, transaction, known[i].key);
        if (bytes.empty() || !decode_block(bytes, events)) return {};
        rewrite.replaced.push_back(known[i].key);
    }
    if (events.size() != rows) return {};
    const uint32_t boot_index = known.front().boot_index;
    rewrite.blocks = make_blocks(encoder, boot_index, events, [&](const ProcessKey&) { return taken_of_; });
    if (const size_t left = rows % max_block_rows; left != 0)
        rest_ = Known{rewrite.blocks.back().key, boot_index, static_cast<uint32_t>(left),
                      rewrite.blocks.back().bytes.size()};
    return rewrite;
}

Rewrite Upkeep::plan_compression(const Environment& environment, MDB_txn* transaction, const Holders& holders,
                                 const Now& now) {
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
                rewrite.blocks.push_back(
                    {std::string(key), std::move(*smaller), holders.user_of(environment, transaction, key)});
            }
        }
        more_ = ++seen == max_headers || rewrite.blocks.size() == max_compressed;
        return !more_;
    });
    return rewrite;
}

Rewrite Upkeep::plan(const Environment& environment, MDB_txn* transaction, const Holders& holders,
                     BlockEncoder& encoder, const Now& now) {
    more_ = false;
    compressing_up_to_ = compressed_up_to_;
    if (auto merge = plan_merge(environment, transaction, encoder, now.max_bytes); taken_ != 0) return merge;
    return plan_compression(environment, transaction, holders, now);
}

void Upkeep::done() {
    if (taken_ != 0) {
        auto& known = known_[taken_of_];
        known.erase(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(taken_));
        if (rest_) known.push_front(std::move(*rest_));
    }
    taken_ = 0;
    rest_.reset();
    compressed_up_to_ = compressing_up_to_;
}

}  // namespace ingero
