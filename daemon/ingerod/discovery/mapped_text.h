// Text that processes have in the files that they mapped, such as names of kernels in a library's read-only data, read
// from the file: to read a page of another's memory that is not there yet may take for ever, and whoever does cannot be
// killed meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/model/process.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/limits/uid_owners.h"

namespace ingero {

class MappedText {
  public:
    /// How often a user's processes have their mappings read for this. A framework with 100,000 kernels needs some
    /// 1,000 as it starts.
    static constexpr uint64_t burst = 2'048;
    static constexpr uint64_t period_ns = 200'000'000;  ///< and then one each

    MappedText(const ProcFs& proc, OwnerOf owner_of) : proc_(proc), owner_of_(std::move(owner_of)) {}

    /// What the file of the mapping has at the address, up to its NUL or `most` bytes; nullopt where no file is mapped
    /// there, or one that may not be read (ProcFs::open_mapped_file), its user asks too often, or another process has
    /// the pid by now. What the process has mapped is remembered until forget().
    std::optional<std::string> read(const ProcessKey& process, uint64_t address, size_t most);
    void forget() { last_.reset(); }

  private:
    struct Opened {
        ProcessKey process;
        Mapping mapping;
        std::shared_ptr<const UniqueFd> file;
    };
    bool open(const ProcessKey& process, uint64_t address);

    const ProcFs& proc_;
    OwnerOf owner_of_;
    RateShares opens_{burst, period_ns};
    std::optional<Opened> last_;
};

}  // namespace ingero
