// What is kept of a footprint's records: rows, results that come later, and bounds.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "core/render/footprint.h"
#include "daemon/ingerod/footprint/footprint_tally.h"
#include "daemon/ingerod/footprint/syscall_names.h"

using namespace ingero;
using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

void add(FootprintTally& tally, ingero_footprint_record record, const std::string& base, const std::string& text) {
    record.base_bytes = static_cast<uint16_t>(base.size());
    record.text_bytes = static_cast<uint16_t>(text.size());
    tally.add(record, base + text);
}

ingero_footprint_record record_of(uint32_t kind, uint32_t tid = 1, uint32_t sequence = 1) {
    ingero_footprint_record record{};
    record.kind = kind;
    record.tgid = 1;
    record.tid = tid;
    record.sequence = sequence;
    return record;
}

void add_result(FootprintTally& tally, uint32_t tid, uint32_t sequence, int64_t result) {
    ingero_footprint_record record = record_of(INGERO_FOOTPRINT_RESULT, tid, sequence);
    record.bits = INGERO_FOOTPRINT_HAS_RESULT;
    record.result = result;
    add(tally, record, "", "");
}

Footprint written(FootprintTally& tally) {
    tally.finish();
    Footprint footprint;
    tally.write(footprint);
    return footprint;
}

TEST(FootprintTally, a_call_is_counted_by_the_result_that_comes_later) {
    FootprintTally tally;
    add(tally, record_of(INGERO_FOOTPRINT_OPEN, 1, 1), "", "/etc/one\0"s);
    add(tally, record_of(INGERO_FOOTPRINT_OPEN, 2, 1), "b\0a\0"s, "two\0"s);
    add_result(tally, 2, 1, 3);
    add_result(tally, 1, 1, -ENOENT);
    add(tally, record_of(INGERO_FOOTPRINT_OPEN, 1, 2), "", "/etc/one\0"s);
    add_result(tally, 1, 1, 4);  // of another call: that of the second one was lost
    add(tally, record_of(INGERO_FOOTPRINT_OPEN, 1, 3), "", "/etc/one\0"s);
    add_result(tally, 1, 3, -ENOENT);
    const Footprint footprint = written(tally);
    ASSERT_EQ(footprint.files.size(), 3u);
    EXPECT_EQ(footprint.files[0].path, "/a/b/two");
    EXPECT_EQ(footprint.files[0].outcome, 0);
    EXPECT_EQ(footprint.files[1].path, "/etc/one");
    EXPECT_EQ(footprint.files[1].outcome, std::nullopt);
    EXPECT_EQ(footprint.files[2].outcome, ENOENT);
    EXPECT_EQ(footprint.files[2].count, 2u);
}

TEST(FootprintTally, paths_say_where_they_are_cut_or_in_no_directory) {
    FootprintTally tally;
    ingero_footprint_record library = record_of(INGERO_FOOTPRINT_LIBRARY);
    library.bits = INGERO_FOOTPRINT_DETACHED;
    add(tally, library, "memfd:code\0"s, "");
    library.bits = INGERO_FOOTPRINT_BASE_CUT;
    add(tally, library, "lib.so\0deep\0"s, "");
    library.bits = 0;
    add(tally, library, "", "");
    add(tally, library, "no end", "");
    const Footprint footprint = written(tally);
    std::vector<std::string> paths;
    for (const FootprintLibrary& row : footprint.libraries) paths.push_back(row.path);
    EXPECT_THAT(paths, testing::UnorderedElementsAre("memfd:code", "…/deep/lib.so", "/", "/no end"));
}

TEST(FootprintTally, flags_are_named_and_those_without_meaning_for_the_file_left_out) {
    FootprintTally tally;
    ingero_footprint_record open = record_of(INGERO_FOOTPRINT_OPEN);
    open.bits = INGERO_FOOTPRINT_HAS_RESULT;
    open.flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NONBLOCK;
    add(tally, open, "", "/a\0"s);
    open.flags = O_RDWR | O_TMPFILE;
    add(tally, open, "", "/b\0"s);
    open.flags = O_RDONLY | O_DIRECTORY;
    add(tally, open, "", "/c\0"s);
    const Footprint footprint = written(tally);
    ASSERT_EQ(footprint.files.size(), 3u);
    EXPECT_THAT(footprint.files[0].flags, ElementsAre("O_WRONLY", "O_CREAT", "O_EXCL"));
    EXPECT_THAT(footprint.files[1].flags, ElementsAre("O_RDWR", "O_TMPFILE"));
    EXPECT_THAT(footprint.files[2].flags, ElementsAre("O_RDONLY", "O_DIRECTORY"));
}

TEST(FootprintTally, addresses_of_any_length_are_read_within_their_bounds) {
    FootprintTally tally;
    ingero_footprint_record connect = record_of(INGERO_FOOTPRINT_ENDPOINT);
    connect.bits = INGERO_FOOTPRINT_HAS_RESULT;
    connect.number = SYS_connect;
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(80);
    v4.sin_addr.s_addr = htonl(0x0a000001);
    std::string bytes(reinterpret_cast<const char*>(&v4), sizeof v4);
    add(tally, connect, "", bytes);
    bytes[15] = 'x';  // padding
    add(tally, connect, "", bytes);
    for (size_t size = 0; size < bytes.size(); ++size) add(tally, connect, "", bytes.substr(0, size));
    const uint16_t local = AF_UNIX;
    const std::string family(reinterpret_cast<const char*>(&local), sizeof local);
    add(tally, connect, "", family + "/run/a\0left over"s);
    add(tally, connect, "", family + "\0name\0more"s);
    add(tally, connect, "", family + "x");
    std::map<std::string, uint64_t> counts;
    for (const FootprintEndpoint& row : written(tally).endpoints)
        counts[row.family + " " + row.address + (row.port ? ":" + std::to_string(*row.port) : "")] += row.count;
    EXPECT_EQ(counts["inet 10.0.0.1:80"], 2u);
    EXPECT_EQ(counts["inet "], 14u);
    EXPECT_EQ(counts["none "], 2u);
    EXPECT_EQ(counts["unix /run/a"], 1u);
    EXPECT_EQ(counts["unix @name\0more"s], 1u);
    EXPECT_EQ(counts["unix x"], 1u);
}

TEST(FootprintTally, what_has_no_room_is_counted) {
    FootprintTally tally;
    ingero_footprint_record open = record_of(INGERO_FOOTPRINT_OPEN);
    open.bits = INGERO_FOOTPRINT_HAS_RESULT;
    constexpr size_t more = 10;
    for (size_t i = 0; i < FootprintTally::max_files + more; ++i)
        add(tally, open, "", "/file" + std::to_string(i) + '\0');
    add(tally, open, "", "/file0\0"s);
    for (size_t i = 0; i < FootprintTally::max_processes + more; ++i) {
        ingero_footprint_record start = record_of(INGERO_FOOTPRINT_START);
        start.tgid = static_cast<uint32_t>(i + 1);
        add(tally, start, "", "sh\0"s);
    }
    const Footprint footprint = written(tally);
    EXPECT_EQ(footprint.files.size(), FootprintTally::max_files);
    EXPECT_EQ(footprint.losses.files, more);
    EXPECT_EQ(footprint.processes.size(), FootprintTally::max_processes);
    EXPECT_EQ(footprint.losses.processes, more);
}

TEST(FootprintTally, long_names_have_a_share_of_memory_together) {
    FootprintTally tally;
    ingero_footprint_record open = record_of(INGERO_FOOTPRINT_OPEN);
    open.bits = INGERO_FOOTPRINT_HAS_RESULT;
    const std::string folder(2'000, 'x');
    size_t kept = 0;
    for (size_t i = 0; i < FootprintTally::max_files; ++i) add(tally, open, folder + '\0', std::to_string(i) + '\0');
    const Footprint footprint = written(tally);
    for (const FootprintFile& row : footprint.files) kept += row.path.size();
    EXPECT_LE(kept, FootprintTally::max_text_bytes);
    EXPECT_GT(footprint.losses.files, 0u);
    EXPECT_EQ(footprint.files.size() + footprint.losses.files, FootprintTally::max_files);
}

TEST(FootprintTally, a_record_that_says_more_than_it_has_is_left_alone) {
    FootprintTally tally;
    ingero_footprint_record open = record_of(INGERO_FOOTPRINT_OPEN);
    open.bits = INGERO_FOOTPRINT_HAS_RESULT;
    open.base_bytes = 10;
    open.text_bytes = 10;
    tally.add(open, std::string(19, 'x'));
    EXPECT_TRUE(written(tally).files.empty());
}

TEST(SyscallNames, are_of_the_way_in_which_a_call_was_made) {
    EXPECT_EQ(syscall_name(INGERO_FOOTPRINT_NATIVE, SYS_read), "read");
    EXPECT_EQ(syscall_name(INGERO_FOOTPRINT_NATIVE, 60'000), "");
#ifdef __x86_64__
    EXPECT_EQ(syscall_name(INGERO_FOOTPRINT_COMPAT, 5), "open");
    EXPECT_EQ(syscall_name(INGERO_FOOTPRINT_X32, 512), "rt_sigaction");
#endif
    EXPECT_EQ(errno_name(EACCES), "EACCES");
    EXPECT_EQ(errno_name(512), "ERESTARTSYS");
    EXPECT_EQ(errno_name(4'000), "4000");
}

TEST(FootprintText, tells_what_is_not_in_it_and_escapes_what_is) {
    Footprint footprint;
    footprint.process.comm = "evil\033[31m";
    footprint.process.key.pid = 7;
    footprint.calls.push_back(
        {.abi = "32-bit", .number = 5, .name = "open", .count = 3, .returned = 3, .errors = {{ENOENT, 2}}});
    footprint.files.push_back({.path = "/tmp/\033]0;title\a\n", .flags = {"O_RDONLY"}, .outcome = ENOENT, .count = 2});
    footprint.losses.io_uring_calls = 12;
    const nlohmann::json answer = footprint_json(footprint, "node");
    EXPECT_FALSE(answer.at("coverage").at("complete").get<bool>());
    const std::string text = text_footprint(answer);
    EXPECT_EQ(text.find('\033'), std::string::npos);
    EXPECT_EQ(text.find('\a'), std::string::npos);
    EXPECT_THAT(text, HasSubstr("open (32-bit)"));
    EXPECT_THAT(text, HasSubstr("ENOENT 2"));
    EXPECT_THAT(text, HasSubstr("12 times the processes used io_uring"));
    footprint.losses.io_uring_calls = 0;
    EXPECT_TRUE(footprint_json(footprint, "node").at("coverage").at("complete").get<bool>());
    EXPECT_THAT(text_footprint(nlohmann::json::object()), HasSubstr("0 processes"));
}

}  // namespace
