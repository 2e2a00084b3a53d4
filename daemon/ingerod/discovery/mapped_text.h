// Text that processes have in the files that they mapped, such as names of kernels in a library's read-only data, read
// from the file: to read a page of another's memory that is not there yet may take for ever, and whoever does cannot be
// killed meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/model/process/process.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/limits/uid_owners.h"

namespace ingero {

/// How long it may take in all to find where a user's processes, or root's, have text.
struct MappedTextLimits {
    static constexpr uint64_t burst_s = 20;
    uint64_t burst_us = burst_s * 1'000'000;
    uint64_t period_ns = 50'000;  ///< and then so long for each us
};

class MappedText {
  public:
    MappedText(const ProcFs& proc, OwnerOf owner_of, const MappedTextLimits& limits = {})
        : proc_(proc), owner_of_(std::move(owner_of)), times_(limits.burst_us, limits.period_ns) {}

    /// What the file of the mapping has at the address, up to its NUL or `most` bytes; nullopt where no file is mapped
    /// there, or one that may not be read (ProcFs::open_mapped_file), the mapping ends before the text, its user's time
    /// is used up, or another process has the pid by now. What was found where is remembered.
    std::optional<std::string> read(const ProcessKey& process, uint64_t address, size_t most);
    /// It has other files mapped by now.
    void forget(uint32_t pid);
    void forget_all() { opened_.clear(); }

  private:
    static constexpr size_t max_opened = 64;
    struct Opened {
        ProcessKey process;
        Mapping mapping;
        std::shared_ptr<const UniqueFd> file;
    };
    /// Null where it cannot be.
    const Opened* open(const ProcessKey& process, uint64_t address);
    std::optional<Opened> open_anew(const ProcessKey& process, uint64_t address);

    const ProcFs& proc_;
    OwnerOf owner_of_;
    RateShares times_;          ///< in us
    std::list<Opened> opened_;  ///< the latest used first
};

}  // namespace ingero
