// Libraries as they are mapped: the kernel's mmap records, from one dummy perf event a CPU. Loop thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/model/result.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero {

/// Of the ring of one CPU, without the page that describes it: a power of two of pages, which have 4 to 64 KiB. The
/// rings of all CPUs count as locked memory.
constexpr size_t mmap_ring_bytes(size_t page_bytes) {
    return std::max<size_t>(page_bytes, 64 << 10);
}

/// Which CPUs are online, and how often that is read.
struct OnlineCpus {
    std::string file = "/sys/devices/system/cpu/online";
    uint64_t period_us = 10'000'000;
};

class MmapWatch {
  public:
    struct Callbacks {
        /// Executable, of a wanted file; mapped at `time_ns`, CLOCK_MONOTONIC.
        std::function<void(uint32_t pid, const Mapping& mapping, uint64_t time_ns)> on_mapping;
        std::function<void(uint32_t pid)> on_executable;  ///< of any file; may be left out
        /// Of a file that may be the process's program.
        std::function<void(uint32_t pid, const Mapping& mapping, uint64_t time_ns)> on_program;
        /// Records were dropped: scan anew. What was mapped before `since_ns`, CLOCK_MONOTONIC, has been reported.
        std::function<void(uint64_t since_ns)> on_lost;
        /// CPUs came online: scan anew. What was mapped on them before `since_ns` has been reported.
        std::function<void(uint64_t since_ns)> on_new_cpus = [](uint64_t) {};
    };
    /// `is_library` and `may_be_program` look at the path alone and are called for each executable mapping on the host.
    static Result<std::unique_ptr<MmapWatch>> start(EventLoop& loop, std::function<bool(std::string_view)> is_library,
                                                    std::function<bool(std::string_view)> may_be_program,
                                                    Callbacks callbacks, const OnlineCpus& cpus = {});
    ~MmapWatch();

  private:
    struct Impl;
    explicit MmapWatch(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
