// One user, or root of a container, does to the tracer what can be done to it; another user's program is recorded whole
// all the same, status answers, and a daemon that starts meanwhile comes up.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <list>
#include <map>
#include <optional>
#include <thread>

#include "daemon/ingerod/discovery/mapped_text.h"
#include "daemon/ingerod/targets/libraries.h"
#include "test_paths.h"
#include "tests/support/daemon.h"
#include "tests/support/mount_point.h"
#include "tests/support/seed.h"

using namespace ingero;
using namespace ingero::test;

namespace {

namespace fs = std::filesystem;

constexpr uint32_t troublemaker = 65'534, other_user = 1'234;

/// A file system whose one file never answers a kind of request; gone, and its waiters told, as it goes out of scope.
class StallingFileSystem {
  public:
    StallingFileSystem(const std::string& directory, const std::string& call)
        : directory_(directory), server_({STALLING_FUSE, directory, call}) {
        mounted_ = server_.wait_for_line("mounted").has_value();
    }
    ~StallingFileSystem() {
        server_.close_input();
        server_.wait();
        umount2(directory_.c_str(), MNT_DETACH);
    }
    StallingFileSystem(const StallingFileSystem&) = delete;
    StallingFileSystem& operator=(const StallingFileSystem&) = delete;
    bool mounted() const { return mounted_; }
    bool has_stalled() { return server_.wait_for_line("stalled", milliseconds(0)).has_value(); }
    bool wait_stalled() { return server_.wait_for_line("stalled").has_value(); }
    std::string file() const { return directory_ + "/libcudart.so.12"; }
    const std::string& errors() const { return server_.errors(); }

  private:
    std::string directory_;
    Child server_;
    bool mounted_ = false;
};

/// Who makes the trouble: what of the command comes before the program, and as whom it runs.
struct Attacker {
    std::string name;
    std::vector<std::string> container = {};
    std::optional<uint32_t> uid = troublemaker;
};
const Attacker a_user{.name = "of_a_user"};
/// As rootless containers have it: root of a user namespace, all whose uids are the user's.
const Attacker root_of_a_users_container{
    .name = "of_root_in_a_users_container",
    .container = {"unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"}};
/// As other containers have it: root of the host, with the capabilities that engines leave it.
const Attacker root_of_a_container{
    .name = "of_root_in_a_container",
    .container = {"unshare", "--pid", "--mount", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc", "setpriv",
                  "--inh-caps=-all",
                  "--bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,"
                  "+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap"},
    .uid = {}};

class FaultBench : public testing::TestWithParam<std::pair<std::string, Attacker>> {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        // What other users run and read lies where they may enter.
        for (const char* file : {TROUBLE_PROGRAM, WORKLOAD_PROGRAM})
            fs::copy_file(file, directory_ / fs::path(file).filename());
        fs::copy(STANDIN_LIB, directory_ / "lib", fs::copy_options::recursive);
        chmod(directory_.path().c_str(), 0755);
        fs::create_directory(directory_ / "quiet");
        fs::copy_file(QUIET_CUDART, directory_ / "quiet/libcudart.so.13");
        fs::create_directory(directory_ / "much");
        chmod((directory_ / "much").c_str(), 0777);
    }

    std::string stall(const std::string& call) {
        const std::string mount = directory_ / (call + std::to_string(file_systems_.size()));
        fs::create_directory(mount);
        StallingFileSystem& made = file_systems_.emplace_back(mount, call);
        if (!made.mounted()) why_skipped_ = "cannot mount FUSE here: " + made.errors();
        return made.file();
    }

    /// As the host lays an image over the file system that its layers come from.
    std::string lay_over(const std::string& file) {
        if (!why_skipped_.empty()) return {};
        const std::string nothing = directory_ / "nothing";
        fs::create_directory(nothing);
        MountPoint& made = overlays_.emplace_back(directory_ / "overlay");
        if (!made.mount("overlay", "lowerdir=" + fs::path(file).parent_path().string() + ":" + nothing))
            why_skipped_ = "cannot mount an overlay here";
        return made.path() + "/" + fs::path(file).filename().string();
    }

    void start(std::vector<std::string> arguments) {
        const Attacker& attacker = GetParam().second;
        arguments.insert(arguments.begin(), directory_ / "trouble");
        arguments.insert(arguments.begin(), attacker.container.begin(), attacker.container.end());
        Child& child = troubles_.emplace_back(
            arguments, ChildOptions{.environment = {{"LD_LIBRARY_PATH", directory_ / "lib"}}, .uid = attacker.uid});
        EXPECT_TRUE(child.wait_for_line("under way")) << child.errors();
    }

    void make_trouble(const std::string& kind, Daemon& daemon) {
        const std::string library = directory_ / "lib/libcudart.so.13";
        const bool all = kind == "all_at_once";
        if (all || kind == "execs_that_hang") {
            const std::string file = stall("flush");
            if (!why_skipped_.empty()) return;
            for (int i = 0; i < 8; ++i) start({"exec", file});
            ASSERT_TRUE(file_systems_.back().wait_stalled());
        }
        if (all || kind == "names_that_cannot_be_read") {
            const std::string file = stall("read");
            if (!why_skipped_.empty()) return;
            unread_ = &file_systems_.back();
            start({"register", directory_ / "quiet/libcudart.so.13", file});
            // The daemon looks for each name, and reads none there; all at once it may ask nothing of this user's any
            // more.
            const auto names_lost = [&] { return daemon.status().at("events").at("names_lost").get<uint64_t>(); };
            EXPECT_TRUE(all || wait_until([&] { return names_lost() >= std::thread::hardware_concurrency(); }));
        }
        if (all || kind == "files_that_tell_nothing") {
            const std::string file = stall("opened");
            if (!why_skipped_.empty()) return;
            start({"link", file});
        }
        if (all || kind == "overlays_of_files_that_tell_nothing") {
            const std::string file = lay_over(stall("opened"));
            if (!why_skipped_.empty()) return;
            start({"link", file});
        }
        if (all || kind == "libraries_that_are_spoilt") {
            fs::create_directory(directory_ / "spoilt");
            chmod((directory_ / "spoilt").c_str(), 0777);
            start({"elves", library, directory_ / "spoilt", "500", std::to_string(chosen_seed())});
        }
        if (kind == "thousands_of_processes") start({"many", library, "2000"});
        if (all || kind == "sixty_thousand_mappings") start({"map", library, directory_ / "much", "60000"});
        if (all || kind == "execs_without_end") start({"loop", library});
    }

    /// A program of another user, from its first call to its last, is in the store or told as lost; of a few calls a
    /// second none may be lost.
    void expect_recorded_whole(Daemon& daemon, const std::string& log) {
        const std::string path = directory_ / log;
        fs::create_directory(path);
        chmod(path.c_str(), 0777);
        std::vector<std::string> command = {directory_ / "standin-workload",
                                            "calls",
                                            "--count",
                                            "1000",
                                            "--rate",
                                            "1000",
                                            "--op",
                                            "launch",
                                            "--log",
                                            path + "/truth",
                                            "--gate"};
        Child workload(command, {.environment = {{"LD_LIBRARY_PATH", directory_ / "lib"}}, .uid = other_user});
        ASSERT_TRUE(workload.wait_for_line("ready")) << workload.errors();
        ASSERT_TRUE(daemon.wait_traced(workload.pid(), milliseconds(60'000)))
            << workload.pid() << " at " << daemon.status().dump() << "; log: " << daemon.process().output();
        for (const char* library : {"libcudart.so.12", "libcuda.so.1"}) ASSERT_TRUE(daemon.wait_attached(library));
        programs_.emplace_back(workload.pid(), path + "/truth");
        workload.write_line("go");
        EXPECT_EQ(workload.wait(), 0) << workload.errors();
    }

    /// While the file systems still do not answer: whoever waits for one that read the request cannot be killed.
    void expect_end(Daemon& daemon) {
        daemon.process().signal(SIGTERM);
        const auto has_ended = [&] {
            siginfo_t end{};
            return waitid(P_PID, static_cast<id_t>(daemon.process().pid()), &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                   end.si_pid != 0;
        };
        const bool ended = wait_until(has_ended);
        EXPECT_TRUE(ended) << "it waits for a file system";
        if (!ended) file_systems_.clear();
        EXPECT_EQ(daemon.stop(), 0) << daemon.process().output();
    }

    void expect_stored(const std::string& directory) {
        const StoreContents store = read_store(directory);
        for (const auto& [pid, log] : programs_) {
            const auto truth = standin::GroundTruth::open(log);
            ASSERT_TRUE(truth) << "the workload left no log";
            std::map<OpId, int64_t> difference;
            for (const standin::Record& record : truth->records())
                if (const auto op = op_of_function(truth->name(record))) difference[*op]++;
            EXPECT_FALSE(difference.empty());
            for (const Event& event : store.events)
                if (event.tgid == static_cast<uint32_t>(pid)) difference[event.op]--;
            for (const auto& [op, count] : difference) EXPECT_EQ(count, 0) << "of op " << op << " of pid " << pid;
        }
    }

    const TemporaryDirectory directory_;
    std::list<Child> troubles_;
    std::list<MountPoint> overlays_;
    StallingFileSystem* unread_ = nullptr;        ///< the one of names
    std::list<StallingFileSystem> file_systems_;  // end before those who wait for them, who can end then
    std::vector<std::pair<int, std::string>> programs_;
    std::string why_skipped_;
};

TEST_P(FaultBench, of_one_user_leaves_another_users_program_recorded_whole) {
    {
        Daemon daemon(directory_ / "run");
        ASSERT_NO_FATAL_FAILURE(expect_recorded_whole(daemon, "before"));
        ASSERT_NO_FATAL_FAILURE(make_trouble(GetParam().first, daemon));
        if (!why_skipped_.empty()) GTEST_SKIP() << why_skipped_;
        ASSERT_NO_FATAL_FAILURE(expect_recorded_whole(daemon, "beside"));
        EXPECT_TRUE(daemon.status().contains("state"));
        expect_end(daemon);
        EXPECT_FALSE(unread_ && unread_->has_stalled());
    }
    // What is there before the daemon is, holds it up no more.
    Daemon second(directory_ / "run");
    ASSERT_NO_FATAL_FAILURE(expect_recorded_whole(second, "after"));
    EXPECT_TRUE(second.status().contains("state"));
    expect_end(second);
    expect_stored(directory_ / "run/store");
}

/// A file of a file system that answers no request of one kind, and what asks about it.
class AFileThatTellsNothing : public testing::Test {
  protected:
    void serve_all_but(const std::string& call) {
        fs::create_directory(directory_ / "served");
        served_.emplace(directory_ / "served", call);
        if (!served_->mounted()) GTEST_SKIP() << "cannot mount FUSE here: " << served_->errors();
    }
    void* map(const std::string& path, int protection) {
        const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
        EXPECT_TRUE(fd) << path;
        return mmap(nullptr, 4096, protection, MAP_PRIVATE, fd.get(), 0);
    }

    /// Code of the file, which stays open.
    void* keep_mapped() {
        kept_.reset(open(served_->file().c_str(), O_RDONLY | O_CLOEXEC));
        return mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, kept_.get(), 0);
    }

    const TemporaryDirectory directory_;
    const ProcFs proc_;
    const uint32_t self_ = static_cast<uint32_t>(getpid());
    UniqueFd kept_;  ///< to close it may wait for an answer: not before the file system has ended
    std::optional<StallingFileSystem> served_;
};

TEST_F(AFileThatTellsNothing, is_not_looked_up_by_its_path) {
    serve_all_but("lookup");
    if (IsSkipped()) return;
    EXPECT_FALSE(proc_.has_file_at(self_, served_->file()));
    EXPECT_FALSE(served_->has_stalled());
}

TEST_F(AFileThatTellsNothing, has_no_name_of_a_kernel_read_from_it) {
    serve_all_but("read");
    if (IsSkipped()) return;
    void* page = map(served_->file(), PROT_READ);
    ASSERT_NE(page, MAP_FAILED);
    MappedText text(proc_, [](uint32_t uid) { return uid; });
    const ProcessKey key{self_, proc_.start_of(self_).value()};
    EXPECT_EQ(text.read(key, reinterpret_cast<uint64_t>(page), 511), std::nullopt);
    EXPECT_FALSE(served_->has_stalled());
    munmap(page, 4096);
}

/// By its own path, and by a link to it.
class AFileThatTellsNothingBelow : public AFileThatTellsNothing, public testing::WithParamInterface<const char*> {};

TEST_P(AFileThatTellsNothingBelow, an_overlay_is_not_opened_unless_it_is_trusted) {
    serve_all_but("read");
    if (IsSkipped()) return;
    const std::string nothing = directory_ / "nothing";
    fs::create_directory(nothing);
    fs::create_directory_symlink(directory_ / "served", directory_ / "link");
    MountPoint overlay(directory_ / "overlay");
    if (!overlay.mount("overlay", "lowerdir=" + directory_ / GetParam() + ":" + nothing))
        GTEST_SKIP() << "cannot mount an overlay here";
    void* page = map(overlay.path() + "/libcudart.so.12", PROT_READ | PROT_EXEC);
    ASSERT_NE(page, MAP_FAILED);
    const auto mapping = proc_.mapping_at(self_, reinterpret_cast<uint64_t>(page));
    ASSERT_TRUE(mapping);
    const auto file = proc_.open_mapped_file(self_, *mapping);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().message, "it lies on an overlay of a FUSE file system (fuse.stalling at " +
                                        directory_ / "served" +
                                        "), which may never answer, and trusted_fuse of ingerod.conf does not name it");
    EXPECT_FALSE(served_->has_stalled());
    ProcFs trusting;
    trusting.trust_fuse({directory_ / "*"});
    EXPECT_TRUE(trusting.check_file_system(self_, mapping->file.device));
    munmap(page, 4096);
}

INSTANTIATE_TEST_SUITE_P(, AFileThatTellsNothingBelow, testing::Values("served", "link"),
                         [](const auto& info) { return std::string("by_") + info.param; });

TEST_F(AFileThatTellsNothing, is_not_opened_where_it_is_mapped_since) {
    serve_all_but("opened");
    if (IsSkipped()) return;
    void* page = keep_mapped();
    ASSERT_NE(page, MAP_FAILED);
    auto mapping = proc_.mapping_at(self_, reinterpret_cast<uint64_t>(page));
    ASSERT_TRUE(mapping);
    // As it was told of: a file of another file system, with the same inode.
    mapping->file.device = proc_.executable_mappings(self_).front().file.device;
    const auto file = proc_.open_mapped_file(self_, *mapping);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().message, served_->file() + ": this is not the file that is mapped");
    EXPECT_FALSE(served_->has_stalled());
    munmap(page, 4096);
}

TEST_F(AFileThatTellsNothing, does_not_hold_up_who_trusts_it) {
    serve_all_but("statfs");
    if (IsSkipped()) return;
    void* page = keep_mapped();
    ASSERT_NE(page, MAP_FAILED);
    const auto see = [&] {
        ProcFs trusting("/proc", {.patience = milliseconds(20)});
        trusting.trust_fuse({directory_ / "*"});
        EventLoop loop;
        WorkerPool workers(loop, {.program = "/nonexistent", .store_directory = {}, .node = {}});
        const UidOwners owners;
        Libraries libraries(loop, trusting, {}, workers, owners, {});
        const auto mapping = trusting.mapping_at(self_, reinterpret_cast<uint64_t>(page));
        const Libraries::Sight sight = libraries.see(self_, 0, mapping.value(), {});
        return sight.entry && sight.entry->state == LibraryState::reading ? "" : "refused: " + sight.refused;
    };
    auto seen = std::async(std::launch::async, see);
    const bool came_back = seen.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
    EXPECT_TRUE(came_back) << "it waits for the file system";
    EXPECT_TRUE(served_->wait_stalled());
    if (!came_back) served_.reset();
    EXPECT_EQ(seen.get(), "");
    munmap(page, 4096);
}

// Before Linux 6.8 a mapping of an overlay is told with the device of the layer.
TEST(AFileOfAnOverlay, is_opened_where_it_is_told_of_as_of_its_layer) {
    const TemporaryDirectory directory;
    const ProcFs proc;
    const auto self = static_cast<uint32_t>(getpid());
    for (const char* layer : {"lower", "nothing"}) fs::create_directory(directory / layer);
    std::ofstream(directory / "lower/libcudart.so.12") << std::string(4096, 'x');
    MountPoint overlay(directory / "overlay");
    if (!overlay.mount("overlay", "lowerdir=" + directory / "lower" + ":" + directory / "nothing"))
        GTEST_SKIP() << "cannot mount an overlay here";
    const UniqueFd fd(open((overlay.path() + "/libcudart.so.12").c_str(), O_RDONLY | O_CLOEXEC));
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd.get(), 0);
    ASSERT_NE(page, MAP_FAILED);
    auto mapping = proc.mapping_at(self, reinterpret_cast<uint64_t>(page));
    ASSERT_TRUE(mapping);
    auto file = proc.open_mapped_file(self, *mapping);
    EXPECT_TRUE(file) << file.error().message;
    mapping->file.device = proc.executable_mappings(self).front().file.device;
    file = proc.open_mapped_file(self, *mapping);
    EXPECT_TRUE(file) << file.error().message;
    munmap(page, 4096);
}

INSTANTIATE_TEST_SUITE_P(
    Beside, FaultBench,
    testing::Values(std::pair("execs_that_hang", a_user), std::pair("names_that_cannot_be_read", a_user),
                    std::pair("files_that_tell_nothing", a_user), std::pair("sixty_thousand_mappings", a_user),
                    std::pair("execs_without_end", a_user), std::pair("overlays_of_files_that_tell_nothing", a_user),
                    std::pair("libraries_that_are_spoilt", a_user), std::pair("thousands_of_processes", a_user),
                    std::pair("all_at_once", a_user), std::pair("all_at_once", root_of_a_users_container),
                    std::pair("all_at_once", root_of_a_container)),
    [](const auto& info) { return info.param.first + "_" + info.param.second.name; });

}  // namespace
