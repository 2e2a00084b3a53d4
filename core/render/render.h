// From answers to what a user reads: the JSON objects of docs/schemas and plain text made of them. ingeroctl, D-Bus and
// the MCP server all print with these, so that one answer never reads two ways.
//
// Text that comes from a target (commands, units, cgroups) is data: in JSON it is made valid UTF-8, in plain text it is
// escaped besides.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/diagnosis/explain.h"
#include "core/model/process/process.h"
#include "core/query/answers/stacks.h"
#include "core/query/answers/stats.h"
#include "core/query/answers/wait_chains.h"
#include "core/query/coverage.h"
#include "core/sql/sql.h"

namespace ingero {

/// What an answer says besides its own part.
struct AnswerContext {
    std::string node;
    std::vector<std::string> missing_probes;  ///< that should have been attached and were not
    std::map<ProcessKey, std::string> comms;  ///< commands, for the listed calls; a process may be absent
};

/// What every answer starts with: schema "ingero/COMMAND/1", node, window, coverage, missing_probes.
nlohmann::json answer_head(std::string_view command, const AnswerContext& context, const Window& realtime,
                           const Coverage& coverage);

/// A process as docs/schemas/processes.schema.json has it; what only its lister knows is null, `state` among it.
nlohmann::json process_json(const Process& process);
/// docs/schemas/stats.schema.json. At most `limit` ops, the largest by total time; 0: all.
nlohmann::json to_json(const StatsAnswer& answer, const AnswerContext& context, size_t limit = 0);
/// docs/schemas/stacks.schema.json.
nlohmann::json to_json(const StacksAnswer& answer, const AnswerContext& context);
/// docs/schemas/waits.schema.json.
nlohmann::json to_json(const WaitsAnswer& answer, const AnswerContext& context);
/// docs/schemas/explain.schema.json.
nlohmann::json to_json(const ExplainAnswer& answer, const AnswerContext& context);
/// docs/schemas/query.schema.json. Takes the rows.
nlohmann::json to_json(SqlAnswer answer, const AnswerContext& context);

/// "low", "medium", "high".
std::string_view to_string(Severity severity);
/// "proven", "partial", "unexplained", "insufficient-evidence".
std::string_view to_string(Verdict verdict);

struct TextStyle {
    unsigned width = 0;  ///< columns of the terminal; 0: as wide as it takes
    bool colour = false;
    bool short_times = false;  ///< for a reader: 14:32:05 in the local zone, with the date where it is not today's
                               ///< or `db` was asked
    bool details = false;      ///< all that there is, and not only what answers
    bool coverage = false;     ///< each gap of what was recorded, in place of how much it was
    std::string db = {};       ///< the store that was asked, as a shell takes it; empty: the daemon
};

/// Plain text of the JSON objects above, ending in a newline. Members that are absent, null or of another type read as
/// "-"; these functions do not throw.
std::string text_status(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_processes(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_problems(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_probes(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_stats(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_stacks(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_waits(const nlohmann::json& answer, const TextStyle& style = {});
/// A line a stack: what it was called for, its frames outermost first, joined by ";", and its weight in ns.
std::string folded_stacks(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_explain(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_query(const nlohmann::json& answer, const TextStyle& style = {});
/// RFC 4180: a line of names, then the rows, lines ending in CRLF; null is an empty field, an empty text is "".
std::string csv_query(const nlohmann::json& answer, const TextStyle& style = {});
/// The text is silent of coverage, which is of calls.
std::string text_gpus(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_export(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_check(const nlohmann::json& answer, const TextStyle& style = {});

/// Text that cannot move the cursor, colour the terminal, reorder or hide what stands beside it. Control characters,
/// invalid UTF-8, bidirectional controls and characters without width become \n, \t, \r, \xHH (C0 and invalid bytes) or
/// \u{HHHH}; a backslash becomes two. What is printable stays as it is.
std::string escape_text(std::string_view text);

}  // namespace ingero
