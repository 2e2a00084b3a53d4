#include "core/store/file/tables.h"

#include <optional>
#include <string>

#include "core/store/rows/rows.h"

namespace ingero {

namespace {

constexpr const char* damaged_hint =
    "restore it from a backup; or stop ingerod, rename the directory, and start ingerod: it creates a new store";

auto not_ours() {
    return fail(ErrorCode::corrupt, "this is not an ingero event store", "name the directory that holds the store");
}

/// The content of a row of "meta"; empty where it is absent or its seal does not fit.
std::optional<std::string_view> read_meta(MDB_txn* txn, MDB_dbi meta, std::string_view name) {
    MDB_val key = to_value(name);
    MDB_val value{};
    if (mdb_get(txn, meta, &key, &value) != 0) return std::nullopt;
    return unseal(name, to_text(value));
}

uint32_t read_id(MDB_txn* txn, MDB_dbi meta, std::string_view name) {
    const auto content = read_meta(txn, meta, name);
    return static_cast<uint32_t>((content ? decode_number(*content) : std::nullopt).value_or(0));
}

}  // namespace

Result<uint64_t> open_layout(Environment& environment) {
    auto txn = environment.begin_read();
    if (!txn) return tl::unexpected(txn.error());
    // The other tables may differ in a newer layout: look at the version before them.
    MDB_dbi meta = 0;
    if (mdb_dbi_open(txn->get(), "meta", 0, &meta) != 0) return not_ours();
    if (read_meta(txn->get(), meta, application_key) != application_name) return not_ours();
    const auto content = read_meta(txn->get(), meta, layout_key);
    const auto version = content ? decode_number(*content) : std::nullopt;
    if (!version || *version == 0)
        return fail(ErrorCode::corrupt, "the event store's layout version is damaged", damaged_hint);
    if (*version > store_layout_version)
        return fail(ErrorCode::version,
                    "the event store has layout " + std::to_string(*version) + ", newer than the " +
                        std::to_string(store_layout_version) + " this ingero knows",
                    "use the ingero that wrote it, or a newer one; nothing was changed");
    int rc = environment.open_tables(txn->get(), false);
    if (rc == 0) rc = txn->commit();  // keeps the tables open
    if (rc != 0) return tl::unexpected(lmdb_error("cannot read the event store", rc));
    return *version;
}

int for_each_row(MDB_txn* transaction, MDB_dbi table, std::string_view from,
                 const std::function<bool(std::string_view, std::string_view)>& visit) {
    if (table == Tables::no_table) return 0;
    Cursor cursor;
    if (const int rc = cursor.open(transaction, table)) return rc;
    MDB_val key = to_value(from);
    MDB_val value{};
    int rc = cursor.get(key, value, from.empty() ? MDB_FIRST : MDB_SET_RANGE);
    for (; rc == 0; rc = cursor.get(key, value, MDB_NEXT))
        if (!visit(to_text(key), to_text(value))) return 0;
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int put(MDB_txn* transaction, MDB_dbi table, std::string_view key, std::string_view value, unsigned flags) {
    MDB_val raw_key = to_value(key);
    MDB_val raw_value = to_value(value);
    return mdb_put(transaction, table, &raw_key, &raw_value, flags);
}

int put_sealed(MDB_txn* transaction, MDB_dbi table, std::string_view key, std::string_view content) {
    return put(transaction, table, key, seal(key, content));
}

Result<SessionMap> read_sessions(const Environment& environment, MDB_txn* transaction) {
    SessionMap sessions;
    bool damaged = false;
    const int rc = for_each_row(transaction, environment.tables().sessions, {}, [&](auto key, auto value) {
        const auto number = decode_number_key(key);
        const auto content = unseal(key, value);
        auto session = content ? decode_session(*content) : std::nullopt;
        damaged = !number || !session;
        if (!damaged) sessions.emplace(*number, std::move(*session));
        return !damaged;
    });
    if (rc != 0) return tl::unexpected(lmdb_error("cannot read the sessions", rc));
    if (damaged) return fail(ErrorCode::corrupt, "a session row of the event store is damaged", damaged_hint);
    return sessions;
}

Result<uint64_t> read_last_sequence(const Environment& environment, MDB_txn* transaction) {
    const auto content = read_meta(transaction, environment.tables().meta, last_sequence_key);
    const auto number = content ? decode_number(*content) : std::nullopt;
    if (!number) return fail(ErrorCode::corrupt, "the event store's last sequence is damaged", damaged_hint);
    return *number;
}

uint64_t read_last_row(const Environment& environment, MDB_txn* transaction) {
    const auto content = read_meta(transaction, environment.tables().meta, last_row_key);
    return (content ? decode_number(*content) : std::nullopt).value_or(0);
}

Result<StoreFigures> read_figures(const Environment& environment, MDB_txn* transaction, const SessionMap& sessions) {
    StoreFigures figures;
    const auto sequence = read_last_sequence(environment, transaction);
    if (!sequence) return tl::unexpected(sequence.error());
    figures.last_sequence = *sequence;
    figures.bytes = environment.used_file_bytes();
    MDB_stat stat{};
    if (const int rc = mdb_stat(transaction, environment.tables().events, &stat))
        return tl::unexpected(lmdb_error("cannot read the event store", rc));
    figures.blocks = stat.ms_entries;
    std::optional<EventKey> oldest;
    for_each_row(transaction, environment.tables().events, {}, [&](auto key, auto) {
        oldest = decode_event_key(key);
        return false;
    });
    figures.last_stack = read_id(transaction, environment.tables().meta, last_stack_key);
    figures.last_file = read_id(transaction, environment.tables().meta, last_file_key);
    // Of a boot's sessions the last one's latest clock: a clock set right after the start counts for all of it.
    for (const auto& [number, session] : sessions)
        if (oldest && session.boot_index == oldest->boot_index)
            figures.oldest_realtime_ns = session.latest_clock.to_realtime(oldest->first_start_ns);
    return figures;
}

}  // namespace ingero
