// The program of tests/integration/attach/target.cpp, told what to do.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/model/unique_fd.h"
#include "test_paths.h"
#include "tests/support/child.h"

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
    std::map<uint64_t, uint8_t> changed_bytes(const std::vector<char>& file) const {
        std::map<uint64_t, uint8_t> changed;
        const std::string directory = "/proc/" + std::to_string(pid());
        std::ifstream maps(directory + "/maps");
        const UniqueFd memory(open((directory + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
        std::string line;
        size_t compared = 0;
        while (std::getline(maps, line)) {
            unsigned long long start = 0, end = 0, offset = 0;
            char flags[5] = {};
            if (line.find("libcudart") == std::string::npos ||
                sscanf(line.c_str(), "%llx-%llx %4s %llx", &start, &end, flags, &offset) != 4 || flags[2] != 'x')
                continue;
            std::vector<char> code(end - start);
            const ssize_t got = pread(memory.get(), code.data(), code.size(), static_cast<off_t>(start));
            EXPECT_EQ(got, static_cast<ssize_t>(code.size()));
            for (size_t i = 0; i < code.size() && offset + i < file.size(); ++i, ++compared)
                if (code[i] != file[offset + i]) changed[offset + i] = static_cast<uint8_t>(code[i]);
        }
        EXPECT_GT(compared, 0u) << "the library is not mapped";
        return changed;
    }

  private:
    static std::vector<std::string> command(std::vector<std::string> through) {
        through.push_back(ATTACH_TARGET);
        return through;
    }
    Child child_;
};

}  // namespace ingero::test
