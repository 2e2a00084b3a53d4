// Two windows compared: how much time each cause took of each second, and how long calls took, with what their parts
// vary by.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/render/incidents.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t max_ops = 50;

uint64_t number_of(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

/// Student's t of 95 %, two-sided, by degrees of freedom.
double student(size_t freedom) {
    static constexpr double values[] = {12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23};
    if (freedom == 0) return INFINITY;
    return freedom <= std::size(values) ? values[freedom - 1] : 2.0;
}

struct Spread {
    double mean = 0;
    double error = 0;  ///< standard error of the mean
    size_t values = 0;
};

/// Of parts, each with its calls or its time and the ns in it: the mean of all, and how far those of the parts are from
/// it.
Spread spread_of(const std::vector<std::pair<uint64_t, uint64_t>>& parts) {
    Spread spread;
    spread.values = parts.size();
    double whole = 0, all_ns = 0, square = 0;
    for (const auto& [size, ns] : parts) {
        whole += static_cast<double>(size);
        all_ns += static_cast<double>(ns);
    }
    if (whole == 0) return spread;
    spread.mean = all_ns / whole;
    for (const auto& [size, ns] : parts) {
        const double apart = static_cast<double>(ns) - spread.mean * static_cast<double>(size);
        square += apart * apart;
    }
    const auto count = static_cast<double>(spread.values);
    if (spread.values > 1) spread.error = std::sqrt(square * count / (count - 1)) / whole;
    return spread;
}

/// By how much `b` is more than `a`, and within what that is likely to be so. Null where nothing is known of it.
json change_of(const Spread& a, const Spread& b) {
    const double change = b.mean - a.mean;
    if (a.values < 2 || b.values < 2)
        return {{"change_ns", std::llround(change)}, {"uncertainty_ns", nullptr}, {"certain", false}};
    const double uncertainty = student(std::min(a.values, b.values) - 1) * std::hypot(a.error, b.error);
    return {{"change_ns", std::llround(change)},
            {"uncertainty_ns", std::llround(uncertainty)},
            {"certain", std::abs(change) > uncertainty}};
}

/// One side, slice by slice.
struct Side {
    std::vector<uint64_t> recorded_ns;                         ///< of each slice in which anything was
    std::map<std::string, std::map<size_t, uint64_t>> excess;  ///< ns by cause, by number among those slices
    std::map<std::string, std::vector<std::pair<uint64_t, uint64_t>>> ops;  ///< calls and busy_ns of slices with calls
};

Side side_of(const json& answer) {
    Side side;
    for (const json& slice : answer["slices"]) {
        for (const json& one : slice["ops"])
            if (const uint64_t calls = number_of(one, "calls"); calls != 0)
                side.ops[one["op"].get<std::string>()].emplace_back(calls, number_of(one, "busy_ns"));
        const Window time{number_of(slice, "from_ns"), number_of(slice, "to_ns")};
        const uint64_t recorded_ns = time.length_ns() - text::gaps_ns(answer, time, false);
        if (recorded_ns == 0) continue;
        for (const json& one : slice["excess"])
            side.excess[one["cause"].get<std::string>()][side.recorded_ns.size()] = number_of(one, "ns");
        side.recorded_ns.push_back(recorded_ns);
    }
    return side;
}

/// Lost to the cause of each second that was recorded.
Spread rate_of(const Side& side, const std::string& cause) {
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    for (const uint64_t recorded_ns : side.recorded_ns) parts.emplace_back(recorded_ns, 0);
    if (const auto found = side.excess.find(cause); found != side.excess.end())
        for (const auto& [number, ns] : found->second) parts[number].second = ns;
    Spread spread = spread_of(parts);
    spread.mean *= 1e9;
    spread.error *= 1e9;
    return spread;
}

json causes_of(const Side& a, const Side& b) {
    std::set<std::string> causes;
    for (const Side* side : {&a, &b})
        for (const auto& [cause, slices] : side->excess) causes.insert(cause);
    json list = json::array();
    for (const std::string& cause : causes) {
        const Spread before = rate_of(a, cause), after = rate_of(b, cause);
        json one = change_of(before, after);
        one["cause"] = cause;
        one["a_ns"] = std::llround(before.mean);
        one["b_ns"] = std::llround(after.mean);
        list.push_back(std::move(one));
    }
    std::stable_sort(list.begin(), list.end(), [](const json& x, const json& y) {
        return std::abs(x["change_ns"].get<int64_t>()) > std::abs(y["change_ns"].get<int64_t>());
    });
    return list;
}

json ops_of(const Side& a, const Side& b) {
    json list = json::array();
    for (const auto& [op, after] : b.ops) {
        const auto before = a.ops.find(op);
        if (before == a.ops.end()) continue;
        const Spread mean_before = spread_of(before->second), mean_after = spread_of(after);
        json one = change_of(mean_before, mean_after);
        const auto calls = [](const auto& of_slices) {
            uint64_t sum = 0;
            for (const auto& [number, ns] : of_slices) sum += number;
            return sum;
        };
        one["op"] = op;
        one["a_calls"] = calls(before->second);
        one["b_calls"] = calls(after);
        one["a_mean_ns"] = std::llround(mean_before.mean);
        one["b_mean_ns"] = std::llround(mean_after.mean);
        list.push_back(std::move(one));
    }
    const auto weight = [](const json& one) {
        return std::abs(one["change_ns"].get<double>()) * one["b_calls"].get<double>();
    };
    std::stable_sort(list.begin(), list.end(), [&](const json& x, const json& y) { return weight(x) > weight(y); });
    while (list.size() > max_ops) list.erase(list.size() - 1);
    return list;
}

json head_of(const json& answer) {
    return {{"node", answer["node"]},
            {"window", answer["window"]},
            {"coverage", answer["coverage"]},
            {"calls", answer["calls"]},
            {"excess_ns", answer["excess_ns"]}};
}

/// Kinds of findings with whom they are of: pids differ after a restart.
std::set<std::pair<std::string, std::string>> kinds_of(const json& answer) {
    std::set<std::pair<std::string, std::string>> kinds;
    for (const json& finding : answer["findings"])
        kinds.emplace(finding["kind"].get<std::string>(),
                      finding["comm"].is_string() ? finding["comm"].get<std::string>() : std::string());
    return kinds;
}

json missing_from(const std::set<std::pair<std::string, std::string>>& some,
                  const std::set<std::pair<std::string, std::string>>& others) {
    json list = json::array();
    for (const auto& one : some)
        if (!others.contains(one))
            list.push_back({{"kind", one.first}, {"comm", one.second.empty() ? json(nullptr) : json(one.second)}});
    return list;
}

bool has_slices(const json& answer) {
    const auto slices = answer.find("slices");
    return slices != answer.end() && slices->is_array() && !slices->empty();
}

}  // namespace

Result<json> explain_diff(const json& a, const json& b) {
    for (const auto& [side, name] : {std::pair(&a, "A"), std::pair(&b, "B")})
        if (!has_slices(*side))
            return fail(ErrorCode::bad_request, std::string(name) + ": nothing was recorded in the window",
                        "choose a window in which calls were traced");
    const Side before = side_of(a), after = side_of(b);
    for (const auto& [side, name] : {std::pair(&before, "A"), std::pair(&after, "B")})
        if (side->recorded_ns.empty())
            return fail(ErrorCode::bad_request, std::string(name) + ": hardly anything was recorded in the window",
                        "choose a window in which calls were traced");
    json result = {{"schema", "ingero/explain-diff/1"},
                   {"node", b["node"]},
                   {"window", b["window"]},
                   {"coverage", b["coverage"]},
                   {"missing_probes", b["missing_probes"]},
                   {"a", head_of(a)},
                   {"b", head_of(b)}};
    result["causes"] = causes_of(before, after);
    result["ops"] = ops_of(before, after);
    const auto kinds_before = kinds_of(a), kinds_after = kinds_of(b);
    result["findings_gone"] = missing_from(kinds_before, kinds_after);
    result["findings_new"] = missing_from(kinds_after, kinds_before);
    return result;
}

}  // namespace ingero
