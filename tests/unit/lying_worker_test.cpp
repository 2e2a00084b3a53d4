// A worker that was taken over lies to the daemon: it gets no file opened, no descriptor but the one it was asked
// about, and nothing into the store that the daemon has not checked.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "core/wire/rpc.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/stacks/frame_names.h"
#include "daemon/ingerod/stacks/mapped_files.h"
#include "daemon/ingerod/targets/libraries.h"
#include "daemon/ingerod/targets/programs.h"
#include "test_paths.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

const std::string sha1 = "00112233445566778899aabbccddeeff00112233";

/// Its folder holds the script and the log, a folder of debug files, and beside that a secret.
class ALyingWorker : public testing::Test {
  protected:
    void SetUp() override {
        std::string pattern = testing::TempDir() + "ingero-lies-XXXXXX";
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = std::filesystem::canonical(pattern);
        std::filesystem::create_directories(debug_root_ = folder_ / "debug");
        std::filesystem::create_directories(debug_root_ / ".build-id/00");
        std::ofstream(folder_ / "secret.debug") << "root's alone";
        std::ofstream(debug_root_ / (".build-id/00/" + sha1.substr(2) + ".debug")) << "symbols";
        std::ofstream(folder_ / "program") << "a traced program";
        std::ofstream(folder_ / "worker")
            << "#!/bin/sh\nexec '" << LYING_WORKER << "' '" << (folder_ / "script").string() << "' '"
            << (folder_ / "log").string() << "' \"$@\"\n";
        std::filesystem::permissions(folder_ / "worker", std::filesystem::perms::owner_all);
    }
    void TearDown() override {
        pool_.reset();
        std::filesystem::remove_all(folder_);
    }

    /// One worker, which answers so, in this order.
    WorkerPool& says(const std::vector<json>& answers, std::chrono::milliseconds turn = {}) {
        std::ofstream script(folder_ / "script");
        for (const json& answer : answers) script << answer << "\n";
        std::filesystem::remove(folder_ / "log");
        pool_ = std::make_unique<WorkerPool>(
            loop_,
            WorkerOptions{
                .program = folder_ / "worker", .store_directory = {}, .count = 1, .turn = turn, .node = "test-node"});
        return *pool_;
    }
    /// What it was asked.
    std::vector<json> log() const {
        std::vector<json> asked;
        std::ifstream in(folder_ / "log");
        for (std::string line; std::getline(in, line);) asked.push_back(json::parse(line));
        return asked;
    }
    void run_until(const std::function<bool()>& condition) {
        constexpr uint64_t patience_us = 60'000'000;
        while (!condition())
            if (sd_event_run(loop_.get(), patience_us) <= 0) FAIL() << "the loop has nothing left to do";
    }

    struct Named {
        std::vector<FileRow> files;
        std::vector<SymbolRow> symbols;
        const FileRow& file() const { return files.back(); }
    };
    /// What comes of naming places of the program while the worker answers so.
    Named name(const std::vector<json>& answers, const std::vector<uint64_t>& offsets = {16}) {
        Named named;
        FrameNames names(loop_, says(answers),
                         {.put_file = [&](FileRow row) { named.files.push_back(std::move(row)); },
                          .put_symbol = [&](SymbolRow row) { named.symbols.push_back(std::move(row)); }},
                         debug_root_);
        const auto file = std::make_shared<MappedFile>();
        file->row = {.id = 1, .path = "/opt/program", .build_id = {}};
        file->fd.reset(open((folder_ / "program").c_str(), O_RDONLY | O_CLOEXEC));
        for (const uint64_t offset : offsets) names.want(file, offset);
        run_until([&] { return named.symbols.size() >= offsets.size(); });
        return named;
    }
    static json stripped(const json& build_id, const json& debug_link = "") {
        return {
            {"result",
             {{"state", "stripped"}, {"build_id", build_id}, {"debug_link", debug_link}, {"symbols", {symbol("")}}}}};
    }
    static json symbol(const json& name, const json& offset = 0, const json& address = 16) {
        return {{"name", name}, {"demangled", ""}, {"offset", offset}, {"address", address}};
    }
    static json symbols(json list) {
        return {{"result", {{"state", "ok"}, {"build_id", ""}, {"debug_link", ""}, {"symbols", std::move(list)}}}};
    }

    Result<json> ask(const std::string& method) {
        std::optional<Result<json>> answer;
        pool_->request(no_user, method, json::object(), std::nullopt, [&](Result<json> result) {
            EXPECT_FALSE(answer) << "answered twice";
            answer = std::move(result);
        });
        run_until([&] { return answer.has_value(); });
        return answer.value_or(fail(ErrorCode::internal, "no answer came"));
    }

    std::filesystem::path folder_, debug_root_;
    EventLoop loop_;
    std::unique_ptr<WorkerPool> pool_;
};

TEST_F(ALyingWorker, is_handed_the_debug_file_of_a_build_id) {
    const Named named = name({stripped(sha1), symbols(json::array({symbol("f")}))});
    ASSERT_THAT(log(), SizeIs(2));
    EXPECT_EQ(log()[0]["file"], (folder_ / "program").string());
    EXPECT_EQ(log()[1]["file"], (debug_root_ / (".build-id/00/" + sha1.substr(2) + ".debug")).string());
    EXPECT_EQ(named.file().build_id, sha1);
    EXPECT_EQ(named.symbols.at(0).name, "f");
}

TEST_F(ALyingWorker, is_handed_no_file_for_a_build_id_that_is_none) {
    const std::vector<json> lies = {"../../secret",
                                    "..//../secret",
                                    "00/../../../secret",
                                    std::string("00\0", 3) + "aa",
                                    std::string(130, '0'),
                                    std::string(60'000, 'a'),
                                    "0g",
                                    "001",
                                    "00 1",
                                    "00AA1122",
                                    7,
                                    -1,
                                    nullptr,
                                    json::array({"00"})};
    for (const json& lie : lies) {
        const Named named = name({stripped(lie)});
        EXPECT_THAT(log(), SizeIs(1)) << lie;
        EXPECT_EQ(named.file().build_id, "") << lie;
    }
}

TEST_F(ALyingWorker, is_handed_no_file_for_a_debug_link_that_is_a_path) {
    std::ofstream(debug_root_ / "secret.debug") << "beside the folders of debug files";
    std::filesystem::create_directories(debug_root_ / "opt");
    const std::vector<json> lies = {
        "../../secret.debug", "/../../secret.debug", "../secret.debug", "..", ".", std::string(300, 'a'), 7, nullptr};
    for (const json& lie : lies) {
        name({stripped("ffff", lie)});
        EXPECT_THAT(log(), SizeIs(1)) << lie;
    }
    std::ofstream(debug_root_ / "opt/honest.debug") << "symbols";
    name({stripped("ffff", "honest.debug"), symbols(json::array({symbol("f")}))});
    ASSERT_THAT(log(), SizeIs(2));
    EXPECT_EQ(log()[1]["file"], (debug_root_ / "opt/honest.debug").string());
}

TEST_F(ALyingWorker, names_no_place_by_an_answer_that_does_not_fit_the_question) {
    const json most = std::numeric_limits<uint64_t>::max();
    const std::vector<json> lies = {{{"result", nullptr}},
                                    {{"result", 7}},
                                    {{"result", json::array()}},
                                    symbols(json::array()),
                                    symbols("abc"),
                                    symbols(json::array({7})),
                                    symbols(json::array({symbol(7)})),
                                    symbols(json::array({symbol(std::string(12'289, 'a'))})),
                                    symbols(json::array({symbol("f", -1)})),
                                    symbols(json::array({symbol("f", 0.5)})),
                                    symbols(json::array({symbol("f", 0, -16)})),
                                    symbols(json::array({symbol("f", "0")}))};
    for (const json& lie : lies) {
        const Named named = name({lie});
        ASSERT_THAT(named.symbols, SizeIs(1)) << lie;
        EXPECT_EQ(named.symbols[0].name, "") << lie;
        EXPECT_EQ(named.symbols[0].symbol_offset, 0U) << lie;
        EXPECT_EQ(named.file().state, FileState::unread) << lie;
    }
    EXPECT_EQ(name({symbols(json::array({symbol("f", most, most)}))}).symbols[0].symbol_offset, most)
        << "a number all the same";
}

TEST_F(ALyingWorker, names_the_places_that_were_asked_about_and_no_others) {
    json many = json::array();
    for (int i = 0; i < 20'000; ++i) many.push_back(symbol("f" + std::to_string(i)));
    const Named named = name({symbols(std::move(many))}, {16, 32});
    ASSERT_THAT(named.symbols, SizeIs(2));
    EXPECT_EQ(named.symbols[0].offset, 16U);
    EXPECT_EQ(named.symbols[1].offset, 32U);
    for (const SymbolRow& row : named.symbols) EXPECT_EQ(row.file, 1U);
}

// By the same means: files of users, and a worker that says nothing.
class NamesOfSeveralUsers : public ALyingWorker {
  protected:
    MappedFilePtr file_of(uint32_t uid, const std::string& build_id) {
        const auto file = std::make_shared<MappedFile>();
        file->row = {.id = ++last_, .path = "/opt/program", .build_id = build_id};
        file->user = uid;
        file->fd.reset(open((folder_ / "program").c_str(), O_RDONLY | O_CLOEXEC));
        return file;
    }
    std::vector<json> asked_for_names() const {
        auto asked = log();
        std::erase_if(asked, [](const json& one) { return one["method"] != "symbolize"; });
        return asked;
    }
    static FrameNames::Sink no_sink() {
        return {.put_file = [](const FileRow&) {}, .put_symbol = [](const SymbolRow&) {}};
    }
    /// What a worker logs is no event of the loop.
    void run_until_asked_for_names(size_t times) {
        for (int i = 0; i < 6'000 && asked_for_names().size() < times; ++i) sd_event_run(loop_.get(), 10'000);
        ASSERT_EQ(asked_for_names().size(), times);
    }
    uint32_t last_ = 0;
};

TEST_F(NamesOfSeveralUsers, are_read_in_turns) {
    FrameNames names(loop_, says(std::vector<json>(5, symbols(json::array({symbol("f")})))), no_sink(), debug_root_);
    for (const char* file : {"a1", "a2", "a3", "a4"}) names.want(file_of(1000, file), 16);
    names.want(file_of(1001, "b1"), 16);
    run_until([&] { return log().size() == 5; });
    std::string order;
    for (const json& asked : log()) order += asked["params"]["build_id"].get<std::string>();
    EXPECT_EQ(order, "a1b1a2a3a4");
}

TEST_F(NamesOfSeveralUsers, stay_mangled_where_they_took_longer_than_a_turn) {
    FrameNames names(loop_, says({}, std::chrono::milliseconds(1)), no_sink(), debug_root_);
    names.want(file_of(1000, "a1"), 16);
    const auto asks_too = [&] {
        pool_->request({.uid = 1001}, "unwind", json::object(), std::nullopt, [](const Result<json>&) {});
    };
    run_until_asked_for_names(1);
    EXPECT_EQ(asked_for_names()[0]["params"]["mangled"], false);
    asks_too();
    run_until_asked_for_names(2);
    EXPECT_EQ(asked_for_names()[1]["params"]["mangled"], true);
}

TEST_F(ALyingWorker, is_stopped_when_it_answers_what_it_was_not_asked) {
    for (const json& lie : {json{{"id", 2}, {"result", "of the next user, who has not asked yet"}},
                            json{{"id", 99}, {"result", "another's"}}, json{{"id", 0}, {"result", "nobody's"}}}) {
        says({lie});
        const auto answer = ask("ping");
        ASSERT_FALSE(answer) << lie;
        EXPECT_THAT(answer.error().message, HasSubstr("it sent an unexpected message"));
    }
}

uint64_t anonymous_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8));
    return 0;
}

// Its client has what it sent, and the daemon nothing.
TEST_F(ALyingWorker, sends_a_client_garbage_that_the_daemon_never_sees) {
    constexpr int64_t bytes = 64 << 20;
    says({{{"result", "of the first"}}, {{"garbage", bytes}, {"result", nullptr}}, {{"result", "of the next"}}});
    EXPECT_EQ(ask("ping").value_or("no answer"), "of the first");
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    UniqueFd daemons(ends[0]), own(ends[1]);
    auto read = std::async(std::launch::async, [&] {
        std::array<char, 1 << 14> buffer;
        int64_t sum = 0;
        while (sum < bytes) {
            const ssize_t size = recv(own.get(), buffer.data(), buffer.size(), 0);
            if (size <= 0) break;
            sum += size;
        }
        return sum;
    });
    const uint64_t before_kib = anonymous_kib();
    std::optional<Result<void>> done;
    pool_->answer(no_user, "stats", json::object(),
                  {7, [&] { return daemons.get(); }, [] {}, [&](Result<void> how) { done = std::move(how); }});
    run_until([&] { return done.has_value(); });
    daemons.reset();
    EXPECT_EQ(read.get(), bytes);
    EXPECT_LT(anonymous_kib(), before_kib + 4'096);
    EXPECT_EQ(ask("ping").value_or("no answer"), "of the next");
}

TEST_F(ALyingWorker, is_stopped_when_it_answers_twice) {
    says({{{"times", 2}, {"result", "the first user's"}}});
    EXPECT_EQ(ask("stats").value_or(json()), "the first user's");
    run_until([&] { return pool_->pids().empty(); });
}

TEST_F(ALyingWorker, gives_no_program_a_runtime_and_leaves_the_daemon_alive) {
    const ProcFs proc;
    const auto pid = static_cast<uint32_t>(getpid());
    std::optional<Mapping> own;
    for (const Mapping& one : proc.executable_mappings(pid))
        if (one.path == std::filesystem::read_symlink("/proc/self/exe")) own = one;
    ASSERT_TRUE(own);
    if (auto opened = proc.open_mapped_file(pid, *own); !opened && opened.error().code == ErrorCode::denied)
        GTEST_SKIP() << "opening mapped files needs CAP_CHECKPOINT_RESTORE";
    for (const json& lie : {json(), json(7), json("functions"), json::array({1, 2, 3}), json{{"symbols", {1, 2}}}}) {
        std::string why;
        bool found = false;
        Programs programs(
            proc, says({{{"result", lie}}, {{"result", lie}}}),
            {.on_found = [&](uint32_t, const Mapping&, uint64_t) { found = true; },
             .on_unexamined = [&](uint32_t, const Mapping&, uint64_t, const std::string& because) { why = because; }});
        programs.look(pid, *own, 0);
        run_until([&] { return found || !why.empty(); });
        EXPECT_FALSE(found) << lie;
        EXPECT_THAT(why, HasSubstr("is invalid")) << lie;
        EXPECT_THAT(log(), SizeIs(2)) << "asked once more: it says nothing of the file";
    }
}

TEST_F(ALyingWorker, gives_no_file_segments_that_are_none) {
    const ProcFs proc;
    const auto pid = static_cast<uint32_t>(getpid());
    std::optional<Mapping> own;
    for (const Mapping& one : proc.executable_mappings(pid))
        if (one.path == std::filesystem::read_symlink("/proc/self/exe")) own = one;
    ASSERT_TRUE(own);
    if (auto opened = proc.open_mapped_file(pid, *own); !opened && opened.error().code == ErrorCode::denied)
        GTEST_SKIP() << "opening mapped files needs CAP_CHECKPOINT_RESTORE";
    const auto answer = [](const json& build_id, json code) {
        return json{{"result", {{"build_id", build_id}, {"rows", json::array()}, {"code", std::move(code)}}}};
    };
    const json segment = {{"address", 0}, {"offset", 0}, {"bytes", 4096}};
    json many = json::array();
    for (int i = 0; i < 257; ++i) many.push_back(segment);
    const std::vector<json> lies = {
        {{"result", nullptr}},
        {{"result", "rows"}},
        answer("../../secret", json::array({segment})),
        answer(sha1, std::move(many)),
        answer(sha1, json::array({segment, {{"address", -1}, {"offset", 0}, {"bytes", 1}}})),
        answer(sha1, json::array({{{"address", 0}, {"offset", 0}, {"bytes", -1}}}))};
    const auto find = [&](const json& said) {
        WalkTables tables{{}, 0};
        bool compiled = false;
        MappedFiles files(loop_, says({said}), proc, tables, 1, [&](const MappedFile&) { compiled = true; });
        const MappedFilePtr file = files.find(pid, 1000, *own);
        run_until([&] { return compiled; });
        return file;
    };
    for (const json& lie : lies) {
        const MappedFilePtr file = find(lie);
        EXPECT_EQ(file->row.build_id == sha1 || file->row.build_id.empty(), true) << lie;
        EXPECT_THAT(file->code, SizeIs(0)) << lie;
    }
    EXPECT_THAT(find(answer(sha1, json::array({segment})))->code, SizeIs(1));
}

TEST_F(ALyingWorker, is_told_apart_from_one_that_found_a_library_without_functions) {
    for (const json& lie :
         {json(), json(7), json{{"functions", 7}}, json{{"functions", {7}}},
          json{{"functions", {{{"name", "f"}, {"offset", 1}, {"size", 1}, {"emulated", true}, {"code", "text"}}}}},
          json{{"functions",
                {{{"name", "f"}, {"offset", 1}, {"size", 1}, {"emulated", true}, {"code", json::array()}}}}}})
        EXPECT_THROW(to_function_symbols(lie), std::exception) << lie;
}

}  // namespace
}  // namespace ingero
