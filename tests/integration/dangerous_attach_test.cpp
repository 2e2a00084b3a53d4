// Attaching never changes a program: each test compares the code in the target's memory with the file it was loaded
// from, byte by byte, before, while and after it is traced.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <list>
#include <map>
#include <optional>

#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/targets/libraries.h"
#include "test_paths.h"
#include "tests/integration/attach_target.h"
#include "tests/support/daemon.h"
#include "tests/support/mount_point.h"

using namespace ingero;
using namespace ingero::test;

namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

namespace fs = std::filesystem;

std::vector<char> bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Over the same inode.
void write_in_place(const std::string& path, const std::vector<char>& bytes) {
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(fd) << path;
    ASSERT_EQ(pwrite(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes.size())), 0);
}

/// Where the functions of the file begin, by the symbol reader that the daemon uses too.
std::vector<uint64_t> starts_of(const std::string& path) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const auto symbols = read_function_symbols(fd.get(), symbol_names(ingero::Library::cuda_runtime), false);
    std::vector<uint64_t> starts;
    if (symbols)
        for (const FunctionSymbol& function : symbols->functions) starts.push_back(function.file_offset);
    std::sort(starts.begin(), starts.end());
    return starts;
}

std::vector<uint64_t> offsets(const std::map<uint64_t, uint8_t>& bytes) {
    std::vector<uint64_t> result;
    for (const auto& [offset, byte] : bytes) result.push_back(offset);
    return result;
}

constexpr uint8_t breakpoint = 0xcc;  // of x86-64

class DangerousAttach : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
#if !defined(__x86_64__)
        GTEST_SKIP() << "what a breakpoint looks like is written down for x86-64 only";
#endif
        library_ = directory_ / "libcudart.so.12";
        fs::copy_file(PLAIN_CUDART_A, library_);
    }
    std::string start_daemon(std::vector<std::string> options = {}) {
        daemon_.emplace(directory_ / "run", std::move(options));
        return {};
    }

    /// Exactly the starts of the file's functions are breakpoints, nothing else differs.
    void expect_probed(const AttachTarget& target, const std::string& file) const {
        const auto changed = target.changed_bytes(bytes_of(file));
        EXPECT_THAT(changed, Each(Pair(testing::_, breakpoint)));
        EXPECT_EQ(offsets(changed), starts_of(file));
        EXPECT_FALSE(changed.empty());
    }
    static void expect_untouched(const AttachTarget& target, const std::string& file) {
        const auto changed = target.changed_bytes(bytes_of(file));
        if (!is_beside_another_ingerod()) {
            EXPECT_THAT(changed, IsEmpty());
        }
        EXPECT_THAT(changed, Each(Pair(testing::AnyOfArray(starts_of(file)), breakpoint)));
    }
    /// Reads the symbols of another library first, so that there are workers to be stopped.
    void stop_workers() {
        const std::string other = directory_ / "other/libcudart.so.12";
        fs::create_directory(directory_ / "other");
        fs::copy_file(PLAIN_CUDART_A, other);
        first_.emplace();
        first_->load(other);
        ASSERT_TRUE(daemon_->wait_traced(first_->pid()));
        workers_ = daemon_->workers();
        ASSERT_FALSE(workers_.empty());
        for (const int pid : workers_) ::kill(pid, SIGSTOP);
    }
    void continue_workers() {
        for (const int pid : workers_) ::kill(pid, SIGCONT);
    }
    /// The state in which the daemon has a process; empty where it does not know it.
    std::string state_of(const AttachTarget& target) {
        const auto answer = daemon_->call("processes");
        for (const auto& process : answer.at("processes"))
            if (process.at("pid") == target.pid()) return process.at("state");
        return {};
    }
    bool wait_state(const AttachTarget& target, const std::string& state) {
        Patience limit;
        while (limit.lasts())
            if (state_of(target) == state) return true;
        return false;
    }
    std::vector<GapRow> gaps_of(int pid) const {
        std::vector<GapRow> result;
        auto reader = StoreReader::open(directory_ / "run/store");
        auto snapshot = reader ? (*reader)->snapshot() : tl::unexpected(reader.error());
        if (!snapshot) {
            ADD_FAILURE() << snapshot.error().message;
            return result;
        }
        const auto rows = (*snapshot)->gaps((*snapshot)->sessions().back().boot_index, {0, UINT64_MAX});
        if (rows)
            for (const GapRow& row : *rows)
                if (row.process.pid == static_cast<uint32_t>(pid)) result.push_back(row);
        return result;
    }

    const TemporaryDirectory directory_;
    std::string library_;
    std::optional<Daemon> daemon_;
    std::optional<AttachTarget> first_;
    std::vector<int> workers_;
};

TEST_F(DangerousAttach, puts_one_breakpoint_at_each_function_and_takes_it_back) {
    start_daemon();
    AttachTarget target;
    target.load(library_);
    ASSERT_TRUE(daemon_->wait_traced(target.pid()));
    expect_probed(target, library_);
    EXPECT_EQ(target.tell("call cudaMalloc"), "101");
    EXPECT_EQ(target.tell("call cudaLaunchKernel"), "104");
    ASSERT_EQ(daemon_->stop(), 0);
    expect_untouched(target, library_);
    EXPECT_EQ(target.tell("call cudaMalloc"), "101");
}

TEST_F(DangerousAttach, is_by_what_a_worker_reads_who_has_no_store) {
    start_daemon();
    ASSERT_NO_FATAL_FAILURE(stop_workers());
    for (const int pid : workers_) {
        std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
        const std::string text{std::istreambuf_iterator<char>(maps), {}};
        EXPECT_NE(text.find("ingero-worker"), std::string::npos) << text;
        EXPECT_EQ(text.find("data.mdb"), std::string::npos) << text;
    }
    continue_workers();
    ASSERT_EQ(daemon_->stop(), 0);
}

TEST_F(DangerousAttach, to_a_file_rewritten_while_its_symbols_are_read_takes_the_places_of_the_new_one) {
    start_daemon();
    ASSERT_NO_FATAL_FAILURE(stop_workers());
    ASSERT_NE(starts_of(PLAIN_CUDART_A), starts_of(PLAIN_CUDART_B));
    AttachTarget target;
    ASSERT_EQ(target.tell("map " + library_), "mapped");
    ASSERT_TRUE(wait_state(target, "attaching"));
    ASSERT_NO_FATAL_FAILURE(write_in_place(library_, bytes_of(PLAIN_CUDART_B)));
    continue_workers();
    ASSERT_TRUE(daemon_->wait_traced(target.pid())) << daemon_->process().output();
    EXPECT_TRUE(daemon_->process().output().find("rewritten") == std::string::npos);
    AttachTarget user;
    user.load(library_);
    ASSERT_TRUE(daemon_->wait_traced(user.pid()));
    expect_probed(user, library_);
    EXPECT_EQ(user.tell("call cudaMalloc"), "201");
    ASSERT_EQ(daemon_->stop(), 0);
    expect_untouched(user, library_);
}

/// Something lies in a socket of the process that it has not read. It is stopped, so that it stays there.
bool has_unread_answer(int pid) {
    const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
        const int number = std::stoi(entry.path().filename());
        const UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), number, 0)));
        int bytes = 0, type = 0;
        socklen_t length = sizeof(type);
        if (!fd || getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) continue;
        if (ioctl(fd.get(), FIONREAD, &bytes) == 0 && bytes > 0) return true;
    }
    return false;
}

TEST_F(DangerousAttach, to_a_file_rewritten_between_reading_and_attaching_is_not_at_the_places_of_the_old_one) {
    start_daemon();
    ASSERT_NO_FATAL_FAILURE(stop_workers());
    AttachTarget target;
    target.load(library_);
    ASSERT_TRUE(wait_state(target, "attaching"));
    // The worker's answer is there, and the daemon has not looked at it.
    daemon_->process().signal(SIGSTOP);
    continue_workers();
    Patience limit;
    while (!has_unread_answer(daemon_->process().pid())) ASSERT_TRUE(limit.lasts());
    ASSERT_NO_FATAL_FAILURE(write_in_place(library_, bytes_of(PLAIN_CUDART_B)));
    daemon_->process().signal(SIGCONT);
    ASSERT_TRUE(daemon_->wait_traced(target.pid())) << daemon_->process().output();
    expect_probed(target, library_);
    ASSERT_EQ(daemon_->stop(), 0);
    expect_untouched(target, library_);
}

TEST_F(DangerousAttach, lets_go_of_a_file_that_is_rewritten_later_and_reads_it_anew) {
    start_daemon();
    AttachTarget target;
    ASSERT_EQ(target.tell("map " + library_), "mapped");
    ASSERT_TRUE(daemon_->wait_traced(target.pid()));
    ASSERT_NO_FATAL_FAILURE(write_in_place(library_, bytes_of(PLAIN_CUDART_B)));
    ASSERT_TRUE(wait_state(target, "attaching"));
    ASSERT_TRUE(daemon_->wait_traced(target.pid()));
    AttachTarget user;
    user.load(library_);
    ASSERT_TRUE(daemon_->wait_traced(user.pid()));
    expect_probed(user, library_);
    EXPECT_EQ(user.tell("call cudaStreamSynchronize"), "203");
    ASSERT_EQ(daemon_->stop(), 0);
    const auto gaps = gaps_of(target.pid());
    EXPECT_EQ(std::count_if(gaps.begin(), gaps.end(),
                            [](const GapRow& gap) { return gap.reason == GapReason::late_attach && gap.to_ns != 0; }),
              2)
        << "one until it was attached to, one from when it was let go";
}

TEST_F(DangerousAttach, goes_to_the_mapped_file_where_another_has_taken_its_path) {
    start_daemon();
    ASSERT_NO_FATAL_FAILURE(stop_workers());
    AttachTarget target;
    target.load(library_);
    ASSERT_TRUE(wait_state(target, "attaching"));
    fs::copy_file(PLAIN_CUDART_B, directory_ / "new");
    fs::rename(directory_ / "new", library_);
    continue_workers();
    ASSERT_TRUE(daemon_->wait_traced(target.pid()));
    expect_probed(target, PLAIN_CUDART_A);
    EXPECT_EQ(target.tell("call cudaMalloc"), "101");
    ASSERT_EQ(daemon_->stop(), 0);
    expect_untouched(target, PLAIN_CUDART_A);
}

class MisplacedSymbols : public DangerousAttach, public testing::WithParamInterface<const char*> {};

TEST_P(MisplacedSymbols, inside_an_instruction_are_refused_by_name) {
    start_daemon();
    fs::copy_file(GetParam(), library_, fs::copy_options::overwrite_existing);
    AttachTarget target;
    target.load(library_);
    ASSERT_TRUE(daemon_->wait_traced(target.pid()));
    expect_probed(target, library_);
    EXPECT_THAT(target.changed_bytes(bytes_of(library_)), SizeIs(4)) << "cudaFree is the fifth";
    EXPECT_THAT(std::stoi(target.tell("call cudaMalloc")), testing::AnyOf(301, 401));
    ASSERT_EQ(daemon_->stop(), 0);
    EXPECT_THAT(daemon_->process().output(), HasSubstr("cudaFree of "));
    EXPECT_THAT(daemon_->process().output(), HasSubstr("points inside a function"));
}

INSTANTIATE_TEST_SUITE_P(By, MisplacedSymbols, testing::Values(MISPLACED_CUDART, MISPLACED_CUDART_UNSIZED),
                         [](const auto& info) { return info.index == 0 ? "another_symbol" : "the_unwind_table"; });

TEST_F(DangerousAttach, to_a_file_system_that_never_answers_is_refused_and_holds_up_nothing) {
    const MountPoint mounted(directory_ / "fuse");
    const std::string& mount = mounted.path();
    Child server({SILENT_FUSE, mount});
    if (!server.wait_for_line("mounted")) {
        server.wait();
        GTEST_SKIP() << "cannot mount FUSE here: " << server.errors();
    }
    start_daemon();
    AttachTarget target;
    ASSERT_EQ(target.tell("map " + mount + "/libcudart.so.12"), "mapped");
    ASSERT_TRUE(server.wait_for_line("silent"));
    // Both ways to find it: as it was mapped, and by looking at all processes.
    EXPECT_TRUE(wait_state(target, "failed"));
    EXPECT_EQ(daemon_->status().at("state"), "idle");
    ASSERT_EQ(daemon_->stop(), 0);
    const auto gaps = gaps_of(target.pid());
    ASSERT_EQ(gaps.size(), 1u);
    EXPECT_EQ(gaps[0].reason, GapReason::refused);
    EXPECT_THAT(gaps[0].subject, HasSubstr("FUSE"));
    Daemon second(directory_ / "second");
    EXPECT_EQ(second.status().at("state"), "idle");
    EXPECT_EQ(second.stop(), 0);
    server.close_input();
    server.wait();
}

TEST_F(DangerousAttach, to_a_bind_mount_is_to_the_file_behind_it) {
    start_daemon();
    fs::create_directory(directory_ / "bound");
    AttachTarget target({"unshare", "--mount", "--propagation", "private", "sh", "-c",
                         "mount --bind " + directory_.path() + " " + directory_ / "bound && exec \"$0\""});
    target.load(directory_ / "bound/libcudart.so.12");
    ASSERT_TRUE(daemon_->wait_traced(target.pid())) << daemon_->process().output();
    expect_probed(target, library_);
    EXPECT_EQ(target.tell("call cudaMalloc"), "101");
    ASSERT_EQ(daemon_->stop(), 0);
    expect_untouched(target, library_);
}

TEST_F(DangerousAttach, to_a_file_that_two_containers_share_is_once_and_outlives_the_first_of_them) {
    const std::string image = directory_ / "image";
    fs::create_directory(image);
    fs::copy_file(library_, image + "/libcudart.so.12");
    std::list<MountPoint> roots;
    for (const char* container : {"first", "second"}) {
        const std::string own = directory_ / container;
        for (const char* folder : {"upper", "work"}) fs::create_directories(own + "/" + folder);
        if (!roots.emplace_back(own + "/root")
                 .mount("overlay", "lowerdir=" + image + ",upperdir=" + own + "/upper,workdir=" + own + "/work"))
            GTEST_SKIP() << "cannot mount an overlay here";
    }
    start_daemon();
    const auto hits = [&] {
        const auto answer = daemon_->call("probes");
        uint64_t sum = 0;
        for (const auto& probe : answer.at("probes"))
            if (probe.at("op") == "cudaMalloc") sum += probe.at("hits").get<uint64_t>();
        return sum;
    };
    std::optional<AttachTarget> first(std::in_place);
    AttachTarget second;
    first->load(roots.front().path() + "/libcudart.so.12");
    ASSERT_TRUE(daemon_->wait_traced(first->pid()));
    second.load(roots.back().path() + "/libcudart.so.12");
    ASSERT_TRUE(daemon_->wait_traced(second.pid())) << daemon_->process().output();
    const uint64_t before = hits();  // of what was called to measure
    EXPECT_EQ(first->tell("call cudaMalloc"), "101");
    EXPECT_EQ(second.tell("call cudaMalloc"), "101");
    EXPECT_EQ(hits(), before + 2);

    first.reset();
    Patience limit;
    while (umount2(roots.front().path().c_str(), 0) != 0 && limit.lasts()) ASSERT_EQ(errno, EBUSY);
    ASSERT_TRUE(daemon_->wait_traced(second.pid())) << daemon_->process().output();
    EXPECT_EQ(second.tell("call cudaMalloc"), "101");
    EXPECT_EQ(hits(), before + 3);
    const auto pid_of_second = static_cast<uint32_t>(second.pid());
    ASSERT_EQ(daemon_->stop(), 0);
    const auto gaps = gaps_of(second.pid());
    EXPECT_EQ(gaps.size(), 2u) << "as it was mapped, and until the probes were its own";
    const auto events = read_store(daemon_->store()).events;
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [&](const Event& event) { return event.tgid == pid_of_second && is_call(event.op); }),
              2);
}

/// How long each of five fresh copies of the library was mapped before it was attached to, by the store's own gaps.
std::vector<uint64_t> sorted_delays(const std::vector<GapRow>& gaps) {
    std::vector<uint64_t> delays;
    for (const GapRow& gap : gaps)
        if (gap.reason == GapReason::late_attach) delays.push_back(gap.to_ns - gap.from_ns);
    std::sort(delays.begin(), delays.end());
    return delays;
}

TEST_F(DangerousAttach, leaves_no_mount_busy_some_seconds_after_the_last_process_that_used_it) {
    start_daemon();
    MountPoint mounted(directory_ / "mounted");
    const std::string& mount_point = mounted.path();
    ASSERT_TRUE(mounted.mount("tmpfs"));
    fs::copy_file(library_, mount_point + "/libcudart.so.12");
    {
        AttachTarget target;
        target.load(mount_point + "/libcudart.so.12");
        ASSERT_TRUE(daemon_->wait_traced(target.pid()));
        EXPECT_EQ(target.tell("call cudaMalloc"), "101");
    }
    Patience limit;
    int unmounted = -1;
    while ((unmounted = umount2(mount_point.c_str(), 0)) != 0 && limit.lasts()) EXPECT_EQ(errno, EBUSY);
    EXPECT_EQ(unmounted, 0);
    EXPECT_EQ(daemon_->stop(), 0);
    EXPECT_THAT(daemon_->process().output(), HasSubstr("any more: detached"));
}

TEST_F(DangerousAttach, is_late_by_what_a_gap_says_wherever_the_library_comes_from) {
    if (sanitized) GTEST_SKIP() << "a promise of the product, not of a sanitizer's build";
    start_daemon();
    const std::string elsewhere = directory_ / "elsewhere";
    fs::create_directory(elsewhere);
    AttachTarget late;
    AttachTarget contained({"unshare", "--mount", "--propagation", "private", "sh", "-c",
                            "mount -t tmpfs none " + elsewhere + " && for i in 0 1 2 3 4; do mkdir " + elsewhere +
                                "/$i; cp " + library_ + " " + elsewhere + "/$i/; done && exec \"$0\""});
    for (int i = 0; i < 5; ++i) {
        const std::string number = std::to_string(i);
        fs::create_directory(directory_ / number);
        fs::copy_file(library_, directory_ / (number + "/libcudart.so.12"));
        late.load(directory_ / (number + "/libcudart.so.12"));
        contained.load(elsewhere + "/" + number + "/libcudart.so.12");
    }
    ASSERT_TRUE(daemon_->wait_traced(late.pid()));
    ASSERT_TRUE(daemon_->wait_traced(contained.pid()));
    ASSERT_EQ(daemon_->stop(), 0);
    for (const AttachTarget* target : {&late, &contained}) {
        const auto delays = sorted_delays(gaps_of(target->pid()));
        ASSERT_EQ(delays.size(), 5u);
        if (full_form()) {
            EXPECT_LT(delays[0], 100 * ms) << "what else runs on the machine only ever adds";
        }
        EXPECT_GT(delays[0], 0u);
        RecordProperty(target == &late ? "dlopen_median_us" : "mount_namespace_median_us",
                       static_cast<int>(delays[2] / 1000));
        std::cout << (target == &late ? "dlopen" : "mount namespace") << ": median " << delays[2] / 1000 << " us\n";
    }
}

TEST_F(DangerousAttach, tells_the_time_before_it_in_the_coverage_of_an_answer) {
    start_daemon();
    AttachTarget target;
    target.load(library_);
    ASSERT_TRUE(daemon_->wait_traced(target.pid()));
    const auto answer = daemon_->call_when_stored("stats", {{"since_ns", 60'000 * ms}});
    EXPECT_EQ(answer.at("coverage").at("complete"), false);
    size_t told = 0;
    for (const auto& gap : answer.at("coverage").at("gaps"))
        if (gap.at("reason") == "late-attach: libcudart.so.12 (pid " + std::to_string(target.pid()) + ")") {
            ++told;
            EXPECT_EQ(gap.at("partial"), true);
            EXPECT_LT(gap.at("from_ns").get<uint64_t>(), gap.at("to_ns").get<uint64_t>());
        }
    EXPECT_EQ(told, 1u);
    // Nobody else's business.
    const std::vector<std::string> stats = {INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "--json", "stats"};
    const Finished stranger = test::run(stats, {.environment = {}, .uid = 65534, .drop_capabilities = false});
    EXPECT_EQ(stranger.output.find("libcudart"), std::string::npos) << stranger.output;
    EXPECT_EQ(stranger.errors, "");
    for (const char* command : {"stats", "explain", "processes"}) {
        const Finished told = test::run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), command},
                                        {.environment = {}, .uid = 65534, .drop_capabilities = false});
        EXPECT_THAT(told.errors, HasSubstr("your own processes only")) << command;
        const Finished root = test::run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), command});
        EXPECT_EQ(root.errors, "") << command;
    }
    EXPECT_EQ(daemon_->stop(), 0);
}

}  // namespace
