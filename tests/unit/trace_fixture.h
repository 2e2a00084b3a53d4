// SQLite traces as each published generation of the earlier agent made them, and what an import leaves of one.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/import/import.h"
#include "core/query/answers/stacks.h"
#include "core/query/answers/stats.h"
#include "core/query/coverage.h"
#include "tests/unit/files.h"

namespace ingero::test {

/// 0.8: numbers as ids, no node.
inline constexpr const char* first_generation = R"(
CREATE TABLE events(id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL, pid INTEGER NOT NULL,
  tid INTEGER NOT NULL, source INTEGER NOT NULL, op INTEGER NOT NULL, duration INTEGER NOT NULL,
  gpu_id INTEGER NOT NULL DEFAULT 0, arg0 INTEGER NOT NULL DEFAULT 0, arg1 INTEGER NOT NULL DEFAULT 0,
  ret_code INTEGER NOT NULL DEFAULT 0, stack_hash INTEGER NOT NULL DEFAULT 0, stack_ips TEXT NOT NULL DEFAULT '',
  cgroup_id INTEGER NOT NULL DEFAULT 0);
CREATE INDEX idx_events_timestamp ON events(timestamp);
CREATE TABLE stack_traces(hash INTEGER PRIMARY KEY, ips TEXT NOT NULL, frames TEXT NOT NULL DEFAULT '');
CREATE TABLE sessions(id INTEGER PRIMARY KEY, started_at INTEGER NOT NULL, stopped_at INTEGER NOT NULL DEFAULT 0,
  kernel TEXT NOT NULL DEFAULT '', ingero_ver TEXT NOT NULL DEFAULT '');
CREATE TABLE process_names(pid INTEGER PRIMARY KEY, name TEXT NOT NULL, seen_at INTEGER NOT NULL DEFAULT 0);
CREATE TABLE event_aggregates(bucket INTEGER, source INTEGER, op INTEGER, pid INTEGER, count INTEGER, stored INTEGER,
  PRIMARY KEY(bucket, source, op, pid));
)";

/// 0.9: "node:number" as ids, a node and ranks.
inline constexpr const char* second_generation = R"(
CREATE TABLE events(id TEXT PRIMARY KEY, timestamp INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL,
  source INTEGER NOT NULL, op INTEGER NOT NULL, duration INTEGER NOT NULL, gpu_id INTEGER NOT NULL DEFAULT 0,
  arg0 INTEGER NOT NULL DEFAULT 0, arg1 INTEGER NOT NULL DEFAULT 0, ret_code INTEGER NOT NULL DEFAULT 0,
  stack_hash INTEGER NOT NULL DEFAULT 0, node TEXT NOT NULL DEFAULT '', rank INTEGER, local_rank INTEGER,
  world_size INTEGER, cgroup_id INTEGER NOT NULL DEFAULT 0);
CREATE TABLE process_names(pid INTEGER PRIMARY KEY, name TEXT NOT NULL, seen_at INTEGER NOT NULL DEFAULT 0);
)";

/// What an agent of any generation kept beside events.
inline constexpr const char* history_tables = R"(
CREATE TABLE system_snapshots(id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL UNIQUE, cpu_pct REAL,
  mem_pct REAL, mem_avail INTEGER, swap_mb INTEGER, load_avg REAL);
CREATE TABLE annotations(id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL, labels TEXT NOT NULL,
  pid INTEGER NOT NULL DEFAULT 0, start_time INTEGER NOT NULL DEFAULT 0, span_start INTEGER NOT NULL DEFAULT 0,
  span_end INTEGER NOT NULL DEFAULT 0, peer_uid INTEGER, peer_gid INTEGER, peer_pid INTEGER);
CREATE TABLE causal_chains(id TEXT PRIMARY KEY, detected_at INTEGER NOT NULL, severity TEXT, summary TEXT,
  root_cause TEXT, explanation TEXT, recommendations TEXT, cuda_op TEXT, cuda_p99_us INTEGER, cuda_p50_us INTEGER,
  tail_ratio REAL, timeline TEXT, node TEXT NOT NULL DEFAULT '');
CREATE TABLE cgroup_schedstat(cgroup_id INTEGER, window_end INTEGER, p99_off_cpu INTEGER);
)";

/// 0.10: the command of each row; another order of columns.
inline constexpr const char* latest_generation = R"(
CREATE TABLE events(comm TEXT NOT NULL DEFAULT '', id TEXT PRIMARY KEY, node TEXT NOT NULL DEFAULT '',
  rank INTEGER, local_rank INTEGER, world_size INTEGER, duration INTEGER NOT NULL, op INTEGER NOT NULL,
  source INTEGER NOT NULL, tid INTEGER NOT NULL, pid INTEGER NOT NULL, timestamp INTEGER NOT NULL,
  gpu_id INTEGER NOT NULL DEFAULT 0, arg0 INTEGER NOT NULL DEFAULT 0, arg1 INTEGER NOT NULL DEFAULT 0,
  ret_code INTEGER NOT NULL DEFAULT 0, stack_hash INTEGER NOT NULL DEFAULT 0, cgroup_id INTEGER NOT NULL DEFAULT 0);
CREATE TABLE process_names(pid INTEGER PRIMARY KEY, name TEXT NOT NULL, seen_at INTEGER NOT NULL DEFAULT 0);
)";

/// A directory with a trace in one folder and a store in another.
class TraceFolder {
  public:
    TraceFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "ingero-import-XXXXXX").string();
        if (mkdtemp(name.data())) path_ = name;
        std::filesystem::create_directory(path_ + "/source");
    }
    TraceFolder(const TraceFolder&) = delete;
    TraceFolder& operator=(const TraceFolder&) = delete;
    ~TraceFolder() {
        std::error_code error;
        std::filesystem::remove_all(path_, error);
    }

    std::string trace() const { return path_ + "/source/trace.db"; }
    std::string store() const { return path_ + "/store"; }

    void make_trace(const std::string& script) { run(trace(), script); }
    /// What `logged` writes stays in the write-ahead log.
    void make_trace_with_log(const std::string& script, const std::string& logged) {
        const std::string made = path_ + "/made.db";
        sqlite3* database = nullptr;
        ASSERT_EQ(sqlite3_open(made.c_str(), &database), SQLITE_OK);
        for (const std::string& step : {std::string("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;"), script,
                                        std::string("PRAGMA wal_checkpoint(TRUNCATE);"), logged})
            ASSERT_EQ(sqlite3_exec(database, step.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
        for (const char* part : {"", "-wal"}) std::filesystem::copy_file(made + part, trace() + part);
        sqlite3_close(database);
    }
    std::vector<std::string> names_beside_trace() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(path_ + "/source"))
            names.push_back(entry.path().filename().string());
        std::sort(names.begin(), names.end());
        return names;
    }

    Result<ImportSummary> import(const ImportOptions& options = {}) { return import_trace(trace(), store(), options); }
    std::string store_bytes() const { return read_file(store() + "/data.mdb"); }

    std::unique_ptr<StoreSnapshot> snapshot() const {
        auto reader = StoreReader::open(store());
        if (!reader) {
            ADD_FAILURE() << reader.error().message;
            return nullptr;
        }
        auto snapshot = (*reader)->snapshot();
        return snapshot ? std::move(*snapshot) : nullptr;
    }
    std::vector<Session> sessions() const { return snapshot()->sessions(); }
    std::vector<Process> processes() const { return *snapshot()->processes(); }
    /// Of all boots, each in order of start.
    std::vector<Event> events() const {
        std::vector<Event> events;
        const auto all = snapshot();
        for (const BootWindow& boot : boot_windows(*all, whole_trace(*all))) {
            const auto scanned = all->scan(boot.boot_index, boot.monotonic, [&](std::span<const Event> block) {
                events.insert(events.end(), block.begin(), block.end());
                return true;
            });
            EXPECT_TRUE(scanned);
        }
        return events;
    }
    std::vector<Event> import_events() {
        const auto imported = import();
        EXPECT_TRUE(imported) << imported.error().message;
        return imported ? events() : std::vector<Event>();
    }
    Result<StatsAnswer> stats() const {
        const auto all = snapshot();
        return compute_stats(*all, {.window = whole_trace(*all), .uid = {}, .pid = {}});
    }
    std::vector<std::vector<std::string>> stack_names() const {
        const auto all = snapshot();
        StacksQuery query;
        query.filter.window = whole_trace(*all);
        std::vector<std::vector<std::string>> names;
        const auto answer = compute_stacks(*all, query);
        EXPECT_TRUE(answer);
        for (const StackStats& stack : answer->stacks) {
            names.emplace_back();
            for (const NamedFrame& frame : stack.frames) names.back().push_back(frame.text());
        }
        return names;
    }

  private:
    static void run(const std::string& path, const std::string& script) {
        sqlite3* database = nullptr;
        ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
        // A trace of a test outlives no power loss.
        sqlite3_exec(database, "PRAGMA synchronous=OFF", nullptr, nullptr, nullptr);
        char* message = nullptr;
        EXPECT_EQ(sqlite3_exec(database, script.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
        sqlite3_close(database);
    }

    std::string path_;
};

}  // namespace ingero::test
