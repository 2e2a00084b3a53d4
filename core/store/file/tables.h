// What writer and reader both do with an open environment: check the layout, walk tables, read sessions and figures.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>

#include "core/store/file/environment.h"
#include "core/store/store.h"

namespace ingero {

/// By their number in the store, which is the order of their start.
using SessionMap = std::map<uint32_t, Session>;

/// Refuses what is not a store or has a newer layout, then opens the tables; the layout's version. Errors: corrupt,
/// version, internal.
Result<uint64_t> open_layout(Environment& environment);

/// Calls `visit` with key and value, from the first key at or after `from`, until it returns false. Returns an LMDB
/// code, 0 at the end of the table.
int for_each_row(MDB_txn* transaction, MDB_dbi table, std::string_view from,
                 const std::function<bool(std::string_view, std::string_view)>& visit);

/// Each an LMDB code. What was there of that key is replaced.
int put(MDB_txn* transaction, MDB_dbi table, std::string_view key, std::string_view value, unsigned flags = 0);
int put_sealed(MDB_txn* transaction, MDB_dbi table, std::string_view key, std::string_view content);

Result<SessionMap> read_sessions(const Environment& environment, MDB_txn* transaction);
/// The highest number of a span, an incident's row or a state; 0 where there was none.
uint64_t read_last_row(const Environment& environment, MDB_txn* transaction);
Result<uint64_t> read_last_sequence(const Environment& environment, MDB_txn* transaction);
/// All but cap_bytes and events_dropped_for_space, which only a writer knows.
Result<StoreFigures> read_figures(const Environment& environment, MDB_txn* transaction, const SessionMap& sessions);

}  // namespace ingero
