// A store of 20,000 calls of three processes, and statements about it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <map>
#include <random>
#include <set>

#include "core/model/op.h"
#include "core/render/table.h"
#include "core/sql/catalogue.h"
#include "core/sql/functions.h"
#include "core/sql/sql.h"
#include "test_paths.h"
#include "tests/unit/store_fixture.h"

namespace ingero {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

inline constexpr uint64_t realtime_offset = 1'700'000'000'000'000'000 - 1'000;

struct SqlCaller {
    uint32_t pid;
    uint32_t uid;
    const char* comm;
};
inline constexpr SqlCaller callers[] = {{100, 1000, "trainer"}, {200, 1000, "trainer"}, {300, 2000, "server"}};

/// 20,000 calls of three processes in three seconds, in six blocks that overlap in time.
inline std::vector<Event> make_rows() {
    struct Kind {
        OpId op;
        uint64_t median_ns;
    };
    constexpr Kind kinds[] = {{0x0101, 50'000}, {0x0103, 8'000},   {0x0107, 12'000}, {0x0105, 90'000},
                              {0x0401, 6'000},  {0x0804, 20'000},  {0x0301, 70'000}, {0x0501, 300'000},
                              {0x0702, 40'000}, {0x0901, 100'000}, {0x6303, 1'000},  {0x0000, 5'000}};
    std::mt19937_64 random(7);
    std::vector<Event> rows;
    for (uint64_t i = 0; i < 20'000; ++i) {
        const Kind& kind = kinds[random() % std::size(kinds)];
        const SqlCaller& caller = callers[random() % 3];
        Event event;
        event.sequence = i + 1;
        event.op = kind.op;
        event.start_ns = 1'000'000 + i * 150'000 + random() % 1'000'000;
        event.duration_ns = kind.median_ns / 2 + random() % kind.median_ns;
        event.tgid = caller.pid;
        event.tid = caller.pid + static_cast<uint32_t>(random() % 4);
        event.process_start_ns = caller.pid * 10;
        event.args = {random() % 5'000'000, random() % 7, i};
        event.return_code = random() % 50 == 0 ? 2 : 0;
        event.stack = static_cast<uint32_t>(random() % 3);
        event.device = static_cast<uint16_t>(random() % 2);
        if (random() % 3 == 0) {
            event.blocked_ns = event.duration_ns / 2;
            event.runnable_ns = event.duration_ns / 4;
            event.longest_sleep_ns = event.blocked_ns;
            event.blocked_reason = BlockedReason::futex;
            if (i % 2) {  // as rows of today have it, and those from before it was recorded
                event.last_wait_ns = event.duration_ns / 2;
                event.last_runnable_ns = event.duration_ns / 8;
                event.last_reason = i % 4 == 1 ? BlockedReason::futex : BlockedReason::none;
                event.tail_ns = i % 3;
            }
            event.blocked_syscall = 9'999;
            event.preemptor_tgid = 4'000;
            event.preemptor_comm = to_comm("hog");
        }
        rows.push_back(event);
    }
    return rows;
}

class SqlTest : public testing::Test {
  protected:
    void SetUp() override {
        StoreOptions options;
        options.clock = [] { return ClockTriple{1'000, 2'000, realtime_offset + 1'000}; };
        auto writer = open_writer(directory_.path(), options);
        Session session = make_session("boot");
        ASSERT_TRUE(writer->begin_session(session));
        writer->set_first_covered(1'000'000);
        for (size_t at = 0; at < rows_.size(); at += 3'500) {
            Batch batch;
            batch.events.assign(rows_.begin() + static_cast<std::ptrdiff_t>(at),
                                rows_.begin() + static_cast<std::ptrdiff_t>(std::min(at + 3'500, rows_.size())));
            for (const SqlCaller& caller : callers) {
                Process process;
                process.key = {caller.pid, caller.pid * 10};
                process.uid = caller.uid;
                process.comm = caller.comm;
                process.cgroup = caller.uid == 1000 ? "/user.slice/a" : "/system.slice/b";
                process.first_seen_ns = 1'000'000;
                batch.processes.push_back(process);
            }
            if (at == 0) {
                batch.losses.push_back({.from_ns = 1'000'000, .to_ns = 2'000'000, .op = 0x0103, .lost_ring = 17});
                batch.stacks.push_back({.id = 1, .process = {100, 1'000}, .seen_ns = 5, .frames = {{1, 64}, {1, 128}}});
                batch.stacks.push_back({.id = 2, .process = {300, 3'000}, .seen_ns = 5, .frames = {{1, 256}}});
                batch.stacks.push_back({.id = 3, .process = {}, .seen_ns = 5, .frames = {{1, 64}}});  // as imported
                batch.files.push_back({.id = 1, .path = "/usr/lib/libx.so", .build_id = "", .state = FileState::ok});
                batch.symbols.push_back({.file = 1, .offset = 64, .name = "inner", .demangled = ""});
                batch.symbols.push_back({.file = 1, .offset = 128, .name = "outer", .demangled = ""});
            }
            batch.covered_until_ns = 4'000'000'000;
            ASSERT_TRUE(writer->commit(batch));
        }
        ASSERT_TRUE(writer->end_session());
        snapshot_ = open_snapshot(directory_.path());
        auto engine = SqlEngine::open();
        ASSERT_TRUE(engine) << engine.error().message;
        engine_ = std::move(*engine);
    }

    Result<SqlAnswer> run(const std::string& sql, std::optional<uint32_t> uid = std::nullopt) {
        SqlQuery query;
        query.sql = sql;
        query.filter.uid = uid;
        return engine_->run(*snapshot_, query);
    }
    json rows(const std::string& sql, std::optional<uint32_t> uid = std::nullopt) {
        auto answer = run(sql, uid);
        EXPECT_TRUE(answer) << sql << ": " << (answer ? "" : answer.error().message);
        return answer ? answer->rows : json("failed");
    }
    Error error(const std::string& sql) {
        auto answer = run(sql);
        EXPECT_FALSE(answer) << sql;
        return answer ? Error{} : answer.error();
    }
    template <class Holds>
    uint64_t count(const Holds& holds) const {
        return static_cast<uint64_t>(std::count_if(rows_.begin(), rows_.end(), holds));
    }
    std::string plan(const std::string& sql) {
        SqlQuery query;
        query.sql = sql;
        query.explain = true;
        auto answer = engine_->run(*snapshot_, query);
        return answer ? answer->rows.dump() : answer.error().message;
    }

    TemporaryDirectory directory_;
    std::vector<Event> rows_ = make_rows();
    std::unique_ptr<StoreSnapshot> snapshot_;
    std::unique_ptr<SqlEngine> engine_;
};

}  // namespace ingero
