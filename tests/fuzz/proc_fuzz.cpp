// Lines of /proc hold text that a target chose: paths, commands, control group names.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/probes/attach/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (const auto mapping = ingero::parse_maps_line(text)) (void)ingero::library_of_path(mapping->path);
    const std::vector<ingero::Mount> mounts = ingero::parse_mountinfo(text);
    // Each of a table's overlays is followed: a hundred lines are as good as more.
    for (size_t i = 0; i < mounts.size() && i < 100; ++i) (void)ingero::fuse_below(mounts, mounts[i]);
    (void)ingero::parse_start_time(text);
    (void)ingero::unit_of_cgroup(text);
    return 0;
}
