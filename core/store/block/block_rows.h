// Whole rows of an opened block.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/model/event.h"
#include "core/store/block/block_view.h"

namespace ingero {

/// Appends the rows of those segments that are wanted, in order of (start_ns, sequence); nothing on failure. Nothing of
/// the others is decoded, nor whether they are what the header says of them. Errors: corrupt.
Result<void> decode_rows(BlockView& block, const std::function<bool(const OpSummary&)>& wanted,
                         std::vector<Event>& ret_events);

/// The same of some rows of one segment, by their numbers in it.
Result<void> decode_rows(BlockView& block, size_t segment, std::span<const uint16_t> rows,
                         std::vector<Event>& ret_events);

}  // namespace ingero
