#include "daemon/ingerod/discovery/cpu_list.h"

#include <charconv>
#include <system_error>

namespace ingero {

std::optional<std::set<int>> parse_cpu_list(std::string_view text) {
    constexpr int most_cpus = 1 << 16;
    if (text.ends_with('\n')) text.remove_suffix(1);
    std::set<int> cpus;
    const char* at = text.data();
    const char* const end = at + text.size();
    for (;;) {
        int first = 0;
        auto [next, error] = std::from_chars(at, end, first);
        int last = first;
        if (error == std::errc() && next != end && *next == '-') {
            const auto [after, wrong] = std::from_chars(next + 1, end, last);
            next = after;
            error = wrong;
        }
        if (error != std::errc() || first < 0 || last < first || last >= most_cpus) return std::nullopt;
        for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
        if (next == end) return cpus;
        if (*next != ',') return std::nullopt;
        at = next + 1;
    }
}

}  // namespace ingero
