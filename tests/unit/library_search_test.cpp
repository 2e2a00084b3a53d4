// Libraries that no known process has: released once nobody maps them, and read anew by whoever does. What happens
// while all processes are searched counts.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "daemon/ingerod/targets/libraries.h"
#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;

namespace {

namespace fs = std::filesystem;

constexpr uint64_t patience_us = 60'000'000;
constexpr uint64_t soon_us = 10'000;
constexpr TracedFile driver{Library::cuda_driver, false};

class AnyProbes : public AttachedLibrary {
  public:
    size_t sites() const override { return 1; }
};

/// A copy of the stand-in driver library, mapped as code in this process, which alone is in /proc, or nobody.
class ALibraryOfNoKnownProcess : public testing::Test {
  protected:
    void SetUp() override {
        fs::create_directory(folder_ / "proc");
        fs::create_symlink("/proc/self", folder_ / "proc/self");
        show_process();
        library_ = map("libcuda.so.1");
        if (auto opened = proc_.open_mapped_file(pid_, library_); !opened)
            GTEST_SKIP() << "opening mapped files needs CAP_CHECKPOINT_RESTORE: " << opened.error().message;
    }
    void TearDown() override {
        libraries_.clear();
        if (library_.end != 0) unmap(library_);
    }

    void show_process() { fs::create_symlink("/proc/" + std::to_string(pid_), process_); }
    void hide_process() { fs::remove(process_); }

    Mapping map(const std::string& name) {
        const std::string path = folder_ / name;
        fs::copy_file(CUDA_LIBRARY, path);
        const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        EXPECT_NE(mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, file.get(), 0), MAP_FAILED);
        for (const Mapping& one : proc_.executable_mappings(pid_))
            if (one.path == path) return one;
        ADD_FAILURE() << path << " is not mapped";
        return {};
    }
    static void unmap(Mapping& mapping) {
        munmap(reinterpret_cast<void*>(mapping.start), mapping.end - mapping.start);
        mapping.end = 0;
    }
    void rewrite(const std::string& name) const { std::ofstream(folder_ / name, std::ios::app) << "more"; }

    template <class Condition>
    void until(const Condition& condition) {
        while (!condition()) ASSERT_GT(sd_event_run(loop_.get(), patience_us), 0) << "nothing happens any more";
    }
    const LibraryEntry* entry_of(const Mapping& mapping) const { return libraries_.find({mapping.file, driver}); }
    bool is_attached(const Mapping& mapping) const {
        const LibraryEntry* entry = entry_of(mapping);
        return entry && entry->state == LibraryState::attached;
    }
    /// And not forgotten meanwhile: then it would have been found for the first time.
    bool is_read_anew() const { return is_attached(library_) && entry_of(library_)->attempts > 0; }
    void attach(const Mapping& mapping) {
        libraries_.see(pid_, getuid(), mapping, driver);
        until([&] { return is_attached(mapping); });
    }
    void watch_for_disuse(const Mapping& mapping) { libraries_.watch_for_disuse({mapping.file, driver}); }

    const uint32_t pid_ = static_cast<uint32_t>(getpid());
    const test::TemporaryDirectory folder_;
    const std::string process_ = folder_ / ("proc/" + std::to_string(pid_));
    const ProcFs proc_{folder_ / "proc"};
    Mapping library_;
    size_t asked_ = 0;  ///< whether a known process has it
    std::function<bool()> in_use_ = [] { return false; };
    EventLoop loop_;
    WorkerPool workers_{loop_, {.program = INGERO_WORKER, .store_directory = {}, .count = 1, .node = "test"}};
    const UidOwners owners_{};
    Libraries libraries_{loop_,
                         proc_,
                         {[](int, std::span<const ProbeSite>) -> Result<std::unique_ptr<AttachedLibrary>> {
                              return std::make_unique<AnyProbes>();
                          },
                          "nothing"},
                         workers_,
                         owners_,
                         {.in_use =
                              [this](const LibraryKey&) {
                                  ++asked_;
                                  return in_use_();
                              }},
                         {.usual_us = soon_us, .short_us = soon_us}};
};

TEST_F(ALibraryOfNoKnownProcess, is_released_like_all_others_that_nobody_maps) {
    Mapping other = map("libcuda.so.2");
    ASSERT_NO_FATAL_FAILURE(attach(library_));
    ASSERT_NO_FATAL_FAILURE(attach(other));
    watch_for_disuse(library_);
    watch_for_disuse(other);
    unmap(library_);
    unmap(other);
    until([&] { return libraries_.all().empty(); });
}

TEST_F(ALibraryOfNoKnownProcess, stays_attached_as_long_as_any_process_maps_it) {
    ASSERT_NO_FATAL_FAILURE(attach(library_));
    watch_for_disuse(library_);
    // Before each search, and after it.
    until([&] { return asked_ >= 4; });
    EXPECT_TRUE(is_attached(library_));
    unmap(library_);
    until([&] { return libraries_.all().empty(); });
}

TEST_F(ALibraryOfNoKnownProcess, stays_attached_where_a_process_maps_it_during_the_search) {
    ASSERT_NO_FATAL_FAILURE(attach(library_));
    in_use_ = [this] { return asked_ > 1; };
    watch_for_disuse(library_);
    hide_process();
    until([&] { return asked_ == 2; });
    EXPECT_TRUE(is_attached(library_));
}

TEST_F(ALibraryOfNoKnownProcess, that_is_rewritten_is_read_anew_by_whoever_maps_it) {
    ASSERT_NO_FATAL_FAILURE(attach(library_));
    rewrite("libcuda.so.1");
    until([&] { return is_read_anew(); });
}

TEST_F(ALibraryOfNoKnownProcess, that_is_rewritten_is_forgotten_where_nobody_maps_it) {
    ASSERT_NO_FATAL_FAILURE(attach(library_));
    rewrite("libcuda.so.1");
    hide_process();
    until([&] { return libraries_.all().empty(); });
}

TEST_F(ALibraryOfNoKnownProcess, that_is_rewritten_is_read_anew_by_a_process_that_maps_it_after_it_was_visited) {
    ASSERT_NO_FATAL_FAILURE(attach(library_));
    rewrite("libcuda.so.1");
    // No search finds it: only as it is mapped is it there.
    hide_process();
    until([&] {
        if (!entry_of(library_) || is_attached(library_)) return !entry_of(library_) || is_read_anew();
        show_process();
        libraries_.see(pid_, getuid(), library_, driver);
        hide_process();
        return false;
    });
    EXPECT_TRUE(is_read_anew()) << "it was forgotten";
}

}  // namespace
