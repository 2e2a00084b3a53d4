// Whoever asks is answered, and whoever calls is recorded, whatever other processes map meanwhile.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/model/op.h"
#include "test_paths.h"
#include "tests/integration/attach_target.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

namespace fs = std::filesystem;

class BusyHost : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        daemon_.emplace(directory_ / "run");
    }

    const TemporaryDirectory directory_;
    std::optional<Daemon> daemon_;
};

constexpr size_t calls = 20'000;
constexpr milliseconds patience(5'000);

TEST_F(BusyHost, where_processes_map_and_unmap_as_fast_as_they_can_has_its_status_and_all_calls_of_others) {
    const std::string files = directory_ / "files";
    fs::create_directory(files);
    for (const char* name : {"libcudart.so.12", "tool", "program", "script", "libother.so.1", "another"})
        fs::copy_file(PLAIN_CUDART_A, files + "/" + name);
    Workload workload({"calls", "--count", std::to_string(calls), "--rate", "4000", "--op", "launch"});
    ASSERT_TRUE(daemon_->wait_traced(workload.pid()));
    AttachTarget stormy;
    ASSERT_EQ(stormy.tell("storm " + files), "storming");
    const auto pid = static_cast<uint32_t>(workload.pid());
    workload.open_gate();
    size_t asked = 0;
    milliseconds longest(0);
    uint64_t recorded = 0;
    while (recorded < 2 * calls) {
        const auto begin = std::chrono::steady_clock::now();
        const auto answer = daemon_->try_call("status", nlohmann::json::object(), patience);
        ASSERT_TRUE(answer) << answer.error().message << " after " << asked << " answers";
        const auto took = std::chrono::steady_clock::now() - begin;
        longest = std::max(longest, std::chrono::duration_cast<milliseconds>(took));
        recorded = answer->at("events").at("recorded");
        ++asked;
        ASSERT_LT(asked, 1'000'000u) << recorded;
    }
    const uint64_t mapped = std::stoull(stormy.tell("storms 0"));
    printf("%zu answers, the slowest after %ld ms, while %lu mappings were made\n", asked,
           static_cast<long>(longest.count()), static_cast<unsigned long>(mapped));
    EXPECT_GT(mapped, 100'000u) << "that is no storm";
    EXPECT_EQ(workload.finish(), 0);
    ASSERT_EQ(daemon_->stop(), 0);
    const StoreContents store = read_store(daemon_->store());
    for (const OpId op : {op::cudaLaunchKernel, op::cuLaunchKernel})
        EXPECT_EQ(std::count_if(store.events.begin(), store.events.end(),
                                [&](const Event& event) { return event.tgid == pid && event.op == op; }),
                  static_cast<ptrdiff_t>(calls));
}

TEST_F(BusyHost, where_two_hundred_libraries_wait_to_be_attached_to_has_its_queries_answered_meanwhile) {
    constexpr size_t libraries = 200;
    // A name of its own: others' libraries are none of this.
    const std::string name = "libcudart-" + fs::path(directory_.path()).filename().string() + ".so.12";
    std::vector<std::string> paths;
    for (size_t i = 0; i <= libraries; ++i) {
        const std::string folder = directory_ / std::to_string(i);
        fs::create_directory(folder);
        paths.push_back(folder + "/" + name);
        fs::copy_file(PLAIN_CUDART_A, paths.back());
    }
    const auto attached = [&] {
        size_t count = 0;
        const nlohmann::json probes = daemon_->call("probes");
        for (const nlohmann::json& library : probes.at("libraries"))
            if (library.at("library") == name) count += library.at("attached").get<size_t>();
        return count;
    };
    AttachTarget target;
    ASSERT_EQ(target.tell("map " + paths.back()), "mapped");
    ASSERT_TRUE(daemon_->wait_traced(target.pid()));
    // Those that read libraries: nobody has asked for anything else yet.
    const std::vector<int> readers = daemon_->workers();
    ASSERT_FALSE(readers.empty());
    for (const int pid : readers) ASSERT_EQ(::kill(pid, SIGSTOP), 0);
    for (size_t i = 0; i < libraries; ++i) ASSERT_EQ(target.tell("map " + paths[i]), "mapped");
    const auto ask = [&] {
        const auto answer = daemon_->try_call("stats", nlohmann::json::object(), patience);
        EXPECT_TRUE(answer) << answer.error().message;
        return answer.has_value();
    };
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(ask());
    EXPECT_EQ(attached(), 1u);
    for (const int pid : readers) ASSERT_EQ(::kill(pid, SIGCONT), 0);
    Patience limit;
    while (attached() <= libraries) {
        ASSERT_TRUE(ask());
        ASSERT_TRUE(limit.lasts()) << attached();
    }
    daemon_->kill();
}

}  // namespace
