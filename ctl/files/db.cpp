// ingeroctl db: what a store is made of, whether it is whole, and copies of it.
#include <array>
#include <memory>

#include "core/render/table.h"
#include "core/store/copy.h"
#include "core/wire/client.h"
#include "core/wire/utf8.h"
#include "ctl/ask/stored.h"
#include "ctl/command.h"
#include "ctl/files/db_copy.h"
#include "ctl/files/demos.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

/// A copy of a large store to a slow disk.
constexpr std::chrono::hours copy_timeout{2};

struct DbCommand {
    std::string action;
    std::string path;
    std::string output;
};

std::string count_of(const json& row, const char* name) {
    return format_count(row.value(name, uint64_t{0}));
}

std::string count_of(const json& row, const char* name, const char* one, const char* many) {
    return format_count(row.value(name, uint64_t{0}), one, many);
}

std::string bytes_of(const json& row, const char* name) {
    return format_bytes(row.value(name, uint64_t{0}));
}

std::string text_of(const json& row, const char* name) {
    return escape_text(row.value(name, std::string()));
}

std::string text_info(const json& answer, const TextStyle&) {
    std::string text = "layout " + std::to_string(answer.value("layout", uint64_t{0})) + ", " +
                       bytes_of(answer, "bytes") + " of at most " + bytes_of(answer, "cap_bytes") + ", " +
                       bytes_of(answer, "live_bytes") + " in use\n" + count_of(answer, "events", "event", "events") +
                       ", " + format_count(answer.at("sessions").size(), "session", "sessions") + "\n";
    if (const uint64_t unreadable = answer.value("unreadable_blocks", uint64_t{0}))
        text += format_count(unreadable, "block is", "blocks are") + " damaged: see 'ingeroctl db verify'\n";
    text += "\nBoots\n";
    for (const json& boot : answer.at("boots")) {
        text += "  " + std::to_string(boot.value("boot", uint64_t{0})) + "  " + text_of(boot, "node") + "  " +
                count_of(boot, "events", "event", "events");
        if (boot.at("from_ns").is_number())
            text += ", " + format_time(boot.at("from_ns")) + " to " + format_time(boot.at("to_ns"));
        text += "\n";
    }
    text += "\nBlocks\n";
    for (const json& kind : answer.at("blocks"))
        text += "  version " + std::to_string(kind.value("version", uint64_t{0})) +
                (kind.value("compressed", false) ? ", compressed: " : ": ") + count_of(kind, "blocks") + ", " +
                count_of(kind, "events", "event", "events") + ", " + bytes_of(kind, "bytes") + "\n";
    text += "\nTables\n";
    for (const json& table : answer.at("tables"))
        text += "  " + text_of(table, "table") + ": " + count_of(table, "rows", "row", "rows") + ", " +
                bytes_of(table, "bytes") + "\n";
    return text;
}

std::string text_verify(const json& answer, const TextStyle&) {
    std::string text = count_of(answer, "events", "event", "events") + " in " +
                       count_of(answer, "blocks", "block", "blocks") + " and " +
                       count_of(answer, "rows", "other row", "other rows") + " are intact\n";
    if (const uint64_t damaged = answer.value("damaged", uint64_t{0}))
        text = format_count(damaged, "damaged part", "damaged parts") + "\n" + text;
    for (const json& damage : answer.at("damages")) {
        text += "damaged: ";
        if (damage.at("table").is_string()) text += text_of(damage, "table") + " ";
        if (damage.at("key").is_string()) text += text_of(damage, "key") + ": ";
        text += text_of(damage, "what");
        if (const uint64_t events = damage.value("events", uint64_t{0}))
            text += " (" + format_count(events, "event", "events") + ")";
        text += "\n";
    }
    if (answer.at("damages").size() < answer.value("damaged", uint64_t{0})) text += "more damage is not listed\n";
    for (const json& note : answer.at("notes"))
        text += "note: " + std::to_string(note.value("count", uint64_t{0})) + " " + text_of(note, "what") + "\n";
    return text;
}

std::string text_copy(const json& answer, const TextStyle&) {
    return text_of(answer, "store") + ": " + count_of(answer, "events", "event", "events") + ", " +
           bytes_of(answer, "bytes") + "\n";
}

int print_copy(const Options& options, const std::string& what, const std::string& directory,
               const Result<StoreCopy>& copy) {
    if (!copy) return report(what, copy.error(), exit_failed);
    const json answer = {{"schema", "ingero/db-copy/1"},
                         {"store", to_valid_utf8(directory)},
                         {"bytes", copy->bytes},
                         {"events", copy->events}};
    return print(options, answer, text_copy) ? exit_done : exit_failed;
}

/// Of a store and nothing else: what an import of a trace makes says nothing of the trace.
Result<StoredSource> open_store(const std::string& path) {
    if (!demo_of(path))
        if (auto store = find_store(path); !store) return tl::unexpected(store.error());
    return StoredSource::open(path);
}

int run_info(const Options& options, const std::string& store) {
    const auto answer = ask_closed_store(store, "db_info");
    if (!answer) return report("db info", answer.error(), exit_failed);
    return print(options, *answer, text_info) ? exit_done : exit_failed;
}

int run_verify(const Options& options, const std::string& store) {
    const auto answer = ask_closed_store(store, "db_verify");
    if (!answer) return report("db verify", answer.error(), exit_failed);
    if (!print(options, *answer, text_verify)) return exit_failed;
    return answer->value("clean", false) ? exit_done : exit_failed;
}

int run_compact(const Options& options, const std::string& store, const std::string& output) {
    // A store that is damaged is not copied on; this is also what refuses one that a daemon works in.
    const auto checked = ask_closed_store(store, "db_verify");
    if (!checked) return report("db compact", checked.error(), exit_failed);
    if (!checked->value("clean", false))
        return report("db compact",
                      {ErrorCode::corrupt, "the store is damaged", "'ingeroctl db verify' names the damage"},
                      exit_failed);
    const auto copy = make_store_copy(output, [&](int fd) -> Result<void> {
        const auto written = compact_store(store, fd);
        if (!written) return tl::unexpected(written.error());
        return {};
    });
    return print_copy(options, "db compact", output, copy);
}

/// Of a running daemon: by it, since the store is its own.
int snapshot_live(const Options& options, const std::string& output) {
    auto client = ControlClient::connect(options.socket, {.client = "ingeroctl " INGERO_VERSION});
    if (!client) {
        const ErrorCode code = client.error().code;
        const bool not_ready = code == ErrorCode::not_found || code == ErrorCode::deadline;
        return report("connect", client.error(), not_ready ? exit_not_ready : exit_failed);
    }
    const auto copy = make_store_copy(output, [&](int fd) -> Result<void> {
        const auto written = client->call("snapshot", json::object(), copy_timeout, fd);
        if (!written) return tl::unexpected(written.error());
        return {};
    });
    return print_copy(options, "db snapshot", output, copy);
}

int snapshot_closed(const Options& options, const std::string& output) {
    const auto store = open_store(options.db);
    if (!store) return report("db snapshot", store.error(), exit_failed);
    const auto copy = make_store_copy(output, [&](int fd) -> Result<void> {
        const auto written = ask_closed_store(store->directory(), "snapshot", fd);
        if (!written) return tl::unexpected(written.error());
        return {};
    });
    return print_copy(options, "db snapshot", output, copy);
}

int run(const Options& options, const DbCommand& command) {
    const bool compact = command.action == "compact";
    if (compact == command.output.empty())
        return usage_error(
            "db", {ErrorCode::bad_request, compact ? "compact needs --output" : command.action + " takes no --output",
                   "see 'ingeroctl db --help'"});
    if (command.action == "snapshot")
        return options.db.empty() ? snapshot_live(options, command.path) : snapshot_closed(options, command.path);
    if (!options.db.empty())
        return usage_error("db", {ErrorCode::bad_request, command.action + " cannot be used with --db",
                                  "name the store after " + command.action});
    const auto store = open_store(command.path);
    if (!store) return report("db " + command.action, store.error(), exit_failed);
    if (command.action == "info") return run_info(options, store->directory());
    if (command.action == "verify") return run_verify(options, store->directory());
    return run_compact(options, store->directory(), command.output);
}

}  // namespace

void add_db(CLI::App& app, Command& command) {
    const auto db = std::make_shared<DbCommand>();
    CLI::App* subcommand = app.add_subcommand("db", "Inspect, verify, compact or copy a store");
    subcommand->add_option("action", db->action, "info, verify, compact or snapshot")
        ->type_name("ACTION")
        ->check(one_of({"info", "verify", "compact", "snapshot"}))
        ->required();
    subcommand->add_option("path", db->path, "A closed store, or demo:SCENARIO; for snapshot: the directory to create")
        ->type_name("STORE")
        ->required();
    subcommand->add_option("-o,--output", db->output, "For compact: the directory to create")->type_name("DIR");
    add_examples(*subcommand, {{"What does the store of the running daemon hold?",
                                "ingeroctl db snapshot copy && ingeroctl db info copy"},
                               {"Is a store intact?", "ingeroctl db verify recording"}});
    subcommand->callback([&command, db] { command = [db](const Options& options) { return run(options, *db); }; });
}

}  // namespace ingero::ctl
