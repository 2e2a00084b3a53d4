// ingeroctl top: what traced programs do, again and again.

#include "core/render/top.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/model/call_time.h"
#include "core/model/time.h"
#include "core/render/text.h"
#include "ctl/command.h"
#include "ctl/help.h"
#include "ctl/live/interrupts.h"
#include "ctl/live/terminal.h"
#include "ctl/live/top_answer.h"

namespace ingero::ctl {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr uint64_t least_interval_ns = 500'000'000;
constexpr uint64_t most_interval_ns = 3'600'000'000'000;
constexpr size_t most_filter_bytes = 64;

struct TopOptions {
    std::string interval = "2s";
    std::string sort = "lost";
    std::optional<uint32_t> pid;
    bool once = false;
};

/// What the daemon is looked at through on a screen, whose keys wait for it.
constexpr std::chrono::seconds screen_patience{10};

int report_look(const TopLook& look) {
    const Error& error = look.answer.error();
    const bool is_absent = error.code == ErrorCode::not_found || error.code == ErrorCode::deadline;
    return report(look.connected ? "top" : "connect", error,
                  !look.connected && is_absent ? exit_not_ready : exit_failed);
}

/// Prints a look, and with `again` further ones until it is interrupted or nobody reads.
int print_looks(const Options& options, const TopView& view, const TopQuestion& question, bool again) {
    std::optional<Interrupts> interrupts;
    if (again) interrupts.emplace();
    for (;;) {
        const TopLook look = look_for_top(options, question);
        if (!look.answer) return report_look(look);
        if (!look.sees_all && top_pids(*look.answer, view).empty()) note_that_others_are_hidden(options);
        const bool printed = print(options, *look.answer, [&view](const json& answer, const TextStyle& style) {
            return text_top(answer, view, style);
        });
        if (!printed) return exit_failed;
        if (!again || interrupts->wait(question.since_ns)) return exit_done;
    }
}

/// The screen, the keys, and what they choose.
class Screen {
  public:
    Screen(const Options& options, Terminal& terminal, TopView view, uint64_t interval_ns, TopLook first)
        : options_(options),
          terminal_(terminal),
          view_(std::move(view)),
          interval_(interval_ns),
          answer_(std::move(*first.answer)),
          sees_all_(first.sees_all) {}

    void run() {
        auto due = steady_clock::now() + interval_;
        while (!is_over_) {
            draw();
            const auto left = std::chrono::ceil<milliseconds>(due - steady_clock::now());
            const Key key = terminal_.read_key(is_paused_ ? longest_wait : std::min(left, longest_wait));
            if (key.what != Key::What::none) {
                take(key);
                continue;
            }
            if (is_paused_ || steady_clock::now() < due) continue;
            look();
            due = steady_clock::now() + interval_;
        }
    }

  private:
    using Nanoseconds = std::chrono::nanoseconds;
    /// A terminal that is resized is drawn anew by then.
    static constexpr milliseconds longest_wait{1'000};

    /// At all calls since the last look.
    void look() {
        const uint64_t seen_ns = text::number(text::member(answer_, "window"), "to_ns").value_or(0);
        const auto interval_ns = static_cast<uint64_t>(interval_.count());
        const uint64_t unseen_ns = saturating_subtract(ClockTriple::now().realtime_ns, seen_ns);
        TopLook look = look_for_top(
            options_, {.since_ns = std::clamp(unseen_ns, interval_ns, 2 * interval_ns), .patience = screen_patience});
        const bool is_gone = !look.answer && look.answer.error().code == ErrorCode::not_found;
        trouble_ = look.answer ? ""
                   : is_gone   ? "the connection to ingerod is lost; reconnecting"
                               : look.answer.error().message;
        if (!look.answer) return;
        answer_ = std::move(*look.answer);
        sees_all_ = look.sees_all;
    }

    void draw() {
        TextStyle style = style_of(options_);
        style.width = terminal_.width();
        // The last line is for the keys, and one for what is amiss.
        const size_t notes = (trouble_.empty() ? 0 : 1) + (sees_all_ ? 0 : 1);
        view_.height = terminal_.height() - std::min<size_t>(terminal_.height(), 1 + notes);
        const auto pids = top_pids(answer_, view_);
        // One that is no longer there leaves the choice to the first.
        if (!pids.empty() && (!view_.pid || std::find(pids.begin(), pids.end(), *view_.pid) == pids.end())) {
            view_.detail = false;
            view_.pid = pids.front();
        }
        std::string text;
        if (!trouble_.empty()) text += escape_text(trouble_) + "\n";
        if (!sees_all_) text += "Your own processes only: root and members of the group ingero see all\n";
        if (view_.height > 0) text += text_top(answer_, view_, style);
        terminal_.show(text, keys_line());
    }

    std::string keys_line() const {
        if (is_typing_) return "Filter: " + view_.filter + "_   enter apply  escape clear";
        std::string line = view_.detail ? "q quit  escape back" : "q quit  up/down select  enter details";
        line += "  s sort: " + std::string(to_string(view_.sort)) + "  / filter" +
                (view_.filter.empty() ? "" : ": " + view_.filter) + "  space " + (is_paused_ ? "resume" : "pause");
        return line;
    }

    void select(int by) {
        const auto pids = top_pids(answer_, view_);
        if (pids.empty()) return;
        const auto found = std::find(pids.begin(), pids.end(), view_.pid.value_or(0));
        const auto at = found == pids.end() ? 0 : found - pids.begin();
        const auto last = static_cast<std::ptrdiff_t>(pids.size()) - 1;
        view_.pid = pids[static_cast<size_t>(std::clamp<std::ptrdiff_t>(at + by, 0, last))];
    }

    void take(const Key& key) {
        using What = Key::What;
        constexpr int page = 10;
        if (is_typing_ && type(key)) return;
        switch (key.what) {
            case What::up:
                return select(-1);
            case What::down:
                return select(1);
            case What::page_up:
                return select(-page);
            case What::page_down:
                return select(page);
            case What::enter:
                view_.detail = !top_pids(answer_, view_).empty();
                return;
            case What::ended:
                is_over_ = true;
                return;
            case What::escape:
                if (!view_.detail) view_.filter.clear();
                view_.detail = false;
                return;
            case What::erase:
                view_.detail = false;
                return;
            case What::character:
                return command(key.character);
            case What::none:
            case What::resized:
                return;
        }
    }

    void command(char character) {
        switch (character) {
            case 'q':
                is_over_ = true;
                return;
            case 'j':
                return select(1);
            case 'k':
                return select(-1);
            case 's':
                view_.sort = static_cast<TopSort>((static_cast<size_t>(view_.sort) + 1) % top_sorts);
                return;
            case '/':
                is_typing_ = true;
                view_.detail = false;
                return;
            case ' ':
                is_paused_ = !is_paused_;
                return;
            default:
                return;
        }
    }

    /// Whether the key belonged to the filter.
    bool type(const Key& key) {
        using What = Key::What;
        if (key.what == What::character) {
            if (view_.filter.size() < most_filter_bytes) view_.filter += key.character;
            return true;
        }
        if (key.what == What::erase) {
            if (!view_.filter.empty()) view_.filter.pop_back();
            return true;
        }
        if (key.what != What::enter && key.what != What::escape) return false;
        if (key.what == What::escape) view_.filter.clear();
        is_typing_ = false;
        return true;
    }

    const Options& options_;
    Terminal& terminal_;
    TopView view_;
    const Nanoseconds interval_;
    json answer_;
    std::string trouble_;  ///< why the answer is an old one; empty: it is not
    bool sees_all_;
    bool is_typing_ = false;
    bool is_paused_ = false;
    bool is_over_ = false;
};

int run(const Options& options, const TopOptions& top) {
    const auto interval = parse_duration_ns(top.interval);
    if (!interval || *interval < least_interval_ns || *interval > most_interval_ns)
        return usage_error(
            "top", {ErrorCode::bad_request, "--interval wants 500ms to 1h, not '" + top.interval + "'", "such as 2s"});
    choose_zone(options);
    TopView view;
    view.sort = parse_top_sort(top.sort).value_or(TopSort::lost);
    view.pid = top.pid;
    view.detail = top.pid.has_value();
    const TopQuestion question{.since_ns = *interval, .pid = top.pid};
    if (top.once || options.json) return print_looks(options, view, question, !top.once);
    TopLook first = look_for_top(options, question);
    if (!first.answer) return report_look(first);
    auto terminal = Terminal::open(style_of(options).colour);
    if (!terminal) return usage_error("top", terminal.error());
    Screen screen(options, *terminal, std::move(view), *interval, std::move(first));
    screen.run();
    return exit_done;
}

}  // namespace

void add_top(CLI::App& app, Command& command) {
    const auto top = std::make_shared<TopOptions>();
    CLI::App* subcommand = app.add_subcommand(
        "top", "Live view of traced programs: calls, waits, time lost, and calls that have not returned");
    subcommand->add_option("-p,--pid", top->pid, "Begin with this process alone")
        ->type_name("PID")
        ->check(process_number());
    subcommand
        ->add_option("--interval", top->interval,
                     "How often to refresh; each refresh covers about that long (default: 2s)")
        ->type_name("DURATION");
    subcommand->add_option("--sort", top->sort, "Which processes come first (default: lost)")
        ->type_name("BY")
        ->check(one_of({"lost", "calls", "longest", "memory", "pid"}));
    subcommand->add_flag("--once", top->once, "Print it once, for scripts and pipes");
    add_examples(*subcommand, {{"Which program loses time, and to what?", "ingeroctl top --once"},
                               {"The same for a script", "ingeroctl top --once --json"}});
    subcommand->callback([&command, top] { command = [top](const Options& options) { return run(options, *top); }; });
}

}  // namespace ingero::ctl
