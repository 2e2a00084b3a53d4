// Lines of /proc hold text that a target chose: paths, commands, control group names.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/probes/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (const auto mapping = ingero::parse_maps_line(text)) (void)ingero::library_of_path(mapping->path);
    if (const auto mount = ingero::parse_mountinfo_line(text)) (void)ingero::is_served_by_a_user(mount->type);
    (void)ingero::parse_start_time(text);
    (void)ingero::unit_of_cgroup(text);
    return 0;
}
