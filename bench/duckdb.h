// DuckDB as a guest of the benchmarks: from the shared library of its npm package, where that is there, through its
// interface for C. One thread, its file, otherwise its defaults.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/rivals.h"
#include "core/model/event.h"

namespace ingero::bench {

class Duckdb {
  public:
    /// nullptr where the library cannot be loaded: `ret_why` says why.
    static std::unique_ptr<Duckdb> open(const std::string& library, const std::string& path, std::string& ret_why) {
        std::unique_ptr<Duckdb> found(new Duckdb);
        found->library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!found->library_) {
            ret_why = dlerror();
            return nullptr;
        }
        found->load();
        if (found->open_(path.c_str(), &found->database_) != 0 ||
            found->connect_(found->database_, &found->connection_) != 0)
            fail_with("cannot open a DuckDB file");
        found->run("SET threads = 1");
        found->run(
            "CREATE TABLE events (id BIGINT NOT NULL, timestamp BIGINT NOT NULL, pid BIGINT NOT NULL, tid BIGINT NOT "
            "NULL, source BIGINT NOT NULL, op BIGINT NOT NULL, duration BIGINT NOT NULL, gpu_id BIGINT NOT NULL, arg0 "
            "BIGINT NOT NULL, arg1 BIGINT NOT NULL, ret_code BIGINT NOT NULL, stack_hash BIGINT NOT NULL, cgroup_id "
            "BIGINT NOT NULL)");
        return found;
    }
    Duckdb(const Duckdb&) = delete;
    Duckdb& operator=(const Duckdb&) = delete;
    ~Duckdb() {
        if (connection_) disconnect_(&connection_);
        if (database_) close_(&database_);
    }

    std::string version() const { return version_(); }

    void commit(const std::vector<Event>& events, uint64_t wall_offset) {
        void* appender = nullptr;
        if (create_appender_(connection_, nullptr, "events", &appender) != 0) fail_with("DuckDB takes no rows");
        for (const Event& event : events) {
            append_(appender, static_cast<int64_t>(event.sequence));
            for (const uint64_t number : columns_of(event, wall_offset))
                append_(appender, static_cast<int64_t>(number));
            if (end_row_(appender) != 0) fail_with("DuckDB takes no row");
        }
        if (destroy_appender_(&appender) != 0) fail_with("DuckDB does not keep its rows");
    }

    void checkpoint() { run("CHECKPOINT"); }

    /// As Sqlite::ask.
    uint64_t ask(const std::string& sql) {
        QueryResult result;
        if (query_(connection_, sql.c_str(), &result) != 0) fail_with(sql + ": " + error_(&result));
        uint64_t sum = 0;
        const uint64_t rows = rows_(&result), columns = columns_(&result);
        for (uint64_t column = 0; column < columns; ++column) {
            constexpr int real = 11;  // DUCKDB_TYPE_DOUBLE
            const bool is_real = type_(&result, column) == real;
            for (uint64_t row = 0; row < rows; ++row)
                sum += static_cast<uint64_t>(is_real ? static_cast<int64_t>(double_(&result, column, row))
                                                     : integer_(&result, column, row));
        }
        destroy_(&result);
        return sum;
    }

  private:
    /// duckdb_result.
    struct QueryResult {
        uint64_t unused[5] = {};
        void* data = nullptr;
    };
    Duckdb() = default;

    template <class Function>
    void find(const char* name, Function& ret_function) {
        ret_function = reinterpret_cast<Function>(dlsym(library_, name));
        if (!ret_function) fail_with(std::string("DuckDB's library has no ") + name);
    }
    void load() {
        find("duckdb_open", open_);
        find("duckdb_connect", connect_);
        find("duckdb_disconnect", disconnect_);
        find("duckdb_close", close_);
        find("duckdb_library_version", version_);
        find("duckdb_query", query_);
        find("duckdb_result_error", error_);
        find("duckdb_destroy_result", destroy_);
        find("duckdb_row_count", rows_);
        find("duckdb_column_count", columns_);
        find("duckdb_column_type", type_);
        find("duckdb_value_int64", integer_);
        find("duckdb_value_double", double_);
        find("duckdb_appender_create", create_appender_);
        find("duckdb_append_int64", append_);
        find("duckdb_appender_end_row", end_row_);
        find("duckdb_appender_destroy", destroy_appender_);
    }
    void run(const std::string& sql) {
        QueryResult result;
        if (query_(connection_, sql.c_str(), &result) != 0) fail_with(sql + ": " + error_(&result));
        destroy_(&result);
    }

    void* library_ = nullptr;  // never closed: it has threads of its own
    void* database_ = nullptr;
    void* connection_ = nullptr;
    int (*open_)(const char*, void**) = nullptr;
    int (*connect_)(void*, void**) = nullptr;
    void (*disconnect_)(void**) = nullptr;
    void (*close_)(void**) = nullptr;
    const char* (*version_)() = nullptr;
    int (*query_)(void*, const char*, QueryResult*) = nullptr;
    const char* (*error_)(QueryResult*) = nullptr;
    void (*destroy_)(QueryResult*) = nullptr;
    uint64_t (*rows_)(QueryResult*) = nullptr;
    uint64_t (*columns_)(QueryResult*) = nullptr;
    int (*type_)(QueryResult*, uint64_t) = nullptr;
    int64_t (*integer_)(QueryResult*, uint64_t, uint64_t) = nullptr;
    double (*double_)(QueryResult*, uint64_t, uint64_t) = nullptr;
    int (*create_appender_)(void*, const char*, const char*, void**) = nullptr;
    int (*append_)(void*, int64_t) = nullptr;
    int (*end_row_)(void*) = nullptr;
    int (*destroy_appender_)(void**) = nullptr;
};

}  // namespace ingero::bench
