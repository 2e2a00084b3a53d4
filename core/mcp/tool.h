// What a tool of the MCP server is: its name and words for a model, what it takes, what it answers, and the function.
// A tool asks a Source for the answers that every other reader gets (docs/schemas) and shows the part of them that an
// assistant needs, bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/result.h"

namespace ingero::mcp {

/// Who answers: the worker that a session runs in, or a worker that ingeroctl started. The scope of the caller is the
/// source's to add, and no parameter of a client's can widen it.
class Source {
  public:
    virtual ~Source() = default;
    /// Methods and parameters are those of a worker (docs/worker.md), and of a daemon besides "status" and "check";
    /// "demo", with a `scenario` or without, answers as `ingeroctl demo --json`.
    virtual Result<nlohmann::json> ask(const std::string& method, nlohmann::json params) = 0;
    /// A daemon that goes on recording, and not a stored trace.
    virtual bool is_live() const = 0;
    /// A call begins: what was recorded up to now is what it asks about.
    virtual void begin_call() {}
};

struct Argument {
    enum class Type { text, integer, boolean, time };
    std::string_view name = {};
    Type type = Type::text;
    std::string_view description = {};
    bool required = false;
    uint64_t least = 0;
    uint64_t most = INT64_MAX;
    std::vector<std::string_view> choices = {};
};

// Those that many tools take.
inline const Argument node_argument = {"node", Argument::Type::text,
                                       "Only this node, of a stored trace that has several"};
inline const Argument compact_argument = {"compact", Argument::Type::boolean,
                                          "Smaller answer: tables as columns and rows, absent values left out"};
inline const Argument limit_argument = {.name = "limit",
                                        .type = Argument::Type::integer,
                                        .description = "At most this many rows (default: 50)",
                                        .least = 1,
                                        .most = 1'000};
inline const Argument cursor_argument = {"cursor", Argument::Type::text,
                                         "Cursor of the page before; repeat all other arguments"};

/// A member of an answer. `type`: text, integer, number, boolean, object, texts, any; "?" after it: or null. With
/// `columns`, "name:type name:type ...", it is a table: a list of such objects.
struct Part {
    std::string_view name = {};
    std::string_view type = {};
    std::string_view columns = {};
    bool is_paged = false;  ///< the one that limit and cursor are about
};

class Call;

struct Tool {
    std::string_view name = {};
    std::string_view title = {};
    std::string_view description = {};
    std::vector<Argument> arguments = {};
    std::vector<Part> parts = {};
    /// The members that `parts` names, besides node, window, coverage and missing_probes as they were answered.
    Result<nlohmann::json> (*run)(Call& call) = nullptr;
};

/// All tools, in the order in which they are listed.
std::span<const Tool> all_tools();
/// nullptr where there is none.
const Tool* find_tool(std::string_view name);

/// As tools/list has it. `revision`: what older ones do not know is left out.
nlohmann::json describe(const Tool& tool, std::string_view revision);

/// One call of a tool.
class Call {
  public:
    using Ask = std::function<Result<nlohmann::json>(const std::string&, nlohmann::json)>;

    /// `arguments` as the client gave them. Errors: bad_request, for a model to read.
    static Result<Call> make(const Tool& tool, nlohmann::json arguments, bool is_live, Ask ask);

    const Tool& tool() const { return *tool_; }
    bool is_live() const { return is_live_; }
    bool is_compact() const { return flag("compact"); }
    std::optional<uint64_t> number(const char* name) const;
    std::string text(const char* name) const;  ///< empty where it is absent
    bool flag(const char* name) const;
    bool has(const char* name) const;

    Result<nlohmann::json> ask(const std::string& method, nlohmann::json params) {
        return ask_(method, std::move(params));
    }
    /// Window, process and node for ask(): those of the cursor, those asked for, or the last five minutes of a daemon
    /// and all of a stored trace. Errors: bad_request.
    Result<nlohmann::json> window() const;
    /// One statement over that window; rows as objects. `ret_head` gets what the answer says of itself.
    Result<nlohmann::json> select(const std::string& sql, nlohmann::json params, nlohmann::json& ret_head);

    size_t offset() const { return offset_; }
    size_t limit() const { return limit_; }
    /// Rows to ask for: one more than are shown says whether there are more.
    size_t wanted_rows() const { return offset_ + limit_ + 1; }
    void set_default_limit(size_t limit) {
        if (!number("limit")) limit_ = limit;
    }
    /// What follows on a page that ends before `offset`.
    std::string cursor_for(const nlohmann::json& window, size_t offset) const;

  private:
    Call() = default;
    Result<void> take_cursor();
    uint64_t key() const;

    const Tool* tool_ = nullptr;
    nlohmann::json arguments_;
    bool is_live_ = false;
    Ask ask_;
    size_t offset_ = 0;
    size_t limit_ = 20;
    std::optional<std::pair<uint64_t, uint64_t>> fixed_window_;
};

/// Arguments that most tools share.
std::vector<Argument> with_window(std::vector<Argument> own, bool is_paged = true);

/// Of rows that were asked for from the first on.
void drop_before_page(nlohmann::json& rows, size_t offset);

/// Takes the shared members of an answer: node, window, coverage, missing_probes.
nlohmann::json head_of(const nlohmann::json& answer);

/// Of one group each.
std::vector<Tool> check_tools();
std::vector<Tool> stats_tools();
std::vector<Tool> incident_tools();
std::vector<Tool> call_tools();
std::vector<Tool> request_tools();
std::vector<Tool> stack_tools();
std::vector<Tool> timeline_tools();
std::vector<Tool> graph_tools();
std::vector<Tool> rank_tools();
std::vector<Tool> process_tools();
std::vector<Tool> query_tools();
std::vector<Tool> demo_tools();

}  // namespace ingero::mcp
