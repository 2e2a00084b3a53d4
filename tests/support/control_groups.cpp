#include "tests/support/control_groups.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/child.h"

namespace ingero::test {

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

CpuControlGroup::CpuControlGroup(uint64_t quota_us) {
    const bool v1 =
        access("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", F_OK) == 0 || access("/sys/fs/cgroup/cpu/tasks", F_OK) == 0;
    if (!v1) std::ofstream("/sys/fs/cgroup/cgroup.subtree_control") << "+cpu";
    path_ = (v1 ? "/sys/fs/cgroup/cpu/" : "/sys/fs/cgroup/") + ("ingero-test-cpu-" + std::to_string(getpid()));
    const std::string quota = path_ + (v1 ? "/cpu.cfs_quota_us" : "/cpu.max");
    if (mkdir(path_.c_str(), 0755) != 0 || access(quota.c_str(), W_OK) != 0) return;
    std::ofstream(quota) << std::to_string(quota_us) + (v1 ? "" : " 100000");
    usable_ = true;
}

CpuControlGroup::~CpuControlGroup() {
    rmdir(path_.c_str());
}

void CpuControlGroup::take(int pid) const {
    std::ofstream(path_ + "/cgroup.procs") << pid;
}

uint64_t CpuControlGroup::throttled_ns() const {
    std::ifstream stat(path_ + "/cpu.stat");
    uint64_t value = 0;
    for (std::string word; stat >> word >> value;) {
        if (word == "throttled_time") return value;
        if (word == "throttled_usec") return value * 1'000;
    }
    return 0;
}

MemoryControlGroup::MemoryControlGroup(size_t mib) {
    const bool v1 = access("/sys/fs/cgroup/memory/tasks", F_OK) == 0;
    if (!v1) std::ofstream("/sys/fs/cgroup/cgroup.subtree_control") << "+memory";
    path_ = (v1 ? "/sys/fs/cgroup/memory/" : "/sys/fs/cgroup/") + ("ingero-test-" + std::to_string(getpid()));
    const std::string limit = path_ + (v1 ? "/memory.limit_in_bytes" : "/memory.max");
    if (mkdir(path_.c_str(), 0755) != 0 || access(limit.c_str(), W_OK) != 0) return;
    std::ofstream(limit) << (mib << 20);
    usable_ = true;
}

MemoryControlGroup::~MemoryControlGroup() {
    rmdir(path_.c_str());
}

void MemoryControlGroup::take(int pid) const {
    std::ofstream(path_ + "/cgroup.procs") << pid;
}

}  // namespace ingero::test
