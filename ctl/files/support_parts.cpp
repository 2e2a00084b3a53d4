#include "ctl/files/support_parts.h"

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "core/model/unique_fd.h"
#include "core/wire/child_process.h"

namespace ingero::ctl {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds tool_timeout{20};
constexpr size_t most_tool_bytes = 8 << 20;
constexpr const char* most_lines = "2000";

/// Whose values say nothing of who uses the host. Of ingerod.conf(5) those that are missing are names, paths and
/// patterns.
constexpr std::array<std::string_view, 23> shown_keys = {
    "capture.stacks",
    "capture.overhead_budget",
    "capture.slices",
    "capture.inflight_floor",
    "capture.wait_floor",
    "diagnosis.close_after",
    "diagnosis.straggler_floor",
    "diagnosis.straggler_step_percent",
    "diagnosis.straggler_late_percent",
    "diagnosis.straggler_ranges",
    "processes.cmdline",
    "relay.gpu_poll",
    "spans.hash_ids",
    "spans.rate",
    "spans.burst",
    "spans.connections",
    "spans.max_span",
    "store.max_size",
    "store.max_age",
    "store.rollup_age",
    "workers.count",
    "workers.memory",
    "workers.deadline",
};

/// A size, a duration or one of the words that a key takes, whatever stands there by mistake.
bool is_plain(const std::string& text) {
    static const std::regex quantity("[0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h|d|B|KiB|MiB|GiB|TiB)?");
    constexpr std::array<std::string_view, 5> words = {"native", "off", "comm", "redacted", "full"};
    return std::regex_match(text, quantity) || std::find(words.begin(), words.end(), text) != words.end();
}

std::string bare_value(std::string_view key, const toml::node& node) {
    if (std::find(shown_keys.begin(), shown_keys.end(), key) == shown_keys.end()) return {};
    if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
    if (const auto number = node.value_exact<int64_t>()) return std::to_string(*number);
    const auto text = node.value_exact<std::string>();
    return text && is_plain(*text) ? "\"" + *text + "\"" : "";
}

Result<std::string> read_file(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf()))
        return fail(errno == EACCES ? ErrorCode::denied : ErrorCode::not_found, errno_message("cannot read", errno));
    return text.str();
}

Result<std::string> run_tool(const char* name, std::vector<std::string> arguments) {
    for (const char* folder : {"/usr/bin/", "/bin/"}) {
        const std::string path = std::string(folder) + name;
        if (access(path.c_str(), X_OK) != 0) continue;
        // What it complains of may be anything, and is not for the terminal.
        arguments.insert(arguments.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>/dev/null", path});
        auto done = run_program(std::move(arguments), {}, tool_timeout, most_tool_bytes);
        if (!done) return tl::unexpected(done.error());
        if (!WIFEXITED(done->status) || WEXITSTATUS(done->status) != 0)
            return fail(ErrorCode::not_found, std::string(name) + " " + describe_wait_status(done->status));
        return std::move(done->text);
    }
    return fail(ErrorCode::not_found, std::string("there is no ") + name);
}

long bpf(bpf_cmd command, bpf_attr& attributes) {
    return syscall(SYS_bpf, command, &attributes, sizeof attributes);
}

json describe_program(int fd) {
    bpf_prog_info info{};
    bpf_attr attributes{};
    attributes.info.bpf_fd = static_cast<uint32_t>(fd);
    attributes.info.info_len = sizeof info;
    attributes.info.info = reinterpret_cast<uint64_t>(&info);
    if (bpf(BPF_OBJ_GET_INFO_BY_FD, attributes) != 0) return {};
    const std::string name(info.name, strnlen(info.name, sizeof info.name));
    return {{"id", info.id},
            {"type", info.type},
            {"name", name},
            {"uid", info.created_by_uid},
            {"jited_bytes", info.jited_prog_len},
            {"runs", info.run_cnt},
            {"run_ns", info.run_time_ns},
            {"maps", info.nr_map_ids}};
}

}  // namespace

Result<std::string> bare_configuration(std::string_view text) {
    toml::parse_result parsed;
    try {
        parsed = toml::parse(text);
    } catch (const toml::parse_error& error) {
        return fail(ErrorCode::bad_request,
                    "it is not valid TOML, at line " + std::to_string(error.source().begin.line));
    }
    std::string result;
    size_t left_out = 0;
    for (const auto& [section, content] : parsed) {
        std::string lines;
        if (const auto* table = content.as_table())
            for (const auto& [key, node] : *table) {
                const std::string name = std::string(section.str()) + "." + std::string(key.str());
                const std::string value = bare_value(name, node);
                if (value.empty())
                    ++left_out;
                else
                    lines += std::string(key.str()) + " = " + value + "\n";
            }
        else
            ++left_out;
        if (!lines.empty()) result += "[" + std::string(section.str()) + "]\n" + lines;
    }
    if (left_out != 0)
        result += "# " + std::to_string(left_out) + " more settings are left out: their values may be private\n";
    return result;
}

Result<std::string> read_configuration(const std::string& path) {
    std::vector<std::string> files = {path};
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path + ".d", error))
        if (entry.path().extension() == ".conf") files.push_back(entry.path().string());
    std::sort(files.begin() + 1, files.end());
    std::string result;
    for (size_t i = 0; i < files.size(); ++i) {
        const auto text = read_file(files[i]);
        if (!text && i == 0) return text;
        const auto bare = text ? bare_configuration(*text) : text;
        result += "# file " + std::to_string(i + 1) + " of " + std::to_string(files.size()) + "\n" +
                  (bare ? *bare : "# left out: " + bare.error().message + "\n");
    }
    return result;
}

Result<std::string> read_units() {
    return run_tool("systemctl",
                    {"show", "--no-pager",
                     "--property=Id,LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts,ExecMainCode,"
                     "ExecMainStatus,StateChangeTimestamp,MemoryCurrent,TasksCurrent,CPUUsageNSec,MemoryMax,CPUWeight",
                     "ingerod.service", "ingero-relay.service", "ingerod-control.socket", "ingerod-spans.socket",
                     "ingerod-annotate.socket", "ingerod-mcp.socket", "ingerod-relay.socket"});
}

json bare_journal_line(std::string_view line) {
    // Started, stopped, and how many events were lost: all others may name programs, paths or values.
    constexpr std::array<std::string_view, 3> kept_texts = {
        "7d40fabd8bb943e18548d838ea946749", "9fd7361290914b1f96b6b085fe341dd5", "94f6c466f4b34e0a9cc971d4f8a3b8a1"};
    const json entry = json::parse(line, nullptr, false);
    const auto field = [&entry](const char* name) {
        return entry.is_object() && entry.contains(name) && entry[name].is_string() ? entry[name].get<std::string>()
                                                                                    : "";
    };
    const std::string kind = field("MESSAGE_ID");
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    if (kind.size() != 32 || !std::all_of(kind.begin(), kind.end(), is_digit)) return {};
    json result = {{"time_us", field("__REALTIME_TIMESTAMP")}, {"message_id", kind}, {"priority", field("PRIORITY")}};
    if (std::find(kept_texts.begin(), kept_texts.end(), kind) != kept_texts.end()) result["message"] = field("MESSAGE");
    return result;
}

Result<std::string> read_journal() {
    const auto lines = run_tool("journalctl", {"--unit=ingerod.service", "--output=json", "--no-pager", "--quiet",
                                               std::string("--lines=") + most_lines});
    if (!lines) return lines;
    std::istringstream stream(*lines);
    std::string result;
    for (std::string line; std::getline(stream, line);)
        if (const json bare = bare_journal_line(line); !bare.is_null())
            result += bare.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
    return result;
}

Result<std::string> list_bpf_programs() {
    std::string result;
    for (uint32_t id = 0;;) {
        bpf_attr next{};
        next.start_id = id;
        if (bpf(BPF_PROG_GET_NEXT_ID, next) != 0) {
            if (errno == ENOENT) return result;
            return fail(ErrorCode::denied, errno_message("the kernel does not list BPF programs", errno));
        }
        id = next.next_id;
        bpf_attr attributes{};
        attributes.prog_id = id;
        const UniqueFd program(static_cast<int>(bpf(BPF_PROG_GET_FD_BY_ID, attributes)));
        if (!program) continue;  // it is gone by now
        result += describe_program(program.get()).dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
    }
}

}  // namespace ingero::ctl
