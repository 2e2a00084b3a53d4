#include "daemon/ingerod/live/host_state.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>

namespace ingero {

namespace {

constexpr size_t max_file = 64 << 10;
constexpr size_t max_cpus = 64;  // whose clock rates are read: each is a file
constexpr size_t cpus_a_round = 8;
constexpr uint64_t slow_round_ns = 5'000'000;
constexpr unsigned slow_in_a_row = 2;  // one alone may have been preempted
constexpr uint64_t slow_pause_ns = 60'000'000'000;
constexpr size_t max_groups = 256;  // of traced processes
constexpr size_t calls_a_round = 10;

std::optional<std::string> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::nullopt;
    std::string text(max_file, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
    return text;
}

std::optional<double> to_number(std::string_view text) {
    uint64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr == text.data()) return std::nullopt;
    return static_cast<double>(number);
}

struct Key {
    std::string_view key;
    const char* name;  ///< that rows have it under
    double unit = 1;
};

/// Of lines of the form "key value" those that are asked for.
Counters take_keys(std::string_view text, std::initializer_list<Key> keys) {
    Counters counters;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        const size_t space = line.find(' ');
        if (space == std::string::npos) continue;
        const auto number = to_number(std::string_view(line).substr(space + 1));
        for (const Key& one : keys)
            if (number && one.key == std::string_view(line).substr(0, space)) counters[one.name] = *number * one.unit;
    }
    return counters;
}

/// A target may name its groups as it likes, and be outside of what is mounted here.
bool is_safe(std::string_view path) {
    return path.starts_with('/') && path.find("/..") == std::string_view::npos;
}

}  // namespace

Counters parse_pressure(std::string_view name, std::string_view text) {
    Counters counters;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        const std::string kind = line.substr(0, line.find(' '));
        const size_t total = line.rfind(" total=");
        if ((kind != "some" && kind != "full") || total == std::string::npos) continue;
        if (const auto number = to_number(std::string_view(line).substr(total + 7)))
            counters[std::string(name) + "_" + kind + "_us"] = *number;
    }
    return counters;
}

Counters parse_cpu_times(std::string_view text, long ticks_per_second) {
    Counters counters;
    if (!text.starts_with("cpu ") || ticks_per_second <= 0) return counters;
    std::istringstream words(std::string(text.substr(4, text.find('\n') - std::min<size_t>(4, text.find('\n')))));
    static constexpr std::array<const char*, 8> names = {nullptr, nullptr,  nullptr,      nullptr,
                                                         nullptr, "irq_ms", "softirq_ms", "steal_ms"};
    double ticks = 0;
    for (const char* name : names) {
        if (!(words >> ticks)) break;
        if (name) counters[name] = ticks * 1000 / static_cast<double>(ticks_per_second);
    }
    return counters;
}

Counters parse_cpu_quota(std::string_view text) {
    return take_keys(text, {{"nr_periods", "periods", 1},
                            {"nr_throttled", "throttled_periods", 1},
                            {"throttled_usec", "throttled_us", 1},
                            {"throttled_time", "throttled_us", 1e-3}});  // version 1 has ns
}

Counters parse_memory_events(std::string_view text) {
    return take_keys(text, {{"high", "memory_high", 1}, {"max", "memory_max", 1}, {"oom_kill", "oom_kills", 1}});
}

ControlGroup find_control_group(std::string_view text, const std::string& mounted) {
    ControlGroup group;
    std::string unified;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const std::string path = line.substr(second + 1);
        if (!is_safe(path)) continue;
        if (controllers == ",,") unified = path;
        // Where several controllers are mounted as one, each name leads there too.
        if (controllers.find(",cpu,") != std::string::npos) group.cpu = mounted + "/cpu" + path;
        if (controllers.find(",memory,") != std::string::npos) group.memory = mounted + "/memory" + path;
        if (controllers.find(",cpu,") != std::string::npos) group.path = path;
    }
    if (group.path.empty()) group.path = unified;
    if (!unified.empty() && group.cpu.empty()) group.cpu = mounted + unified;
    if (!unified.empty() && group.memory.empty()) group.memory = mounted + unified;
    return group;
}

Counters HostState::read_host() {
    Counters counters;
    for (const char* name : {"cpu", "memory", "io"})
        if (const auto text = read_file(root_ + "/proc/pressure/" + name)) counters.merge(parse_pressure(name, *text));
    if (const auto text = read_file(root_ + "/proc/stat")) counters.merge(parse_cpu_times(*text, sysconf(_SC_CLK_TCK)));
    return counters;
}

void HostState::put_row(const std::string& source, const Counters& now, uint64_t time_ns, bool always,
                        Counters gauges) {
    Counters& before = before_[source];
    StateRow row{.time_ns = time_ns, .source = source, .values = {}};
    bool changed = false;
    for (const auto& [name, value] : now) {
        const auto known = before.find(name);
        if (known == before.end()) continue;
        row.values.emplace_back(name, std::max(0.0, value - known->second));
        changed |= value > known->second;
    }
    before = now;
    for (const auto& [name, value] : gauges) row.values.emplace_back(name, value);
    if (!row.values.empty() && (always || changed)) put_(std::move(row));
}

void HostState::look_up_groups(const std::set<ProcessKey>& traced) {
    const auto look_up = [this](const ProcessKey& process) {
        if (const auto text = proc_.control_groups_of(process.pid))
            groups_.insert_or_assign(process, find_control_group(*text, root_ + "/sys/fs/cgroup"));
    };
    std::erase_if(groups_, [&](const auto& known) { return !traced.contains(known.first); });
    size_t left = (groups_.size() + calls_a_round - 1) / calls_a_round;
    for (auto next = groups_.upper_bound(looked_up_); left != 0; --left, ++next) {
        if (next == groups_.end()) next = groups_.begin();
        look_up(looked_up_ = next->first);
    }
    for (const ProcessKey& process : traced)
        if (!groups_.contains(process)) look_up(process);
}

// On x86 before Linux 5.19, to read the rate of a CPU that is busy takes 10 ms and more, in which the kernel sleeps.
// Where that is so, it is done once a minute.
void HostState::read_clock_rates() {
    const uint64_t began_ns = clock_();
    if (began_ns < next_rates_ns_) return;
    bool is_begun = next_cpu_ != 0;
    for (size_t left = cpus_a_round; left != 0;) {
        const std::string cpu = "/sys/devices/system/cpu/cpu" + std::to_string(next_cpu_);
        const auto text = next_cpu_ < max_cpus ? read_file(root_ + cpu + "/cpufreq/scaling_cur_freq") : std::nullopt;
        if (text) {
            mhz_.resize(std::max(mhz_.size(), next_cpu_ + 1));
            mhz_[next_cpu_++] = to_number(*text).value_or(0) / 1000;
            --left;
            continue;
        }
        // That was the last one. What is left of the round goes to the first ones, unless it began with these.
        mhz_.resize(std::min(mhz_.size(), next_cpu_));
        next_cpu_ = 0;
        if (!std::exchange(is_begun, false)) break;
    }
    const uint64_t ended_ns = clock_();
    slow_rounds_ = ended_ns - began_ns > slow_round_ns ? slow_rounds_ + 1 : 0;
    if (slow_rounds_ >= slow_in_a_row) next_rates_ns_ = ended_ns + slow_pause_ns;
}

Counters HostState::clock_rates() const {
    if (mhz_.empty()) return {};
    const double sum = std::accumulate(mhz_.begin(), mhz_.end(), 0.0);
    return {{"cpu_mhz_lowest", *std::min_element(mhz_.begin(), mhz_.end())},
            {"cpu_mhz_mean", sum / static_cast<double>(mhz_.size())}};
}

void HostState::measure(const std::set<ProcessKey>& traced, uint64_t now_ns) {
    if (traced.empty()) {
        before_.clear();
        groups_.clear();
        mhz_.clear();
        next_cpu_ = 0;
        return;
    }
    read_clock_rates();
    put_row("host", read_host(), now_ns, true, clock_rates());

    look_up_groups(traced);
    std::set<ControlGroup> groups;
    for (const auto& [process, group] : groups_) {
        if (groups.size() >= max_groups) break;
        groups.insert(group);
    }
    std::set<std::string> sources = {"host"};
    for (const ControlGroup& group : groups) {
        if (group.path.empty()) continue;
        Counters counters;
        if (const auto text = read_file(group.cpu + "/cpu.stat")) counters.merge(parse_cpu_quota(*text));
        if (const auto text = read_file(group.memory + "/memory.events")) counters.merge(parse_memory_events(*text));
        const std::string source = "cgroup:" + group.path;
        if (!counters.empty() && sources.insert(source).second) put_row(source, counters, now_ns, false, {});
    }
    std::erase_if(before_, [&](const auto& one) { return sources.count(one.first) == 0; });
}

}  // namespace ingero
