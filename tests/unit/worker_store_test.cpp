// What workers answer of a store.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <future>

#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/unique_fd.h"
#include "core/store/store.h"
#include "core/wire/rpc.h"
#include "daemon/worker/sandbox.h"
#include "tests/unit/worker_fixture.h"

namespace ingero {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

void fill_store(const std::string& directory, bool with_a_wait = false) {
    auto writer = StoreWriter::open(directory, {.max_size_bytes = 64 << 20});
    ASSERT_TRUE(writer) << writer.error().message;
    const ClockTriple now = ClockTriple::now();
    Session session;
    session.id = std::string(32, 'a');
    session.boot_id = "boot";
    session.node = "written-on";
    session.clock = now;
    ASSERT_TRUE((*writer)->begin_session(session));
    const uint64_t begin = now.monotonic_ns - 10'000'000'000;
    (*writer)->set_first_covered(begin);
    Batch batch;
    for (uint64_t i = 0; i < 100; ++i) {
        Event event;
        event.sequence = i + 1;
        event.start_ns = begin + i * 1'000'000;
        event.duration_ns = 1'000;
        event.tgid = i < 60 ? 100 : 200;
        event.tid = event.tgid;
        event.process_start_ns = 5;
        event.op = all_ops().front().id;
        batch.events.push_back(event);
    }
    if (with_a_wait) {
        Event wait = batch.events.front();
        wait.sequence = batch.events.size() + 1;
        wait.op = op_wait;
        wait.duration_ns = wait.blocked_ns = 1'000'000'000;
        batch.events.push_back(wait);
    }
    for (const uint32_t pid : {100U, 200U}) {
        Process process;
        process.key = {pid, 5};
        process.uid = pid;
        process.comm = "trainer";
        batch.processes.push_back(process);
    }
    for (const uint32_t pid : {100U, 200U})
        for (const SpanKind kind : {SpanKind::request, SpanKind::step}) {
            SpanRow span;
            span.kind = kind;
            span.id = (kind == SpanKind::step ? "step-" : "request-") + std::to_string(pid);
            span.start_ns = begin;
            span.end_ns = begin + pid * 1'000'000;
            span.process = {pid, 5};
            span.uid = pid;
            batch.spans.push_back(span);
        }
    batch.covered_until_ns = now.monotonic_ns;
    ASSERT_TRUE((*writer)->commit(batch));
}

class WorkerStoreTest : public WorkerPoolTest {
  protected:
    WorkerPool& start_with_store(bool is_checked = false) {
        WorkerOptions options = one();
        options.store_directory = directory_.path();
        options.store_is_checked = is_checked;
        return start(options);
    }
    TemporaryDirectory directory_;
};

TEST_F(WorkerStoreTest, that_is_not_there_yet_is_found_once_it_is) {
    start_with_store();
    for (const char* method : {"stats", "explain"}) EXPECT_EQ(ask(method).error().code, ErrorCode::not_found);
    fill_store(directory_.path());
    const auto answer = ask("stats");
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ((*answer)["schema"], "ingero/stats/1");
    EXPECT_TRUE(ask("ping").value()["store"].get<bool>());
}

/// Up to the last page in use.
std::string used_part(const TemporaryDirectory& directory) {
    return read_file(directory.data_file()).substr(0, open_snapshot(directory.path())->figures().bytes);
}

TEST_F(WorkerStoreTest, that_the_daemon_has_checked_is_not_read_as_a_whole_again) {
    fill_store(directory_.path());
    write_file(directory_.data_file(), with_wrong_page_numbers(used_part(directory_)));
    start_with_store(false);
    EXPECT_EQ(ask("stats").error().code, ErrorCode::corrupt);
    start_with_store(true);
    const auto answer = ask("stats");
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_THAT((*answer)["ops"], SizeIs(2));
}

// As when a disk spoils it under the daemon that has checked it.
TEST_F(WorkerStoreTest, with_a_page_that_is_gone_is_answered_right_or_by_an_error) {
    fill_store(directory_.path());
    const std::string file = used_part(directory_);
    const auto counts = [](const json& answer) {
        json list = json::array();
        for (const json& op : answer["ops"]) list.push_back({op["op"], op["pid"], op["count"]});
        return list;
    };
    start_with_store(true);
    const json right = counts(ask("stats", {{"whole_trace", true}}).value());
    ASSERT_THAT(right, SizeIs(2));
    size_t refused = 0;
    for (size_t page = 2; page * 4096 < file.size(); ++page) {
        pool_.reset();
        write_file(directory_.data_file(), std::string(file).replace(page * 4096, 4096, 4096, '\0'));
        start_with_store(true);
        const auto answer = ask("stats", {{"whole_trace", true}});
        if (answer) {
            EXPECT_EQ(counts(*answer), right) << "page " << page;
            continue;
        }
        ++refused;
        EXPECT_THAT(answer.error().code, AnyOf(ErrorCode::corrupt, ErrorCode::internal)) << answer.error().message;
    }
    EXPECT_GT(refused, 0u);
    pool_.reset();
    write_file(directory_.data_file(), file);
    start_with_store(true);
    EXPECT_EQ(counts(ask("stats", {{"whole_trace", true}}).value()), right);
}

TEST_F(WorkerStoreTest, answers_stats_by_pid_uid_and_limit) {
    fill_store(directory_.path());
    start_with_store();
    const auto all = ask("stats");
    ASSERT_TRUE(all) << all.error().message;
    EXPECT_EQ((*all)["node"], "test-node");
    ASSERT_THAT((*all)["ops"], SizeIs(2));
    EXPECT_EQ((*all)["ops"][0]["count"], 60);
    EXPECT_THAT(ask("stats", {{"limit", 1}}).value()["ops"], SizeIs(1));
    const auto by_pid = ask("stats", {{"pid", 200}}).value();
    ASSERT_THAT(by_pid["ops"], SizeIs(1));
    EXPECT_EQ(by_pid["ops"][0]["count"], 40);
    const auto by_uid = ask("stats", {{"uid", 100}}).value();
    ASSERT_THAT(by_uid["ops"], SizeIs(1));
    EXPECT_EQ(by_uid["ops"][0]["pid"], 100);
}

TEST_F(WorkerStoreTest, answers_stats_of_calls_only_where_that_is_asked) {
    fill_store(directory_.path(), true);
    start_with_store();
    const auto all = ask("stats", {{"limit", 1}}).value();
    EXPECT_EQ(all["ops"].at(0)["op"], op_name(op_wait)) << all;
    const auto calls = ask("stats", {{"limit", 1}, {"calls_only", true}}).value();
    ASSERT_THAT(calls["ops"], SizeIs(1)) << "the limit is of what is told";
    EXPECT_EQ(calls["ops"][0]["count"], 60);
    EXPECT_EQ(ask("stats", {{"calls_only", 1}}).error().code, ErrorCode::bad_request);
}

TEST_F(WorkerStoreTest, answers_for_the_whole_trace_or_a_window_of_it) {
    fill_store(directory_.path());
    start_with_store();
    EXPECT_THAT(ask("stats", {{"whole_trace", true}}).value()["ops"], SizeIs(2));
    EXPECT_THAT(ask("stats", {{"since_ns", 1'000'000'000}}).value()["ops"], IsEmpty());
    const auto answer = ask("stats", {{"from_ns", 1}, {"to_ns", 2}, {"missing_probes", {"cudaMalloc"}}}).value();
    EXPECT_THAT(answer["ops"], IsEmpty());
    EXPECT_EQ(answer["window"]["from_ns"], 1);
    EXPECT_EQ(answer["missing_probes"], (json{"cudaMalloc"}));
}

TEST_F(WorkerStoreTest, answers_sql_inside_the_sandbox) {
    fill_store(directory_.path());
    start_with_store();
    const int before = worker();
    const auto query = [&](const std::string& sql, json more = json::object()) {
        more["sql"] = sql;
        return ask("query", std::move(more));
    };
    const auto answer = query("SELECT pid, COUNT(*) AS calls FROM events GROUP BY pid");
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ((*answer)["schema"], "ingero/query/1");
    EXPECT_EQ((*answer)["columns"],
              (json{{{"name", "pid"}, {"type", "integer"}}, {{"name", "calls"}, {"type", "integer"}}}));
    EXPECT_EQ((*answer)["rows"], (json{{100, 60}, {200, 40}}));
    EXPECT_EQ(query("SELECT COUNT(*) FROM events", {{"uid", 100}}).value()["rows"], (json{{60}}));
    EXPECT_EQ(query("SELECT name FROM process_names", {{"uid", 100}}).value()["rows"], (json{{"trainer"}}));
    EXPECT_EQ(query("SELECT COUNT(*) FROM events", {{"from_ns", 1}, {"to_ns", 2}}).value()["rows"], (json{{0}}));
    EXPECT_TRUE(query("SELECT id FROM events", {{"limit", 3}}).value()["truncated"].get<bool>());
    EXPECT_EQ(query("SELECT 1", {{"explain", true}}).value()["columns"][0]["name"], "plan");
    // What could open a file or ask for more than there is: the worker lives on.
    for (const char* sql :
         {"SELECT random(), hex(randomblob(8))", "SELECT datetime('now', 'localtime'), datetime(1e9, 'unixepoch')",
          "SELECT a.id FROM events a, events b ORDER BY a.duration + b.duration, b.id LIMIT 5",
          "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 300000) "
          "SELECT COUNT(DISTINCT hex(randomblob(16)) || x) FROM n"})
        EXPECT_TRUE(query(sql)) << sql;
    EXPECT_EQ(query("ATTACH '/etc/passwd' AS x").error().code, ErrorCode::denied);
    EXPECT_EQ(query("DELETE FROM ops").error().code, ErrorCode::denied);
    EXPECT_EQ(query("SELECT zeroblob(1 << 40)").error().code, ErrorCode::limit);
    // With wide rows: many narrow ones take so long that under a sanitizer the deadline comes first.
    EXPECT_EQ(query("WITH RECURSIVE n(x, wide) AS (SELECT 1, hex(zeroblob(50000)) UNION SELECT x + 1, wide FROM n) "
                    "SELECT COUNT(*) FROM n")
                  .error()
                  .code,
              ErrorCode::limit);
    EXPECT_EQ(ask("query").error().code, ErrorCode::bad_request);
    // What a sanitizer keeps of freed memory makes the pool replace a worker that is none the worse.
    EXPECT_TRUE(sanitizer_build || worker() == before);
}

TEST_F(WorkerStoreTest, is_exported_on_from_a_whole_cursor_alone) {
    fill_store(directory_.path());
    start_with_store();
    const auto ask_from = [&](const json& cursor) {
        return ask("export", {{"format", "csv"}, {"from_ns", 1}, {"to_ns", INT64_MAX}, {"cursor", cursor}});
    };
    // Of a first page by whose clock the boot began with the epoch.
    const json cursor = {{"start_ns", 1},     {"base_ns", 1},     {"boot", 0},
                         {"monotonic_ns", 1}, {"boottime_ns", 1}, {"realtime_ns", 1}};
    const auto page = ask_from(cursor);
    ASSERT_TRUE(page) << page.error().message;
    EXPECT_EQ((*page)["events"], 100);
    EXPECT_TRUE((*page)["cursor"].is_null());
    const auto with = [&](const char* name, const json& value) {
        json changed = cursor;
        changed[name] = value;
        return changed;
    };
    EXPECT_EQ(ask_from(with("start_ns", INT64_MAX)).value()["events"], 0);
    json far_off = with("monotonic_ns", INT64_MAX);
    far_off["realtime_ns"] = 0;
    EXPECT_TRUE(ask_from(far_off));
    std::vector<json> refused = {5, json::object(), json{{"start_ns", 1}, {"base_ns", 1}}, with("boot", 1LL << 32)};
    for (const char* name : {"start_ns", "base_ns", "boot", "monotonic_ns", "boottime_ns", "realtime_ns"})
        for (const json& value : {json(), json("1"), json(-1)}) refused.push_back(with(name, value));
    for (const json& bad : refused) {
        const auto answer = ask_from(bad);
        ASSERT_FALSE(answer) << bad;
        EXPECT_EQ(answer.error().code, ErrorCode::bad_request) << bad;
        EXPECT_THAT(answer.error().message, HasSubstr("the cursor is not from an export's answer"));
    }
}

TEST_F(WorkerStoreTest, is_explained) {
    fill_store(directory_.path());
    start_with_store();
    const auto answer = ask("explain", {{"whole_trace", true}});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ((*answer)["schema"], "ingero/explain/1");
    EXPECT_TRUE((*answer)["findings"].is_array());
}

TEST_F(WorkerStoreTest, answers_requests_by_id_duration_user_and_number) {
    fill_store(directory_.path());
    start_with_store();
    const auto answer = ask("requests");
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ((*answer)["schema"], "ingero/requests/1");
    ASSERT_THAT((*answer)["notes"], SizeIs(2));
    ASSERT_THAT((*answer)["requests"], SizeIs(2));
    EXPECT_EQ((*answer)["requests"][0]["id"], "request-200");
    EXPECT_EQ((*answer)["requests"][0]["events"]["calls"], 40);
    EXPECT_EQ((*answer)["requests"][1]["rank_by_ns"], 100'000'000);
    const auto ids = [&](const json& params) {
        json ids = json::array();
        const auto found = ask("requests", params);
        EXPECT_TRUE(found) << found.error().message;
        for (const json& request : (*found)["requests"]) ids.push_back(request["id"]);
        return ids;
    };
    EXPECT_EQ(ids({{"by", "step"}}), (json{"step-200", "step-100"}));
    EXPECT_EQ(ids({{"request", "request-100"}}), (json{"request-100"}));
    EXPECT_EQ(ids({{"slower_than_ns", 150'000'000}}), (json{"request-200"}));
    EXPECT_EQ(ids({{"limit", 1}}), (json{"request-200"}));
    EXPECT_EQ(ids({{"uid", 100}}), (json{"request-100"}));
    EXPECT_EQ(ids({{"from_ns", 1}, {"to_ns", 2}}), json::array());
    for (const json& wrong : {json{{"by", "label"}}, json{{"request", 7}}, json{{"slower_than_ns", -1}}})
        EXPECT_EQ(ask("requests", wrong).error().code, ErrorCode::bad_request) << wrong;
    EXPECT_EQ(ask("waits", {{"by", "op"}}).error().code, ErrorCode::bad_request);
}

TEST_F(WorkerStoreTest, costs_its_worker_two_descriptors_and_no_right) {
    fill_store(directory_.path());
    start_with_store();
    ASSERT_TRUE(ask("stats"));
    const int pid = worker();
    EXPECT_EQ(status_of(pid)["Seccomp"], "2");
    if (geteuid() != 0) GTEST_SKIP() << "only root may list the descriptors of a process that cannot be dumped";
    EXPECT_THAT(descriptors_of(pid), SizeIs(testing::Le(6U)));
}

/// A connection whose one end is the daemon's, as it is of the control socket, and whose other is the client's.
class HandedOverClient {
  public:
    HandedOverClient() {
        std::array<int, 2> ends{};
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
        daemons.reset(ends[0]);
        own.reset(ends[1]);
        fcntl(daemons.get(), F_SETFL, O_NONBLOCK);
        const timeval patience{60, 0};  // so that a test fails where it would hang
        setsockopt(own.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    }

    HandedOver to_worker() {
        return {7, [this] { return daemons.get(); }, [this] { begun = true; },
                [this](Result<void> how) {
                    EXPECT_FALSE(done) << "done was called twice";
                    done = std::move(how);
                }};
    }
    /// Reads until a response is whole, in a thread of its own.
    std::future<std::optional<RpcResponse>> read() {
        return std::async(std::launch::async, [fd = own.get()]() -> std::optional<RpcResponse> {
            RpcDecoder decoder(answer_limits);
            std::vector<std::byte> buffer(64 << 10);
            for (;;) {
                auto message = decoder.next();
                if (!message) return std::nullopt;
                if (*message) return std::get<RpcResponse>(std::move(**message));
                const ssize_t size = recv(fd, buffer.data(), buffer.size(), 0);
                if (size <= 0) return std::nullopt;
                decoder.feed(std::span(buffer).first(static_cast<size_t>(size)));
            }
        });
    }

    UniqueFd daemons, own;
    bool begun = false;
    std::optional<Result<void>> done;
};

/// Some ten megabytes.
json long_query() {
    return {{"sql", "SELECT a.op, b.op, c.op, a.start_ns, b.start_ns FROM events a, events b, events c"},
            {"limit", 100'000},
            {"whole_trace", true}};
}

TEST_F(WorkerStoreTest, is_answered_to_a_client_on_its_own_connection) {
    fill_store(directory_.path());
    start_with_store();
    const int pid = worker();
    for (const bool fails : {false, true}) {
        HandedOverClient client;
        auto answer = client.read();
        pool_->answer(no_user, "query", fails ? json{{"sql", "SELECT nothing"}} : long_query(), client.to_worker());
        run_until([&] { return client.done.has_value(); });
        EXPECT_TRUE(*client.done) << client.done->error().message;
        EXPECT_TRUE(client.begun);
        client.daemons.reset();
        const auto response = answer.get();
        ASSERT_TRUE(response);
        EXPECT_EQ(response->id, 7u);
        EXPECT_EQ(response->error.has_value(), fails);
        if (!fails) {
            EXPECT_EQ(response->result.at("rows").size(), 100'000u);
        }
        // Nobody holds it now.
        char byte = 0;
        EXPECT_EQ(recv(client.own.get(), &byte, 1, 0), 0);
    }
    EXPECT_EQ(worker(), pid);
}

TEST_F(WorkerStoreTest, is_not_answered_by_half_to_a_client_that_reads_nothing_or_next_to_nothing) {
    fill_store(directory_.path());
    WorkerOptions options = one();
    options.store_directory = directory_.path();
    options.deadline = std::chrono::seconds(3);
    start(options);
    for (const bool reads : {false, true}) {
        const int pid = patient_worker();
        HandedOverClient client;
        json query = long_query();
        query["limit"] = 20'000;  // quickly found, and more than a socket holds
        pool_->answer(no_user, "query", query, client.to_worker());
        std::promise<void> over;
        auto reader = std::async(std::launch::async, [&, is_over = over.get_future()] {
            size_t bytes = 0;
            char byte = 0;
            while (is_over.wait_for(std::chrono::milliseconds(reads ? 50 : 60'000)) == std::future_status::timeout)
                bytes += recv(client.own.get(), &byte, 1, MSG_DONTWAIT) == 1 ? 1 : 0;
            return bytes;
        });
        run_until([&] { return client.done.has_value(); });
        over.set_value();
        EXPECT_EQ(reader.get() > 1, reads);
        EXPECT_TRUE(client.begun);
        ASSERT_FALSE(*client.done);
        EXPECT_EQ(client.done->error().code, ErrorCode::deadline);
        EXPECT_NE(patient_worker(), pid);
    }
}

TEST_F(WorkerStoreTest, frees_its_worker_when_a_client_hangs_up_in_the_middle_of_an_answer) {
    fill_store(directory_.path());
    start_with_store();
    HandedOverClient client;
    pool_->answer(no_user, "query", long_query(), client.to_worker());
    run_until([&] { return client.begun; });
    client.own.reset();
    run_until([&] { return client.done.has_value(); });
    EXPECT_FALSE(*client.done);
    EXPECT_TRUE(ask("ping"));
}

TEST_F(WorkerStoreTest, that_is_killed_in_the_middle_of_an_answer_is_told_of) {
    fill_store(directory_.path());
    start_with_store();
    const int pid = worker();
    HandedOverClient client;
    pool_->answer(no_user, "query", long_query(), client.to_worker());
    run_until([&] { return client.begun; });
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    run_until([&] { return client.done.has_value(); });
    ASSERT_FALSE(*client.done);
    EXPECT_EQ(client.done->error().code, ErrorCode::internal);
    EXPECT_THAT(client.done->error().message, HasSubstr("the worker that ran this query ended (signal 9)"));
    client.daemons.reset();
    EXPECT_FALSE(client.read().get()) << "what it had sent is no answer";
    EXPECT_NE(patient_worker(), pid);
}

TEST_F(WorkerPoolTest, gives_up_what_a_client_that_hangs_up_has_asked) {
    start_one();
    const int pid = worker();
    stop(pid);
    HandedOverClient asked, waiting;
    pool_->answer(no_user, "ping", json::object(), asked.to_worker());
    pool_->answer(no_user, "ping", json::object(), waiting.to_worker());
    waiting.own.reset();
    run_until([&] { return waiting.done.has_value(); });
    EXPECT_FALSE(asked.done);
    asked.own.reset();
    run_until([&] { return asked.done.has_value(); });
    for (const HandedOverClient* client : {&asked, &waiting}) {
        ASSERT_FALSE(*client->done);
        EXPECT_EQ(client->done->error().message, "the client has hung up");
        EXPECT_FALSE(client->begun);
    }
    EXPECT_NE(worker(), pid);
}

}  // namespace
}  // namespace ingero
