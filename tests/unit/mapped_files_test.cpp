// The daemon holds a bounded number of descriptors, however many files a process maps.
#include "daemon/ingerod/stacks/mapped_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

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
        for (const Mapping& one : mappings_) found.push_back(files_.find(pid_, 1000, one));
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
        const MappedFilePtr later = files_.find(pid_, 1000, mappings_[i]);
        ASSERT_NE(later, nullptr) << i;
        EXPECT_TRUE(later->fd);
    }
    EXPECT_LE(held(), MappedFiles::max_open + 1);
    EXPECT_FALSE(found[0]->fd) << "the oldest";
    EXPECT_TRUE(found[99]->fd);
    EXPECT_EQ(files_.find(pid_, 1000, mappings_[0]), found[0]);
    EXPECT_TRUE(found[0]->fd);
}

}  // namespace
