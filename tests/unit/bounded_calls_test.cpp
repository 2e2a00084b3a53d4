// What another process can hold up is given up in time, and no other question waits for it.
#include "daemon/ingerod/discovery/bounded_calls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "daemon/ingerod/discovery/mapped_text.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "tests/support/daemon.h"

namespace ingero {
namespace {

using std::chrono::milliseconds;
using test::TemporaryDirectory;

/// So that what is not given up has as long as it takes.
constexpr BoundedCallsLimits patient{.patience = milliseconds(60'000)};
constexpr BoundedCallsLimits hasty{.patience = milliseconds(20), .patience_late = milliseconds(5)};

/// A call that comes back when it is let.
struct HeldUp {
    std::promise<void> let;
    std::shared_future<void> gate = let.get_future().share();
    auto call() const {
        return [gate = gate] {
            gate.wait();
            return 1;
        };
    }
};

/// Calls until so many are left behind: on a busy machine one may be given up before it begins.
void leave_behind(BoundedCalls& calls, size_t wanted, uint32_t uid, const HeldUp& held) {
    for (uint32_t pid = 1; calls.left_behind() < wanted; ++pid)
        EXPECT_EQ(calls.run(pid, uid, held.call()), std::nullopt);
}

TEST(BoundedCallsTest, ReturnWhatTheCallReturns) {
    BoundedCalls calls(patient);
    EXPECT_EQ(calls.run(1, 0, [] { return std::string("text"); }), "text");
    EXPECT_EQ(calls.run(1, 0, [] { return 7; }), 7);
    EXPECT_EQ(calls.left_behind(), 0u);
}

TEST(BoundedCallsTest, OfOneFileLeaveOthersOfItsFileSystemAndOthersUsers) {
    constexpr uint64_t disk = 0x801, network = 0x30;
    BoundedCallsLimits limits = hasty;
    limits.left_behind_of_users_files = 2;
    HeldUp held;
    BoundedCalls calls(limits);
    const auto is_asked = [&](uint64_t device, uint64_t inode, uint32_t uid) {
        for (int i = 0; i < 1'000; ++i)  // a busy machine may need longer than is waited here
            if (calls.run({device, inode}, uid, [] { return 1; })) return true;
        return false;
    };
    while (calls.left_behind() == 0) EXPECT_EQ(calls.run({disk, 1}, 1'000, held.call()), std::nullopt);
    EXPECT_EQ(calls.run({disk, 1}, 1'001, [] { return 1; }), std::nullopt) << "the same file";
    EXPECT_TRUE(is_asked(disk, 2, 1'000));
    while (calls.left_behind() == 1) EXPECT_EQ(calls.run({disk, 2}, 1'000, held.call()), std::nullopt);
    EXPECT_EQ(calls.run({disk, 3}, 1'000, [] { return 1; }), std::nullopt) << "as many as may be";
    EXPECT_TRUE(is_asked(disk, 3, 1'001)) << "of another user";
    EXPECT_TRUE(is_asked(network, 3, 1'000)) << "on another file system";
    EXPECT_TRUE(is_asked(0, 1, 1'000)) << "a process";
    held.let.set_value();
}

TEST(BoundedCallsTest, GiveUpWhatDoesNotComeBackAndGoOn) {
    HeldUp held;
    BoundedCalls calls(hasty);
    while (calls.left_behind() == 0) EXPECT_EQ(calls.run(1, 1'000, held.call()), std::nullopt);
    EXPECT_EQ(calls.run(1, 1'000, [] { return 2; }), std::nullopt) << "about the same process";
    while (!calls.run(2, 1'000, [] { return 3; })) continue;  // a busy machine may need longer than is waited here
    held.let.set_value();
    while (calls.left_behind() != 0) std::this_thread::yield();
    while (!calls.run(1, 1'000, [] { return 4; })) continue;
}

TEST(BoundedCallsTest, AUserHasNoMoreThanTwoThreadsAndCostsOthersNothing) {
    HeldUp held;
    BoundedCalls calls(hasty);
    leave_behind(calls, 2, 1'000, held);
    EXPECT_EQ(calls.run(99, 1'000, [] { return 1; }), std::nullopt);
    EXPECT_EQ(calls.left_behind(), 2u);
    while (!calls.run(100, 1'001, [] { return 1; })) continue;
    held.let.set_value();
}

TEST(BoundedCallsTest, OfAllUsersTogetherAreBoundedToo) {
    HeldUp held;
    BoundedCallsLimits limits = hasty;
    limits.left_behind = 8;
    BoundedCalls calls(limits);
    for (uint32_t uid = 1; uid <= 4; ++uid) leave_behind(calls, 2 * size_t{uid}, uid, held);
    EXPECT_EQ(calls.run(99, 99, [] { return 1; }), std::nullopt);
    EXPECT_EQ(calls.left_behind(), 8u);
    held.let.set_value();
}

TEST(BoundedCallsTest, AreGivenUpSoonOfAUserWhoHasHeldThemUpForLong) {
    BoundedCallsLimits limits = patient;
    limits.patience_late = milliseconds(5);
    limits.held_up_us = 1'000;
    limits.held_up_period_ns = 3'600'000'000'000;
    BoundedCalls calls(limits);
    const auto takes_long = [] {
        std::this_thread::sleep_for(milliseconds(200));
        return 1;
    };
    EXPECT_EQ(calls.run(1, 1'000, takes_long), 1);
    EXPECT_EQ(calls.run(2, 1'000, takes_long), std::nullopt);
    EXPECT_EQ(calls.run(3, 1'001, takes_long), 1);
}

TEST(BoundedCallsTest, EndWithoutWaitingForTheCall) {
    HeldUp held;
    {
        BoundedCalls calls(hasty);
        leave_behind(calls, 1, 1'000, held);
    }
    held.let.set_value();
}

/// A folder in place of /proc, in which the first process's maps are a pipe that nobody writes to.
class ProcThatHangs : public testing::Test {
  protected:
    ProcThatHangs() {
        for (const char* pid : {"1", "2"}) {
            std::filesystem::create_directory(directory_ / pid);
            std::ofstream(directory_ / (std::string(pid) + "/status"))
                << "Tgid:\t" << pid << "\nUid:\t1000\t1000\t1000\t1000\n";
        }
        EXPECT_EQ(mkfifo((directory_ / "1/maps").c_str(), 0600), 0);
        std::ofstream(directory_ / "2/maps") << "1000-2000 r-xp 00000000 08:01 7 /lib/libcuda.so.1\n";
    }
    ~ProcThatHangs() override {
        // Whoever still waits for it goes on.
        const UniqueFd end(open((directory_ / "1/maps").c_str(), O_RDWR | O_CLOEXEC));
    }

    TemporaryDirectory directory_;
};

TEST_F(ProcThatHangs, HoldsUpNoQuestionAboutOthers) {
    const ProcFs proc(directory_.path(), {.patience = milliseconds(100)});
    EXPECT_EQ(proc.try_executable_mappings(1), std::nullopt);
    std::optional<std::vector<Mapping>> other;
    while (!(other = proc.try_executable_mappings(2))) continue;
    ASSERT_EQ(other->size(), 1u);
    EXPECT_EQ(other->front().path, "/lib/libcuda.so.1");
    EXPECT_EQ(proc.try_executable_mappings(1), std::nullopt) << "at once";
    EXPECT_TRUE(proc.executable_mappings(1).empty());
}

TEST_F(ProcThatHangs, IsReadOnceItAnswers) {
    const ProcFs proc(directory_.path(), {.patience = milliseconds(20)});
    EXPECT_EQ(proc.try_executable_mappings(1), std::nullopt);
    {
        const UniqueFd end(open((directory_ / "1/maps").c_str(), O_RDWR | O_CLOEXEC));
        std::filesystem::remove(directory_ / "1/maps");
        std::ofstream(directory_ / "1/maps") << "1000-2000 r-xp 00000000 08:01 8 /lib/libcudart.so.12\n";
    }
    std::optional<std::vector<Mapping>> maps;
    while (!(maps = proc.try_executable_mappings(1))) continue;
    EXPECT_EQ(maps->front().path, "/lib/libcudart.so.12");
}

/// A file mapped by the test itself.
class TextOfAMappedFile : public testing::Test {
  protected:
    TextOfAMappedFile() {
        std::string bytes(3 * page, 'x');
        bytes.replace(page - 4, 12, std::string("kernel_name\0", 12));
        bytes[3 * page - 3] = '\0';
        std::ofstream(directory_ / "file", std::ios::binary) << bytes;
        map();
    }
    ~TextOfAMappedFile() override { munmap(mapped_, 3 * page); }
    void map() {
        const UniqueFd fd(open((directory_ / "file").c_str(), O_RDONLY | O_CLOEXEC));
        mapped_ = mmap(mapped_, 3 * page, PROT_READ, MAP_PRIVATE | (mapped_ ? MAP_FIXED : 0), fd.get(), 0);
        ASSERT_NE(mapped_, MAP_FAILED);
    }
    uint64_t address() const { return reinterpret_cast<uint64_t>(mapped_); }

    static constexpr size_t page = 4'096;
    const TemporaryDirectory directory_;
    void* mapped_ = nullptr;
    const ProcFs proc_;
    const ProcessKey self_{static_cast<uint32_t>(getpid()), proc_.start_of(static_cast<uint32_t>(getpid())).value()};
    MappedText text_{proc_, [](uint32_t uid) { return uid; }};
};

TEST_F(TextOfAMappedFile, IsReadFromTheFileUpToItsEnd) {
    EXPECT_EQ(text_.read(self_, address() + page - 4, 511), "kernel_name");
    EXPECT_EQ(text_.read(self_, address() + page - 4, 6), "kernel");
    EXPECT_EQ(text_.read(self_, address() + 3 * page - 3, 511), std::nullopt) << "no text";
    EXPECT_EQ(text_.read(self_, address() + 3 * page - 2, 511), std::nullopt) << "the mapping ends before it";
    EXPECT_EQ(text_.read(self_, address() + 3 * page - 2, 2), "xx");
    EXPECT_EQ(text_.read({self_.pid, self_.start_ns + 1}, address() + page - 4, 511), std::nullopt)
        << "another process";
}

TEST_F(TextOfAMappedFile, IsNoneWhereNoFileIsMapped) {
    EXPECT_EQ(text_.read(self_, 64, 511), std::nullopt);
    const std::string on_the_heap(512, 'x');
    EXPECT_EQ(text_.read(self_, reinterpret_cast<uint64_t>(on_the_heap.data()), 511), std::nullopt);
}

TEST_F(TextOfAMappedFile, IsThatOfWhatIsMappedThereOnceTheFormerIsForgotten) {
    EXPECT_EQ(text_.read(self_, address() + page - 4, 511), "kernel_name");
    std::filesystem::remove(directory_ / "file");
    std::ofstream(directory_ / "file", std::ios::binary) << std::string(page - 4, 'x') + "other" << '\0';
    map();
    text_.forget(self_.pid);
    EXPECT_EQ(text_.read(self_, address() + page - 4, 511), "other");
}

TEST_F(TextOfAMappedFile, IsLookedForAsLongAsItsUserHasTimeLeft) {
    MappedText text(proc_, [](uint32_t uid) { return uid; }, {.burst_us = 1, .period_ns = 3'600'000'000'000});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(text.read(self_, address() + page - 4, 511), "kernel_name") << "once found";
    text.forget_all();
    EXPECT_EQ(text.read(self_, address() + page - 4, 511), std::nullopt);
}

TEST(ProcPath, NamesAFileWhereNoLinkIsOnTheWay) {
    TemporaryDirectory directory;
    const ProcFs proc;
    const auto self = static_cast<uint32_t>(getpid());
    std::ofstream(directory / "file") << "x";
    std::filesystem::create_directory(directory / "folder");
    std::ofstream(directory / "folder/file") << "x";
    std::filesystem::create_symlink(directory / "file", directory / "link");
    std::filesystem::create_symlink(directory / "folder", directory / "way");
    EXPECT_TRUE(proc.has_file_at(self, directory / "file"));
    EXPECT_TRUE(proc.has_file_at(self, directory / "folder/file"));
    EXPECT_FALSE(proc.has_file_at(self, directory / "gone"));
    EXPECT_FALSE(proc.has_file_at(self, directory / "link"));
    EXPECT_FALSE(proc.has_file_at(self, directory / "way/file"));
}

}  // namespace
}  // namespace ingero
