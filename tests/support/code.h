// The code of a running program, and what probes made of it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/model/unique_fd.h"

namespace ingero::test {

/// Empty where it maps none.
inline std::string mapped_cudart(int pid) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find("libcudart") != std::string::npos) return line.substr(line.find('/'));
    return {};
}

/// Where the code of its mapped libcudart is not that of `file`: offset to the byte in memory.
inline std::map<uint64_t, uint8_t> changed_code(int pid, const std::vector<char>& file) {
    std::map<uint64_t, uint8_t> changed;
    const std::string directory = "/proc/" + std::to_string(pid);
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

}  // namespace ingero::test
