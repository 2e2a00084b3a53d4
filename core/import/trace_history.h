// Rows of a trace's snapshots, annotations and chains as rows of a store's history. Texts and JSON are what anybody may
// have written: bounded, checked, and trusted in nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/import/trace_database.h"
#include "core/store/rows/history.h"

namespace ingero {

/// A JSON object without anything nested: its texts, numbers and booleans as texts, the first max_span_labels of them.
/// False where it is none.
bool parse_labels(std::string_view json, std::vector<std::pair<std::string, std::string>>& ret_labels);
/// Whether it is JSON of at most eight levels and 16 KiB.
bool is_bounded_json(std::string_view text);

const std::vector<std::string>& snapshot_columns();
const std::vector<std::string>& annotation_columns();
const std::vector<std::string>& chain_columns();

/// Nothing where the row cannot be one: times before 1970, wrong types. Texts that cannot be read are left out of the
/// row, and counted in `ret_unreadable`.
std::optional<StateRow> read_snapshot(const TraceRow& row);
/// The process's start is the caller's to fill in.
std::optional<SpanRow> read_annotation(const TraceRow& row, uint64_t& ret_unreadable);
std::optional<IncidentRow> read_chain(const TraceRow& row, uint64_t& ret_unreadable);

}  // namespace ingero
