// Thin owners of LMDB's handles, and the one place where its flags and error codes are dealt with.
#pragma once

#include <lmdb.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/model/result.h"
#include "core/store/file/page_check.h"

namespace ingero {

/// "what: why" of an LMDB or errno code, with the code a caller can act on: corrupt, version, limit or internal.
Error lmdb_error(std::string_view what, int rc);

/// No room: the map, the disk, a quota or a file size limit.
bool is_space_error(int rc);

inline std::string_view to_text(const MDB_val& value) {
    return {static_cast<const char*>(value.mv_data), value.mv_size};
}
/// LMDB does not write through this.
inline MDB_val to_value(std::string_view text) {
    return {text.size(), const_cast<char*>(text.data())};
}

/// Aborts unless committed.
class Transaction {
  public:
    Transaction() = default;
    explicit Transaction(MDB_txn* txn) : txn_(txn) {}
    Transaction(Transaction&& other) noexcept : txn_(std::exchange(other.txn_, nullptr)) {}
    Transaction& operator=(Transaction&& other) noexcept {
        std::swap(txn_, other.txn_);
        return *this;
    }
    ~Transaction() {
        if (txn_ != nullptr) mdb_txn_abort(txn_);
    }
    int commit() { return mdb_txn_commit(std::exchange(txn_, nullptr)); }
    MDB_txn* get() const { return txn_; }

  private:
    MDB_txn* txn_ = nullptr;
};

/// Not to outlive its transaction.
class Cursor {
  public:
    Cursor() = default;
    Cursor(const Cursor&) = delete;
    Cursor& operator=(const Cursor&) = delete;
    ~Cursor() {
        if (cursor_ != nullptr) mdb_cursor_close(cursor_);
    }
    int open(MDB_txn* txn, MDB_dbi table) { return mdb_cursor_open(txn, table, &cursor_); }
    int get(MDB_val& key, MDB_val& data, MDB_cursor_op op) { return mdb_cursor_get(cursor_, &key, &data, op); }
    int erase() { return mdb_cursor_del(cursor_, 0); }

  private:
    MDB_cursor* cursor_ = nullptr;
};

/// The named databases of a store. One that the file's layout does not have is `no_table`, and reads as empty.
struct Tables {
    static constexpr MDB_dbi no_table = ~MDB_dbi{0};
    MDB_dbi meta = 0;
    MDB_dbi events = 0;
    MDB_dbi processes = 0;
    MDB_dbi losses = 0;
    MDB_dbi sessions = 0;
    MDB_dbi gaps = no_table;
    MDB_dbi functions = no_table;
    MDB_dbi stacks = no_table;
    MDB_dbi files = no_table;
    MDB_dbi symbols = no_table;
    MDB_dbi spans = no_table;
    MDB_dbi span_ids = no_table;
    MDB_dbi incidents = no_table;
    MDB_dbi states = no_table;
    MDB_dbi rollups = no_table;
    MDB_dbi clocks = no_table;
    MDB_dbi communicators = no_table;
    MDB_dbi held = no_table;

    /// Whether the file has every table there is.
    bool are_whole() const;
};

/// An open environment whose pages have been checked, by this process or by the one that holds the store's lock. One to
/// a process and store: LMDB's lock file does not allow two.
class Environment {
  public:
    enum class Access { read_only, read_only_without_lock, read_write };

    /// `map_bytes` 0: as the file says. Opens every file it will ever need. Errors: not_found, corrupt, denied,
    /// version, internal; busy (`progress` said stop).
    static Result<std::unique_ptr<Environment>> open(const std::string& directory, Access access, uint64_t map_bytes,
                                                     PageCheck check = PageCheck::all,
                                                     const PageProgress& progress = {});
    ~Environment();
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

    Result<Transaction> begin_read() const;
    /// The raw code: the writer decides what it does about it.
    int begin_write(Transaction& ret_transaction);
    /// Whether LMDB refuses everything from now on, because it could not write a meta page.
    bool is_broken() const;
    /// Whether the data file has no name any more: what is written is gone once it is closed.
    bool is_removed() const;
    /// Whether the file has no table at all, as one has whose making was cut short.
    Result<bool> is_blank();
    /// Opens the tables, making them in `transaction` where asked.
    int open_tables(MDB_txn* transaction, bool create);

    const Tables& tables() const { return tables_; }
    MDB_env* get() const { return env_; }
    int data_fd() const;
    uint64_t page_bytes() const;
    /// Up to the last page that was ever used.
    uint64_t used_file_bytes() const;
    uint64_t map_bytes() const;
    /// Pages that hold something, in bytes: file pages less the free ones.
    uint64_t live_bytes(MDB_txn* transaction) const;

  private:
    explicit Environment(MDB_env* env) : env_(env) {}
    Result<void> check_all_pages(const PageProgress& progress);

    MDB_env* env_;
    Tables tables_;
};

}  // namespace ingero
