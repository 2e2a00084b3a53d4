// A store whose file is cut, altered, foreign or from the future: a clear error, never a crash, never silent nonsense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lmdb.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "core/store/rows/rows.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using testing::HasSubstr;

/// Everything a store gives, for comparison.
std::string describe(const StoreSnapshot& snapshot, const std::vector<Event>& events,
                     const std::vector<Process>& processes, const std::vector<LossRow>& losses) {
    std::string text;
    const auto add = [&](auto... numbers) { ((text += std::to_string(numbers) + ","), ...); };
    for (const Event& event : events) add(event.sequence, event.start_ns, event.duration_ns, event.args[1], event.op);
    for (const Process& process : processes) add(process.key.pid, process.key.start_ns), text += process.cgroup;
    for (const LossRow& row : losses) add(row.from_ns, row.lost());
    for (const Session& session : snapshot.sessions())
        text += session.id + session.boot_id, add(session.last_covered_ns);
    add(snapshot.figures().last_sequence, snapshot.figures().blocks);
    return text;
}

Result<std::string> read_store(const std::string& directory, PageCheck check = PageCheck::all) {
    auto reader = StoreReader::open(directory, check);
    if (!reader) return tl::unexpected(reader.error());
    auto snapshot = (*reader)->snapshot();
    if (!snapshot) return tl::unexpected(snapshot.error());
    const auto events = scan_all(**snapshot);
    if (!events) return tl::unexpected(events.error());
    const auto processes = (*snapshot)->processes();
    if (!processes) return tl::unexpected(processes.error());
    const auto losses = (*snapshot)->losses(0, everything);
    if (!losses) return tl::unexpected(losses.error());
    return describe(**snapshot, *events, *processes, *losses);
}

Batch small_batch(uint64_t round) {
    Batch batch;
    batch.events = make_events(round * 100 + 1, 100, round * 1'000'000);
    for (uint32_t i = 0; i < 40; ++i)
        batch.processes.push_back({.key = {i, round}, .comm = "c", .cgroup = std::string(100, 'g'), .unit = ""});
    batch.losses = {
        {.from_ns = round * 1'000'000, .to_ns = (round + 1) * 1'000'000, .op = 0x103, .lost_ring = round + 1}};
    batch.covered_until_ns = (round + 1) * 1'000'000;
    return batch;
}

/// A closed store of some sixty pages, with its content as it is and as it was one commit before.
class ADamagedStore : public testing::Test {
  protected:
    void SetUp() override {
        StoreOptions options;
        options.max_size_bytes = 16 << 20;
        options.clock = [] { return ClockTriple{1, 2, 3}; };
        uint64_t used = 0;
        {
            const auto writer = open_writer(directory_.path(), options);
            ASSERT_TRUE(writer && writer->begin_session(make_session("boot-a")));
            for (uint64_t round = 0; round < 6; ++round) {
                ASSERT_TRUE(writer->commit(small_batch(round)));
                used = writer->figures().bytes;
                if (round == 4) previous_ = read_store(directory_.path()).value();
            }
        }
        original_ = read_store(directory_.path()).value();
        file_ = read_file(directory_.data_file()).substr(0, used);
        ASSERT_EQ(file_.size(), used);
    }

    /// The store's answer to a file of this content.
    Result<std::string> read_as(const std::string& content, PageCheck check = PageCheck::all) {
        write_file(directory_.data_file(), content);
        return read_store(directory_.path(), check);
    }

    /// A writer must survive it too: it opens or refuses, and commits or fails.
    ErrorCode write_as(const std::string& content) {
        write_file(directory_.data_file(), content);
        auto writer = StoreWriter::open(directory_.path(), {.max_size_bytes = 16 << 20});
        if (!writer) return writer.error().code;
        if (!(*writer)->begin_session(make_session("boot-b"))) return ErrorCode::internal;
        for (uint64_t round = 10; round < 14; ++round) (void)(*writer)->commit(small_batch(round));
        return ErrorCode::bad_request;  // of use only to tell "opened" from the refusals
    }

    TemporaryDirectory directory_;
    std::string file_;
    std::string original_;
    std::string previous_;
};

TEST_F(ADamagedStore, ThatIsNotDamagedReadsAsItWas) {
    EXPECT_EQ(read_as(file_).value(), original_);
    EXPECT_EQ(write_as(file_), ErrorCode::bad_request);
}

TEST_F(ADamagedStore, ThatIsNotDamagedIsReadPageByPageAndThatIsReported) {
    const uint64_t pages = file_.size() / 4096;
    std::vector<uint64_t> done;
    StoreOptions options;
    options.max_size_bytes = 16 << 20;
    options.progress = [&](uint64_t now, uint64_t all) {
        EXPECT_EQ(all, pages);
        done.push_back(now);
        return true;
    };
    {
        const auto writer = open_writer(directory_.path(), options);
        ASSERT_TRUE(writer);
        const size_t reports = done.size();
        EXPECT_GE(reports, 2u);
        ASSERT_TRUE(writer->begin_session(make_session("boot-b")) && writer->commit(small_batch(10)));
        EXPECT_EQ(done.size(), reports) << "once it is open, nobody is told";
    }
    EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
    EXPECT_LE(done.back(), pages);
}

TEST_F(ADamagedStore, ThatIsNotDamagedIsLeftAsItIsWhereItsCheckIsStopped) {
    write_file(directory_.data_file(), file_);
    StoreOptions options;
    options.max_size_bytes = 16 << 20;
    int reports = 0;
    options.progress = [&](uint64_t, uint64_t) { return ++reports < 2; };
    const auto stopped = StoreWriter::open(directory_.path(), options);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, ErrorCode::busy);
    EXPECT_EQ(reports, 2) << "it stops at once";
    EXPECT_TRUE(read_file(directory_.data_file()) == file_);
    EXPECT_EQ(read_store(directory_.path()).value(), original_);
    EXPECT_TRUE(open_writer(directory_.path(), {})) << "nor is it locked any more";
}

TEST_F(ADamagedStore, CutShortAnywhereIsCorrupt) {
    std::vector<size_t> lengths = {1, 16, 100, 151, 152, 4095, 4096, 4097, 8191};
    for (size_t page = 2; page * 4096 < file_.size(); ++page)
        lengths.insert(lengths.end(), {page * 4096, page * 4096 + 2048});
    lengths.push_back(file_.size() - 1);
    for (const size_t length : lengths) {
        const auto read = read_as(file_.substr(0, length));
        ASSERT_FALSE(read) << length;
        EXPECT_EQ(read.error().code, ErrorCode::corrupt) << length << ": " << read.error().message;
        EXPECT_FALSE(read.error().hint.empty());
        EXPECT_EQ(write_as(file_.substr(0, length)), ErrorCode::corrupt) << length;
        EXPECT_EQ(read_file(directory_.data_file()).size(), length) << "refused and left as it was";
    }
    EXPECT_EQ(read_as("").error().code, ErrorCode::not_found);
}

TEST_F(ADamagedStore, ZeroedOrForeignIsCorrupt) {
    EXPECT_EQ(read_as(std::string(file_.size(), '\0')).error().code, ErrorCode::corrupt);
    EXPECT_EQ(write_as(std::string(file_.size(), '\0')), ErrorCode::corrupt);
    EXPECT_EQ(read_as("SQLite format 3" + std::string(9'000, 'x')).error().code, ErrorCode::corrupt);
    for (size_t page = 0; page * 4096 < file_.size(); ++page) {
        std::string zeroed = file_;
        std::fill_n(zeroed.begin() + static_cast<std::ptrdiff_t>(page * 4096), 4096, '\0');
        const auto read = read_as(zeroed);
        EXPECT_TRUE(read ? *read == original_ : read.error().code == ErrorCode::corrupt) << "page " << page;
    }
}

TEST_F(ADamagedStore, IsNotReadAsAWholeWhereOnlyItsHeadersAreChecked) {
    const std::string altered = with_wrong_page_numbers(file_);
    const auto read = read_as(altered);
    ASSERT_FALSE(read);
    EXPECT_THAT(read.error().message, HasSubstr("holds the number of another page"));
    EXPECT_EQ(read_as(altered, PageCheck::headers).value(), original_);
    // What its headers tell is refused all the same.
    for (const size_t length : {size_t{1}, size_t{151}, size_t{4096}, file_.size() / 2, file_.size() - 1}) {
        const auto cut = read_as(file_.substr(0, length), PageCheck::headers);
        ASSERT_FALSE(cut) << length;
        EXPECT_EQ(cut.error().code, ErrorCode::corrupt) << length << ": " << cut.error().message;
    }
    EXPECT_EQ(read_as(std::string(file_.size(), '\0'), PageCheck::headers).error().code, ErrorCode::corrupt);
}

TEST_F(ADamagedStore, WithAnyByteAlteredIsReadRightOrRefused) {
    std::mt19937 random(11);
    int refused = 0;
    const int rounds = std::getenv("INGERO_LONG") ? 6'000 : 1'000;
    for (int round = 0; round < rounds; ++round) {
        std::string altered = file_;
        // Half of the time in the first bytes of a page, where LMDB keeps what it follows blindly.
        size_t at = random() % file_.size();
        if (round % 2 == 0) at = at / 4096 * 4096 + random() % 160;
        const char mask = static_cast<char>(round % 3 == 0 ? 1u << random() % 8 : 1 + random() % 255);
        altered[at] = static_cast<char>(altered[at] ^ mask);
        const auto read = read_as(altered);
        if (read) {
            // A meta page that no longer counts leaves the commit before it.
            ASSERT_TRUE(*read == original_ || *read == previous_) << "byte " << at;
            continue;
        }
        ++refused;
        const ErrorCode code = read.error().code;
        ASSERT_TRUE(code == ErrorCode::corrupt || code == ErrorCode::version || code == ErrorCode::internal)
            << "byte " << at << ": " << read.error().message;
        ASSERT_FALSE(read.error().message.empty());
    }
    EXPECT_GT(refused, rounds / 4);
}

TEST_F(ADamagedStore, WithAnyByteAlteredNeverBringsAWriterDown) {
    std::mt19937 random(12);
    const int rounds = std::getenv("INGERO_LONG") ? 400 : 150;
    for (int round = 0; round < rounds; ++round) {
        std::string altered = file_;
        size_t at = random() % file_.size();
        if (round % 2 == 0) at = at / 4096 * 4096 + random() % 160;
        altered[at] = static_cast<char>(altered[at] ^ static_cast<char>(1 + random() % 255));
        write_as(altered);
    }
}

TEST_F(ADamagedStore, WithAPageThatBelongsToTwoIsCorrupt) {
    // In a leaf page the size of a block's key, and the key, are followed by the number of its first page: let two keys
    // name the same.
    const auto sized = [](const EventKey& key) { return std::string("\x14\0", 2) + encode_key(key); };
    const std::string key = sized({0, 2'000'000, 201});
    const std::string other = sized({0, 3'000'000, 301});
    const std::string page = file_.substr(file_.rfind(other) + other.size(), 8);
    std::string altered = file_;
    for (size_t at = altered.find(key); at != std::string::npos; at = altered.find(key, at + 1))
        altered.replace(at + key.size(), page.size(), page);
    const auto read = read_as(altered);
    ASSERT_FALSE(read);
    EXPECT_THAT(read.error().message, HasSubstr("used twice"));
    EXPECT_EQ(write_as(altered), ErrorCode::corrupt);
}

TEST_F(ADamagedStore, NamesTheBlockThatIsDamaged) {
    const size_t at = file_.rfind("IGBK");
    ASSERT_NE(at, std::string::npos);
    std::string altered = file_;
    altered[at + 2'000] = static_cast<char>(altered[at + 2'000] ^ 0x10);
    const auto read = read_as(altered);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, ErrorCode::corrupt);
    EXPECT_THAT(read.error().message, HasSubstr("event block 0/"));
    EXPECT_THAT(read.error().message, HasSubstr("checksum"));
}

/// Changes a store behind our back, as another program would.
void with_lmdb(const std::string& directory, const std::function<void(MDB_txn*)>& change) {
    MDB_env* env = nullptr;
    ASSERT_EQ(mdb_env_create(&env), 0);
    mdb_env_set_maxdbs(env, 8);
    mdb_env_set_mapsize(env, 32 << 20);
    ASSERT_EQ(mdb_env_open(env, directory.c_str(), 0, 0640), 0);
    MDB_txn* txn = nullptr;
    ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
    change(txn);
    ASSERT_EQ(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

void put(MDB_txn* txn, const char* table, std::string key, std::string value) {
    MDB_dbi dbi = 0;
    ASSERT_EQ(mdb_dbi_open(txn, table, MDB_CREATE, &dbi), 0);
    MDB_val raw_key{key.size(), key.data()};
    MDB_val raw_value{value.size(), value.data()};
    ASSERT_EQ(mdb_put(txn, dbi, &raw_key, &raw_value, 0), 0);
}

TEST_F(ADamagedStore, OfANewerLayoutIsRefusedAndNotTouched) {
    with_lmdb(directory_.path(), [](MDB_txn* txn) {
        put(txn, "meta", std::string(layout_key), seal(layout_key, encode_number(store_layout_version + 1)));
    });
    const std::string before = read_file(directory_.data_file());
    const auto reader = StoreReader::open(directory_.path());
    ASSERT_FALSE(reader);
    EXPECT_EQ(reader.error().code, ErrorCode::version);
    const auto writer = StoreWriter::open(directory_.path(), {});
    ASSERT_FALSE(writer);
    EXPECT_EQ(writer.error().code, ErrorCode::version);
    EXPECT_THAT(writer.error().message, HasSubstr("layout " + std::to_string(store_layout_version + 1)));
    EXPECT_FALSE(writer.error().hint.empty());
    EXPECT_TRUE(read_file(directory_.data_file()) == before);
}

TEST_F(ADamagedStore, ThatIsAnotherProgramsIsRefusedAndNotTouched) {
    const TemporaryDirectory other;
    with_lmdb(other.path(), [](MDB_txn* txn) { put(txn, "accounts", "key", "value"); });
    const std::string before = read_file(other.data_file());
    EXPECT_EQ(StoreReader::open(other.path()).error().code, ErrorCode::corrupt);
    EXPECT_EQ(StoreWriter::open(other.path(), {}).error().code, ErrorCode::corrupt);
    EXPECT_TRUE(read_file(other.data_file()) == before);
}

TEST_F(ADamagedStore, WithABlockUnderAnotherKeyIsCorrupt) {
    with_lmdb(directory_.path(), [](MDB_txn* txn) {
        MDB_dbi events = 0;
        ASSERT_EQ(mdb_dbi_open(txn, "events", 0, &events), 0);
        std::string from = encode_key(EventKey{0, 1'000'000, 101});
        MDB_val key{from.size(), from.data()};
        MDB_val value{};
        ASSERT_EQ(mdb_get(txn, events, &key, &value), 0);
        put(txn, "events", encode_key(EventKey{1, 1'000'000, 101}), {static_cast<char*>(value.mv_data), value.mv_size});
    });
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_TRUE(scan_all(*snapshot, 0));
    const auto moved = scan_all(*snapshot, 1);
    ASSERT_FALSE(moved);
    EXPECT_EQ(moved.error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace ingero
