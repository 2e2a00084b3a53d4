// Copies of a store's data file, written to a descriptor that somebody else opened.
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <string>

#include "core/model/result.h"

namespace ingero {

class Environment;

/// The pages up to the last one that the read transaction knows, as they are, and headers that name this transaction:
/// what a reader or a writer finds is what that transaction sees. Writes with pwrite from 0 on; does not sync. The
/// bytes written. While it runs the transaction holds old pages back: where a writer runs short of room for that, the
/// copy gives way. Errors: limit (it gave way), busy (a transaction so old that its header is gone: begin another),
/// internal (errno in the message).
Result<uint64_t> copy_pages(const Environment& environment, MDB_txn* transaction, int fd);

/// A closed store without its free pages, written from 0 on; does not sync. The bytes written. Errors: those of
/// StoreReader::open; internal.
Result<uint64_t> compact_store(const std::string& directory, int fd);

}  // namespace ingero
