// What the benchmarks of the store share: SQLite as the recorder sets it up whose traces are imported, a directory that
// goes away, and the session that rows are stored in.
#pragma once

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "core/model/result.h"
#include "core/model/time.h"
#include "core/store/store.h"

namespace ingero::bench {

/// Between the rows' clock and the wall's, ns.
inline constexpr uint64_t wall_offset = 1'700'000'000'000'000'000;

[[noreturn]] inline void fail_with(const std::string& what) {
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
    exit(1);
}

template <class T>
T must(Result<T> result) {
    if (!result) fail_with(result.error().message);
    return std::move(*result);
}
inline void must(const Result<void>& result) {
    if (!result) fail_with(result.error().message);
}

class Directory {
  public:
    explicit Directory(const std::string& below) {
        std::string pattern =
            (below.empty() ? std::filesystem::temp_directory_path().string() : below) + "/bench-XXXXXX";
        if (mkdtemp(pattern.data()) == nullptr) fail_with("cannot make a directory below " + below);
        path_ = pattern;
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

inline double median_ms(int rounds, const std::function<void()>& run) {
    std::vector<double> ms;
    for (int i = 0; i < rounds; ++i) {
        const uint64_t begin = monotonic_now_ns();
        run();
        ms.push_back(static_cast<double>(monotonic_now_ns() - begin) / 1e6);
    }
    return bench::median(ms);
}

/// A row of the published tables but for its id, in the order of their columns from timestamp to cgroup_id.
inline std::array<uint64_t, 12> columns_of(const Event& event, uint64_t wall_offset) {
    // As stack hashes are: anything of 64 bits.
    const uint64_t stack = event.stack * 0x9e37'79b9'7f4a'7c15ULL;
    return {event.start_ns + wall_offset,
            event.tgid,
            event.tid,
            uint64_t{event.op} >> 8,
            uint64_t{event.op} & 0xff,
            event.duration_ns,
            0,
            event.args[0],
            event.args[1],
            static_cast<uint64_t>(event.return_code),
            stack,
            1};
}

/// Its table of events and that table's indices, WAL, synchronous=NORMAL, prepared inserts, and otherwise SQLite's
/// defaults.
class Sqlite {
  public:
    Sqlite(const std::string& path, bool with_text_ids) : with_text_ids_(with_text_ids), path_(path) {
        sqlite3* raw = nullptr;
        if (sqlite3_open(path.c_str(), &raw) != SQLITE_OK) fail_with("cannot open a SQLite file");
        database_.reset(raw);
        run("PRAGMA journal_mode=WAL");
        run("PRAGMA synchronous=NORMAL");
        const std::string id = with_text_ids ? "id TEXT PRIMARY KEY" : "id INTEGER PRIMARY KEY AUTOINCREMENT";
        run("CREATE TABLE events (" + id +
            ", timestamp INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL, source INTEGER NOT NULL, "
            "op INTEGER NOT NULL, duration INTEGER NOT NULL, gpu_id INTEGER NOT NULL DEFAULT 0, "
            "arg0 INTEGER NOT NULL DEFAULT 0, arg1 INTEGER NOT NULL DEFAULT 0, ret_code INTEGER NOT NULL DEFAULT 0, "
            "stack_hash INTEGER NOT NULL DEFAULT 0" +
            (with_text_ids ? ", node TEXT NOT NULL DEFAULT '', rank INTEGER, local_rank INTEGER, world_size INTEGER, "
                             "comm TEXT NOT NULL DEFAULT ''"
                           : "") +
            ", stack_ips TEXT NOT NULL DEFAULT '', cgroup_id INTEGER NOT NULL DEFAULT 0)");
        run("CREATE INDEX idx_events_timestamp ON events(timestamp)");
        run("CREATE INDEX idx_events_pid ON events(pid)");
        run("CREATE INDEX idx_events_source_op_stack ON events(source, op, stack_hash)");
        run("CREATE INDEX idx_events_cgroup ON events(cgroup_id) WHERE cgroup_id != 0");
        insert_ = prepare(
            "INSERT INTO events (id, timestamp, pid, tid, source, op, duration, gpu_id, arg0, arg1, ret_code, "
            "stack_hash, cgroup_id" +
            std::string(with_text_ids ? ", node, comm" : "") + ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?" +
            (with_text_ids ? ",?,?)" : ")"));
    }

    void commit(const std::vector<Event>& events, uint64_t wall_offset) {
        run("BEGIN");
        for (const Event& event : events) {
            sqlite3_stmt* insert = insert_.get();
            const std::string id = with_text_ids_ ? "node-1:" + std::to_string(event.sequence) : "";
            if (with_text_ids_)
                sqlite3_bind_text(insert, 1, id.data(), static_cast<int>(id.size()), SQLITE_STATIC);
            else
                sqlite3_bind_null(insert, 1);
            const auto numbers = columns_of(event, wall_offset);
            for (size_t i = 0; i < numbers.size(); ++i)
                sqlite3_bind_int64(insert, static_cast<int>(i) + 2, static_cast<int64_t>(numbers[i]));
            if (with_text_ids_) {
                sqlite3_bind_text(insert, 14, "node-1", -1, SQLITE_STATIC);
                sqlite3_bind_text(insert, 15, "python3", -1, SQLITE_STATIC);
            }
            if (sqlite3_step(insert) != SQLITE_DONE) fail_with(sqlite3_errmsg(database_.get()));
            sqlite3_reset(insert);
        }
        run("COMMIT");
    }

    uint64_t bytes() {
        run("PRAGMA wal_checkpoint(TRUNCATE)");
        return std::filesystem::file_size(path_);
    }

    /// Sum of all numbers of all rows, so that nothing is left out and answers can be compared.
    uint64_t ask(const std::string& sql) {
        const auto statement = prepare(sql);
        uint64_t sum = 0;
        int rc = 0;
        while ((rc = sqlite3_step(statement.get())) == SQLITE_ROW)
            for (int column = 0; column < sqlite3_column_count(statement.get()); ++column)
                sum += static_cast<uint64_t>(sqlite3_column_int64(statement.get(), column));
        if (rc != SQLITE_DONE) fail_with(sqlite3_errmsg(database_.get()));
        return sum;
    }

  private:
    struct Close {
        void operator()(sqlite3* database) const { sqlite3_close(database); }
        void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
    };
    using Statement = std::unique_ptr<sqlite3_stmt, Close>;

    Statement prepare(const std::string& sql) {
        sqlite3_stmt* raw = nullptr;
        if (sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &raw, nullptr) != SQLITE_OK)
            fail_with(sql + ": " + sqlite3_errmsg(database_.get()));
        return Statement(raw);
    }
    void run(const std::string& sql) {
        char* message = nullptr;
        if (sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, &message) != SQLITE_OK)
            fail_with(sql + ": " + message);
    }

    std::unique_ptr<sqlite3, Close> database_;
    Statement insert_;
    bool with_text_ids_;
    std::string path_;
};

inline Session make_session() {
    Session session;
    session.id = std::string(32, '1');
    session.boot_id = "bench";
    session.node = "node-1";
    session.clock = {1, 1, wall_offset + 1};
    return session;
}

}  // namespace ingero::bench
