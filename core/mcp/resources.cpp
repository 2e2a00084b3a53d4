#include <array>

#include "core/diagnosis/detector.h"
#include "core/mcp/library.h"
#include "core/mcp/shape.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

struct Term {
    std::string_view name;
    std::string_view meaning;
};

constexpr auto glossary = std::to_array<Term>({
    {"on_cpu_ns", "The thread ran. Inside a call that waits for the device this is device_wait_ns: CUDA spins."},
    {"runnable_ns", "The thread could run and had no CPU: somebody else had it, or its cgroup had used up its quota."},
    {"blocked_ns",
     "The thread slept: for a lock, a disk, a socket, a timer. blocked_on says what the longest sleep waited "
     "for, waker who ended it."},
    {"device_wait_ns", "Time in which the host only waited for the GPU. It is never a host-side culprit."},
    {"excess_ns", "What a call took beyond what is usual for it."},
    {"explained_fraction", "The part of the excess that was assigned to a cause by time on the same thread."},
    {"verdict",
     "proven: the time is accounted for. partial: some of it. unexplained: it was lost, and the cause is not "
     "known. insufficient-evidence: too little was recorded to say."},
    {"evidence",
     "Ids of the calls that a finding is made of, worst first; if a thread was held up between its calls, the last ids "
     "are the calls that ended late because of it. Arguments for explain_call, and events.id in SQL."},
    {"rejected", "Other causes in the same process, each with the ns that it took: they are not part of this finding."},
    {"coverage",
     "What an answer does not cover: gaps in which nothing, or not all, was recorded, events lost, calls sampled "
     "out. Where it is not complete, what was not recorded may still have happened."},
    {"gap",
     "In coverage: a time that was not recorded. In a timeline: a time between two calls of a thread, in which it "
     "submitted nothing to the GPU."},
    {"cold-start", "First use of a function: the driver loads or compiles it, once."},
    {"co_resident", "Requests in the engine at the same time: what they share is counted in each of them."},
    {"collective", "An operation of all ranks of a communicator: the last to arrive decides when it ends."},
    {"rank", "A process's number in its job."},
});

struct Resource {
    std::string_view uri;
    std::string_view name;
    std::string_view title;
    std::string_view description;
};

constexpr auto resources = std::to_array<Resource>({
    {"ingero://schema", "schema", "Tables for run_sql",
     "Every table and column that run_sql can name, and its meaning."},
    {"ingero://problems", "problems", "What can be found",
     "Each kind of finding: what proves it, what it needs, and what it cannot see."},
    {"ingero://glossary", "glossary", "Glossary", "Words and figures of the answers."},
});

std::string problems_text() {
    std::string text = "# What get_incidents can find\n";
    for (const CatalogueEntry& entry : catalogue())
        text += "\n## " + std::string(entry.kind) + ": " + std::string(entry.title) +
                "\n- proof: " + std::string(entry.proof) + "\n- needs: " + std::string(entry.needs) +
                "\n- does not see: " + std::string(entry.limits) + "\n";
    return text;
}

std::string glossary_text() {
    std::string text = "# Glossary\n\n";
    for (const Term& term : glossary) text += "- " + std::string(term.name) + ": " + std::string(term.meaning) + "\n";
    return text;
}

Result<std::string> schema_text(Source& source) {
    const auto answer = source.ask(
        "query", {{"sql", "SELECT table_name, column_name, type, meaning FROM schema_columns"}, {"limit", 10'000}});
    if (!answer) return tl::unexpected(answer.error());
    std::string text = "# Tables for run_sql\n", table;
    for (const json& row : answer->at("rows")) {
        const auto cell = [&](size_t i) { return row.at(i).is_string() ? row[i].get<std::string>() : ""; };
        // The views of events by source have its columns.
        if (table != cell(0)) text += "\n## " + cell(0) + "\n";
        table = cell(0);
        if (table.ends_with("_events") && table != "request_events" && table != "socket_events") {
            if (text.ends_with("## " + table + "\n")) text += "The columns of events, of this source alone.\n";
            continue;
        }
        text += "- " + cell(1) + " " + cell(2) + ": " + cell(3) + "\n";
    }
    return text;
}

}  // namespace

json describe_resources(std::string_view revision) {
    json list = json::array();
    for (const Resource& resource : resources) {
        list.push_back({{"uri", resource.uri},
                        {"name", resource.name},
                        {"description", resource.description},
                        {"mimeType", "text/markdown"}});
        if (revision >= "2025-06-18") list.back()["title"] = resource.title;
    }
    return list;
}

Result<json> resource_contents(const std::string& uri, Source& source) {
    Result<std::string> text = fail(ErrorCode::not_found, "there is no such resource");
    if (uri == "ingero://schema") text = schema_text(source);
    if (uri == "ingero://problems") text = problems_text();
    if (uri == "ingero://glossary") text = glossary_text();
    if (!text) return tl::unexpected(text.error());
    return json{{"uri", uri}, {"mimeType", "text/markdown"}, {"text", std::move(*text)}};
}

}  // namespace ingero::mcp
