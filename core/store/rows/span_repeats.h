// Spans that were reported before: a program that reconnects sends again what was not acknowledged to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model/result.h"
#include "core/store/file/environment.h"
#include "core/store/rows/history.h"

namespace ingero {

/// Of `spans`, in their order, those that are in the store as rows of this boot already, or come earlier in the list:
/// same kind, id, start, end, process, scope, labels and values. By place in the list, ascending. Of many rows that
/// begin at the same time only the latest are looked at. Errors: corrupt, internal.
Result<std::vector<size_t>> find_repeats(const Environment& environment, MDB_txn* transaction, uint32_t boot_index,
                                         std::span<const SpanRow> spans);

}  // namespace ingero
