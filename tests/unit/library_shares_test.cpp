// Who pays for a library's probes, and that nobody can keep others' calls from being seen.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <future>
#include <utility>

#include "daemon/ingerod/targets/libraries.h"
#include "test_paths.h"

using namespace ingero;

namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t patience_us = 60'000'000;
constexpr uint32_t hostile = 4'000'001, other = 4'000'002;
constexpr TracedFile driver{Library::cuda_driver, false}, runtime{Library::cuda_runtime, false};

class CountedProbes : public AttachedLibrary {
  public:
    explicit CountedProbes(size_t sites) : sites_(sites) {}
    size_t sites() const override { return sites_; }

  private:
    size_t sites_;
};

/// Copies of the stand-in driver library, mapped as code in this process, which stands for everybody's.
class LibraryShares : public testing::Test {
  protected:
    void SetUp() override {
        std::string folder = testing::TempDir() + "ingero-shares-XXXXXX";
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        folder_ = folder;
        if (geteuid() != 0) GTEST_SKIP() << "to give files to other users takes root";
        if (auto opened = proc_.open_mapped_file(pid_, map("probe.so", 0)); !opened)
            GTEST_SKIP() << "opening mapped files needs CAP_CHECKPOINT_RESTORE: " << opened.error().message;
    }
    void TearDown() override {
        libraries_.clear();
        for (const Mapping& one : mapped_) munmap(reinterpret_cast<void*>(one.start), one.end - one.start);
        std::filesystem::remove_all(folder_);
    }

    /// A copy of the driver library that belongs to `owner`.
    Mapping map(const std::string& name, uint32_t owner) {
        const std::string path = folder_ / name;
        std::filesystem::copy_file(CUDA_LIBRARY, path);
        EXPECT_EQ(chown(path.c_str(), owner, owner), 0);
        const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        EXPECT_NE(mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, file.get(), 0), MAP_FAILED);
        for (const Mapping& one : proc_.executable_mappings(pid_))
            if (one.path == path) mapped_.push_back(one);
        return mapped_.back();
    }
    /// What became of it once it is read.
    Libraries::Sight see(uint32_t uid, const Mapping& mapping, TracedFile as = driver) {
        users_[{mapping.file, as}].push_back(uid);
        const Libraries::Sight sight = libraries_.see(pid_, uid, mapping, as);
        settle();
        return sight.refused.empty() ? Libraries::Sight{.entry = libraries_.find({mapping.file, as}), .refused = {}}
                                     : sight;
    }
    void settle() {
        until([this] { return libraries_.settled(); });
    }
    template <class Condition>
    void until(const Condition& condition) {
        while (!condition())
            if (sd_event_run(loop_.get(), patience_us) <= 0) FAIL() << "no worker answers";
    }
    bool is_attached(const Mapping& mapping, TracedFile as = driver) {
        const LibraryEntry* entry = libraries_.find({mapping.file, as});
        return entry && entry->state == LibraryState::attached;
    }
    /// As many of one's own as are attached to.
    void use_up_sites(uint32_t uid) {
        for (size_t i = 0; i < 2 * Libraries::max_libraries_a_user; ++i) {
            const Mapping copy = map("libcuda.so." + std::to_string(uid) + "." + std::to_string(i), uid);
            if (const auto sight = see(uid, copy); !sight.entry || sight.entry->state != LibraryState::attached) return;
        }
        FAIL() << "there is no end to what a user may attach to";
    }
    void skip_where_nothing_is_roots() {
        struct statvfs mount {};
        ASSERT_EQ(statvfs(folder_.c_str(), &mount), 0);
        if ((mount.f_flag & ST_NOSUID) != 0) GTEST_SKIP() << folder_ << " lies on a mount without set-user-ID";
    }

    const uint32_t pid_ = static_cast<uint32_t>(getpid());
    const ProcFs proc_;
    std::filesystem::path folder_;
    std::vector<Mapping> mapped_;
    std::map<LibraryKey, std::vector<uint32_t>> users_;
    std::vector<StateRow> stored_;
    std::function<bool()> before_attaching_;            ///< false: it cannot be attached to
    std::multiset<std::pair<ino_t, uint64_t>> probes_;  ///< inode and place of each that was ever set
    EventLoop loop_;
    WorkerPool workers_{loop_, {.program = INGERO_WORKER, .store_directory = {}, .count = 1, .node = "test"}};
    const UidOwners owners_{};
    Libraries libraries_{loop_,
                         proc_,
                         {[this](int fd, std::span<const ProbeSite> sites) -> Result<std::unique_ptr<AttachedLibrary>> {
                              if (before_attaching_ && !before_attaching_())
                                  return fail(ErrorCode::internal, "not today");
                              struct stat facts {};
                              fstat(fd, &facts);
                              for (const ProbeSite& site : sites) probes_.emplace(facts.st_ino, site.file_offset);
                              return std::make_unique<CountedProbes>(sites.size());
                          },
                          "nothing"},
                         workers_,
                         owners_,
                         {.put_state = [this](StateRow row) { stored_.push_back(std::move(row)); },
                          .uids = [this](const LibraryKey& key) { return users_[key]; }}};
};

TEST_F(LibraryShares, that_are_used_up_by_one_user_keep_no_other_from_being_traced) {
    ASSERT_NO_FATAL_FAILURE(use_up_sites(hostile));
    const Mapping shared = map("libcuda.so.1", other);
    const Libraries::Sight refused = see(hostile, shared);
    ASSERT_NE(refused.entry, nullptr);
    EXPECT_EQ(refused.entry->state, LibraryState::failed);
    EXPECT_THAT(refused.entry->reason, HasSubstr("user 4000001 has reached its limit of probed functions"));
    EXPECT_EQ(see(hostile, shared).entry->state, LibraryState::failed) << "the same user still has no room";
    see(other, shared);
    EXPECT_TRUE(is_attached(shared)) << "of the file itself that said nothing";
    EXPECT_TRUE(libraries_.find({shared.file, driver})->reason.empty());
}

TEST_F(LibraryShares, are_not_needed_for_what_belongs_to_root) {
    ASSERT_NO_FATAL_FAILURE(use_up_sites(hostile));
    ASSERT_NO_FATAL_FAILURE(skip_where_nothing_is_roots());
    const Mapping of_system = map("libcuda.so.1", 0);
    EXPECT_NE(see(hostile, of_system).entry, nullptr);
    EXPECT_TRUE(is_attached(of_system));
}

TEST_F(LibraryShares, of_whoever_else_maps_it_are_taken_where_the_first_has_none_left) {
    ASSERT_NO_FATAL_FAILURE(use_up_sites(hostile));
    const Mapping shared = map("libcuda.so.1", other);
    users_[{shared.file, driver}] = {other};
    see(hostile, shared);
    EXPECT_TRUE(is_attached(shared));
}

TEST_F(LibraryShares, by_a_name_of_ones_own_choice_change_nothing_for_its_true_name) {
    const Mapping shared = map("libcuda.so.1", other);
    const Libraries::Sight as_another = see(hostile, shared, runtime);
    ASSERT_NE(as_another.entry, nullptr);
    EXPECT_EQ(as_another.entry->state, LibraryState::failed);
    EXPECT_THAT(as_another.entry->reason, HasSubstr("none of the functions that ingerod probes"));
    see(other, shared);
    EXPECT_TRUE(is_attached(shared));
}

// Also whose it is, so that it is shown to nobody else.
TEST_F(LibraryShares, are_stored_as_they_are_attached_to_and_let_go) {
    const auto text = [](const StateRow& row, std::string_view name) {
        for (const auto& [known, value] : row.texts)
            if (known == name) return value;
        return std::string();
    };
    const auto value = [](const StateRow& row, std::string_view name) {
        for (const auto& [known, number] : row.values)
            if (known == name) return number;
        return -1.0;
    };
    const Mapping own = map("libcuda.so.1", other);
    see(other, own);
    ASSERT_EQ(stored_.size(), 1u);
    EXPECT_EQ(stored_[0].source, "library");
    EXPECT_EQ(text(stored_[0], "path"), own.path);
    EXPECT_EQ(text(stored_[0], "library"), "libcuda");
    EXPECT_EQ(text(stored_[0], "state"), "attached");
    EXPECT_EQ(text(stored_[0], "method"), "nothing");
    EXPECT_EQ(value(stored_[0], "functions"), static_cast<double>(probes_.size()));
    EXPECT_EQ(value(stored_[0], "uid"), other);
    EXPECT_EQ(value(stored_[0], "system_wide"), 0);
    EXPECT_NE(stored_[0].time_ns, 0u);
    before_attaching_ = [] { return false; };
    const Mapping broken = map("libcuda.so.2", other);
    see(other, broken);
    ASSERT_EQ(stored_.size(), 2u);
    EXPECT_EQ(text(stored_[1], "state"), "failed");
    EXPECT_EQ(text(stored_[1], "reason"), "not today");
    libraries_.clear();
    ASSERT_EQ(stored_.size(), 3u) << "what was never attached to is not let go";
    EXPECT_EQ(text(stored_[2], "path"), own.path);
    EXPECT_EQ(text(stored_[2], "state"), "detached");
}

TEST_F(LibraryShares, of_two_kinds_of_one_file_set_one_probe_a_function) {
    const Mapping shared = map("libcuda.so.1", other);
    const TracedFile program{Library::cuda_driver, true};
    see(hostile, shared, program);
    see(other, shared);
    EXPECT_TRUE(is_attached(shared, program));
    EXPECT_TRUE(is_attached(shared));
    EXPECT_THAT(probes_, testing::Not(IsEmpty()));
    for (const auto& probe : probes_) EXPECT_EQ(probes_.count(probe), 1U);
}

TEST_F(LibraryShares, of_a_kind_that_cannot_be_attached_to_have_their_functions_given_to_another_kind_of_the_file) {
    const Mapping shared = map("libcuda.so.1", other);
    const TracedFile program{Library::cuda_driver, true};
    std::promise<void> go;
    before_attaching_ = [&, first = true]() mutable {
        if (!std::exchange(first, false)) return true;
        go.get_future().wait();
        return false;
    };
    libraries_.see(pid_, hostile, shared, program);
    until([&] { return bool(libraries_.find({shared.file, program})->attaching); });
    libraries_.see(pid_, other, shared, driver);
    until([&] { return libraries_.find({shared.file, driver})->borrows; });
    EXPECT_FALSE(is_attached(shared)) << "the other has its functions, and has no probes yet";
    go.set_value();
    until([&] { return is_attached(shared) && libraries_.find({shared.file, driver})->sites != 0; });
    EXPECT_EQ(libraries_.find({shared.file, program})->state, LibraryState::failed);
    EXPECT_EQ(libraries_.find({shared.file, program})->sites, 0U);
}

TEST_F(LibraryShares, of_a_file_that_is_let_go_while_it_is_attached_to_are_free_again) {
    const Mapping shared = map("libcuda.so.1", other);
    std::promise<void> go;
    before_attaching_ = [&, first = true]() mutable {
        if (std::exchange(first, false)) go.get_future().wait();
        return true;
    };
    libraries_.see(pid_, other, shared, driver);
    until([&] { return bool(libraries_.find({shared.file, driver})->attaching); });
    libraries_.clear();
    EXPECT_TRUE(libraries_.all().empty());
    go.set_value();
    EXPECT_EQ(see(other, shared).entry->state, LibraryState::attached);
    EXPECT_GT(libraries_.find({shared.file, driver})->sites, 0U);
}

TEST_F(LibraryShares, of_a_file_that_is_seen_anew_while_its_symbols_are_read_are_taken_once) {
    const Mapping shared = map("libcuda.so.1", other);
    std::promise<void> go;
    before_attaching_ = [gone = go.get_future().share()] {
        gone.wait();
        return true;
    };
    libraries_.see(pid_, other, shared, driver);
    libraries_.clear();
    libraries_.see(pid_, other, shared, driver);
    // Of one user they are answered in their order: then both about the file are.
    bool answered = false;
    workers_.request(file_user(other), "ping", nlohmann::json::object(), std::nullopt,
                     [&](const auto&) { answered = true; });
    until([&] { return answered; });
    go.set_value();
    settle();
    EXPECT_TRUE(is_attached(shared));
    EXPECT_THAT(probes_, testing::Not(IsEmpty()));
    for (const auto& probe : probes_) EXPECT_EQ(probes_.count(probe), 1U);
}

}  // namespace
