// What is attached and how often it was hit: the "probes" answer's own part.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "daemon/ingerod/probes/call_probes.h"
#include "daemon/ingerod/targets/libraries.h"

namespace ingero {

/// By operation: functions attached to, and how often they were called by all users, which is null unless `sees_all`.
nlohmann::json probe_counts(const std::map<OpId, size_t>& functions, const SymbolCounters& counters, bool sees_all);

/// Members "libraries" and "probes" of docs/schemas/probes.schema.json. Copies of a library are one entry by base name;
/// counts are sums over all copies since the start. Only of files that `may_see` lets through.
nlohmann::json probe_figures(const Libraries& libraries, const SymbolCounters& counters,
                             const std::function<bool(std::string_view set)>& is_off,
                             const std::function<bool(const LibraryKey&, const LibraryEntry&)>& may_see, bool sees_all);

}  // namespace ingero
