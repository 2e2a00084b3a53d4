#include "tests/support/control_groups.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/child.h"

namespace ingero::test {

namespace {

/// Empty where there is no such file.
std::string on_disk_of(const std::string& file, const std::string& what, uint64_t value) {
    struct stat facts {};
    if (stat(file.c_str(), &facts) != 0) return {};
    return std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev)) + what +
           std::to_string(value);
}

}  // namespace

ControlGroups::ControlGroups() {
    std::ifstream mounts("/proc/self/mounts");
    for (std::string device, place, type, rest; mounts >> device >> place >> type && std::getline(mounts, rest);)
        if (type == "cgroup2") root_ = place + "/ingero-test-XXXXXX";
    if (root_.empty() || !mkdtemp(root_.data())) root_.clear();
}

ControlGroups::~ControlGroups() {
    if (!exist()) return;
    groups_.push_back(root_);
    for (const std::string& group : groups_) {
        std::ofstream(group + "/cgroup.kill") << 1;
        // A group is busy until the last of what was killed has ended.
        EXPECT_TRUE(wait_until([&] { return rmdir(group.c_str()) == 0; })) << group;
    }
}

void ControlGroups::move(int pid, const std::string& name) {
    const std::string group = root_ + "/" + name;
    if (mkdir(group.c_str(), 0755) == 0) groups_.push_back(group);
    std::ofstream(group + "/cgroup.procs") << pid;
}

LimitedControlGroup::LimitedControlGroup(const Limit& v1, const Limit& v2) {
    const std::string root = "/sys/fs/cgroup/", hierarchy = root + v1.controller + "/";
    // Of the first kind is a controller that has such a folder; the root of some has the limit's file too.
    const bool is_v1 =
        access((hierarchy + v1.file).c_str(), F_OK) == 0 || access((hierarchy + "tasks").c_str(), F_OK) == 0;
    const Limit& limit = is_v1 ? v1 : v2;
    if (!is_v1) std::ofstream(root + "cgroup.subtree_control") << "+" << limit.controller;
    path_ = (is_v1 ? hierarchy : root) + "ingero-test-" + limit.controller + "-" + std::to_string(getpid());
    const std::string file = path_ + "/" + limit.file;
    if (limit.text.empty() || mkdir(path_.c_str(), 0755) != 0 || access(file.c_str(), W_OK) != 0) return;
    std::ofstream out(file);
    out << limit.text << std::flush;
    usable_ = out.good();
}

LimitedControlGroup::~LimitedControlGroup() {
    rmdir(path_.c_str());
}

void LimitedControlGroup::take(int pid) const {
    std::ofstream(path_ + "/cgroup.procs") << pid;
}

CpuControlGroup::CpuControlGroup(uint64_t quota_us)
    : LimitedControlGroup({"cpu", "cpu.cfs_quota_us", std::to_string(quota_us)},
                          {"cpu", "cpu.max", std::to_string(quota_us) + " 100000"}) {}

uint64_t CpuControlGroup::throttled_ns() const {
    std::ifstream stat(path_ + "/cpu.stat");
    uint64_t value = 0;
    for (std::string word; stat >> word >> value;) {
        if (word == "throttled_time") return value;
        if (word == "throttled_usec") return value * 1'000;
    }
    return 0;
}

MemoryControlGroup::MemoryControlGroup(size_t mib)
    : LimitedControlGroup({"memory", "memory.limit_in_bytes", std::to_string(mib << 20)},
                          {"memory", "memory.max", std::to_string(mib << 20)}) {}

SlowDisk::SlowDisk(const std::string& file, uint64_t bytes_a_second)
    : LimitedControlGroup({"blkio", "blkio.throttle.read_bps_device", on_disk_of(file, " ", bytes_a_second)},
                          {"io", "io.max", on_disk_of(file, " rbps=", bytes_a_second)}) {}

}  // namespace ingero::test
