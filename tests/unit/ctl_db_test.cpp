// ingeroctl db as a script sees it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "core/model/unique_fd.h"
#include "core/store/rows/rows.h"
#include "core/store/verify.h"
#include "core/wire/child_process.h"
#include "test_paths.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Outcome {
    int exit_code = -1;
    std::string text;
    json answer() const { return json::parse(text, nullptr, false); }
};

/// Arguments without anything that a shell would touch; `before` goes in front.
Outcome ingeroctl(const std::string& arguments, const std::string& before = "") {
    const auto ran = run_program({"/bin/sh", "-c", before + std::string(INGEROCTL) + " " + arguments + " 2>&1"},
                                 {.program = {}, .keep = {"TMPDIR"}}, std::chrono::seconds(60), 4 << 20);
    if (!ran) return {-1, ran.error().message};
    return {WIFEXITED(ran->status) ? WEXITSTATUS(ran->status) : -1, ran->text};
}

void expect_valid(const std::string& schema, const std::string& text) {
    const std::string source = INGERO_SOURCE_DIR;
    const auto ran =
        run_program({"/bin/sh", "-c",
                     "printf %s \"$1\" | /usr/bin/python3 " + source + "/tests/support/validate_schema.py " + source +
                         "/docs/schemas/" + schema + ".schema.json - 2>&1",
                     "sh", text},
                    {}, std::chrono::seconds(60), 1 << 20);
    ASSERT_TRUE(ran);
    if (WIFEXITED(ran->status) && WEXITSTATUS(ran->status) == 77) GTEST_SKIP() << "SKIPPED: no python3-jsonschema";
    EXPECT_EQ(ran->status, 0) << ran->text << text;
}

/// A closed store of 5,000 events in five blocks, with free pages.
class AClosedStore : public testing::Test {
  protected:
    void SetUp() override {
        const auto writer = open_writer(store_.path(), {.max_size_bytes = 64 << 20});
        ASSERT_TRUE(writer && writer->begin_session(make_session("boot-a")));
        for (uint64_t round = 0; round < 5; ++round) {
            Batch batch;
            batch.events = make_events(round * 1'000 + 1, 1'000, (round + 1) * 10'000'000);
            batch.processes = {{.key = {7, 7}, .comm = "train", .cgroup = "", .unit = ""}};
            batch.covered_until_ns = (round + 2) * 10'000'000;
            ASSERT_TRUE(writer->commit(batch));
        }
        ASSERT_TRUE(writer->end_session());
    }

    /// Flips a bit in the body of the last block.
    void damage_a_block() {
        std::string file = read_file(store_.data_file());
        const size_t at = file.rfind("IGBK");
        ASSERT_NE(at, std::string::npos);
        file[at + 60'000] = static_cast<char>(file[at + 60'000] ^ 0x10);
        write_file(store_.data_file(), file);
    }

    const TemporaryDirectory store_, folder_;
};

TEST_F(AClosedStore, TellsWhatItIsMadeOf) {
    const std::string before = read_file(store_.data_file());
    const Outcome info = ingeroctl("--json db info " + store_.path());
    ASSERT_EQ(info.exit_code, 0) << info.text;
    const json answer = info.answer();
    EXPECT_EQ(answer["layout"], store_layout_version);
    EXPECT_EQ(answer["events"], 5'000);
    EXPECT_EQ(answer["blocks"].size(), 1u);
    EXPECT_EQ(answer["blocks"][0]["blocks"], 5);
    EXPECT_EQ(answer["boots"][0]["node"], "node-1");
    EXPECT_EQ(answer["sessions"].size(), 1u);
    EXPECT_EQ(answer["cap_bytes"], 64 << 20);
    uint64_t rows = 0;
    for (const json& table : answer["tables"])
        if (table["table"] == "processes") rows = table["rows"];
    EXPECT_EQ(rows, 1u);
    expect_valid("db-info", info.text);
    EXPECT_THAT(ingeroctl("db info " + store_.path()).text, HasSubstr("5,000 events"));
    EXPECT_TRUE(read_file(store_.data_file()) == before);
}

TEST_F(AClosedStore, IsVerified) {
    const Outcome verified = ingeroctl("--json db verify " + store_.path());
    ASSERT_EQ(verified.exit_code, 0) << verified.text;
    EXPECT_EQ(verified.answer()["clean"], true);
    EXPECT_EQ(verified.answer()["events"], 5'000);
    expect_valid("db-verify", verified.text);
}

TEST_F(AClosedStore, NamesADamagedBlockAndReadsTheOthers) {
    damage_a_block();
    const std::string before = read_file(store_.data_file());
    const Outcome verified = ingeroctl("--json db verify " + store_.path());
    EXPECT_EQ(verified.exit_code, 1);
    const json answer = verified.answer();
    EXPECT_EQ(answer["damaged"], 1);
    EXPECT_EQ(answer["damages"][0]["table"], "events");
    EXPECT_THAT(answer["damages"][0]["key"].get<std::string>(), HasSubstr("0/"));
    EXPECT_EQ(answer["damages"][0]["events"], 1'000);
    EXPECT_EQ(answer["events"], 4'000);
    expect_valid("db-verify", verified.text);
    EXPECT_THAT(ingeroctl("db verify " + store_.path()).text, HasSubstr("damaged: events 0/"));
    EXPECT_TRUE(read_file(store_.data_file()) == before);
}

TEST_F(AClosedStore, WhoseFileIsDamagedIsToldSo) {
    std::string file = read_file(store_.data_file());
    write_file(store_.data_file(), file.substr(0, 40'960));
    const Outcome verified = ingeroctl("--json db verify " + store_.path());
    EXPECT_EQ(verified.exit_code, 1);
    EXPECT_EQ(verified.answer()["damaged"], 1);
    EXPECT_TRUE(verified.answer()["damages"][0]["table"].is_null());
    expect_valid("db-verify", verified.text);
}

TEST_F(AClosedStore, IsCopiedSmallerAndWhole) {
    const std::string copy = folder_.path() + "/copy", before = read_file(store_.data_file());
    const Outcome compacted = ingeroctl("--json db compact " + store_.path() + " -o " + copy + "/");
    ASSERT_EQ(compacted.exit_code, 0) << compacted.text;
    expect_valid("db-copy", compacted.text);
    EXPECT_EQ(compacted.answer()["events"], 5'000);
    EXPECT_LT(std::filesystem::file_size(copy + "/data.mdb"), std::filesystem::file_size(store_.data_file()));
    EXPECT_EQ(scan_all(*open_snapshot(copy))->size(), 5'000u);
    EXPECT_TRUE(read_file(store_.data_file()) == before) << "the original stays as it is";
    EXPECT_TRUE(open_writer(copy, {.max_size_bytes = 64 << 20})) << "and is written on";
    const Outcome again = ingeroctl("db compact " + store_.path() + " -o " + copy);
    EXPECT_EQ(again.exit_code, 1);
    EXPECT_THAT(again.text, HasSubstr("already exists"));
}

TEST_F(AClosedStore, ThatIsDamagedIsNotCopied) {
    damage_a_block();
    for (const std::string& command : {"db compact " + store_.path() + " -o " + folder_.path() + "/a",
                                       "--db " + store_.path() + " db snapshot " + folder_.path() + "/a"}) {
        const Outcome copied = ingeroctl(command);
        EXPECT_EQ(copied.exit_code, 1);
        EXPECT_THAT(copied.text, HasSubstr("damaged"));
        EXPECT_TRUE(std::filesystem::is_empty(folder_.path())) << "nothing is left behind";
    }
}

TEST_F(AClosedStore, IsCopiedAsASnapshot) {
    const std::string copy = folder_.path() + "/copy";
    const Outcome copied = ingeroctl("--json --db " + store_.path() + " db snapshot " + copy);
    ASSERT_EQ(copied.exit_code, 0) << copied.text;
    EXPECT_EQ(copied.answer()["events"], 5'000);
    EXPECT_TRUE(verify_store(copy)->is_clean());
    const auto writer = open_writer(copy, {.max_size_bytes = 64 << 20});
    ASSERT_TRUE(writer && writer->begin_session(make_session("boot-b")));
    Batch batch;
    batch.events = make_events(5'001, 100, 1'000);
    EXPECT_TRUE(writer->commit(batch));
    EXPECT_TRUE(verify_store(copy)->is_clean());
}

TEST_F(AClosedStore, WhoseCopyFindsNoRoomLeavesNothingBehind) {
    for (const std::string& command : {"db compact " + store_.path() + " -o " + folder_.path() + "/a",
                                       "--db " + store_.path() + " db snapshot " + folder_.path() + "/a"}) {
        const Outcome copied = ingeroctl(command, "trap '' XFSZ; ulimit -f 100; ");
        EXPECT_EQ(copied.exit_code, 1) << copied.text;
        EXPECT_THAT(copied.text, HasSubstr("make room")) << copied.text;
        EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
    }
}

TEST_F(AClosedStore, ThatADaemonHasIsRefused) {
    const auto writer = open_writer(store_.path(), {.max_size_bytes = 64 << 20});
    for (const std::string& command : {"db info " + store_.path(), "db verify " + store_.path(),
                                       "db compact " + store_.path() + " -o " + folder_.path() + "/a"}) {
        const Outcome refused = ingeroctl(command);
        EXPECT_EQ(refused.exit_code, 1);
        EXPECT_THAT(refused.text, HasSubstr("running ingerod uses the store"));
    }
}

TEST_F(AClosedStore, IsAskedForByTheRightArguments) {
    EXPECT_EQ(ingeroctl("db compact " + store_.path()).exit_code, 2);
    EXPECT_EQ(ingeroctl("db info " + store_.path() + " -o x").exit_code, 2);
    EXPECT_EQ(ingeroctl("db mend " + store_.path()).exit_code, 2);
    EXPECT_EQ(ingeroctl("--db " + store_.path() + " db info " + store_.path()).exit_code, 2);
    EXPECT_EQ(ingeroctl("db info " + folder_.path()).exit_code, 1);
    EXPECT_EQ(ingeroctl("--socket /nonexistent db snapshot " + folder_.path() + "/a").exit_code, 4);
}

/// A copy while the writer goes on.
TEST(ACopy, IsOfOneMomentWhileTheWriterGoesOn) {
    const TemporaryDirectory store, copies;
    const auto writer = open_writer(store.path(), {.max_size_bytes = 64 << 20});
    ASSERT_TRUE(writer && writer->begin_session(make_session("boot-a")));
    uint64_t next = 1;
    const auto commit = [&] {
        Batch batch;
        batch.events = make_events(next, 500, next * 1'000);
        next += 500;
        return writer->commit(batch);
    };
    ASSERT_TRUE(commit());
    auto reader = StoreReader::open(store.path());
    ASSERT_TRUE(reader);
    for (int round = 0; round < 12; ++round) {
        const std::string directory = copies.path() + "/" + std::to_string(round);
        std::filesystem::create_directory(directory);
        const UniqueFd fd(open((directory + "/data.mdb").c_str(), O_RDWR | O_CREAT, 0600));
        const auto copied = (*reader)->copy_to(fd.get());
        ASSERT_TRUE(copied) << copied.error().message;
        const auto verified = verify_store(directory);
        ASSERT_TRUE(verified && verified->is_clean());
        EXPECT_EQ(verified->events, next - 1);
        for (int i = 0; i < 5; ++i) ASSERT_TRUE(commit());
    }
}

}  // namespace
}  // namespace ingero
