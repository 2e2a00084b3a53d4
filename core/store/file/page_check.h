// LMDB trusts its file: a truncated one kills the process with SIGBUS, a damaged page sends it outside the page. So
// before a store is trusted, its pages are walked with pread and every count and offset LMDB would follow is checked.
// Event blocks themselves are not read here: they carry checksums. It makes system calls that a worker's sandbox kills
// for: walk before that.
#pragma once

#include <cstdint>
#include <functional>

#include "core/model/result.h"

namespace ingero {

/// Which pages of a store are read before it is trusted.
enum class PageCheck {
    all,
    headers,  ///< the two meta pages: whoever holds the store's lock has read all of them
};

/// Called every few pages while all are read, which may take minutes: so many of so many are done. False: stop.
using PageProgress = std::function<bool(uint64_t done, uint64_t all)>;

/// The two meta pages and the file's length, before anything is mapped. An empty file is not_found. Errors: corrupt,
/// not_found, internal (the file cannot be read).
Result<void> check_file(int data_fd);

/// Every page that transaction `id` can reach, and the list of free pages. The caller holds a read transaction of this
/// id, so that no writer reuses them meanwhile. Empty where the meta page of that transaction is already overwritten by
/// a later one: begin another and try again. Errors: corrupt, internal; busy (`progress` said stop).
Result<bool> check_pages(int data_fd, uint64_t transaction_id, const PageProgress& progress = {});

}  // namespace ingero
