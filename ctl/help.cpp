#include "ctl/help.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "core/render/table.h"
#include "ctl/command.h"

namespace ingero::ctl {

namespace {

constexpr size_t help_width = 80;

class HelpFormatter final : public CLI::Formatter {
  public:
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
        std::string text = make_description(app) + make_usage(app, name) + make_positionals(app) +
                           make_subcommands(app, mode) + make_groups(app, mode);
        while (text.ends_with("\n\n")) text.pop_back();
        return text + "\n" + make_footer(app);
    }
    std::string make_subcommand(const CLI::App* sub) const override {
        return entry(sub->get_name(), sub->get_description());
    }
    std::string make_option(const CLI::Option* option, bool is_positional) const override {
        return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
    }
    /// The type says how many values there are, and the description what the option is not used with.
    std::string make_option_opts(const CLI::Option* option) const override {
        std::string opts = CLI::Formatter::make_option_opts(option);
        opts.resize(std::min(opts.find(" Excludes:"), opts.size()));
        const std::string times = " x " + std::to_string(option->get_expected_min());
        if (opts.ends_with(times)) opts.resize(opts.size() - times.size());
        return opts;
    }
    std::string make_option_desc(const CLI::Option* option) const override {
        std::string text = CLI::Formatter::make_option_desc(option);
        for (const CLI::Option* other : option->get_excludes()) text += "; not with " + other->get_name();
        return text;
    }

  private:
    std::string entry(const std::string& name, const std::string& description) const {
        std::ostringstream out;
        const std::string wrapped = wrap_text(description, help_width - get_column_width(), 0);
        CLI::detail::format_help(out, name, wrapped, get_column_width());  // which indents further lines
        return out.str();
    }
};

}  // namespace

void add_examples(CLI::App& command, std::initializer_list<Example> examples) {
    std::string text = "Examples:\n";
    for (const Example& example : examples)
        text += "  " + std::string(example.what) + "\n    " + std::string(example.line) + "\n";
    command.footer(text + "\nCommon options and exit codes: ingeroctl --help; full manual: man ingeroctl");
}

CLI::Validator process_number() {
    return whole_number(1, INT32_MAX, "a process number");
}

std::shared_ptr<CLI::Formatter> help_formatter() {
    auto formatter = std::make_shared<HelpFormatter>();
    formatter->label("SUBCOMMAND", "COMMAND");
    formatter->label("OPTIONS", "OPTION...");
    formatter->column_width(28);
    return formatter;
}

Error explain_usage(const CLI::App& app, const CLI::ParseError& error) {
    return ingero::explain_usage(app, error, [](const std::string& word, const CLI::App& command) -> std::string {
        std::error_code ignored;
        const bool is_recording =
            !is_live_only(command.get_name()) && (word.starts_with("demo:") || std::filesystem::exists(word, ignored));
        if (!is_recording) return {};
        return "to ask a recording: ingeroctl --db " + for_a_shell(word) + " " + command.get_name();
    });
}

}  // namespace ingero::ctl
