#include "ctl/command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "core/wire/client.h"
#include "ctl/live/pager.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

unsigned terminal_width() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    constexpr unsigned usual = 80;
    return usual;
}

/// For what is no terminal; 0: as wide as it takes.
unsigned wanted_width() {
    const char* columns = std::getenv("COLUMNS");
    const std::string_view text = columns ? columns : "";
    unsigned width = 0;
    std::from_chars(text.data(), text.data() + text.size(), width);
    return width;
}

}  // namespace

std::string for_a_shell(const std::string& word) {
    const auto is_plain = [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("_@%+=:,./-").find(static_cast<char>(c)) != std::string_view::npos;
    };
    if (std::all_of(word.begin(), word.end(), is_plain)) return word;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

TextStyle style_of(const Options& options) {
    TextStyle style{
        .width = wanted_width(), .details = options.all, .coverage = options.coverage, .db = for_a_shell(options.db)};
    if (isatty(STDOUT_FILENO) == 0) return style;
    const char* no_colour = std::getenv("NO_COLOR");
    const char* terminal = std::getenv("TERM");
    const bool wanted = !options.no_colour && (!no_colour || *no_colour == '\0');
    style.width = terminal_width();
    style.colour = wanted && terminal && std::string_view(terminal) != "dumb";
    // Programs that read them want the zone.
    style.short_times = !options.utc;
    return style;
}

int report(std::string_view what, const Error& error, int exit_code) {
    const std::string message = "ingeroctl: " + escape_text(what) + ": " + escape_text(error.message) + "\n" +
                                (error.hint.empty() ? "" : "hint: " + escape_text(error.hint) + "\n");
    std::fputs(message.c_str(), stderr);
    return exit_code;
}

int usage_error(std::string_view what, const Error& error) {
    return report(what, error, exit_usage);
}

namespace {

struct Asked {
    Result<json> answer;
    bool connected = false;
    bool sees_all = true;
};

Asked ask_once(const Options& options, const std::string& method, const json& params) {
    auto client = ControlClient::connect(options.socket, {.client = "ingeroctl " INGERO_VERSION});
    if (!client) return {tl::unexpected(client.error()), false};
    const bool sees_all = client->server().value("sees_all", json(true)) != false;
    return {client->call(method, params, answer_patience), true, sees_all};
}

/// An answer about calls or processes that has none.
bool is_empty(const json& answer) {
    if (const auto calls = answer.find("calls"); calls != answer.end() && calls->is_number()) return *calls == 0;
    for (const char* rows : {"ops", "stacks", "requests", "processes", "incidents", "waits"})
        if (const auto list = answer.find(rows); list != answer.end() && list->is_array()) return list->empty();
    return false;
}

}  // namespace

void note_that_others_are_hidden(const Options& options) {
    if (!options.json)
        std::fputs("note: you see your own processes only; root and members of the group ingero see all\n", stderr);
}

std::optional<json> ask(const Options& options, const std::string& method, json params, int& ret_exit_code) {
    if (!options.db.empty()) {
        auto answer = ask_stored(options.db, method, std::move(params));
        if (answer) return std::move(*answer);
        ret_exit_code = report(options.command, answer.error(), exit_failed);
        return std::nullopt;
    }
    Asked asked = ask_once(options, method, params);
    // A daemon that is restarted under the request: its successor answers as well, and to read twice harms nobody.
    const bool cut_off = asked.connected && !asked.answer && asked.answer.error().code == ErrorCode::not_found;
    if (cut_off && method != "reload") asked = ask_once(options, method, params);
    if (asked.answer) {
        // Without this, "nothing" would read as if the host had nothing.
        if (!asked.sees_all && is_empty(*asked.answer)) note_that_others_are_hidden(options);
        return std::move(*asked.answer);
    }
    const ErrorCode code = asked.answer.error().code;
    const bool not_ready = !asked.connected && (code == ErrorCode::not_found || code == ErrorCode::deadline);
    ret_exit_code = report(asked.connected ? options.command : "connect", asked.answer.error(),
                           not_ready ? exit_not_ready : exit_failed);
    return std::nullopt;
}

namespace {

std::string to_text(const Options& options, const json& answer, const Renderer& renderer) {
    choose_zone(options);
    // ASCII only: a target's text inside the JSON cannot play tricks on the terminal either.
    return options.json ? answer.dump(-1, ' ', true, json::error_handler_t::replace) + "\n"
                        : renderer(answer, style_of(options));
}

bool write_all(const std::string& text) {
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return true;
    report("output", {ErrorCode::internal, errno_message("cannot write", errno), ""}, exit_failed);
    return false;
}

}  // namespace

bool is_live_only(std::string_view command) {
    constexpr std::array<std::string_view, 11> names = {"annotate", "status", "probes", "check",  "trace", "monitor",
                                                        "reload",   "import", "merge",  "record", "top"};
    return std::find(names.begin(), names.end(), command) != names.end();
}

void choose_zone(const Options& options) {
    if (!options.utc) return;
    setenv("TZ", "UTC0", 1);
    tzset();
}

bool print(const Options& options, const json& answer, const Renderer& renderer) {
    const std::string text = to_text(options, answer, renderer);
    return options.json ? write_all(text) : print_text(options, text);
}

bool print_text(const Options& options, const std::string& text) {
    return (options.pages && is_longer_than_terminal(text) && show_in_pager(text)) || write_all(text);
}

bool print_line(const Options& options, const json& line, const Renderer& renderer) {
    const std::string text = to_text(options, line, renderer);
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
}

bool is_complete(const json& answer) {
    const auto coverage = answer.find("coverage");
    return coverage != answer.end() && coverage->is_object() && coverage->value("complete", json(false)) == true;
}

bool covers_nothing(const json& answer) {
    const json::json_pointer gaps_at("/coverage/gaps");
    const json::json_pointer from_at("/window/from_ns");
    const json::json_pointer to_at("/window/to_ns");
    if (!answer.contains(gaps_at) || !answer.at(gaps_at).is_array()) return false;
    for (const json& gap : answer.at(gaps_at))
        if (answer.contains(from_at) && answer.contains(to_at) && gap.is_object() &&
            gap.value("partial", json()) != true && gap.value("from_ns", json()) == answer.at(from_at) &&
            gap.value("to_ns", json()) == answer.at(to_at))
            return true;
    return false;
}

}  // namespace ingero::ctl
