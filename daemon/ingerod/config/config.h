// ingerod.conf: TOML, with *.conf files of ingerod.conf.d laid over it in order of name. Unknown keys are errors.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/diagnosis/stragglers.h"
#include "core/model/process/process_facts.h"
#include "core/model/result.h"
#include "daemon/ingerod/spans/span_limits.h"

namespace ingero {

struct Config {
    std::string node;                          ///< [node] name; empty: the host's name
    std::vector<std::string> capture_include;  ///< patterns, see capture_policy.h; empty: all
    std::vector<std::string> capture_exclude;
    std::vector<std::string> trusted_fuse;          ///< [capture] trusted_fuse: patterns, * spans no slash
    bool native_stacks = true;                      ///< [capture] stacks
    unsigned overhead_budget_permille = 20;         ///< [capture] overhead_budget; 0: no limit
    bool slices = true;                             ///< [capture] slices
    uint64_t in_flight_floor_ns = 1'000'000'000;    ///< [capture] inflight_floor
    uint64_t wait_floor_ns = 200'000;               ///< [capture] wait_floor; 0: waits are not watched
    FactsOptions facts;                             ///< [processes]
    std::vector<std::string> named_others = {"*"};  ///< [processes] named_others
    std::string store_path = "/var/lib/ingero/store";
    uint64_t store_max_size_bytes = 10ULL << 30;
    uint64_t store_max_age_ns = 30 * 86'400'000'000'000ULL;
    uint64_t store_rollup_age_ns = 365 * 86'400'000'000'000ULL;
    uint64_t close_after_ns = 15'000'000'000;  ///< [diagnosis] close_after
    StragglerOptions stragglers;               ///< [diagnosis] straggler_*
    bool hash_span_ids = false;                ///< [spans] hash_ids
    SpanQuota spans;                           ///< [spans] rate, burst, connections, max_span
    uint64_t gpu_poll_ns = 1'000'000'000;      ///< [relay] gpu_poll; 0: off
    unsigned worker_count = 2;
    uint64_t worker_memory_bytes = 512ULL << 20;
    std::chrono::milliseconds worker_deadline{30'000};
};

/// Lays the text's keys over `config`. Errors: bad_request, as "NAME:LINE: what".
Result<void> apply_config_text(Config& config, std::string_view text, const std::string& name);
/// Every key with its value, as a file that reads as this configuration.
std::string to_text(const Config& config);
/// Keys whose values differ, as "section.key", in order of name.
std::vector<std::string> changed_keys(const Config& before, const Config& after);
/// What of them takes effect without a restart.
bool applies_on_reload(std::string_view key);
/// The file, then its .d directory ("X.conf" has "X.conf.d"). Neither need exist unless `required`.
Result<Config> load_config(const std::string& path, bool required);

}  // namespace ingero
