// [capture] include and exclude: which processes are traced. Patterns are "KIND:GLOB" with the kinds unit, cgroup, comm
// and uid (a number, or a range as 1000-1999); globs as in fnmatch(3), where * also spans slashes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/process/process.h"
#include "core/model/result.h"

namespace ingero {

struct CapturePattern {
    enum class Kind { unit, cgroup, comm, uid };
    Kind kind = Kind::comm;
    std::string glob;  ///< of unit, cgroup and comm
    uint32_t first_uid = 0, last_uid = 0;
    std::string text;  ///< as it was written

    /// Errors: bad_request, as a sentence's end ("... must be ...").
    static Result<CapturePattern> parse(std::string_view text);
    bool matches(const Process& process) const;
};

class CapturePolicy {
  public:
    /// Everything is captured.
    CapturePolicy() = default;
    /// Errors: bad_request, with the pattern.
    static Result<CapturePolicy> parse(const std::vector<std::string>& include,
                                       const std::vector<std::string>& exclude);

    bool captures_all() const { return include_.empty() && exclude_.empty(); }
    /// Why the process is not to be traced; nothing where it is. Exclude goes before include, and an empty include
    /// means all.
    std::optional<std::string> excluded_by(const Process& process) const;

    static constexpr size_t max_patterns = 256;  ///< of each list

  private:
    std::vector<CapturePattern> include_;
    std::vector<CapturePattern> exclude_;
};

}  // namespace ingero
