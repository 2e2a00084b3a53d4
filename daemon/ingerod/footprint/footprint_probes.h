// The kernel side of a footprint, loaded for one process tree and gone with this object. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bpf/footprint.h"
#include "core/model/process/process.h"
#include "core/model/result.h"

namespace ingero {

class FootprintProbes {
  public:
    using Consumer = std::function<void(const ingero_footprint_record&, std::span<const char> data)>;

    /// Follows the process, and what it forks from now on. `only_owner`: only while they are processes of this user
    /// alone. Errors: denied (capabilities), internal.
    static Result<std::unique_ptr<FootprintProbes>> load(const ProcessKey& root, std::optional<uint32_t> only_owner);
    ~FootprintProbes();

    /// Hands out at most `most` of the records that wait; how many.
    size_t consume(size_t most, const Consumer& consumer);

    ingero_footprint_losses losses() const;
    /// The tree's first process was seen to do something.
    bool has_begun() const;
    std::vector<std::pair<ingero_footprint_call, ingero_footprint_calls>> calls() const;
    std::vector<std::pair<ingero_footprint_error, uint64_t>> errors() const;
    /// Calls that the kernel did not show, since one was being looked at on that CPU.
    uint64_t missed() const;
    /// Nothing more is seen; what was seen is kept.
    void stop();

  private:
    struct Impl;
    explicit FootprintProbes(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
