// A pid that is given out again is another process: what was known of the first one says nothing of the second.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>

#include "core/model/op.h"
#include "test_paths.h"
#include "tests/support/daemon.h"
#include "tests/support/side_by_side.h"

using namespace ingero;
using namespace ingero::test;

namespace {

namespace fs = std::filesystem;

constexpr OpId driver_launch = op::cuLaunchKernel;

/// High up, where the kernel's own numbering comes last.
int some_high_pid() {
    int limit = 0;
    std::ifstream("/proc/sys/kernel/pid_max") >> limit;
    static int taken = 0;
    return limit - 50 - getpid() % 97 - 97 * taken++;
}

class PidReuse : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    /// The program under another name.
    std::string named(const std::string& program, const std::string& name) const {
        const std::string path = directory_ / name;
        fs::create_symlink(program, path);
        return path;
    }

    /// Runs both commands after each other under one pid and `drive`s each to its end. 0 where the pid could not be
    /// had for both, since another process took it.
    uint32_t run_under_one_pid(const std::vector<std::vector<std::string>>& commands,
                               const std::function<void(Child&, size_t)>& drive) {
        for (int attempt = 0; attempt < 10; ++attempt) {
            const int pid = some_high_pid();
            size_t ran = 0;
            for (; ran < commands.size(); ++ran) {
                Child child(commands[ran],
                            {.environment = {}, .uid = {}, .drop_capabilities = false, .wanted_pid = pid});
                if (child.pid() != pid) break;
                EXPECT_TRUE(child.wait_for_line("ready")) << child.errors();
                drive(child, ran);
                if (HasFailure()) return 0;
            }
            if (ran == commands.size()) return static_cast<uint32_t>(pid);
            EXPECT_EQ(errno, EEXIST);
        }
        ADD_FAILURE() << "no pid could be had twice";
        return 0;
    }

    static void tell(Child& child, const std::string& line) {
        child.write_line(line);
        ASSERT_EQ(child.read_line(), "done") << line;
    }

    const TemporaryDirectory directory_;
};

TEST_F(PidReuse, by_another_program_mixes_up_neither_calls_nor_names_nor_ends) {
    const std::string first_log = directory_ / "first", second_log = directory_ / "second";
    // It registers its kernels, so that its device is known from its start. The second does not.
    const std::vector<std::string> first = {named(WORKLOAD_PROGRAM, "first-program"),
                                            "train",
                                            "--steps",
                                            "10",
                                            "--launches",
                                            "6",
                                            "--log",
                                            first_log,
                                            "--gate"};
    const std::vector<std::string> second = {named(WORKLOAD_PROGRAM, "second-program"),
                                             "calls",
                                             "--count",
                                             "96",
                                             "--op",
                                             "mixed",
                                             "--log",
                                             second_log,
                                             "--gate"};
    Daemon daemon(directory_ / "run");
    const uint32_t pid = run_under_one_pid({first, second}, [&](Child& child, size_t number) {
        ASSERT_TRUE(daemon.wait_traced(child.pid())) << daemon.process().output();
        // What the daemon is told late of the first one's libraries it may look for in the second, before that is even
        // the program that it will be.
        const std::string name = number == 0 ? "first-program" : "second-program";
        ASSERT_TRUE(wait_until([&] {
            const nlohmann::json answer = daemon.call("processes");
            const nlohmann::json& processes = answer.at("processes");
            return std::any_of(processes.begin(), processes.end(), [&](const nlohmann::json& process) {
                return process.at("pid") == child.pid() && process.at("comm") == name;
            });
        }));
        child.write_line("go");
        ASSERT_EQ(child.wait(), 0) << child.errors();
    });
    ASSERT_NE(pid, 0u);
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const auto first_truth = standin::GroundTruth::open(first_log),
               second_truth = standin::GroundTruth::open(second_log);
    ASSERT_TRUE(first_truth && second_truth);
    const StoreContents store = read_store(daemon.store());
    EXPECT_EQ(store.lost_to_rings(), 0u);
    const std::vector<Process> rows = rows_of(store, pid);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].comm, "first-program");
    EXPECT_EQ(rows[1].comm, "second-program");

    const SideBySide first_trace = lay_side_by_side(*first_truth, store.events, rows[0].key);
    const SideBySide second_trace = lay_side_by_side(*second_truth, store.events, rows[1].key);
    ASSERT_GE(first_trace.calls.size(), 120u);
    ASSERT_GE(second_trace.calls.size(), 192u);
    expect_all_the_same(*first_truth, first_trace);
    expect_all_the_same(*second_truth, second_trace);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(std::count_if(store.events.begin(), store.events.end(), [&](const Event& e) { return e.tgid == pid; }),
              static_cast<ptrdiff_t>(first_trace.calls.size() + second_trace.calls.size()));
    EXPECT_GE(rows[0].exited_ns, first_trace.events.back().end_ns());
    EXPECT_LT(rows[0].exited_ns, second_trace.events.front().start_ns);
    EXPECT_GE(rows[1].exited_ns, second_trace.events.back().end_ns());

    // Each by its own program's word, also where both have a handle.
    std::map<std::string, size_t> first_names, second_names;
    for (const FunctionRow& row : store.functions) {
        if (row.process.pid != pid) continue;
        const bool is_first = row.process == rows[0].key;
        const auto& truth = is_first ? *first_truth : *second_truth;
        EXPECT_EQ(row.name, truth.kernel_name(pid, row.handle));
        (is_first ? first_names : second_names)[row.name]++;
    }
    EXPECT_EQ(first_names["gemm_kernel"], 2u) << "of the runtime's and the driver's function";
    EXPECT_EQ(second_names, (std::map<std::string, size_t>{{"unregistered", 1}}));
}

TEST_F(PidReuse, leaves_no_device_and_no_name_to_a_program_that_meets_the_same_handles) {
    const std::string library = directory_ / "libcuda-reuse.so.1";
    fs::copy_file(REUSE_DRIVER, library);
    const std::vector<std::string> command = {REUSE_PROGRAM, library};
    Daemon daemon(directory_ / "run");
    const uint32_t pid = run_under_one_pid({command, command}, [&](Child& child, size_t number) {
        ASSERT_TRUE(daemon.wait_traced(child.pid())) << daemon.process().output();
        // Of the second, that the context is made and the function named is not seen.
        if (number == 0) {
            tell(child, "retain 1");
            tell(child, "name first_kernel");
        }
        tell(child, "current");
        tell(child, "launch");
        if (number == 1) {
            tell(child, "retain 3");
            tell(child, "name second_kernel");
            tell(child, "current");
            tell(child, "launch");
        }
        child.close_input();
        ASSERT_EQ(child.wait(), 0) << child.errors();
    });
    ASSERT_NE(pid, 0u);
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const StoreContents store = read_store(daemon.store());
    const std::vector<Process> rows = rows_of(store, pid);
    ASSERT_EQ(rows.size(), 2u);
    std::vector<unsigned> first_devices, second_devices;
    for (const Event& event : store.events) {
        if (event.op != driver_launch || event.tgid != pid) continue;
        EXPECT_EQ(event.return_code, 0);
        (event.process() == rows[0].key ? first_devices : second_devices).push_back(event.device);
    }
    EXPECT_EQ(first_devices, (std::vector<unsigned>{1}));
    EXPECT_EQ(second_devices, (std::vector<unsigned>{INGERO_DEVICE_UNKNOWN, 3}));
    std::map<ProcessKey, std::vector<std::string>> names;
    for (const FunctionRow& row : store.functions)
        if (row.process.pid == pid) names[row.process].push_back(row.name);
    EXPECT_EQ(names[rows[0].key], (std::vector<std::string>{"first_kernel"}));
    EXPECT_EQ(names[rows[1].key], (std::vector<std::string>{"second_kernel"}));
}

TEST_F(PidReuse, leaves_no_device_to_the_program_that_a_process_becomes) {
    const std::string library = directory_ / "libcuda-reuse.so.1";
    fs::copy_file(REUSE_DRIVER, library);
    Daemon daemon(directory_ / "run");
    Child child({REUSE_PROGRAM, library});
    ASSERT_TRUE(child.wait_for_line("ready"));
    ASSERT_TRUE(daemon.wait_traced(child.pid())) << daemon.process().output();
    for (const char* line : {"retain 1", "current", "launch"}) tell(child, line);
    child.write_line("again");
    ASSERT_TRUE(child.wait_for_line("ready"));
    for (const char* line : {"current", "launch"}) tell(child, line);
    const auto pid = static_cast<uint32_t>(child.pid());
    child.close_input();
    ASSERT_EQ(child.wait(), 0) << child.errors();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    std::vector<unsigned> devices;
    for (const Event& event : read_store(daemon.store()).events)
        if (event.op == driver_launch && event.tgid == pid) devices.push_back(event.device);
    EXPECT_EQ(devices, (std::vector<unsigned>{1, INGERO_DEVICE_UNKNOWN}));
}

/// The tests above, daemon and all, in a pid namespace of their own, where no other process takes a pid.
TEST(PidReuseInANamespace, is_told_apart_too) {
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    const Finished inner = run({"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
                                fs::read_symlink("/proc/self/exe").string(), "--gtest_filter=PidReuse.*"},
                               {}, milliseconds(100'000));
    EXPECT_EQ(inner.status, 0) << inner.output << inner.errors;
    EXPECT_NE(inner.output.find("[  PASSED  ] 3 tests."), std::string::npos) << inner.output;
}

}  // namespace
