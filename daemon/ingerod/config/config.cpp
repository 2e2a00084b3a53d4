#include "daemon/ingerod/config/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "core/model/time.h"
#include "daemon/ingerod/targets/capture_policy.h"

namespace ingero {

namespace {

using Setter = std::function<Result<void>(Config&, const toml::node&)>;

tl::unexpected<Error> wrong(std::string what) {
    return fail(ErrorCode::bad_request, std::move(what));
}

Setter text(std::string Config::*member) {
    return [member](Config& config, const toml::node& node) -> Result<void> {
        const auto value = node.value_exact<std::string>();
        if (!value) return wrong("must be a string");
        config.*member = *value;
        return {};
    };
}

Setter absolute_path(std::string Config::*member) {
    return [member](Config& config, const toml::node& node) -> Result<void> {
        const auto value = node.value_exact<std::string>();
        if (!value || !value->starts_with("/")) return wrong("must be an absolute path in quotes");
        config.*member = *value;
        return {};
    };
}

Setter size(uint64_t Config::*member, uint64_t least) {
    return [member, least](Config& config, const toml::node& node) -> Result<void> {
        const auto value = node.value_exact<std::string>();
        if (!value) return wrong("must be a size in quotes, such as \"10GiB\"");
        const auto bytes = parse_size_bytes(*value);
        if (!bytes) return wrong(bytes.error().message);
        if (*bytes < least) return wrong("must be at least " + std::to_string(least >> 20) + "MiB");
        config.*member = *bytes;
        return {};
    };
}

Setter truth(bool Config::*member) {
    return [member](Config& config, const toml::node& node) -> Result<void> {
        const auto value = node.value_exact<bool>();
        if (!value) return wrong("must be true or false");
        config.*member = *value;
        return {};
    };
}

Result<void> set_stacks(Config& config, const toml::node& node) {
    const auto value = node.value_exact<std::string>();
    if (!value || (*value != "native" && *value != "off")) return wrong("must be \"native\" or \"off\"");
    config.native_stacks = *value == "native";
    return {};
}

Setter patterns(std::vector<std::string> Config::*member) {
    return [member](Config& config, const toml::node& node) -> Result<void> {
        const toml::array* list = node.as_array();
        if (!list) return wrong("must be a list of patterns, such as [\"unit:backup.service\"]");
        std::vector<std::string> texts;
        for (const toml::node& one : *list) {
            const auto text = one.value_exact<std::string>();
            if (!text) return wrong("must contain only patterns in quotes");
            texts.push_back(*text);
        }
        if (const auto policy = CapturePolicy::parse(texts, {}); !policy)
            return wrong("is wrong: " + policy.error().message);
        config.*member = std::move(texts);
        return {};
    };
}

Result<void> set_trusted_fuse(Config& config, const toml::node& node) {
    constexpr size_t most = 64;
    const toml::array* list = node.as_array();
    if (!list || list->size() > most)
        return wrong("must be a list of at most " + std::to_string(most) +
                     " mount points, such as [\"/run/images/*/fs\"]");
    std::vector<std::string> mount_points;
    for (const toml::node& one : *list) {
        const auto path = one.value_exact<std::string>();
        if (!path || !path->starts_with('/')) return wrong("must contain only absolute paths in quotes");
        mount_points.push_back(*path);
    }
    config.trusted_fuse = std::move(mount_points);
    return {};
}

Result<void> set_keep_command(Config& config, const toml::node& node) {
    const auto value = node.value_exact<std::string>();
    if (value == "comm")
        config.facts.command = KeepCommand::comm;
    else if (value == "redacted")
        config.facts.command = KeepCommand::redacted;
    else if (value == "full")
        config.facts.command = KeepCommand::full;
    else
        return wrong("must be \"comm\", \"redacted\" or \"full\"");
    return {};
}

Result<void> set_environ_allow(Config& config, const toml::node& node) {
    const toml::array* list = node.as_array();
    if (!list || list->size() > max_kept_variables)
        return wrong("must be a list of at most " + std::to_string(max_kept_variables) +
                     " names of variables, such as [\"JOB_NAME\"]");
    std::vector<std::string> names;
    for (const toml::node& one : *list) {
        const auto name = one.value_exact<std::string>();
        if (!name || !is_variable_name(*name)) return wrong("must contain only names of variables in quotes");
        names.push_back(*name);
    }
    config.facts.environ_allow = std::move(names);
    return {};
}

Result<void> set_named_others(Config& config, const toml::node& node) {
    constexpr size_t most = 64;
    const toml::array* list = node.as_array();
    if (!list || list->size() > most)
        return wrong("must be a list of at most " + std::to_string(most) + " names of commands, such as [\"backup*\"]");
    std::vector<std::string> names;
    for (const toml::node& one : *list) {
        const auto name = one.value_exact<std::string>();
        if (!name || name->empty() || name->size() > sizeof(Comm))
            return wrong("must contain only names of commands in quotes, of at most 16 bytes");
        names.push_back(*name);
    }
    config.named_others = std::move(names);
    return {};
}

Result<void> set_gpu_poll(Config& config, const toml::node& node) {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong("must be a time in quotes, such as \"1s\", or \"off\"");
    if (*value == "off") {
        config.gpu_poll_ns = 0;
        return {};
    }
    const auto ns = parse_duration_ns(*value);
    if (!ns) return wrong(ns.error().message);
    if (*ns < 100'000'000 || *ns > 3'600'000'000'000) return wrong("must be from 100ms to 1h, or \"off\"");
    config.gpu_poll_ns = *ns;
    return {};
}

Result<void> set_span_connections(Config& config, const toml::node& node) {
    const auto value = node.value_exact<int64_t>();
    const SpanQuota all;
    if (!value || *value < 1 || *value > all.unprivileged_connections)
        return wrong("must be a number from 1 to " + std::to_string(all.unprivileged_connections));
    config.spans.connections_per_user = config.spans.connections_per_group = static_cast<unsigned>(*value);
    return {};
}

Result<void> set_max_span(Config& config, const toml::node& node) {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong("must be a time in quotes, such as \"1h\"");
    const auto ns = parse_duration_ns(*value);
    if (!ns) return wrong(ns.error().message);
    if (*ns < 1'000'000'000 || *ns > max_span_ns) return wrong("must be from 1s to 24h");
    config.spans.max_span_ns = *ns;
    return {};
}

Result<void> set_worker_count(Config& config, const toml::node& node) {
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < 1 || *value > 16) return wrong("must be a number from 1 to 16");
    config.worker_count = static_cast<unsigned>(*value);
    return {};
}

Result<void> set_overhead_budget(Config& config, const toml::node& node) {
    const auto percent = node.value<double>();
    if (!percent || !node.is_number() || *percent < 0 || *percent > 100)
        return wrong("must be a percentage from 0 to 100, such as 2 or 0.5");
    config.overhead_budget_permille = static_cast<unsigned>(std::lround(*percent * 10));
    if (*percent > 0 && config.overhead_budget_permille == 0) return wrong("must be 0, or at least 0.1");
    return {};
}

Result<void> set_in_flight_floor(Config& config, const toml::node& node) {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong("must be a time in quotes, such as \"1s\"");
    const auto ns = parse_duration_ns(*value);
    if (!ns) return wrong(ns.error().message);
    if (*ns < 1'000'000 || *ns > 3'600'000'000'000) return wrong("must be from 1ms to 1h");
    config.in_flight_floor_ns = *ns;
    return {};
}

Result<void> set_wait_floor(Config& config, const toml::node& node) {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong("must be a time in quotes, such as \"200us\", or \"off\"");
    if (*value == "off") {
        config.wait_floor_ns = 0;
        return {};
    }
    const auto ns = parse_duration_ns(*value);
    if (!ns) return wrong(ns.error().message);
    if (*ns < 10'000 || *ns > 1'000'000'000) return wrong("must be from 10us to 1s, or \"off\"");
    config.wait_floor_ns = *ns;
    return {};
}

Result<void> set_close_after(Config& config, const toml::node& node) {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong("must be a time in quotes, such as \"15s\"");
    const auto ns = parse_duration_ns(*value);
    if (!ns) return wrong(ns.error().message);
    if (*ns < 1'000'000'000 || *ns > 3'600'000'000'000) return wrong("must be from 1s to 1h");
    config.close_after_ns = *ns;
    return {};
}

Result<void> set_straggler_floor(Config& config, const toml::node& node) {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong("must be a time in quotes, such as \"2ms\"");
    const auto ns = parse_duration_ns(*value);
    if (!ns) return wrong(ns.error().message);
    if (*ns < 100'000 || *ns > 3'600'000'000'000) return wrong("must be from 100us to 1h");
    config.stragglers.floor_ns = *ns;
    return {};
}

/// A whole number in a range, of `part` of the configuration.
template <class Part, class T>
Setter number_of(Part Config::*part, T Part::*member, int64_t least, int64_t most) {
    return [part, member, least, most](Config& config, const toml::node& node) -> Result<void> {
        const auto value = node.value_exact<int64_t>();
        if (!value || *value < least || *value > most)
            return wrong("must be a number from " + std::to_string(least) + " to " + std::to_string(most));
        config.*part.*member = static_cast<T>(*value);
        return {};
    };
}
template <class T>
Setter straggler_number(T StragglerOptions::*member, int64_t least, int64_t most) {
    return number_of(&Config::stragglers, member, least, most);
}

Result<void> set_worker_deadline(Config& config, const toml::node& node) {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong("must be a time in quotes, such as \"30s\"");
    const auto ns = parse_duration_ns(*value);
    if (!ns) return wrong(ns.error().message);
    if (*ns < 1'000'000'000 || *ns > 600'000'000'000) return wrong("must be from 1s to 10m");
    config.worker_deadline = std::chrono::milliseconds(*ns / 1'000'000);
    return {};
}

Setter age(uint64_t Config::*member) {
    return [member](Config& config, const toml::node& node) -> Result<void> {
        const auto value = node.value_exact<std::string>();
        if (!value) return wrong("must be a time in quotes, such as \"30d\"");
        const auto ns = parse_duration_ns(*value);
        if (!ns) return wrong(ns.error().message);
        if (*ns < 3'600'000'000'000) return wrong("must be at least 1h");
        config.*member = *ns;
        return {};
    };
}

// How a value is written, so that it is read again as what it is.

struct AsItIs {
    bool operator()(bool value) const { return value; }
    int64_t operator()(uint64_t value) const { return static_cast<int64_t>(value); }
    int64_t operator()(unsigned value) const { return value; }
    std::string operator()(const std::string& value) const { return value; }
    toml::array operator()(const std::vector<std::string>& values) const {
        toml::array list;
        for (const std::string& value : values) list.push_back(value);
        return list;
    }
};
std::string as_time_or_off(uint64_t ns) {
    return ns == 0 ? "off" : exact_duration(ns);
}
std::string as_deadline(std::chrono::milliseconds time) {
    return exact_duration(static_cast<uint64_t>(std::chrono::nanoseconds(time).count()));
}
double as_percent(unsigned permille) {
    return permille / 10.0;
}
std::string as_stacks(bool native) {
    return native ? "native" : "off";
}
std::string as_command(KeepCommand keep) {
    switch (keep) {
        case KeepCommand::comm:
            return "comm";
        case KeepCommand::redacted:
            return "redacted";
        case KeepCommand::full:
            break;
    }
    return "full";
}

/// A key: how it is set, whether two configurations differ in it, whether a reload takes it up, and how its value is
/// put under its name.
struct Key {
    Setter set;
    std::function<bool(const Config&, const Config&)> differs;
    bool on_reload = false;
    std::function<void(const Config&, toml::table&, std::string_view)> put;
};

/// `value_of(config)` is a reference to the value.
template <class ValueOf, class As>
Key key_of(Setter set, ValueOf value_of, bool on_reload, As as) {
    return {std::move(set), [value_of](const Config& a, const Config& b) { return value_of(a) != value_of(b); },
            on_reload,
            [value_of, as](const Config& config, toml::table& section, std::string_view name) {
                section.insert_or_assign(name, as(value_of(config)));
            }};
}

template <class T, class As = AsItIs>
Key facts_key(Setter set, T FactsOptions::*member, bool on_reload, As as = {}) {
    return key_of(
        std::move(set), [member](const Config& config) -> const T& { return config.facts.*member; }, on_reload, as);
}

template <class T, class As = AsItIs>
Key straggler_key(Setter set, T StragglerOptions::*member, bool on_reload, As as = {}) {
    return key_of(
        std::move(set), [member](const Config& config) -> const T& { return config.stragglers.*member; }, on_reload,
        as);
}

template <class T, class As = AsItIs>
Key span_key(Setter set, T SpanQuota::*member, bool on_reload, As as = {}) {
    return key_of(
        std::move(set), [member](const Config& config) -> const T& { return config.spans.*member; }, on_reload, as);
}

template <class T, class As = AsItIs>
Key key(Setter set, T Config::*member, bool on_reload, As as = {}) {
    return key_of(
        std::move(set), [member](const Config& config) -> const T& { return config.*member; }, on_reload, as);
}

const std::map<std::string, Key>& config_keys() {
    static const std::map<std::string, Key> table = {
        {"capture.stacks", key(set_stacks, &Config::native_stacks, true, as_stacks)},
        {"capture.overhead_budget", key(set_overhead_budget, &Config::overhead_budget_permille, true, as_percent)},
        {"capture.slices", key(truth(&Config::slices), &Config::slices, true)},
        {"capture.inflight_floor", key(set_in_flight_floor, &Config::in_flight_floor_ns, true, exact_duration)},
        {"capture.trusted_fuse", key(set_trusted_fuse, &Config::trusted_fuse, true)},
        {"capture.wait_floor", key(set_wait_floor, &Config::wait_floor_ns, true, as_time_or_off)},
        {"node.name", key(text(&Config::node), &Config::node, false)},
        {"capture.include", key(patterns(&Config::capture_include), &Config::capture_include, true)},
        {"capture.exclude", key(patterns(&Config::capture_exclude), &Config::capture_exclude, true)},
        {"diagnosis.close_after", key(set_close_after, &Config::close_after_ns, false, exact_duration)},
        {"diagnosis.straggler_floor",
         straggler_key(set_straggler_floor, &StragglerOptions::floor_ns, true, exact_duration)},
        {"diagnosis.straggler_step_percent", straggler_key(straggler_number(&StragglerOptions::step_percent, 0, 100),
                                                           &StragglerOptions::step_percent, true)},
        {"diagnosis.straggler_late_percent", straggler_key(straggler_number(&StragglerOptions::late_percent, 10, 100),
                                                           &StragglerOptions::late_percent, true)},
        {"diagnosis.straggler_ranges",
         straggler_key(straggler_number(&StragglerOptions::ranges, 8, 1'000), &StragglerOptions::ranges, true)},
        {"processes.cmdline", facts_key(set_keep_command, &FactsOptions::command, true, as_command)},
        {"processes.environ_allow", facts_key(set_environ_allow, &FactsOptions::environ_allow, true)},
        {"processes.named_others", key(set_named_others, &Config::named_others, false)},
        {"relay.gpu_poll", key(set_gpu_poll, &Config::gpu_poll_ns, true, as_time_or_off)},
        {"spans.hash_ids", key(truth(&Config::hash_span_ids), &Config::hash_span_ids, false)},
        {"spans.rate",
         span_key(number_of(&Config::spans, &SpanQuota::spans_per_s, 1, 100'000), &SpanQuota::spans_per_s, true)},
        {"spans.burst", span_key(number_of(&Config::spans, &SpanQuota::burst, 0, 1'000'000), &SpanQuota::burst, true)},
        {"spans.connections", span_key(set_span_connections, &SpanQuota::connections_per_user, true)},
        {"spans.max_span", span_key(set_max_span, &SpanQuota::max_span_ns, true, exact_duration)},
        {"store.path", key(absolute_path(&Config::store_path), &Config::store_path, false)},
        {"store.max_size",
         key(size(&Config::store_max_size_bytes, 16ULL << 20), &Config::store_max_size_bytes, false, exact_size)},
        {"store.max_age", key(age(&Config::store_max_age_ns), &Config::store_max_age_ns, false, exact_duration)},
        {"store.rollup_age",
         key(age(&Config::store_rollup_age_ns), &Config::store_rollup_age_ns, false, exact_duration)},
        {"workers.count", key(set_worker_count, &Config::worker_count, true)},
        {"workers.memory",
         key(size(&Config::worker_memory_bytes, 64ULL << 20), &Config::worker_memory_bytes, true, exact_size)},
        {"workers.deadline", key(set_worker_deadline, &Config::worker_deadline, true, as_deadline)},
    };
    return table;
}

std::string known_keys(const std::string& section) {
    std::string keys;
    for (const auto& [key, entry] : config_keys())
        if (key.starts_with(section + ".")) keys += (keys.empty() ? "" : ", ") + key.substr(section.size() + 1);
    return keys;
}

tl::unexpected<Error> at(const std::string& name, const toml::source_region& where, const std::string& what,
                         std::string hint) {
    return fail(ErrorCode::bad_request, name + ":" + std::to_string(where.begin.line) + ": " + what, std::move(hint));
}

}  // namespace

Result<void> apply_config_text(Config& config, std::string_view content, const std::string& name) {
    toml::table parsed;
    try {
        parsed = toml::parse(content, name);
    } catch (const toml::parse_error& problem) {
        return at(name, problem.source(), std::string(problem.description()),
                  "the file must be valid TOML: texts, sizes and times stand in quotes, such as \"10GiB\"");
    }
    const std::string hint = "see ingerod.conf(5); `ingerod --check-config` checks the file";
    for (const auto& [section_name, section] : parsed) {
        const std::string section_text(section_name.str());
        const std::string keys = known_keys(section_text);
        if (keys.empty() || !section.is_table())
            return at(name, section_name.source(), "unknown section or key: " + section_text, hint);
        for (const auto& [key, node] : *section.as_table()) {
            const std::string full = section_text + "." + std::string(key.str());
            const auto known = config_keys().find(full);
            if (known == config_keys().end())
                return at(name, key.source(), "unknown key: " + full, "known in [" + section_text + "]: " + keys);
            if (const auto set = known->second.set(config, node); !set)
                return at(name, node.source(), full + " " + set.error().message, hint);
        }
    }
    return {};
}

std::vector<std::string> changed_keys(const Config& before, const Config& after) {
    std::vector<std::string> keys;
    for (const auto& [name, entry] : config_keys())
        if (entry.differs(before, after)) keys.push_back(name);
    return keys;
}

std::string to_text(const Config& config) {
    toml::table sections;
    for (const auto& [name, entry] : config_keys()) {
        const size_t dot = name.find('.');
        auto* section = sections.insert(name.substr(0, dot), toml::table()).first->second.as_table();
        entry.put(config, *section, std::string_view(name).substr(dot + 1));
    }
    std::ostringstream text;
    constexpr auto flags = toml::toml_formatter::default_flags & ~toml::format_flags::allow_literal_strings;
    text << toml::toml_formatter(sections, flags) << "\n";
    return text.str();
}

bool applies_on_reload(std::string_view name) {
    const auto known = config_keys().find(std::string(name));
    return known != config_keys().end() && known->second.on_reload;
}

Result<Config> load_config(const std::string& path, bool required) {
    Config config;
    std::vector<std::filesystem::path> files = {path};
    std::error_code error;
    std::vector<std::filesystem::path> drop_ins;
    for (const auto& entry : std::filesystem::directory_iterator(path + ".d", error))
        if (entry.path().extension() == ".conf") drop_ins.push_back(entry.path());
    std::sort(drop_ins.begin(), drop_ins.end());
    files.insert(files.end(), drop_ins.begin(), drop_ins.end());
    for (const auto& file : files) {
        if (std::filesystem::is_directory(file, error))
            return fail(ErrorCode::bad_request, errno_message(file.string(), EISDIR),
                        file == path ? "name the file with --config" : "only files of a .d folder are read: rename it");
        std::ifstream stream(file);
        if (!stream) {
            if (&file == &files.front() && !required && !std::filesystem::exists(file, error)) continue;
            return fail(ErrorCode::bad_request, errno_message(file.string(), errno),
                        errno == ENOENT ? "name a file that is there with --config"
                                        : "make the file readable, or name another with --config");
        }
        std::ostringstream content;
        content << stream.rdbuf();
        if (const auto applied = apply_config_text(config, content.str(), file.string()); !applied)
            return tl::unexpected(applied.error());
    }
    return config;
}

}  // namespace ingero
