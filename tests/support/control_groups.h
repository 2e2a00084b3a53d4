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

/// One of either hierarchy, with a limit of one controller. It must be empty at the end.
class LimitedControlGroup {
  public:
    LimitedControlGroup(const LimitedControlGroup&) = delete;
    LimitedControlGroup& operator=(const LimitedControlGroup&) = delete;

    /// False where none can be made here.
    bool usable() const { return usable_; }
    void take(int pid) const;

  protected:
    /// In one hierarchy: the file that sets it, and what is written there.
    struct Limit {
        std::string controller, file, text;
    };
    LimitedControlGroup(const Limit& v1, const Limit& v2);
    ~LimitedControlGroup();

    std::string path_;

  private:
    bool usable_ = false;
};

/// Its processes together have a CPU for so long in each 100 ms.
class CpuControlGroup : public LimitedControlGroup {
  public:
    explicit CpuControlGroup(uint64_t quota_us);
    /// For how long they were kept from running, as the kernel says.
    uint64_t throttled_ns() const;
};

/// Its processes read so slowly from the disk that a file is on.
class SlowDisk : public LimitedControlGroup {
  public:
    SlowDisk(const std::string& file, uint64_t bytes_a_second);
};

/// Its processes have so much memory.
class MemoryControlGroup : public LimitedControlGroup {
  public:
    explicit MemoryControlGroup(size_t mib);
};

}  // namespace ingero::test
