// ingeroctl merge: several stores or traces as one. It is built beside the output and then takes its place, so that no
// store is ever half merged.
#include "core/import/merge.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "core/model/text/format.h"
#include "core/model/time.h"
#include "core/wire/utf8.h"
#include "ctl/ask/stored.h"
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

struct MergeCommand {
    std::vector<std::string> sources;
    std::string output;
    std::string node;
};

/// A directory beside `output`, which takes its place or is gone with its content.
class NewStore {
  public:
    explicit NewStore(const std::string& output) : output_(output), path_(output + ".new-XXXXXX") {
        if (!mkdtemp(path_.data())) path_.clear();
    }
    NewStore(const NewStore&) = delete;
    NewStore& operator=(const NewStore&) = delete;
    ~NewStore() {
        std::error_code error;
        if (!path_.empty()) fs::remove_all(path_, error);
    }
    const std::string& path() const { return path_; }

    /// Errors: denied.
    Result<void> take_place() {
        // What was there before gets this one's name, and goes with it.
        const bool exists = access(output_.c_str(), F_OK) == 0;
        if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, output_.c_str(),
                      exists ? RENAME_EXCHANGE : RENAME_NOREPLACE) != 0)
            return fail(ErrorCode::denied, errno_message("cannot move the new store to " + output_, errno));
        if (!exists) path_.clear();
        return {};
    }

  private:
    std::string output_;
    std::string path_;
};

/// Whether the output has all that the sources have of their sessions.
Result<bool> is_merged(const std::vector<MergeSource>& sources, const std::string& output) {
    const auto there = stored_sessions(output);
    if (!there) return tl::unexpected(there.error());
    for (const MergeSource& source : sources) {
        const auto sessions = stored_sessions(source.directory);
        if (!sessions) return tl::unexpected(sessions.error());
        for (const auto& [id, copy] : *sessions) {
            const auto found = there->find(id);
            if (found == there->end() || adds_to(copy, found->second)) return false;
        }
    }
    return true;
}

Result<std::optional<MergeSummary>> merge(const MergeCommand& command) {
    std::vector<StoredSource> held;
    std::vector<MergeSource> sources;
    const auto add = [&](const std::string& path) -> Result<void> {
        auto source = StoredSource::open(path, command.node);
        if (!source) return tl::unexpected(source.error());
        const std::string stem = fs::path(path).lexically_normal().stem().string();
        sources.push_back({source->directory(), command.node.empty() ? stem : command.node, path});
        held.push_back(std::move(*source));
        return {};
    };
    for (const std::string& path : command.sources)
        if (auto added = add(path); !added) return tl::unexpected(added.error());
    std::string output = fs::path(command.output).lexically_normal().string();
    while (output.size() > 1 && output.back() == '/') output.pop_back();
    struct stat status {};
    if (stat(output.c_str(), &status) == 0) {
        if (!S_ISDIR(status.st_mode) || access((output + "/data.mdb").c_str(), F_OK) != 0)
            return fail(ErrorCode::bad_request, output + " exists, and is not an event store", "name a new directory");
        if (auto closed = check_closed(output); !closed) return tl::unexpected(closed.error());
        const auto merged = is_merged(sources, output);
        if (!merged) return tl::unexpected(merged.error());
        if (*merged) return std::nullopt;
        if (auto added = add(output); !added) return tl::unexpected(added.error());
    }
    NewStore made(output);
    if (made.path().empty()) return fail(ErrorCode::denied, errno_message("cannot create " + output, errno));
    auto summary = merge_stores(sources, made.path());
    if (!summary) return tl::unexpected(summary.error());
    if (auto placed = made.take_place(); !placed) return tl::unexpected(placed.error());
    return std::move(*summary);
}

json to_json(const std::optional<MergeSummary>& summary, const std::string& store) {
    json nodes = json::array();
    const MergeSummary merged = summary.value_or(MergeSummary());
    for (const auto& [name, node] : merged.nodes)
        nodes.push_back({{"node", to_valid_utf8(name)},
                         {"sessions", node.sessions},
                         {"events", node.events},
                         {"from_ns", node.window.from_ns},
                         {"to_ns", node.window.to_ns}});
    return {
        {"schema", "ingero/merge/1"}, {"store", to_valid_utf8(store)}, {"already_there", !summary},
        {"nodes", std::move(nodes)},  {"sessions", merged.sessions},   {"repeated_sessions", merged.repeated_sessions},
        {"events", merged.events},    {"processes", merged.processes}, {"stacks", merged.stacks},
        {"spans", merged.spans},      {"incidents", merged.incidents}, {"states", merged.states},
        {"rollups", merged.rollups}};
}

std::string text_merge(const json& answer, const TextStyle&) {
    if (answer.value("already_there", false)) return "nothing to do: the store already holds all sessions\n";
    const auto count = [](const json& object, const char* name, const char* one, const char* many) {
        return format_count(object.value(name, uint64_t{0}), one, many);
    };
    std::string text;
    for (const json& node : answer["nodes"]) {
        text += escape_text(node["node"].get<std::string>()) + ": " + count(node, "events", "event", "events") +
                " of " + count(node, "sessions", "session", "sessions") + ", " + format_time(node["from_ns"]) + " to " +
                format_time(node["to_ns"]) + "\n";
    }
    text +=
        count(answer, "processes", "process", "processes") + ", " + count(answer, "stacks", "stack", "stacks") + "\n";
    text += count(answer, "spans", "span", "spans") + ", " +
            count(answer, "incidents", "row of incidents", "rows of incidents") + ", " +
            count(answer, "states", "state", "states") + ", " + count(answer, "rollups", "rollup", "rollups") + "\n";
    if (answer.value("repeated_sessions", uint64_t{0}) != 0)
        text += count(answer, "repeated_sessions", "session was", "sessions were") +
                " in more than one source, and written once\n";
    return text;
}

int run(const Options& options, const MergeCommand& command) {
    const auto summary = merge(command);
    if (!summary) return report("merge", summary.error(), exit_failed);
    return print(options, to_json(*summary, command.output), text_merge) ? exit_done : exit_failed;
}

}  // namespace

void add_merge(CLI::App& app, Command& command) {
    const auto merge = std::make_shared<MergeCommand>();
    CLI::App* subcommand = app.add_subcommand("merge", "Merge several stores into one, with their nodes kept apart");
    subcommand->add_option("stores", merge->sources, "Closed stores or SQLite traces; they are only read")
        ->type_name("STORE")
        ->required();
    subcommand->add_option("-o,--output", merge->output, "The store's directory; what it already holds is kept")
        ->type_name("STORE")
        ->required();
    subcommand->add_option("--node", merge->node, "The node's name, for stores and traces that name none")
        ->type_name("NAME");
    add_examples(*subcommand,
                 {{"One store of what two nodes recorded", "ingeroctl merge recording imported -o merged"}});
    subcommand->callback(
        [&command, merge] { command = [merge](const Options& options) { return run(options, *merge); }; });
}

}  // namespace ingero::ctl
