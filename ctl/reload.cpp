// ingeroctl reload: the daemon reads its configuration again, and what it says of it.
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

std::string joined(const nlohmann::json& keys) {
    std::string text;
    for (const auto& key : keys) text += (text.empty() ? "" : ", ") + escape_text(key.get<std::string>());
    return text;
}

int run_reload(const Options& options) {
    int exit_code = exit_failed;
    const auto answer = ask(options, "reload", nlohmann::json::object(), exit_code);
    if (!answer) return exit_code;
    return print(options, *answer,
                 [](const nlohmann::json& result, const TextStyle&) {
                     const std::string changed = joined(result.value("changed", nlohmann::json::array()));
                     const std::string later = joined(result.value("needs_restart", nlohmann::json::array()));
                     std::string text = "changed: " + (changed.empty() ? "nothing" : changed) + "\n";
                     if (!later.empty()) text += "needs a restart: " + later + "\n";
                     return text;
                 })
               ? exit_done
               : exit_failed;
}

}  // namespace

void add_reload(CLI::App& app, Command& command) {
    auto* reload = app.add_subcommand("reload", "Have the daemon read its configuration again (root only)");
    add_examples(*reload, {{"After a change of /etc/ingero/ingerod.conf, as root", "ingeroctl reload"}});
    reload->callback([&command] { command = run_reload; });
}

}  // namespace ingero::ctl
