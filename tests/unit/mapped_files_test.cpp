// The daemon holds a bounded number of descriptors, however many files a process maps.
#include "daemon/ingerod/stacks/mapped_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/model/time.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/stacks/native_stacks.h"

using namespace ingero;

namespace {

constexpr size_t too_many = MappedFiles::max_open + 40;

/// More files than may be held open, each mapped as code in this process.
class ManyMappedFiles : public testing::Test {
  protected:
    void SetUp() override {
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        std::string folder = testing::TempDir() + "ingero-files-XXXXXX";
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        folder_ = folder;
        for (size_t i = 0; i < too_many; ++i) {
            const UniqueFd file(open((folder_ / std::to_string(i)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
            ASSERT_TRUE(file);
            ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(page)), 0);
            ASSERT_NE(mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, file.get(), 0), MAP_FAILED);
        }
        for (const Mapping& one : proc_.executable_mappings(pid_))
            if (one.path.starts_with(folder)) mappings_.push_back(one);
        ASSERT_EQ(mappings_.size(), too_many);
        if (auto opened = proc_.open_mapped_file(pid_, mappings_[0]); !opened)
            GTEST_SKIP() << "opening mapped files needs CAP_CHECKPOINT_RESTORE: " << opened.error().message;
    }
    void TearDown() override {
        for (const Mapping& one : mappings_) munmap(reinterpret_cast<void*>(one.start), one.end - one.start);
        std::filesystem::remove_all(folder_);
    }
    /// Descriptors of this process on the files.
    size_t held() const {
        size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            count += std::filesystem::read_symlink(entry, gone).string().starts_with(folder_.string());
        }
        return count;
    }
    std::vector<MappedFilePtr> find_all() {
        std::vector<MappedFilePtr> found;
        for (const Mapping& one : mappings_) found.push_back(files_.find(pid_, 0, one));
        return found;
    }

    const uint32_t pid_ = static_cast<uint32_t>(getpid());
    const ProcFs proc_;
    std::filesystem::path folder_;
    std::vector<Mapping> mappings_;
    EventLoop loop_;
    WorkerPool workers_{loop_, {.program = "/nonexistent", .store_directory = {}, .node = {}}};
    WalkTables tables_{{}, 0};
    MappedFiles files_{loop_, workers_, proc_, tables_, 1, [](const MappedFile&) {}};
};

TEST_F(ManyMappedFiles, that_wait_for_their_tables_are_not_opened_beyond_the_limit) {
    const auto found = find_all();
    EXPECT_EQ(found[MappedFiles::max_open], nullptr);
    // The one that is asked about is duplicated for the worker.
    EXPECT_LE(held(), MappedFiles::max_open + 1);
    EXPECT_GE(held(), MappedFiles::max_open);
}

TEST_F(ManyMappedFiles, give_up_their_descriptors_for_others_once_their_tables_are_there_and_get_them_again) {
    auto found = find_all();
    for (size_t i = 0; i < 100; ++i) found[i]->compiled = true;
    for (size_t i = MappedFiles::max_open; i < too_many; ++i) {
        const MappedFilePtr later = files_.find(pid_, 0, mappings_[i]);
        ASSERT_NE(later, nullptr) << i;
        EXPECT_TRUE(later->fd);
    }
    EXPECT_LE(held(), MappedFiles::max_open + 1);
    EXPECT_FALSE(found[0]->fd) << "the oldest";
    EXPECT_TRUE(found[99]->fd);
    EXPECT_EQ(files_.find(pid_, 0, mappings_[0]), found[0]);
    EXPECT_TRUE(found[0]->fd);
}

TEST_F(ManyMappedFiles, of_one_user_leave_descriptors_to_others) {
    std::set<MappedFilePtr> found;
    const auto held_by = [&](uint32_t user) {
        for (const Mapping& one : mappings_)
            if (const MappedFilePtr file = files_.find(pid_, user, one)) found.insert(file);
        return std::count_if(found.begin(), found.end(),
                             [&](const auto& file) { return file->fd && file->opener == user; });
    };
    EXPECT_EQ(held_by(1000), MappedFiles::max_open / 2);
    EXPECT_EQ(held_by(1001), MappedFiles::max_open / 4);
    EXPECT_LE(held(), MappedFiles::max_open * 3 / 4 + 1);
    for (const MappedFilePtr& file : found)
        if (file->opener == 1000) file->compiled = true;
    EXPECT_LE(held_by(1000), MappedFiles::max_open / 2) << "its own give theirs up, and nobody else's";
    EXPECT_EQ(
        std::count_if(found.begin(), found.end(), [](const auto& file) { return file->fd && file->opener == 1001; }),
        MappedFiles::max_open / 4);
}

TEST(MappingsOfProcesses, of_one_user_leave_places_to_others_also_while_old_ones_rest) {
    WalkTables tables{{}, 0};
    const std::vector<ingero_mapping> mappings(INGERO_MAX_PROCESS_MAPPINGS);
    // Without a kernel side none is stored, and the places rest as those of a list that was replaced.
    const auto set = [&](uint32_t user, uint32_t pid) {
        const auto told = tables.set_mappings({pid, 1}, user, 1, mappings);
        return told ? ErrorCode{} : told.error().code;
    };
    uint32_t lists = 0;
    while (lists < 100 && set(1000, lists + 1) == ErrorCode::internal) ++lists;
    EXPECT_EQ(lists, INGERO_MAX_MAPPINGS / INGERO_MAX_PROCESS_MAPPINGS / 2);
    EXPECT_EQ(set(1000, 200), ErrorCode::busy);
    EXPECT_EQ(set(1001, 201), ErrorCode::internal) << "it finds places";
}

/// Processes that map as many files, with as long paths, as they like: told by a folder in the form of /proc.
class FilesWithoutEnd : public testing::Test {
  protected:
    static constexpr size_t path_bytes = 200;

    void SetUp() override {
        std::string folder = testing::TempDir() + "ingero-maps-XXXXXX";
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        root_ = folder;
    }
    void TearDown() override { std::filesystem::remove_all(root_); }
    ProcessKey make_process(uint32_t pid, uint32_t uid, size_t mappings) {
        const auto directory = root_ / std::to_string(pid);
        std::filesystem::create_directory(directory);
        const std::string id = std::to_string(pid);
        std::ofstream(directory / "stat") << id << " (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0";
        std::ofstream(directory / "status") << "Tgid:\t" << id << "\nPid:\t" << id << "\nPPid:\t1\nUid:\t" << uid
                                            << "\t" << uid << "\t" << uid << "\t" << uid << "\n";
        std::ofstream maps(directory / "maps");
        const std::string path = "/" + std::string(path_bytes, 'x');
        for (size_t i = 1; i <= mappings; ++i)
            maps << std::hex << i * 0x1000 << "-" << (i + 1) * 0x1000 << " r-xp 00000000 00:99 " << std::dec << i << " "
                 << path << "\n";
        return {pid, 1'000'000'000};
    }

    std::filesystem::path root_;
    EventLoop loop_;
    WorkerPool workers_{loop_, {.program = "/nonexistent", .store_directory = {}, .node = {}}};
    const UidOwners owners_{};
    ingero_stack_control control_{};
};

TEST_F(FilesWithoutEnd, of_one_process_are_remembered_as_far_as_stacks_are_walked_in_them) {
    const ProcFs proc(root_.string());
    NativeStacks stacks(loop_, {.control = &control_}, workers_, proc, owners_,
                        {[](StackRow) {}, [](FileRow) {}, [](SymbolRow) {}}, true);
    stacks.add_process(make_process(77, 1000, 60'000));
    EXPECT_GT(stacks.list_bytes(), 0U);
    EXPECT_LT(stacks.list_bytes(), INGERO_MAX_PROCESS_MAPPINGS * path_bytes) << "not even their paths are kept";
}

TEST_F(FilesWithoutEnd, of_one_user_leave_memory_to_others) {
    const ProcFs proc(root_.string());
    NativeStacks stacks(loop_, {.control = &control_}, workers_, proc, owners_,
                        {[](StackRow) {}, [](FileRow) {}, [](SymbolRow) {}}, true);
    stacks.add_process(make_process(1, 1000, INGERO_MAX_PROCESS_MAPPINGS));
    const uint64_t each = stacks.list_bytes();
    const auto most = static_cast<uint32_t>(NativeStacks::max_list_bytes / 2 / each);
    for (uint32_t pid = 2; pid <= most + 20; ++pid)
        stacks.add_process(make_process(pid, 1000, INGERO_MAX_PROCESS_MAPPINGS));
    EXPECT_EQ(stacks.list_bytes(), most * each);
    stacks.add_process(make_process(most + 21, 1001, INGERO_MAX_PROCESS_MAPPINGS));
    EXPECT_EQ(stacks.list_bytes(), (most + 1) * each);
}

// A program may lay out frames as it likes, of code that is mapped nowhere: each asks what is mapped now.
TEST_F(FilesWithoutEnd, are_not_listed_again_for_each_frame_of_a_stack_that_lies_in_none) {
    constexpr auto pause = std::chrono::milliseconds(250);  // between two readings that nothing has asked for
    const ProcFs proc(root_.string());
    size_t stored = 0;
    NativeStacks stacks(loop_, {.control = &control_}, workers_, proc, owners_,
                        {[&](StackRow) { ++stored; }, [](FileRow) {}, [](SymbolRow) {}}, true);
    const ProcessKey key = make_process(77, 1000, 10);
    stacks.add_process(key);
    // Reading begins with opening, and the end of each is told too: two events, however many there are.
    const UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    ASSERT_GE(inotify_add_watch(watch.get(), (root_ / "77/maps").c_str(), IN_OPEN | IN_CLOSE_NOWRITE), 0);
    ingero_stack_record record{};
    record.tgid = key.pid;
    record.process_start_ns = key.start_ns;
    record.frames = INGERO_MAX_STACK_FRAMES;
    const auto began = std::chrono::steady_clock::now();
    for (record.stack = 1; record.stack <= 100; ++record.stack) {
        record.time_ns = monotonic_now_ns();
        for (size_t i = 0; i < INGERO_MAX_STACK_FRAMES; ++i)
            record.address[i] = 0x7f00'0000'0000 + (record.stack * INGERO_MAX_STACK_FRAMES + i) * 0x10000;
        stacks.on_stack(record);
    }
    const auto took = std::chrono::steady_clock::now() - began;
    size_t opened = 0;
    alignas(inotify_event) char events[4'096];
    for (ssize_t got = 0; (got = read(watch.get(), events, sizeof events)) > 0;)
        for (ssize_t at = 0; at < got; at += static_cast<ssize_t>(sizeof(inotify_event)))
            opened += (reinterpret_cast<const inotify_event*>(events + at)->mask & IN_OPEN) != 0;
    EXPECT_EQ(stored, 100u);
    EXPECT_LE(opened, 1u + static_cast<size_t>(took / pause));
}

}  // namespace
