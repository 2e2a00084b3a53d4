#include "core/sql/events/event_index.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/sql/catalogue.h"

namespace ingero {

int64_t cgroup_number(std::string_view path) {
    constexpr uint64_t positive = std::numeric_limits<int64_t>::max();
    return path.empty() ? 0 : static_cast<int64_t>(XXH3_64bits(path.data(), path.size()) & positive);
}

Result<EventIndex> EventIndex::read(const StoreSnapshot& snapshot, const Filter& filter,
                                    const std::optional<BootClock>& fixed) {
    EventIndex index;
    index.snapshot_ = &snapshot;
    index.filter_ = filter;
    auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());
    for (Process& process : *processes) {
        const ProcessKey key = process.key;
        const int64_t cgroup = cgroup_number(process.cgroup);
        index.processes_.emplace(key, ProcessEntry{std::move(process), cgroup});
    }

    std::map<OpId, uint16_t> numbers;
    std::vector<OpId> ids;
    std::vector<std::pair<int, uint16_t>> latest;  // op and its number, by the segment's place in its block
    index.blocks_.reserve(snapshot.figures().blocks);
    for (const BootWindow& window : boot_windows(snapshot, filter.window, fixed)) {
        const auto boot = static_cast<uint32_t>(index.boots_.size());
        std::string node;
        for (const Session& session : snapshot.sessions())
            if (session.boot_index == window.boot_index) node = session.node;
        if (boot > 0 && node != index.boots_.front().node) index.one_node_ = false;
        index.boots_.push_back({window, std::move(node)});
        const auto scanned = snapshot.scan_blocks(window.boot_index, window.monotonic, [&](BlockView& view) {
            Block block{.bytes = view.bytes(),
                        .header = view.header(),
                        .boot = boot,
                        .inside = lies_within(view.header(), window.monotonic),
                        .first_segment = static_cast<uint32_t>(index.segments_.size()),
                        .segments = static_cast<uint32_t>(view.ops().size())};
            for (uint16_t number = 0; number < block.segments; ++number) {
                const OpSummary& op = view.ops()[number];
                // Blocks that follow each other mostly have the same ops.
                if (number >= latest.size()) latest.emplace_back(-1, uint16_t{0});
                if (latest[number].first != op.op) {
                    const auto [at, added] = numbers.try_emplace(op.op, static_cast<uint16_t>(ids.size()));
                    if (added) ids.push_back(op.op);
                    latest[number] = *at;
                }
                index.segments_.push_back({.block = static_cast<uint32_t>(index.blocks_.size()),
                                           .number = number,
                                           .op = latest[number].second,
                                           .rows = op.rows,
                                           .errors = op.errors != 0,
                                           .min_ns = op.min_ns,
                                           .max_ns = op.max_ns});
            }
            index.rows_ += block.header.rows;
            index.blocks_.push_back(block);
            return true;
        });
        if (!scanned) return tl::unexpected(scanned.error());
    }
    // From the order in which they were met to that of their ids.
    std::vector<uint16_t> place(ids.size());
    for (const auto& [id, number] : numbers) {
        place[number] = static_cast<uint16_t>(index.ops_.size());
        index.ops_.push_back(
            {.id = id, .name = op_name(id), .source = sql_source_name(op_source(id)), .known = find_op(id)});
    }
    for (Segment& segment : index.segments_) segment.op = place[segment.op];
    return index;
}

const EventIndex::ProcessEntry* EventIndex::process(const ProcessKey& key) const {
    const auto found = processes_.find(key);
    return found == processes_.end() ? nullptr : &found->second;
}

bool EventIndex::shows(const ProcessKey& key) const {
    if (filter_.pid && key.pid != *filter_.pid) return false;
    if (!filter_.uid) return true;
    const ProcessEntry* found = process(key);
    return found && found->process.uid == *filter_.uid;
}

Result<std::optional<std::vector<uint32_t>>> EventIndex::pids(size_t most) const {
    if (pids_) return *pids_;
    std::set<uint32_t> found;
    BlockView view;
    std::vector<uint64_t> values;
    size_t decoded_blocks = 0;
    for (const Block& block : blocks_) {
        if (block.header.min_tgid == block.header.max_tgid) {
            found.insert(visible_pid(block.header.min_tgid));
        } else if (++decoded_blocks <= most_decoded_blocks) {
            if (auto opened = view.open(block.bytes); !opened) return tl::unexpected(opened.error());
            for (size_t segment = 0; segment < view.ops().size(); ++segment) {
                values.resize(view.ops()[segment].rows);
                if (auto decoded = view.column(ColumnId::tgid, segment, values); !decoded)
                    return tl::unexpected(decoded.error());
                uint64_t last = UINT64_MAX;
                for (const uint64_t pid : values) {
                    if (pid != last) found.insert(visible_pid(static_cast<uint32_t>(pid)));
                    last = pid;
                    if (found.size() > most) break;
                }
            }
        }
        if (found.size() > most || decoded_blocks > most_decoded_blocks) {
            pids_.emplace();
            return std::optional<std::vector<uint32_t>>();
        }
    }
    pids_ = std::vector<uint32_t>(found.begin(), found.end());
    return *pids_;
}

const std::string& EventIndex::kernel_name(const ProcessKey& process, uint64_t function) const {
    if (!kernels_) {
        auto read = KernelNames::read(*snapshot_);
        kernels_ = read ? std::move(*read) : KernelNames();
    }
    const uint32_t number = kernels_->number(process, function);
    const auto [at, added] = kernel_texts_.try_emplace(number);
    if (added) at->second = kernels_->text(number);
    return at->second;
}

}  // namespace ingero
