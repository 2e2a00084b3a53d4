#include "daemon/ingerod/targets/capture_policy.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace ingero {

namespace {

constexpr size_t max_pattern_bytes = 256;
/// Each may double the ways to match a long control group name that a user chose.
constexpr long max_stars = 8;

bool take_uid(std::string_view& text, uint32_t& uid) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), uid);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
}

Result<void> parse_uids(std::string_view text, CapturePattern& pattern) {
    const auto wrong = [] {
        return fail(ErrorCode::bad_request, "needs a number or a range of numbers after uid:, such as uid:1000-1999");
    };
    if (!take_uid(text, pattern.first_uid)) return wrong();
    pattern.last_uid = pattern.first_uid;
    if (text.empty()) return {};
    text.remove_prefix(1);
    if (text.data()[-1] != '-' || !take_uid(text, pattern.last_uid) || !text.empty()) return wrong();
    if (pattern.last_uid < pattern.first_uid)
        return fail(ErrorCode::bad_request, "has a range of user ids that ends before it begins");
    return {};
}

std::optional<CapturePattern::Kind> kind_of(std::string_view name) {
    using Kind = CapturePattern::Kind;
    for (const auto& [known, kind] :
         {std::pair("unit", Kind::unit), {"cgroup", Kind::cgroup}, {"comm", Kind::comm}, {"uid", Kind::uid}})
        if (name == known) return kind;
    return std::nullopt;
}

Result<std::vector<CapturePattern>> parse_list(const char* name, const std::vector<std::string>& texts) {
    std::vector<CapturePattern> patterns;
    if (texts.size() > CapturePolicy::max_patterns)
        return fail(ErrorCode::bad_request,
                    std::string(name) + " has more than " + std::to_string(CapturePolicy::max_patterns) + " patterns");
    for (const std::string& text : texts) {
        auto pattern = CapturePattern::parse(text);
        if (!pattern) return fail(ErrorCode::bad_request, "\"" + text + "\" " + pattern.error().message);
        patterns.push_back(std::move(*pattern));
    }
    return patterns;
}

}  // namespace

Result<CapturePattern> CapturePattern::parse(std::string_view text) {
    if (text.size() > max_pattern_bytes) return fail(ErrorCode::bad_request, "is longer than 256 bytes");
    const size_t colon = text.find(':');
    const auto kind = kind_of(text.substr(0, std::min(colon, text.size())));
    if (colon == std::string_view::npos || !kind)
        return fail(ErrorCode::bad_request, "must begin with unit:, cgroup:, comm: or uid:");
    CapturePattern pattern;
    pattern.kind = *kind;
    pattern.text = text;
    const std::string_view rest = text.substr(colon + 1);
    if (*kind == Kind::uid) {
        if (auto uids = parse_uids(rest, pattern); !uids) return tl::unexpected(uids.error());
        return pattern;
    }
    if (rest.empty()) return fail(ErrorCode::bad_request, "has nothing to match after its colon");
    if (rest.find('\0') != std::string_view::npos) return fail(ErrorCode::bad_request, "contains a zero byte");
    if (std::count(rest.begin(), rest.end(), '*') > max_stars)
        return fail(ErrorCode::bad_request, "has more than 8 asterisks");
    if (*kind == Kind::cgroup && rest.front() != '/' && rest.front() != '*')
        return fail(ErrorCode::bad_request, "must name a control group from the root, such as cgroup:/system.slice/*");
    pattern.glob = rest;
    return pattern;
}

bool CapturePattern::matches(const Process& process) const {
    if (kind == Kind::uid) return process.uid >= first_uid && process.uid <= last_uid;
    const std::string& text = kind == Kind::unit ? process.unit : kind == Kind::cgroup ? process.cgroup : process.comm;
    return fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

Result<CapturePolicy> CapturePolicy::parse(const std::vector<std::string>& include,
                                           const std::vector<std::string>& exclude) {
    CapturePolicy policy;
    auto included = parse_list("include", include);
    if (!included) return tl::unexpected(included.error());
    auto excluded = parse_list("exclude", exclude);
    if (!excluded) return tl::unexpected(excluded.error());
    policy.include_ = std::move(*included);
    policy.exclude_ = std::move(*excluded);
    return policy;
}

std::optional<std::string> CapturePolicy::excluded_by(const Process& process) const {
    const auto matches = [&](const CapturePattern& pattern) { return pattern.matches(process); };
    if (const auto by = std::find_if(exclude_.begin(), exclude_.end(), matches); by != exclude_.end())
        return "[capture] exclude " + by->text;
    if (include_.empty() || std::any_of(include_.begin(), include_.end(), matches)) return std::nullopt;
    return "[capture] include does not match it";
}

}  // namespace ingero
