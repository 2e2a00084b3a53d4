#include <memory>

#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

struct StacksOptions {
    WindowOptions window;
    std::string op;
    std::string by = "op";
    bool off_cpu = false;
    bool folded = false;
    uint32_t limit = 50;
};

int run(const Options& options, const StacksOptions& stacks) {
    auto params = stacks.window.to_params(options);
    if (!params) return usage_error("stacks", params.error());
    if (!stacks.op.empty()) (*params)["op"] = stacks.op;
    (*params)["by"] = stacks.by;
    (*params)["off_cpu"] = stacks.off_cpu;
    (*params)["limit"] = stacks.limit;
    int exit_code = exit_done;
    const auto answer = ask(options, "stacks", std::move(*params), exit_code);
    if (!answer) return exit_code;
    if (!print(options, *answer, stacks.folded ? folded_stacks : text_stacks)) return exit_failed;
    return covers_nothing(*answer) ? exit_partial : exit_done;
}

}  // namespace

void add_stacks(CLI::App& app, Command& command) {
    const auto stacks = std::make_shared<StacksOptions>();
    CLI::App* subcommand =
        app.add_subcommand("stacks", "Show the native stacks from which traced calls were made, over a window");
    stacks->window.add_to(*subcommand);
    subcommand->add_option("--op", stacks->op, "Only calls of this operation, such as cudaLaunchKernel")
        ->type_name("NAME");
    subcommand->add_option("--by", stacks->by, "Group stacks by op, process or kernel (default: op)")
        ->type_name("WHAT")
        ->check(one_of({"op", "process", "kernel"}));
    subcommand->add_flag("--off-cpu", stacks->off_cpu,
                         "Weight stacks by their time off the CPU, not by their total time");
    subcommand->add_flag("--folded", stacks->folded, "One line a stack, as flame graph tools read them");
    subcommand
        ->add_option("-n,--limit", stacks->limit, "At most this many stacks, those with the most time (default: 50)")
        ->type_name("STACKS")
        ->check(whole_number(1, 10'000));
    add_examples(*subcommand, {{"Where do the launches of a process come from?",
                                "ingeroctl stacks --pid 4711 --op cudaLaunchKernel"},
                               {"Where do calls sleep?", "ingeroctl stacks --off-cpu --limit 5"}});
    subcommand->callback(
        [&command, stacks] { command = [stacks](const Options& options) { return run(options, *stacks); }; });
}

}  // namespace ingero::ctl
