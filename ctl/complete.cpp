#include "ctl/complete.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/diagnosis/detector.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/query/sources/demos.h"
#include "core/render/table.h"
#include "core/render/text.h"
#include "core/wire/client.h"
#include "ctl/ask/stored.h"
#include "ctl/command.h"
#include "ctl/files/demos.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

/// Who types does not wait longer; the daemon has both, one after the other.
constexpr std::chrono::milliseconds connect_timeout{150}, answer_timeout{250};
constexpr uint64_t ns_per_day = 86'400'000'000'000;
constexpr size_t most_candidates = 500;
constexpr size_t description_width = 60;

/// What the words before the cursor mean.
struct Line {
    CLI::App* command = nullptr;
    CLI::Option* pending = nullptr;  ///< the word at the cursor is its value
    std::string prefix;              ///< "--option=" of that word
    std::string current;             ///< what there is of it after that
    size_t positionals = 0;
    bool after_dashes = false;  ///< nothing is an option any more
    bool runs_command = false;  ///< the words are those of another program
    std::string socket, db;
};

class Candidates {
  public:
    explicit Candidates(const Line& line) : line_(line) {}

    void add(const std::string& value, const std::string& description = {}) {
        if (!value.starts_with(line_.current) || found_.size() >= most_candidates) return;
        if (seen_.insert(value).second) found_.push_back(line_.prefix + value + "\t" + description);
    }
    /// Text of a target.
    void add_foreign(const std::string& value, const std::string& description) {
        std::string inert;
        for (const char c : value) inert.append(c == '\\' ? 2 : 1, c);
        if (value.empty() || value.starts_with('-') || escape_text(value) != inert) return;
        add(value, truncate_text(escape_text(description), description_width));
    }
    void may_be(const char* what) { kind_ = what; }
    void print() const {
        std::string text = std::string(kind_) + "\n";
        for (const std::string& one : found_) text += one + "\n";
        std::fputs(text.c_str(), stdout);
    }

  private:
    const Line& line_;
    const char* kind_ = "words";
    std::vector<std::string> found_;
    std::set<std::string> seen_;
};

CLI::Option* option_of(CLI::App& app, const std::string& name) {
    return app.get_option_no_throw(name);
}

bool takes_value(const CLI::Option& option) {
    return option.get_items_expected_max() > 0 && option.get_type_size() > 0;
}

void take_value(Line& line, const CLI::Option& option, const std::string& value) {
    if (option.check_lname("socket")) line.socket = value;
    if (option.check_lname("db")) line.db = value;
}

CLI::Option* find_option(CLI::App& app, const Line& line, const std::string& name) {
    CLI::Option* found = line.command ? option_of(*line.command, name) : nullptr;
    return found ? found : option_of(app, name);
}

Line read_line(CLI::App& app, const std::vector<std::string>& words) {
    Line line;
    const char* from_environment = std::getenv("INGERO_SOCKET");
    line.socket = from_environment ? from_environment : std::string(default_control_socket);
    int values = 0;  // that the pending option still takes
    for (size_t i = 0; i + 1 < words.size() && !line.runs_command; ++i) {
        const std::string& word = words[i];
        const size_t equals = word.find('=');
        if (values > 0) {
            take_value(line, *line.pending, word);
            if (--values == 0) line.pending = nullptr;
        } else if (!line.after_dashes && word == "--") {
            line.after_dashes = true;
        } else if (!line.after_dashes && word.size() > 1 && word.starts_with('-')) {
            CLI::Option* option = find_option(app, line, word.substr(0, equals));
            if (!option || !takes_value(*option)) continue;
            if (equals != std::string::npos) {
                take_value(line, *option, word.substr(equals + 1));
                continue;
            }
            line.pending = option;
            values = option->get_items_expected_min();
        } else if (!line.command) {
            const auto named = app.get_subcommands([&word](const CLI::App* sub) { return sub->get_name() == word; });
            line.command = named.empty() ? nullptr : named.front();
            line.runs_command = !line.command;  // of what is not known nothing is known
        } else {
            line.runs_command = line.command->get_prefix_command();
            ++line.positionals;
        }
    }
    line.current = words.empty() ? "" : words.back();
    const size_t equals = line.current.find('=');
    if (!line.pending && !line.after_dashes && line.current.starts_with("--") && equals != std::string::npos) {
        line.pending = find_option(app, line, line.current.substr(0, equals));
        line.prefix = line.current.substr(0, equals + 1);
        line.current.erase(0, equals + 1);
    }
    return line;
}

/// An answer of the daemon or of a closed store; nothing where that takes long.
json ask_quickly(const Line& line, const std::string& method, json params) {
    if (line.db.empty()) {
        auto client = ControlClient::connect(line.socket, {.client = "ingeroctl", .timeout = connect_timeout});
        if (!client) return {};
        return client->call(method, std::move(params), answer_timeout).value_or(json());
    }
    // A SQLite trace would have to be imported first.
    struct stat status {};
    if (!demo_of(line.db) && (stat(line.db.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))) return {};
    params.erase("since_ns");
    params["whole_trace"] = true;
    auto source = StoredSource::open(line.db);
    if (!source) return {};
    source->answer_within(answer_timeout);
    return source->ask(method, std::move(params)).value_or(json());
}

void add_pids(const Line& line, Candidates& candidates) {
    const json answer = ask_quickly(line, "processes", json::object());
    for (const json& process : text::list(answer, "processes"))
        if (const auto pid = text::number(process, "pid"))
            candidates.add_foreign(std::to_string(*pid), process.value("comm", json("")).get<std::string>());
}

void add_units(const Line& line, Candidates& candidates) {
    const json answer = ask_quickly(line, "processes", json::object());
    for (const json& process : text::list(answer, "processes"))
        if (const json& unit = text::member(process, "unit"); unit.is_string())
            candidates.add_foreign(unit.get<std::string>(), "unit of " + text::process(process, "comm", "pid"));
}

void add_incidents(const Line& line, Candidates& candidates) {
    const json answer = ask_quickly(line, "incidents", {{"since_ns", ns_per_day}, {"limit", 50}});
    for (const json& incident : text::list(answer, "incidents"))
        if (const json& id = text::member(incident, "id"); id.is_string())
            candidates.add_foreign(id.get<std::string>(),
                                   text::words(incident, "kind") + ", " + text::process(incident, "comm", "pid"));
}

void add_demos(const std::string& prefix, Candidates& candidates) {
    const auto demos = read_demos();
    if (!demos) return;
    for (const json& demo : *demos)
        candidates.add(prefix + demo.value("name", ""), demo.value("title", "a recorded scenario"));
}

/// By the option's name, or by what --help calls its value.
void add_values(const Line& line, CLI::Option& option, Candidates& candidates) {
    const std::string name = option.get_single_name(), type = option.get_type_name();
    const auto add_all = [&](std::initializer_list<const char*> values) {
        for (const char* value : values) candidates.add(value);
    };
    for (const std::string& value : values_of(option)) candidates.add(value);
    if (type == "PID") add_pids(line, candidates);
    if (type == "UNIT") add_units(line, candidates);
    if (type == "SCENARIO") add_demos("", candidates);
    if (type == "PROBLEM")
        for (const CatalogueEntry& entry : catalogue())
            candidates.add(std::string(entry.kind), std::string(entry.title));
    if (type == "WHEN") add_all({"30s", "5m", "1h", "1d", "today", "yesterday"});
    if (type == "TIME") add_all({"today", "yesterday"});
    if (name == "to") add_all({"now"});
    if (type == "DURATION")
        name == "slower-than"    ? add_all({"500ms", "1s", "2s", "5s"})
        : name == "min-duration" ? add_all({"50us", "1ms", "10ms", "1s"})
        : name == "interval"     ? add_all({"500ms", "2s", "10s", "1m"})
                                 : add_all({"30s", "5m", "1h", "1d"});
    if (name == "op")
        for (const Op& op : all_ops()) candidates.add(std::string(op.name));
    if (name == "incident" || name == "verify" || name == "diff") add_incidents(line, candidates);
    if (name == "db" || name == "diff" || name == "path") add_demos("demo:", candidates);
    if (name == "db" || name == "diff" || type == "PATH" || type == "FILE" || type == "TRACE" || type == "STORE")
        candidates.may_be("files");
    if (type == "DIR") candidates.may_be("directories");
    if (type == "COMMAND") candidates.may_be("commands");
}

void add_options(const CLI::App& app, Candidates& candidates) {
    for (const CLI::Option* option : app.get_options([](const CLI::Option* one) { return !one->get_group().empty(); }))
        for (const std::string& name : option->get_lnames()) candidates.add("--" + name, option->get_description());
}

void add_positionals(const Line& line, Candidates& candidates) {
    if (line.command->get_prefix_command()) candidates.may_be("commands");
    const auto all = line.command->get_options([](const CLI::Option* option) { return option->get_positional(); });
    if (all.empty()) return;
    CLI::Option* const last = all.back();
    const bool repeats = last->get_items_expected_max() > 1;
    if (line.positionals < all.size())
        add_values(line, *all[line.positionals], candidates);
    else if (repeats)
        add_values(line, *last, candidates);
}

}  // namespace

int complete(CLI::App& app, std::vector<std::string> words) {
    if (!words.empty() && words.front() == "--") words.erase(words.begin());
    if (words.size() > 1 && words.front() == "help") words.erase(words.begin());
    const Line line = read_line(app, words);
    Candidates candidates(line);
    if (line.runs_command) {
        candidates.may_be(line.command ? "commands" : "words");
    } else if (line.pending) {
        add_values(line, *line.pending, candidates);
    } else if (!line.after_dashes && line.current.starts_with('-')) {
        add_options(app, candidates);
        if (line.command) add_options(*line.command, candidates);
    } else if (!line.command) {
        for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
            candidates.add(command->get_name(), command->get_description());
    } else {
        add_positionals(line, candidates);
    }
    candidates.print();
    return exit_done;
}

}  // namespace ingero::ctl
