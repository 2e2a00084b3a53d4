#include "core/store/retention/holders.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/store/file/tables.h"

namespace ingero {

namespace {

/// Zero, or the bytes that the row says.
uint64_t bytes_of(std::string_view key, std::string_view value) {
    const auto content = unseal(key, value);
    return (content ? decode_number(*content) : std::nullopt).value_or(0);
}

std::string held_key(uint32_t user, std::string_view block) {
    return encode_key(user).append(block);
}

/// The row of a block, or MDB_NOTFOUND.
int find(const Environment& environment, MDB_txn* txn, const std::string& key, uint64_t& ret_bytes) {
    MDB_val raw_key = to_value(key);
    MDB_val value{};
    const int rc = mdb_get(txn, environment.tables().held, &raw_key, &value);
    if (rc == 0) ret_bytes = bytes_of(key, to_text(value));
    return rc;
}

}  // namespace

int Holders::load(const Environment& environment, MDB_txn* transaction) {
    users_.clear();
    if (const int rc = for_each_row(transaction, environment.tables().held, {}, [&](auto key, auto value) {
            if (const auto fields = decode_held_key(key)) users_[fields->user].bytes += bytes_of(key, value);
            return true;
        }))
        return rc;
    return for_each_row(transaction, environment.tables().gaps, {}, [&](auto key, auto value) {
        const auto fields = decode_gap_key(key);
        if (!fields || fields->reason != GapReason::gave_way) return true;
        const auto content = unseal(key, value);
        if (const auto row = content ? decode_gap(*content) : std::nullopt; row && !is_of_anyone(*row))
            if (const auto user = users_.find(row->uid); user != users_.end())
                user->second.gave_way = Holder::GaveWay{fields->boot_index, {row->from_ns, row->to_ns}};
        return true;
    });
}

int Holders::add(const Environment& environment, MDB_txn* transaction, uint32_t user, std::string_view block,
                 uint64_t bytes) {
    const std::string key = held_key(user, block);
    const int rc = put_sealed(transaction, environment.tables().held, key, encode_number(bytes));
    if (rc == 0) users_[user].bytes += bytes;
    return rc;
}

int Holders::remove(const Environment& environment, MDB_txn* transaction, std::string_view block, uint32_t& ret_user) {
    ret_user = user_of(environment, transaction, block);
    const std::string key = held_key(ret_user, block);
    uint64_t bytes = 0;
    int rc = find(environment, transaction, key, bytes);
    if (rc == MDB_NOTFOUND) return 0;
    MDB_val raw_key = to_value(key);
    if (rc == 0) rc = mdb_del(transaction, environment.tables().held, &raw_key, nullptr);
    if (rc != 0) return rc;
    Holder& holder = users_[ret_user];
    holder.bytes -= std::min(holder.bytes, bytes);
    return 0;
}

uint32_t Holders::user_of(const Environment& environment, MDB_txn* transaction, std::string_view block) const {
    uint64_t ignored = 0;
    for (const auto& [user, holder] : users_)
        if (find(environment, transaction, held_key(user, block), ignored) == 0) return user;
    return nobody;
}

uint64_t Holders::bytes() const {
    uint64_t sum = 0;
    for (const auto& [user, holder] : users_) sum += holder.bytes;
    return sum;
}

void Holders::forget(uint32_t boot_index, uint64_t before_ns) {
    for (auto& [user, holder] : users_)
        if (const auto& gone = holder.gave_way;
            gone && std::tie(gone->boot_index, gone->window.to_ns) <= std::tie(boot_index, before_ns))
            holder.gave_way.reset();
}

std::optional<uint32_t> Holders::who_has_most() const {
    const auto most = std::max_element(users_.begin(), users_.end(),
                                       [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    if (most == users_.end() || most->second.bytes == 0) return std::nullopt;
    return most->first;
}

int Holders::first_blocks(const Environment& environment, MDB_txn* transaction, uint32_t user, size_t most,
                          std::vector<std::string>& ret_keys) const {
    ret_keys.clear();
    return for_each_row(transaction, environment.tables().held, encode_key(user), [&](auto key, auto) {
        const auto fields = decode_held_key(key);
        if (ret_keys.size() == most || !fields || fields->user != user) return false;
        ret_keys.push_back(encode_key(fields->block));
        return true;
    });
}

int Holders::last_blocks(const Environment& environment, MDB_txn* transaction, uint32_t user, size_t most,
                         std::vector<std::string>& ret_keys) const {
    ret_keys.clear();
    if (environment.tables().held == Tables::no_table) return 0;
    Cursor cursor;
    if (const int rc = cursor.open(transaction, environment.tables().held)) return rc;
    const std::string end = encode_key(HeldKey{user, {UINT32_MAX, UINT64_MAX, UINT64_MAX}});
    MDB_val key = to_value(end);
    MDB_val value{};
    int rc = cursor.get(key, value, MDB_SET_RANGE);
    rc = cursor.get(key, value, rc == 0 ? MDB_PREV : MDB_LAST);
    for (; rc == 0 && ret_keys.size() < most; rc = cursor.get(key, value, MDB_PREV)) {
        const auto fields = decode_held_key(to_text(key));
        if (!fields || fields->user != user) break;
        ret_keys.push_back(encode_key(fields->block));
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int Holders::first_of_others(const Environment& environment, MDB_txn* transaction, uint32_t user,
                             std::optional<EventKey>& ret_first) const {
    ret_first.reset();
    std::vector<std::string> first;
    for (const auto& [other, holder] : users_) {
        if (other == user || holder.bytes == 0) continue;
        if (const int rc = first_blocks(environment, transaction, other, 1, first)) return rc;
        const auto key = first.empty() ? std::nullopt : decode_event_key(first.front());
        if (key && (!ret_first || std::tie(key->boot_index, key->first_start_ns) <
                                      std::tie(ret_first->boot_index, ret_first->first_start_ns)))
            ret_first = key;
    }
    return 0;
}

}  // namespace ingero
