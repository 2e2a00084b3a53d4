// Two windows compared: how much time each cause took of each second, and how long calls took, with what their parts
// vary by.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "core/render/incidents.h"

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

Spread spread_of(const std::vector<double>& values) {
    Spread spread;
    spread.values = values.size();
    if (values.empty()) return spread;
    for (const double value : values) spread.mean += value;
    spread.mean /= static_cast<double>(values.size());
    double square = 0;
    for (const double value : values) square += (value - spread.mean) * (value - spread.mean);
    if (values.size() > 1)
        spread.error = std::sqrt(square / static_cast<double>(values.size() - 1) / static_cast<double>(values.size()));
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
    std::map<std::string, std::vector<double>> excess_per_s;   ///< ns, by cause
    std::map<std::string, std::vector<double>> mean_ns;        ///< of calls, by op; of slices that have any
    std::map<std::string, std::pair<uint64_t, uint64_t>> ops;  ///< calls, busy_ns
};

Side side_of(const json& answer) {
    Side side;
    const json& slices = answer["slices"];
    const json& window = answer["window"];
    const double seconds = static_cast<double>(number_of(window, "to_ns") - number_of(window, "from_ns")) / 1e9 /
                           static_cast<double>(slices.size());
    size_t number = 0;
    for (const json& slice : slices) {
        for (const json& one : slice["excess"]) {
            auto& rates = side.excess_per_s[one["cause"].get<std::string>()];
            rates.resize(slices.size());
            rates[number] = static_cast<double>(number_of(one, "ns")) / seconds;
        }
        for (const json& one : slice["ops"]) {
            const auto op = one["op"].get<std::string>();
            const uint64_t calls = number_of(one, "calls"), busy_ns = number_of(one, "busy_ns");
            if (calls == 0) continue;
            side.mean_ns[op].push_back(static_cast<double>(busy_ns) / static_cast<double>(calls));
            side.ops[op].first += calls;
            side.ops[op].second += busy_ns;
        }
        ++number;
    }
    return side;
}

json causes_of(const Side& a, const Side& b, size_t slices_of_a, size_t slices_of_b) {
    std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> both;
    for (const auto& [cause, rates] : a.excess_per_s) both[cause].first = rates;
    for (const auto& [cause, rates] : b.excess_per_s) both[cause].second = rates;
    json list = json::array();
    for (auto& [cause, rates] : both) {
        rates.first.resize(slices_of_a);
        rates.second.resize(slices_of_b);
        const Spread before = spread_of(rates.first), after = spread_of(rates.second);
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
        json one = change_of(spread_of(a.mean_ns.at(op)), spread_of(b.mean_ns.at(op)));
        const auto mean = [](const std::pair<uint64_t, uint64_t>& sums) { return sums.second / sums.first; };
        one["op"] = op;
        one["a_calls"] = before->second.first;
        one["b_calls"] = after.first;
        one["a_mean_ns"] = mean(before->second);
        one["b_mean_ns"] = mean(after);
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
    json result = {{"schema", "ingero/explain-diff/1"},
                   {"node", b["node"]},
                   {"window", b["window"]},
                   {"coverage", b["coverage"]},
                   {"missing_probes", b["missing_probes"]},
                   {"a", head_of(a)},
                   {"b", head_of(b)}};
    result["causes"] = causes_of(before, after, a["slices"].size(), b["slices"].size());
    result["ops"] = ops_of(before, after);
    const auto kinds_before = kinds_of(a), kinds_after = kinds_of(b);
    result["findings_gone"] = missing_from(kinds_before, kinds_after);
    result["findings_new"] = missing_from(kinds_after, kinds_before);
    return result;
}

}  // namespace ingero
