// What INGERO_STANDIN and INGERO_STANDIN_SCRIPT ask for. Read once, at the first call into any stand-in library.
// The keys are described in ../README.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingero::standin {

enum class Wait : uint8_t { spin, yield, block };

/// Whose CPU time the log has: reading that clock is a system call, and most of what a logged call costs.
enum class LogCpu : uint8_t { none, outermost, all };

struct KernelTime {
    std::string name;
    uint64_t duration_ns;
};

struct Options {
    uint64_t kernel_ns = 10'000;  ///< what a kernel takes that has no time of its own
    std::vector<KernelTime> kernels;
    uint32_t queue = 1024;  ///< entries a stream takes before a launch has to wait
    Wait sync = Wait::spin;
    double copy_gbps = 16;  ///< bytes a nanosecond
    uint64_t copy_ns = 1'000;
    uint64_t memory_bytes = uint64_t(16) << 30;  ///< a device
    uint32_t devices = 1;
    uint64_t lazy_ns = 0;
    uint64_t call_ns = 0;  ///< spun in every call, nested ones too
    bool free_sync = true;
    bool staging = true;    ///< large asynchronous copies of memory that is not pinned wait
    bool fragment = false;  ///< device memory is one range a device, in which an allocation needs a gap of its size
    std::string log_path;
    uint64_t log_capacity = uint64_t(4) << 20;
    uint64_t log_populate = 65'536;
    LogCpu log_cpu = LogCpu::all;
    std::string scratch = "/var/tmp";
    std::string waits;               ///< file of a WaitingWord; empty for none
    std::vector<std::string> rules;  ///< as written, for rules.h
};

/// The options in force. The first use parses them; a key or value that does not parse ends the process with status 2,
/// since a test must not run under other conditions than it asked for.
const Options& options();

/// Says why on stderr and ends the process.
[[noreturn]] void reject(std::string_view what, std::string_view text);

/// Whole text as a number not below zero; rejects anything else.
double to_number(std::string_view text);

}  // namespace ingero::standin
