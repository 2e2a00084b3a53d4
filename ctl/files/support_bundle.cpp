#include "ctl/files/support_bundle.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>

#include "core/model/time.h"
#include "core/model/unique_fd.h"
#include "core/render/table.h"
#include "core/wire/client.h"
#include "core/wire/utf8.h"
#include "ctl/ask/check_locally.h"
#include "ctl/files/support_parts.h"
#include "ctl/files/tar.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr const char* folder = "ingero-support/";
constexpr const char* default_configuration = "/etc/ingero/ingerod.conf";
constexpr const char* default_store = "/var/lib/ingero";
constexpr uint64_t ns_per_day = 86'400'000'000'000;

struct BundleCommand {
    std::string output;
    std::string configuration = default_configuration;
    bool list = false;
};

/// One file of the bundle.
struct Part {
    const char* name;
    const char* holds;
    const char* without;  ///< what was there and is left out; empty: nothing
    std::function<Result<std::string>()> read;
};

/// A path says who uses the host, but for those of the system and of its libraries. Up to what may end one in a
/// sentence.
std::string without_paths(const std::string& text) {
    static const std::regex own(
        "(^|[^A-Za-z0-9._-])/(?!(usr|opt|lib[0-9]*)/[^,:;]*/lib[^/,:;]*\\.so|etc/|run/|sys/|proc/|"
        "var/lib/ingero)[^,:;]*");
    return std::regex_replace(text, own, "$1(path)");
}

/// An answer of the daemon's: what it says of programs is gone, whoever asks.
void strip(json& value) {
    constexpr std::array<std::string_view, 9> of_programs = {"comm",    "command", "command_line", "environ",  "labels",
                                                             "request", "unit",    "cgroup",       "container"};
    if (value.is_string()) value = without_paths(value.get<std::string>());
    if (value.is_object())
        for (const std::string_view key : of_programs) value.erase(std::string(key));
    // A runtime that is linked into a program goes by that program's name.
    const auto hide = [](json& name) {
        if (name.is_string() && !name.get_ref<const std::string&>().starts_with("lib")) name = "(program)";
    };
    if (value.is_object() && value.contains("library")) hide(value["library"]);
    if (value.is_object() && value.contains("missing_probes"))
        for (json& name : value["missing_probes"]) hide(name);
    if (value.is_structured())
        for (json& member : value) strip(member);
}

std::string to_line(json value) {
    strip(value);
    return value.dump(1, ' ', true, json::error_handler_t::replace) + "\n";
}

/// Who answers. Nothing of it is reported: that there is no daemon is what a bundle is made for.
class Asked {
  public:
    explicit Asked(const Options& options) : options_(options) {
        auto client = ControlClient::connect(options.socket, {.client = "ingeroctl " INGERO_VERSION});
        if (client)
            client_.emplace(std::move(*client));
        else
            why_not_ = client.error();
    }

    Result<json> ask(const std::string& method, json params = json::object()) {
        constexpr std::chrono::seconds timeout{60};
        if (!client_) return tl::unexpected(why_not_);
        return client_->call(method, std::move(params), timeout);
    }
    Result<std::string> text(const std::string& method) {
        auto answer = ask(method);
        if (!answer) return tl::unexpected(answer.error());
        return to_line(std::move(*answer));
    }
    Result<std::string> check() {
        auto answer = client_ ? ask("check") : check_locally(options_, false);
        if (!answer) return tl::unexpected(answer.error());
        return to_line(std::move(*answer));
    }
    /// Of the last day; the answer's own part is left out.
    Result<std::string> coverage() {
        auto answer = ask("incidents", {{"since_ns", ns_per_day}, {"limit", 1}});
        if (!answer) return tl::unexpected(answer.error());
        json result;
        for (const char* key : {"window", "coverage", "missing_probes"}) result[key] = answer->value(key, json());
        // "refused: python: exited before it could be checked for CUDA": the kind of the gap, and not whose.
        const json::json_pointer gaps("/coverage/gaps");
        if (result.contains(gaps) && result[gaps].is_array())
            for (json& gap : result[gaps])
                gap["reason"] = gap.value("reason", "").substr(0, gap.value("reason", "").find(':'));
        return to_line(std::move(result));
    }
    Result<std::string> store() {
        if (!client_) {
            const auto directory = find_store(default_store);
            if (!directory) return tl::unexpected(directory.error());
            auto info = ask_closed_store(*directory, "db_info");
            if (!info) return tl::unexpected(info.error());
            return to_line(std::move(*info));
        }
        const auto status = ask("status");
        if (!status) return tl::unexpected(status.error());
        // How many rows each table has is not worth the time that a large store takes.
        auto sessions = ask("query", {{"sql", "SELECT count(*) AS sessions FROM sessions"}, {"limit", 1}});
        json result = {{"store", status->value("store", json())}, {"events", status->value("events", json())}};
        if (sessions) result["sessions"] = sessions->value("rows", json());
        return to_line(std::move(result));
    }
    std::string version() {
        const auto status = ask("status");
        utsname kernel{};
        uname(&kernel);
        const json result = {{"ingeroctl", INGERO_VERSION},
                             {"ingerod", status ? status->value("version", json()) : json()},
                             {"kernel", {{"release", kernel.release}, {"version", kernel.version}}},
                             {"machine", kernel.machine},
                             {"distribution", distribution()},
                             {"cpus", sysconf(_SC_NPROCESSORS_CONF)},
                             {"memory_bytes", static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                                  static_cast<uint64_t>(sysconf(_SC_PAGESIZE))},
                             {"asked_as_root", geteuid() == 0}};
        return to_line(result);
    }

  private:
    static std::string distribution() {
        std::ifstream file("/etc/os-release");
        for (std::string line; std::getline(file, line);)
            if (line.starts_with("PRETTY_NAME=")) return line.substr(line.find('=') + 1);
        return "unknown";
    }

    const Options& options_;
    std::optional<ControlClient> client_;
    Error why_not_;
};

std::vector<Part> parts_of(Asked& asked, const BundleCommand& command) {
    return {
        {"version.json", "versions, kernel, distribution, CPUs and memory", "",
         [&] { return Result<std::string>(asked.version()); }},
        {"check.json", "what this host offers for tracing: ingeroctl check", "paths of programs",
         [&] { return asked.check(); }},
        {"status.json", "what ingerod does, what it recorded and lost", "", [&] { return asked.text("status"); }},
        {"probes.json", "what probes are attached to, and how often each was hit", "paths of programs",
         [&] { return asked.text("probes"); }},
        {"coverage.json", "what was not recorded in the last day, by kind", "whose calls",
         [&] { return asked.coverage(); }},
        {"store.json", "how the store is made up", "its events", [&] { return asked.store(); }},
        {"configuration.toml", "switches, numbers, sizes and durations of ingerod.conf(5)",
         "comments, names, paths, patterns", [&] { return read_configuration(command.configuration); }},
        {"units.txt", "state of the systemd units", "environment, command lines", [] { return read_units(); }},
        {"journal.jsonl", "messages of ingerod: time, kind and priority",
         "their text, except for starts, stops and losses", [] { return read_journal(); }},
        {"bpf.jsonl", "BPF programs of this host", "their code and maps", [] { return list_bpf_programs(); }},
    };
}

json manifest_of(const std::vector<Part>& parts, std::vector<TarFile>& ret_files) {
    json files = json::array();
    for (const Part& part : parts) {
        const auto content = part.read();
        // A reason may name a path of the caller's own; what was wrong is enough.
        files.push_back({{"name", part.name},
                         {"bytes", content ? json(content->size()) : json()},
                         {"holds", part.holds},
                         {"left_out", part.without},
                         {"missing", content ? json() : json(without_paths(content.error().message))}});
        if (content) ret_files.push_back({std::string(folder) + part.name, *content});
    }
    return {
        {"schema", "ingero/support-bundle/1"}, {"output", nullptr}, {"bytes", nullptr}, {"files", std::move(files)}};
}

std::string text_manifest(const json& manifest, const TextStyle& style) {
    Table table({{"FILE", Align::left},
                 {"BYTES", Align::right},
                 {"HOLDS", Align::left, true},
                 {"LEFT OUT", Align::left, true}});
    std::string missing;
    for (const json& file : manifest["files"]) {
        const std::string name = file["name"].get<std::string>();
        if (file["bytes"].is_null())
            missing += "missing: " + name + ": " + escape_text(file["missing"].get<std::string>()) + "\n";
        else
            table.add_row({name, format_count(file["bytes"].get<uint64_t>()), file["holds"].get<std::string>(),
                           file["left_out"].get<std::string>()});
    }
    std::string text = table.render(style.width) + missing +
                       "No file holds arguments or names of programs, environment, or ids or labels of requests.\n";
    if (manifest["output"].is_string())
        text += "Written: " + escape_text(manifest["output"].get<std::string>()) + ", " +
                format_bytes(manifest["bytes"].get<uint64_t>()) + "\n";
    return text;
}

/// It is made anew, for its owner only: nobody else's file is written to.
Result<void> write_new(const std::string& path, std::string_view content) {
    UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file)
        return fail(ErrorCode::denied, errno_message("cannot create " + path, errno),
                    "name another file with --output");
    while (!content.empty()) {
        const ssize_t written = write(file.get(), content.data(), content.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            const int error = errno;
            unlink(path.c_str());
            return fail(ErrorCode::internal, errno_message("cannot write " + path, error));
        }
        content.remove_prefix(static_cast<size_t>(written));
    }
    return {};
}

std::string usual_name() {
    std::string time = format_time(ClockTriple::now().realtime_ns).substr(0, sizeof "2026-11-20T14:32:05" - 1);
    std::replace(time.begin(), time.end(), ':', '-');
    return "ingero-support-" + time + ".tar.zst";
}

int run(const Options& options, const BundleCommand& command) {
    if (!options.db.empty())
        return usage_error("support-bundle", {ErrorCode::bad_request, "support-bundle cannot be used with --db", ""});
    choose_zone(options);
    Asked asked(options);
    std::vector<TarFile> files;
    json manifest = manifest_of(parts_of(asked, command), files);
    if (!command.list) {
        files.insert(files.begin(), {std::string(folder) + "manifest.json", manifest["files"].dump(1) + "\n"});
        const auto packed = compress_zstd(make_tar(files, ClockTriple::now().realtime_ns / 1'000'000'000));
        if (!packed) return report("support-bundle", packed.error(), exit_failed);
        const std::string output = command.output.empty() ? usual_name() : command.output;
        if (auto written = write_new(output, *packed); !written)
            return report("support-bundle", written.error(), exit_failed);
        manifest["output"] = to_valid_utf8(output);
        manifest["bytes"] = packed->size();
    }
    return print(options, manifest, text_manifest) ? exit_done : exit_failed;
}

}  // namespace

void add_support_bundle(CLI::App& app, Command& command) {
    const auto wanted = std::make_shared<BundleCommand>();
    CLI::App* subcommand = app.add_subcommand(
        "support-bundle",
        "Make a file for support: the state of ingerod and the host, no arguments or names of programs");
    subcommand
        ->add_option("-o,--output", wanted->output, "The file to write (default: ingero-support-TIME.tar.zst here)")
        ->type_name("FILE");
    subcommand
        ->add_option("--config", wanted->configuration, "The daemon's configuration file, where it is not the default")
        ->type_name("FILE");
    subcommand->add_flag("--list", wanted->list, "List what the file would hold, and write no file");
    add_examples(*subcommand, {{"What would it hold?", "ingeroctl support-bundle --list"},
                               {"The file to send", "ingeroctl support-bundle -o bundle.tar.zst"}});
    subcommand->callback(
        [&command, wanted] { command = [wanted](const Options& options) { return run(options, *wanted); }; });
}

}  // namespace ingero::ctl
