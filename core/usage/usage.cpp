#include "core/usage/usage.h"

#include <algorithm>
#include <charconv>

#include "core/model/text/closest_word.h"

namespace ingero {

namespace {

std::string see_help(const CLI::App& app, const CLI::App* command) {
    return "see '" + app.get_name() + (command ? " " + command->get_name() : "") + " --help'";
}

std::vector<std::string> commands_of(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); }))
        names.push_back(command->get_name());
    return names;
}

void add_options(const CLI::App& app, std::vector<std::string>& names) {
    for (const CLI::Option* option : app.get_options())
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
}

Error unknown_option(const CLI::App& app, const CLI::App* command, const std::string& given) {
    const std::string option = given.substr(0, given.find('='));
    const std::string of = command ? " of '" + command->get_name() + "'" : "";
    const std::string hint = see_help(app, command);
    std::vector<std::string> known;
    add_options(app, known);
    if (command) add_options(*command, known);
    if (command && std::find(known.begin(), known.end(), option) != known.end())
        return {ErrorCode::bad_request, "'" + option + "' is an option" + of,
                "write it after '" + command->get_name() + "'"};
    std::string what = "unknown option '" + option + "'" + of;
    if (const std::string meant = closest_word(option, known); !meant.empty())
        return {ErrorCode::bad_request, what + did_you_mean(meant), hint};
    std::string others;
    for (const CLI::App* other : app.get_subcommands([](const CLI::App*) { return true; })) {
        std::vector<std::string> theirs;
        add_options(*other, theirs);
        if (std::find(theirs.begin(), theirs.end(), option) != theirs.end())
            others += (others.empty() ? "" : ", ") + other->get_name();
    }
    return {ErrorCode::bad_request, what + (others.empty() ? "" : "; it is one of " + others), hint};
}

/// CLI11 puts "--option: " before it.
constexpr std::string_view wants = "wants ";
std::string not_wanted(const std::string& wanted, const std::string& given) {
    return std::string(wants) + wanted + ", not '" + given + "'";
}

/// In our words, where CLI11 has others.
std::string reason_of(const CLI::ParseError& error) {
    std::string reason = error.what();
    if (const size_t at = reason.find(" excludes ");
        dynamic_cast<const CLI::ExcludesError*>(&error) && at != std::string::npos)
        return reason.substr(0, at) + " and " + reason.substr(at + 10) + " exclude each other";
    const size_t colon = reason.find(": ");
    if (colon == std::string::npos) return reason;
    if (reason.compare(colon + 2, wants.size(), wants) == 0) return reason.erase(colon, 1);
    if (!dynamic_cast<const CLI::ArgumentMismatch*>(&error)) return reason;
    const std::string option = reason.substr(0, colon);
    if (reason.find("At Most") != std::string::npos) return option + " is given more than once";
    const size_t digit = reason.find_first_of("0123456789", colon);
    const std::string count = digit == std::string::npos ? "1" : reason.substr(digit, reason.find(' ', digit) - digit);
    return option + " wants " + (count == "1" ? "a value" : count + " values");
}

}  // namespace

CLI::Validator whole_number(uint64_t least, uint64_t most, const std::string& what) {
    const std::string range = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
    const std::string wanted = what.empty() ? range : what;
    return CLI::Validator(
        [=](const std::string& text) {
            uint64_t value = 0;
            const char* const end = text.data() + text.size();
            const auto [at, error] = std::from_chars(text.data(), end, value);
            // CLI11 takes 010 for eight.
            const bool is_octal = text.size() > 1 && text.front() == '0';
            const bool fits = error == std::errc{} && at == end && !is_octal && value >= least && value <= most;
            return fits ? std::string() : not_wanted(wanted, text);
        },
        "");
}

CLI::Validator one_of(const std::vector<std::string>& values) {
    return CLI::Validator(
        [values](const std::string& text) {
            if (std::find(values.begin(), values.end(), text) != values.end()) return std::string();
            const std::string all_but_last = CLI::detail::join(std::vector(values.begin(), values.end() - 1), ", ");
            return not_wanted(all_but_last + " or " + values.back(), text);
        },
        "", CLI::detail::join(values, ","));
}

std::vector<std::string> values_of(CLI::Option& option) {
    std::string names;
    try {
        names = option.get_validator(0)->get_name();
    } catch (const CLI::OptionNotFound&) {
    }
    return names.empty() ? std::vector<std::string>{} : CLI::detail::split(names, ',');
}

Error explain_usage(const CLI::App& app, const CLI::ParseError& error, const HintForWord& hint_for_word) {
    const auto chosen = app.get_subcommands();
    const CLI::App* command = chosen.empty() ? nullptr : chosen.front();
    auto unknown = app.remaining(true);
    // What a command of its own is given is none of ours.
    if (command && command->get_prefix_command() && !unknown.empty()) unknown.resize(1);
    const std::string hint = see_help(app, command);
    // The options behind a misspelt command are that one's.
    const auto commands = commands_of(app);
    if (!commands.empty() && !command && !unknown.empty() && !unknown.front().starts_with('-'))
        return {ErrorCode::bad_request,
                "unknown command '" + unknown.front() + "'" + did_you_mean(closest_word(unknown.front(), commands)),
                hint};
    // CLI11 reports what is missing before the word that it did not know.
    for (const std::string& word : unknown)
        if (word.starts_with('-') && word != "--" && word != "-") return unknown_option(app, command, word);
    if (!command && dynamic_cast<const CLI::RequiredError*>(&error))
        return {ErrorCode::bad_request, "a command is missing", hint};
    if (!unknown.empty() && dynamic_cast<const CLI::ExtrasError*>(&error)) {
        const std::string& word = unknown.front();
        const std::string behind = command ? " after '" + command->get_name() + "'" : "";
        const std::string of_word = command && hint_for_word ? hint_for_word(word, *command) : "";
        return {ErrorCode::bad_request, "unexpected word '" + word + "'" + behind, of_word.empty() ? hint : of_word};
    }
    return {ErrorCode::bad_request, reason_of(error), hint};
}

}  // namespace ingero
