#include "daemon/ingerod/limits/uid_owners.h"

#include <pwd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <vector>

namespace ingero {

namespace {

constexpr const char* subordinate_uids = "/etc/subuid";
constexpr size_t max_file_bytes = 1 << 20;

std::optional<uint32_t> to_number(std::string_view text) {
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::optional<uint32_t> find_user(const std::string& name) {
    std::vector<char> buffer(16 << 10);
    passwd user{};
    passwd* found = nullptr;
    if (getpwnam_r(name.c_str(), &user, buffer.data(), buffer.size(), &found) != 0 || !found) return std::nullopt;
    return user.pw_uid;
}

}  // namespace

// NAME:FIRST:COUNT, where the name may be a number too.
UidOwners UidOwners::parse(std::string_view text, const FindUser& find) {
    UidOwners owners;
    std::map<std::string, std::optional<uint32_t>> known;
    while (!text.empty() && owners.ranges_.size() < max_ranges) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        const size_t first_colon = line.find(':'), second_colon = line.find(':', first_colon + 1);
        if (first_colon == 0 || second_colon == std::string_view::npos) continue;
        const auto first = to_number(line.substr(first_colon + 1, second_colon - first_colon - 1));
        const auto count = to_number(line.substr(second_colon + 1));
        if (!first || !count || *count == 0 || *count - 1 > UINT32_MAX - *first) continue;
        const std::string name(line.substr(0, first_colon));
        const auto [user, added] = known.try_emplace(name);
        if (added) user->second = to_number(name) ? to_number(name) : find(name);
        if (!user->second) continue;
        const uint32_t last = *first + (*count - 1);
        // Of two users' ranges that overlap, which the tools that write the file refuse, the first is taken.
        const auto after = owners.ranges_.upper_bound(last);
        if (after != owners.ranges_.begin() && std::prev(after)->second.last >= *first) continue;
        owners.ranges_.emplace(*first, Range{last, *user->second});
    }
    return owners;
}

UidOwners UidOwners::read() {
    std::ifstream file(subordinate_uids, std::ios::binary);
    std::string text(max_file_bytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
    return parse(text, find_user);
}

uint32_t UidOwners::owner_of(uint32_t uid) const {
    const auto after = ranges_.upper_bound(uid);
    if (after == ranges_.begin()) return uid;
    const auto& [first, range] = *std::prev(after);
    if (uid > range.last) return uid;
    if (range.owner != 0) return range.owner;
    return first + (uid - first) / container_uids * container_uids;
}

}  // namespace ingero
