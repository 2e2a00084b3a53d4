// Control groups of a test. They are gone with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ingero::test {

/// In the unified hierarchy. What runs in them ends with them.
class ControlGroups {
  public:
    ControlGroups();
    ~ControlGroups();
    ControlGroups(const ControlGroups&) = delete;
    ControlGroups& operator=(const ControlGroups&) = delete;

    /// False where none can be made here.
    bool exist() const { return !root_.empty(); }
    /// Into the group of this name, which is made where there is none.
    void move(int pid, const std::string& name);

  private:
    std::string root_;
    std::vector<std::string> groups_;
};

/// One of either hierarchy, whose processes together have a CPU for so long in each 100 ms. It must be empty at the
/// end.
class CpuControlGroup {
  public:
    explicit CpuControlGroup(uint64_t quota_us);
    ~CpuControlGroup();
    CpuControlGroup(const CpuControlGroup&) = delete;
    CpuControlGroup& operator=(const CpuControlGroup&) = delete;

    /// False where none can be made here.
    bool usable() const { return usable_; }
    void take(int pid) const;
    /// For how long they were kept from running, as the kernel says.
    uint64_t throttled_ns() const;

  private:
    std::string path_;
    bool usable_ = false;
};

/// One of either hierarchy, whose processes have so much memory. It must be empty at the end.
class MemoryControlGroup {
  public:
    explicit MemoryControlGroup(size_t mib);
    ~MemoryControlGroup();
    MemoryControlGroup(const MemoryControlGroup&) = delete;
    MemoryControlGroup& operator=(const MemoryControlGroup&) = delete;

    /// False where none can be made here.
    bool usable() const { return usable_; }
    void take(int pid) const;

  private:
    std::string path_;
    bool usable_ = false;
};

}  // namespace ingero::test
