#include "ctl/files/footprint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

#include "core/model/time.h"
#include "core/render/footprint.h"
#include "ctl/gated_command.h"
#include "ctl/live/interrupts.h"
#include "ctl/source.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr uint64_t look_every_ns = 200'000'000;
constexpr int no_such_command = 127;

/// What ended it.
Result<std::string> wait_for_end(Source& source, std::optional<uint64_t> duration_ns, const Interrupts& interrupts) {
    const uint64_t begin_ns = monotonic_now_ns();
    for (;;) {
        const uint64_t passed_ns = monotonic_now_ns() - begin_ns;
        if (duration_ns && passed_ns >= *duration_ns) return std::string("duration");
        const auto state = source.ask("footprint", json::object());
        if (!state) return tl::unexpected(state.error());
        if (state->value("ended", json(false)) == true) return std::string("exit");
        const uint64_t left_ns = duration_ns ? *duration_ns - passed_ns : look_every_ns;
        if (interrupts.wait(std::min(left_ns, look_every_ns))) return std::string("interrupt");
    }
}

/// Whatever is printed from now on goes to the file.
Result<void> print_to(const std::string& path) {
    const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file || std::fflush(stdout) != 0 || dup2(file.get(), STDOUT_FILENO) < 0)
        return fail(ErrorCode::denied, errno_message("cannot write " + path, errno));
    return {};
}

/// Begun already, of the process or of the command, which is let go.
Result<json> record(Source& source, std::optional<GatedCommand>& command, std::optional<uint64_t> duration_ns,
                    const Interrupts& interrupts) {
    if (command)
        if (auto runs = command->let_go(); !runs) return tl::unexpected(runs.error());
    const auto end = wait_for_end(source, duration_ns, interrupts);
    if (!end) return tl::unexpected(end.error());
    auto footprint = source.ask("footprint", {{"finish", true}});
    if (footprint) (*footprint)["ended"] = *end;
    return footprint;
}

}  // namespace

int record_footprint(const Options& options, const FootprintCommand& wanted) {
    int exit_code = exit_done;
    const auto source = open_source(options, "record", exit_code);
    if (!source) return exit_code;
    std::optional<GatedCommand> command;
    {
        const Interrupts interrupts;
        if (!wanted.command.empty()) {
            auto started = GatedCommand::start(wanted.command, interrupts.before());
            if (!started) return report("record", started.error(), exit_failed);
            command.emplace(std::move(*started));
        }
        const uint32_t pid = command ? static_cast<uint32_t>(command->pid()) : wanted.pid;
        if (const auto begun = source->ask("footprint", {{"pid", pid}}); !begun)
            return report("record", begun.error(), exit_failed);
        if (!command)
            std::fprintf(stderr, "ingeroctl: recording what process %u touches; ^C ends the recording\n", pid);
        const auto footprint = record(*source, command, wanted.duration_ns, interrupts);
        if (!footprint)
            return report("record", footprint.error(),
                          command && footprint.error().code == ErrorCode::not_found ? no_such_command : exit_failed);
        if (!wanted.output.empty())
            if (auto opened = print_to(wanted.output); !opened) return report("record", opened.error(), exit_failed);
        if (!print(options, *footprint, text_footprint)) return exit_failed;
    }
    // What goes on after its recording has ended can be interrupted.
    return command ? command->wait() : exit_done;
}

}  // namespace ingero::ctl
