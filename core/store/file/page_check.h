// LMDB trusts its file: a truncated one kills the process with SIGBUS, a damaged page sends it outside the page. So
// before a store is trusted, its pages are walked with pread and every count and offset LMDB would follow is checked.
// Event blocks themselves are not read here: they carry checksums. It makes system calls that a worker's sandbox kills
// for: walk before that.
#pragma once

#include <cstdint>
#include <optional>

#include "core/model/result.h"

namespace ingero {

/// Which pages of a store are read before it is trusted.
enum class PageCheck {
    all,
    headers,  ///< the two meta pages: whoever holds the store's lock has read all of them
};

/// The two meta pages and the file's length, before anything is mapped. An empty file is not_found. Errors: corrupt,
/// not_found, internal (the file cannot be read).
Result<void> check_file(int data_fd);

/// Every page that transaction `id` can reach, and the list of free pages. The caller holds a read transaction of this
/// id, so that no writer reuses them meanwhile. Empty where the meta page of that transaction is already overwritten by
/// a later one: begin another and try again. Errors: corrupt, internal.
Result<bool> check_pages(int data_fd, uint64_t transaction_id);

}  // namespace ingero
