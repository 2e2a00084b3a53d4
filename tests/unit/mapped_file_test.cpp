// The file behind a mapping is opened, also where the mapping has changed since it was told of.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/ingerod/discovery/proc_fs.h"

using namespace ingero;

namespace {

/// Three pages of a file, mapped as code in this process.
class MappedFile : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = testing::TempDir() + "ingero-mapped-XXXXXX";
        const UniqueFd file(mkstemp(name.data()));
        ASSERT_TRUE(file);
        unlink(name.c_str());
        ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(3 * page_)), 0);
        ASSERT_EQ(fstat(file.get(), &facts_), 0);
        void* memory = mmap(nullptr, 3 * page_, PROT_READ | PROT_EXEC, MAP_PRIVATE, file.get(), 0);
        ASSERT_NE(memory, MAP_FAILED);
        memory_ = static_cast<char*>(memory);
        for (const Mapping& one : proc_.executable_mappings(pid_))
            if (one.start == reinterpret_cast<uint64_t>(memory_)) mapping_ = one;
        ASSERT_NE(mapping_.file.inode, 0u);
        if (auto opened = proc_.open_mapped_file(pid_, mapping_); !opened && opened.error().code == ErrorCode::denied)
            GTEST_SKIP() << "opening mapped files needs CAP_CHECKPOINT_RESTORE";
    }
    void TearDown() override { munmap(memory_, 3 * page_); }

    const uint32_t pid_ = static_cast<uint32_t>(getpid());
    const size_t page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const ProcFs proc_;
    char* memory_ = nullptr;
    Mapping mapping_;
    struct stat facts_ {};
};

TEST_F(MappedFile, is_opened_by_a_range_of_which_a_part_has_become_data) {
    // As a loader does whose library has its code in the first segment.
    ASSERT_EQ(mprotect(memory_ + page_, page_, PROT_READ), 0);
    const auto fd = proc_.open_mapped_file(pid_, mapping_);
    ASSERT_TRUE(fd) << fd.error().message;
    struct stat opened {};
    ASSERT_EQ(fstat(fd->get(), &opened), 0);
    EXPECT_EQ(opened.st_ino, facts_.st_ino);
}

TEST_F(MappedFile, is_not_found_where_none_of_its_code_is_left) {
    ASSERT_EQ(mprotect(memory_, 3 * page_, PROT_READ), 0);
    ASSERT_EQ(munmap(memory_ + page_, page_), 0);
    const auto fd = proc_.open_mapped_file(pid_, mapping_);
    ASSERT_FALSE(fd);
    EXPECT_EQ(fd.error().code, ErrorCode::not_found);
}

TEST_F(MappedFile, of_another_file_system_than_was_told_is_not_opened) {
    struct stat proc {};
    ASSERT_EQ(stat("/proc", &proc), 0);
    mapping_.file.device = proc.st_dev;
    const auto fd = proc_.open_mapped_file(pid_, mapping_);
    ASSERT_FALSE(fd);
    EXPECT_EQ(fd.error().code, ErrorCode::not_found);
    EXPECT_EQ(fd.error().message, mapping_.path + ": this is not the file that is mapped");
}

TEST_F(MappedFile, of_another_inode_than_was_told_is_not_opened) {
    mapping_.file.inode++;
    const auto fd = proc_.open_mapped_file(pid_, mapping_);
    ASSERT_FALSE(fd);
    EXPECT_EQ(fd.error().code, ErrorCode::not_found);
}

}  // namespace
