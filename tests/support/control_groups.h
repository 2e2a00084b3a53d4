// Control groups of a test, in the unified hierarchy. They are gone with it, and so is what runs in them.
#pragma once

#include <string>
#include <vector>

namespace ingero::test {

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

}  // namespace ingero::test
