// A tar of a few small files, made in memory: POSIX.1-1988 (ustar) headers, which every tar reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/result.h"

namespace ingero::ctl {

struct TarFile {
    std::string name;  ///< with its folders, at most 100 bytes
    std::string content;
};

/// All owned by root with mode 0600, and of the time in seconds since the epoch.
std::string make_tar(const std::vector<TarFile>& files, uint64_t time_s);
/// Errors: internal.
Result<std::string> compress_zstd(std::string_view text);

}  // namespace ingero::ctl
