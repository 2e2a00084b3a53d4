// ingeroctl import: a trace of the earlier agent into a store.
#include "core/import/import.h"

#include <filesystem>
#include <memory>

#include "core/model/text/format.h"
#include "core/wire/utf8.h"
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

struct ImportCommand {
    std::string trace;
    std::string store;
    std::string node;
};

json to_json(const ImportSummary& summary, const ImportCommand& command) {
    json nodes = json::array();
    for (const ImportSummary::Node& node : summary.nodes)
        nodes.push_back({{"node", to_valid_utf8(node.name)},
                         {"events", node.events},
                         {"from_ns", node.window.from_ns},
                         {"to_ns", node.window.to_ns}});
    json left_out = json::array();
    for (const auto& [table, rows] : summary.left_out) left_out.push_back({{"table", table}, {"rows", rows}});
    return {{"schema", "ingero/import/1"},
            {"store", to_valid_utf8(command.store)},
            {"already_there", summary.already_there},
            {"nodes", std::move(nodes)},
            {"events", summary.events},
            {"unreadable_events", summary.unreadable},
            {"sampled_out", summary.sampled_out},
            {"processes", summary.processes},
            {"stacks", summary.stacks},
            {"unused_stacks", summary.unused_stacks},
            {"unreadable_stacks", summary.unreadable_stacks},
            {"lost_stacks", summary.lost_stacks},
            {"snapshots", summary.snapshots},
            {"annotations", summary.annotations},
            {"chains", summary.chains},
            {"rollups", summary.rollups},
            {"unreadable_texts", summary.unreadable_texts},
            {"left_out", std::move(left_out)}};
}

std::string text_import(const json& answer, const TextStyle&) {
    const auto count = [&](const char* name) { return answer.value(name, uint64_t{0}); };
    if (answer.value("already_there", false)) return "nothing to do: the store already holds this trace\n";
    std::string text;
    for (const json& node : answer["nodes"])
        text += escape_text(node["node"].get<std::string>()) + ": " +
                format_count(node["events"].get<uint64_t>(), "event", "events") + ", " + format_time(node["from_ns"]) +
                " to " + format_time(node["to_ns"]) + "\n";
    text += format_count(count("processes"), "process", "processes") + ", " +
            format_count(count("stacks"), "stack", "stacks") + "\n";
    const auto add_count = [&](const char* name, const char* one, const char* many) {
        if (const uint64_t number = count(name)) text += format_count(number, one, many) + "\n";
    };
    constexpr const char* sampled_out = "or more further events were counted by the agent, and not stored";
    add_count("sampled_out", sampled_out, sampled_out);
    add_count("unreadable_events", "row is not a valid event and was not imported",
              "rows are not valid events and were not imported");
    add_count("unreadable_stacks", "stack could not be read and has no frames",
              "stacks could not be read and have no frames");
    add_count("lost_stacks", "stack that events refer to is missing in the trace",
              "stacks that events refer to are missing in the trace");
    add_count("snapshots", "snapshot of the host", "snapshots of the host");
    add_count("annotations", "annotation", "annotations");
    add_count("chains", "finding of the agent, which ingero lists but does not trust",
              "findings of the agent, which ingero lists but does not trust");
    add_count("rollups", "sum by minute, operation and process of events that the agent did not store",
              "sums by minute, operation and process of events that the agent did not store");
    add_count("unreadable_texts", "text of an annotation or finding could not be read and was not imported",
              "texts of annotations and findings could not be read and were not imported");
    for (const json& table : answer["left_out"])
        text += "not imported: " + format_count(table["rows"].get<uint64_t>(), "row", "rows") + " of table " +
                table["table"].get<std::string>() + "\n";
    return text;
}

int run(const Options& options, const ImportCommand& command) {
    const std::string stem = std::filesystem::path(command.trace).stem().string();
    ImportOptions wanted;
    wanted.node = command.node;
    if (!stem.empty()) wanted.fallback_node = stem;
    const auto summary = import_trace(command.trace, command.store, wanted);
    if (!summary) {
        Error error = summary.error();
        if (error.code == ErrorCode::bad_request && error.hint.empty())
            error.hint = "import takes a SQLite trace with events that the earlier agent, written in Go, recorded";
        return report("import", error, exit_failed);
    }
    return print(options, to_json(*summary, command), text_import) ? exit_done : exit_failed;
}

}  // namespace

void add_import(CLI::App& app, Command& command) {
    const auto import = std::make_shared<ImportCommand>();
    CLI::App* subcommand = app.add_subcommand("import", "Import a SQLite trace of the earlier agent into a store");
    subcommand->add_option("trace", import->trace, "The SQLite file; it is only read")->type_name("TRACE")->required();
    subcommand->add_option("-o,--output", import->store, "The store's directory, which is created where it is missing")
        ->type_name("STORE")
        ->required();
    subcommand->add_option("--node", import->node, "The node's name, for a trace whose rows name none")
        ->type_name("NAME");
    add_examples(*subcommand, {{"A trace of the earlier agent, as a store", "ingeroctl import trace.db -o imported"}});
    subcommand->callback(
        [&command, import] { command = [import](const Options& options) { return run(options, *import); }; });
}

}  // namespace ingero::ctl
