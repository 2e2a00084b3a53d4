// ingeroctl export: what is stored, as a file that other tools read. A worker writes the pages, and they are only
// passed on here.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "core/model/unique_fd.h"
#include "ctl/command.h"
#include "ctl/help.h"
#include "ctl/source.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

struct ExportCommand {
    WindowOptions window;
    std::string format;
    std::string output;
};

/// A file, or standard output. A file that did not come to its end is removed.
class Output {
  public:
    Result<void> open(const std::string& path) {
        if (path.empty() || path == "-") return {};
        path_ = path;
        file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
        if (!file_) return fail(ErrorCode::denied, errno_message("cannot write " + path, errno));
        return {};
    }
    Output() = default;
    Output(const Output&) = delete;
    Output& operator=(const Output&) = delete;
    ~Output() {
        struct stat status {};
        if (file_ && !finished_ && fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode)) unlink(path_.c_str());
    }

    bool is_file() const { return static_cast<bool>(file_); }
    uint64_t bytes() const { return bytes_; }
    int fd() const { return file_ ? file_.get() : STDOUT_FILENO; }

    Result<void> write(std::string_view bytes) {
        for (size_t done = 0; done < bytes.size();) {
            const ssize_t n = ::write(fd(), bytes.data() + done, bytes.size() - done);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return fail(ErrorCode::internal, errno_message("cannot write " + name(), errno));
            done += static_cast<size_t>(n);
        }
        bytes_ += bytes.size();
        return {};
    }
    void finish() { finished_ = true; }

  private:
    std::string name() const { return path_.empty() ? "standard output" : path_; }

    std::string path_;
    UniqueFd file_;
    uint64_t bytes_ = 0;
    bool finished_ = false;
};

Result<void> write_parts(const json& answer, Output& output) {
    const auto parts = answer.find("parts");
    if (parts == answer.end() || !parts->is_array()) return fail(ErrorCode::internal, "the answer has no parts");
    for (const json& part : *parts) {
        if (!part.is_binary()) return fail(ErrorCode::internal, "a part of the answer is not binary");
        const auto& bytes = part.get_binary();
        const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        if (auto written = output.write(text); !written) return written;
    }
    return {};
}

/// Page after page; what the first said besides its bytes.
Result<json> write_pages(Source& source, json params, Output& output) {
    json head;
    uint64_t events = 0;
    for (;;) {
        auto answer = source.ask("export", params);
        if (!answer) return tl::unexpected(answer.error());
        if (auto written = write_parts(*answer, output); !written) return tl::unexpected(written.error());
        events += answer->value("events", uint64_t{0});
        json cursor = answer->value("cursor", json());
        if (head.is_null()) {
            answer->erase("parts");
            answer->erase("cursor");
            head = std::move(*answer);
            // The next pages are of the window that this one was, and not of one up to a later now.
            for (const char* key : {"since_ns", "whole_trace"}) params.erase(key);
            params["from_ns"] = head.at("window").at("from_ns");
            params["to_ns"] = head.at("window").at("to_ns");
        }
        if (cursor.is_null()) break;
        params["cursor"] = std::move(cursor);
    }
    head["events"] = events;
    return head;
}

/// As `ingeroctl stacks --folded`, and all of them that one answer holds.
Result<json> write_folded(Source& source, json params, Output& output) {
    constexpr uint32_t most_stacks = 10'000;
    params["limit"] = most_stacks;
    auto answer = source.ask("stacks", std::move(params));
    if (!answer) return answer;
    if (auto written = output.write(folded_stacks(*answer, {})); !written) return tl::unexpected(written.error());
    json head;
    for (const char* key : {"node", "window", "coverage", "missing_probes"}) head[key] = answer->value(key, json());
    head["schema"] = "ingero/export/1";
    head["format"] = "folded";
    head["events"] = answer->value("calls", uint64_t{0});
    head["more"] = answer->value("more", false);
    return head;
}

int run(const Options& options, const ExportCommand& command) {
    auto params = command.window.to_params(options);
    if (!params) return usage_error("export", params.error());
    const bool to_terminal = (command.output.empty() || command.output == "-") && isatty(STDOUT_FILENO) != 0;
    if (to_terminal && command.format == "perfetto")
        return usage_error("export",
                           {ErrorCode::bad_request, "a Perfetto trace is binary, and is not written to a terminal",
                            "name a file with -o"});
    int exit_code = exit_done;
    const auto source = open_source(options, "export", exit_code);
    if (!source) return exit_code;
    Output output;
    if (auto opened = output.open(command.output); !opened) return report("export", opened.error(), exit_failed);
    const bool folded = command.format == "folded";
    if (!folded) (*params)["format"] = command.format;
    auto head =
        folded ? write_folded(*source, std::move(*params), output) : write_pages(*source, std::move(*params), output);
    if (!head) return report("export", head.error(), exit_failed);
    output.finish();
    (*head)["bytes"] = output.bytes();
    // What was exported is on standard output, or else what there is to say of it.
    if (output.is_file() && !print(options, *head, text_export)) return exit_failed;
    if (head->value("more", false))
        return report(
            "export",
            {ErrorCode::limit, "only the 10000 stacks with the most time were written", "export a shorter window"},
            exit_partial);
    return covers_nothing(*head) ? exit_partial : exit_done;
}

}  // namespace

void add_export(CLI::App& app, Command& command) {
    const auto wanted = std::make_shared<ExportCommand>();
    CLI::App* subcommand = app.add_subcommand("export", "Export what is stored to a file that other tools read");
    subcommand
        ->add_option("--format", wanted->format,
                     "perfetto (ui.perfetto.dev), chrome (JSON trace events), csv, jsonl or folded (flame graphs)")
        ->type_name("FORMAT")
        ->required()
        ->check(one_of({"perfetto", "chrome", "csv", "jsonl", "folded"}));
    subcommand->add_option("-o,--output", wanted->output, "The file to write (default: standard output)")
        ->type_name("FILE");
    wanted->window.add_to(*subcommand);
    add_examples(*subcommand, {{"The last ten minutes, for ui.perfetto.dev",
                                "ingeroctl export --since 10m --format perfetto -o trace.pftrace"},
                               {"A flame graph's input", "ingeroctl export --format folded -o stacks.folded"}});
    subcommand->callback(
        [&command, wanted] { command = [wanted](const Options& options) { return run(options, *wanted); }; });
}

}  // namespace ingero::ctl
