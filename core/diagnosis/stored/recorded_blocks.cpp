#include "core/diagnosis/stored/recorded_blocks.h"

#include <algorithm>

#include "core/store/block/block.h"

namespace ingero {

Result<std::vector<RecordedBlock>> recorded_blocks(const StoreSnapshot& snapshot, uint32_t boot_index,
                                                   const Window& window, bool imported) {
    std::vector<RecordedBlock> blocks;
    auto listed = snapshot.scan_blocks(boot_index, window, [&](BlockView& view) {
        const BlockHeader& header = view.header();
        blocks.push_back({imported ? header.last_start_ns : header.max_end_ns, header.min_sequence,
                          header.first_start_ns, lies_within(header, window), view.bytes()});
        return true;
    });
    if (!listed) return tl::unexpected(listed.error());
    std::sort(blocks.begin(), blocks.end());
    return blocks;
}

Result<void> decode_within(const RecordedBlock& block, const Window& window, std::vector<Event>& ret_rows) {
    ret_rows.clear();
    if (auto decoded = decode_block(block.bytes, ret_rows); !decoded) return decoded;
    std::erase_if(ret_rows, [&](const Event& event) { return !overlaps(event, window); });
    return {};
}

}  // namespace ingero
