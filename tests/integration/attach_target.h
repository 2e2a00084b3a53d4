// The program of tests/integration/attach/target.cpp, told what to do.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "test_paths.h"
#include "tests/support/child.h"
#include "tests/support/code.h"

namespace ingero::test {

class AttachTarget {
  public:
    /// `through` is a command that executes what follows it.
    explicit AttachTarget(std::vector<std::string> through = {}, const ChildOptions& options = {})
        : child_(command(std::move(through)), options) {
        EXPECT_TRUE(child_.wait_for_line("ready")) << child_.errors();
    }
    int pid() const { return child_.pid(); }
    std::string tell(const std::string& line) {
        child_.write_line(line);
        return child_.read_line().value_or("no answer");
    }
    void load(const std::string& path) { EXPECT_EQ(tell("load " + path), "loaded"); }
    Child& child() { return child_; }

    /// Where the code of its mapped library is not that of `file`: offset to the byte in memory.
    std::map<uint64_t, uint8_t> changed_bytes(const std::vector<char>& file) const { return changed_code(pid(), file); }

  private:
    static std::vector<std::string> command(std::vector<std::string> through) {
        through.push_back(ATTACH_TARGET);
        return through;
    }
    Child child_;
};

}  // namespace ingero::test
