// A [capture] pattern from a configuration file, and names that a process chose: the first line is the pattern.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "daemon/ingerod/targets/capture_policy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const size_t end = std::min(text.find('\n'), text.size());
    const auto pattern = ingero::CapturePattern::parse(text.substr(0, end));
    if (!pattern) return 0;
    ingero::Process process;
    process.uid = static_cast<uint32_t>(size);
    process.comm = process.cgroup = process.unit = text.substr(std::min(end + 1, text.size()), 4096);
    (void)pattern->matches(process);
    return 0;
}
