// One file behind several mounts, as the containers of one image have it: the kernel tells of each call once for each.
#include <gtest/gtest.h>

#include <filesystem>
#include <list>

#include "core/model/op.h"
#include "test_paths.h"
#include "tests/support/daemon.h"
#include "tests/support/mount_point.h"
#include "tests/support/side_by_side.h"

using namespace ingero;
using namespace ingero::test;

namespace {

class SharedImage : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        // With all that lies beside it, so that the library finds what it needs.
        std::filesystem::copy(std::filesystem::path(CUDART_LIBRARY).parent_path(), directory_ / "image");
    }

    /// What a container of the image sees as its root. Empty where this host has no overlays.
    std::string mount_container(const std::string& name) {
        const std::string upper = directory_ / (name + "-upper"), work = directory_ / (name + "-work");
        for (const std::string& path : {upper, work}) std::filesystem::create_directory(path);
        const std::string options = "lowerdir=" + (directory_ / "image") + ",upperdir=" + upper + ",workdir=" + work;
        mounts_.emplace_back(directory_ / (name + "-merged"));
        return mounts_.back().mount("overlay", options) ? mounts_.back().path() : std::string();
    }

    const TemporaryDirectory directory_;
    std::list<MountPoint> mounts_;
};

TEST_F(SharedImage, is_traced_once_a_call_in_each_of_its_containers) {
    constexpr int containers = 3;
    std::vector<std::string> roots;
    for (int i = 0; i < containers; ++i) roots.push_back(mount_container("c" + std::to_string(i)));
    if (roots[0].empty()) GTEST_SKIP() << "no overlay can be mounted here";
    Daemon daemon(directory_ / "run");
    std::list<Workload> workloads;
    for (int i = 0; i < containers; ++i) {
        workloads.emplace_back(std::vector<std::string>{"--cudart", roots[static_cast<size_t>(i)] + "/libcudart.so.13",
                                                        "--log", directory_ / ("log" + std::to_string(i)), "calls",
                                                        "--count", "100"});
        ASSERT_TRUE(daemon.wait_traced(workloads.back().pid()));
    }
    std::vector<uint32_t> pids;
    for (Workload& workload : workloads) pids.push_back(static_cast<uint32_t>(workload.pid()));
    for (Workload& workload : workloads) workload.open_gate();
    for (Workload& workload : workloads) ASSERT_EQ(workload.finish(), 0) << workload.child().errors();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const StoreContents store = read_store(daemon.store());
    EXPECT_EQ(store.lost_to_rings(), 0u);
    for (size_t i = 0; i < containers; ++i) {
        const auto truth = standin::GroundTruth::open(directory_ / ("log" + std::to_string(i)));
        ASSERT_TRUE(truth);
        const std::vector<Process> rows = rows_of(store, pids[i]);
        ASSERT_EQ(rows.size(), 1u);
        const SideBySide trace = lay_side_by_side(*truth, store.events, rows[0].key);
        EXPECT_GE(trace.events.size(), 100u);
        expect_all_the_same(*truth, trace);
    }
}

}  // namespace
