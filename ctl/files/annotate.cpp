// ingeroctl annotate: reports a span to the daemon, from a shell: a moment, or as long as a command runs.
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>

#include "core/model/time.h"
#include "core/model/unique_fd.h"
#include "core/store/rows/history.h"
#include "core/wire/spawn_plan.h"
#include "core/wire/utf8.h"
#include "core/wire/value.h"
#include "ctl/command.h"
#include "ctl/help.h"

extern char** environ;

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr const char* default_span_socket = "/run/ingero/spans.sock";
constexpr std::chrono::seconds reply_timeout{10};
constexpr const char* where_to_look =
    "the span may be stored or not: see Spans in 'ingeroctl status --all', and 'journalctl -u ingerod'";

struct AnnotateCommand {
    std::string kind = "label";
    std::string id;
    std::vector<std::string> labels;
    std::optional<uint32_t> pid;
    std::string socket;
    std::string lines;  ///< a file of JSON lines, "-" for standard input; empty: none
    std::vector<std::string> command;
};

/// The daemon's end of the span socket.
class SpanConnection {
  public:
    static Result<SpanConnection> open(const std::string& path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (path.size() >= sizeof(address.sun_path))
            return fail(ErrorCode::bad_request, "a socket's path is longer than 107 bytes: " + path);
        path.copy(address.sun_path, path.size());
        SpanConnection connection;
        connection.fd_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!connection.fd_ ||
            connect(connection.fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
            if (errno == EACCES || errno == EPERM)
                return fail(ErrorCode::denied, errno_message("cannot connect to " + path, errno),
                            "the socket and its directory must be open to this user");
            return fail(ErrorCode::not_found, errno_message("cannot reach ingerod at " + path, errno),
                        "start it with 'systemctl enable --now ingerod', or name its span socket with --spans");
        }
        return connection;
    }

    Result<void> send(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno == EINTR) continue;
            if (sent <= 0) return fail(ErrorCode::internal, errno_message("cannot send to ingerod", errno));
            bytes.remove_prefix(static_cast<size_t>(sent));
        }
        return {};
    }

    /// More of what the daemon sends.
    Result<std::string> receive() {
        pollfd asked{fd_.get(), POLLIN, 0};
        const int ready = poll(&asked, 1, static_cast<int>(std::chrono::milliseconds(reply_timeout).count()));
        if (ready == 0)
            return fail(ErrorCode::deadline, "ingerod did not confirm in time that the span is stored", where_to_look);
        std::array<char, 4096> buffer;
        const ssize_t size = ready < 0 ? -1 : recv(fd_.get(), buffer.data(), buffer.size(), 0);
        if (size <= 0) return fail(ErrorCode::internal, "ingerod closed the connection", where_to_look);
        return std::string(buffer.data(), static_cast<size_t>(size));
    }

  private:
    UniqueFd fd_;
};

Result<json> read_reply(SpanConnection& connection) {
    ValueDecoder decoder{RpcLimits{}};
    for (;;) {
        auto value = decoder.next();
        if (!value) return tl::unexpected(value.error());
        if (*value) return std::move(**value);
        const auto bytes = connection.receive();
        if (!bytes) return tl::unexpected(bytes.error());
        decoder.feed(std::as_bytes(std::span(*bytes)));
    }
}

/// What the daemon thinks of it, as an error where it took less than all.
Result<void> check_reply(const json& reply) {
    if (reply.is_object() && reply.value("rejected", uint64_t{0}) == 0) return {};
    std::string reasons;
    if (reply.is_object() && reply.contains("reasons") && reply["reasons"].is_object())
        for (const auto& [why, count] : reply["reasons"].items()) reasons += (reasons.empty() ? "" : ", ") + why;
    return fail(ErrorCode::denied, "ingerod rejected the span: " + (reasons.empty() ? "no reason was sent" : reasons),
                "ingeroctl(1), annotate, explains each reason");
}

Result<json> to_labels(const std::vector<std::string>& texts) {
    json labels = json::object();
    for (const std::string& text : texts) {
        const size_t equals = text.find('=');
        if (equals == std::string::npos || equals == 0)
            return fail(ErrorCode::bad_request, "a label has the form KEY=VALUE, not " + text);
        labels[text.substr(0, equals)] = text.substr(equals + 1);
    }
    return labels;
}

/// Runs the command to its end; its exit code, 128 and the signal's number, or 127 where there is none such.
int run_command(std::vector<std::string> command) {
    const SpawnPlan plan;
    pid_t pid = 0;
    const int error =
        posix_spawnp(&pid, command[0].c_str(), &plan.files, &plan.attributes, spawn_pointers(command).data(), environ);
    if (error != 0) {
        constexpr int no_such_command = 127;
        report(command[0], {ErrorCode::not_found, std::strerror(error), ""}, exit_failed);
        return no_such_command;
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int send_lines(const AnnotateCommand& annotate, SpanConnection& connection) {
    std::ifstream file;
    if (annotate.lines != "-") file.open(annotate.lines);
    if (annotate.lines != "-" && !file)
        return report("annotate", {ErrorCode::not_found, errno_message(annotate.lines, errno), ""}, exit_failed);
    std::istream& input = annotate.lines == "-" ? std::cin : file;
    std::string pending;
    uint64_t sent = 0, refused = 0;
    for (std::string line; std::getline(input, line);) {
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        json fields = json::parse(line, nullptr, false);
        ++sent;
        Result<json> reply = fail(ErrorCode::bad_request, "it is not a JSON object");
        if (fields.is_object()) {
            fields["ack"] = sent;
            const auto gone = connection.send(fields.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
            reply = gone ? Result<json>() : tl::unexpected(gone.error());
        }
        while (reply && pending.find('\n') == std::string::npos) {
            const auto bytes = connection.receive();
            if (!bytes) return report("annotate", bytes.error(), exit_failed);
            pending += *bytes;
        }
        if (reply) {
            const size_t end = pending.find('\n');
            reply = json::parse(pending.substr(0, end), nullptr, false);
            pending.erase(0, end + 1);
        }
        const Result<void> taken = reply ? check_reply(*reply) : tl::unexpected(reply.error());
        if (taken) continue;
        ++refused;
        report("annotate: line " + std::to_string(sent), taken.error(), exit_partial);
    }
    if (refused == 0) return exit_done;
    return refused == sent ? exit_failed : exit_partial;
}

/// A program's as an id may be: without folders, valid UTF-8, and not too long.
std::string name_of(const std::string& program) {
    const std::string name = to_valid_utf8(std::filesystem::path(program).filename().string());
    std::string_view left = name;
    for (size_t length = 0; !left.empty(); left.remove_prefix(length)) {
        length = first_code_point(left).length;
        if (name.size() - left.size() + length > max_span_id_bytes) break;
    }
    return name.empty() ? "command" : name.substr(0, name.size() - left.size());
}

int run_annotate(const AnnotateCommand& annotate, const Options&) {
    const auto labels = to_labels(annotate.labels);
    if (!labels) return usage_error("annotate", labels.error());
    const bool is_named = !annotate.id.empty() || !annotate.labels.empty(), has_command = !annotate.command.empty();
    if (annotate.lines.empty() ? !is_named && !has_command : is_named || has_command)
        return usage_error("annotate",
                           {ErrorCode::bad_request, "name an --id, a --label or a command, or use --lines alone", ""});
    if (annotate.kind == "request" && annotate.id.empty())
        return usage_error("annotate", {ErrorCode::bad_request, "a request needs an --id", ""});
    // Before the command: the daemon then sees which processes are its descendants.
    auto connection = SpanConnection::open(annotate.socket);
    if (!connection && annotate.command.empty())
        return report("annotate", connection.error(),
                      connection.error().code == ErrorCode::not_found ? exit_not_ready : exit_failed);
    if (!annotate.lines.empty()) return send_lines(annotate, *connection);

    json span = {{"kind", annotate.kind}, {"ack", 1}};
    if (!annotate.id.empty())
        span["id"] = annotate.id;
    else if (!is_named)  // its name alone: arguments may hold what is nobody's business
        span["id"] = name_of(annotate.command[0]);
    if (!labels->empty()) span["labels"] = *labels;
    if (annotate.pid) span["pid"] = *annotate.pid;
    span["start"] = monotonic_now_ns();
    const int exit_code = annotate.command.empty() ? exit_done : run_command(annotate.command);
    span["end"] = annotate.command.empty() ? span["start"] : json(monotonic_now_ns());
    Result<void> sent = connection ? connection->send(encode_value(span)) : tl::unexpected(connection.error());
    if (sent) {
        const auto reply = read_reply(*connection);
        sent = reply ? check_reply(*reply) : tl::unexpected(reply.error());
    }
    // The command's own end is what a script wants to know; that its span is not stored is said.
    if (!sent) report("annotate", sent.error(), exit_failed);
    return annotate.command.empty() && !sent ? exit_failed : exit_code;
}

}  // namespace

void add_annotate(CLI::App& app, Command& command) {
    auto annotate = std::make_shared<AnnotateCommand>();
    const char* from_environment = std::getenv("INGERO_SPANS_SOCKET");
    annotate->socket = from_environment && *from_environment ? from_environment : default_span_socket;
    auto* subcommand =
        app.add_subcommand("annotate", "Report a request, step, phase or label to the daemon, as a span");
    subcommand->add_option("--kind", annotate->kind, "request, step, phase or label (default: label)")
        ->type_name("KIND")
        ->check(one_of({"request", "step", "phase", "label"}));
    subcommand
        ->add_option("--id", annotate->id, "The span's id (default, for a command without a label: the command's name)")
        ->type_name("ID");
    subcommand->add_option("--label", annotate->labels, "A label of the span; may be repeated")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    subcommand
        ->add_option("-p,--pid", annotate->pid,
                     "The process that the span belongs to (default: ingeroctl, with the command that it runs)")
        ->type_name("PID")
        ->check(process_number());
    subcommand->add_option("--spans", annotate->socket, "The daemon's span socket")->type_name("PATH");
    subcommand
        ->add_option("--lines", annotate->lines,
                     "Instead, read annotations as JSON lines from a file, or - for standard input")
        ->type_name("FILE");
    // What follows the first word that is no option is the command's, and not looked for among the program's own
    // options.
    subcommand->fallthrough(false);
    subcommand->prefix_command();
    add_examples(*subcommand,
                 {{"Run a command as step 17", "ingeroctl annotate --kind step --id step-17 python3 train.py"},
                  {"Mark a moment, to find it again", "ingeroctl annotate --label deployed=v42"}});
    subcommand->callback([&command, annotate, subcommand] {
        annotate->command = subcommand->remaining();
        // No program, but an option that is not known.
        if (!annotate->command.empty() && annotate->command[0].starts_with('-'))
            throw CLI::ExtrasError(subcommand->get_name(), annotate->command);
        command = [annotate](const Options& options) { return run_annotate(*annotate, options); };
    });
}

}  // namespace ingero::ctl
