// `ingeroctl check` as a person runs it: with and without a daemon, with and without rights, by each way to attach, and
// with real probes on a program of the package.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/model/op.h"
#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace {

constexpr uint32_t someone = 65534;

/// The checks of a name.
std::vector<json> checks_of(const json& answer, const std::string& name) {
    std::vector<json> found;
    for (const json& check : answer.at("checks"))
        if (check.at("name") == name) found.push_back(check);
    return found;
}

std::string state_of(const json& answer, const std::string& name) {
    const auto found = checks_of(answer, name);
    return found.empty() ? "absent" : found[0].at("state").get<std::string>();
}

/// Programs of the check that are still there, by the file they run and their arguments.
std::vector<std::string> left_behind() {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        std::error_code error;
        const std::string program = std::filesystem::read_symlink(entry.path() / "exe", error).string();
        if (error || !program.starts_with(BUILD_DIRECTORY)) continue;
        std::ifstream file(entry.path() / "cmdline");
        std::string arguments;
        std::getline(file, arguments);
        if (program.ends_with("-target") || arguments.find("--check") != std::string::npos ||
            program.find("harmed-target") != std::string::npos)
            found.push_back(program + " " + arguments);
    }
    return found;
}

class CheckCommand : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }
    void TearDown() override { EXPECT_THAT(left_behind(), testing::IsEmpty()); }

    /// The answer, which must fit the schema.
    json parse(const Finished& finished) {
        const json answer = json::parse(finished.output, nullptr, false);
        if (!answer.is_object()) {
            ADD_FAILURE() << finished.output << finished.errors;
            return {{"checks", json::array()}, {"ready", false}, {"probe", nullptr}};
        }
        EXPECT_EQ(finished.status, answer.at("ready") == true ? 0 : 4) << finished.errors;
        const std::string file = directory_ / "answer.json";
        std::ofstream(file) << finished.output;
        const Finished valid = test::run(
            {"/usr/bin/python3", VALIDATE_SCHEMA, std::string(SCHEMA_DIRECTORY) + "/check.schema.json", file});
        if (valid.status != 77) {
            EXPECT_EQ(valid.status, 0) << valid.errors << finished.output;
        }
        return answer;
    }
    json ingeroctl(const std::string& socket, std::vector<std::string> arguments, const ChildOptions& options = {}) {
        std::vector<std::string> command = {INGEROCTL_PROGRAM, "--socket", socket, "--json", "check"};
        command.insert(command.end(), arguments.begin(), arguments.end());
        return parse(test::run(command, options));
    }
    json ingerod(std::vector<std::string> arguments) {
        std::vector<std::string> command = {INGEROD_PROGRAM, "--config",    "/dev/null",        "--check",
                                            "--json",        "--directory", directory_ / "none"};
        command.insert(command.end(), arguments.begin(), arguments.end());
        return parse(test::run(command));
    }

    const TemporaryDirectory directory_;
};

TEST_F(CheckCommand, without_a_daemon_has_ingerod_say_the_same_as_from_it) {
    const json local = ingeroctl("/nonexistent/s", {});
    EXPECT_EQ(state_of(local, "control-socket"), "note");
    EXPECT_EQ(state_of(local, "daemon"), "absent");
    EXPECT_EQ(local.at("ready"), true) << local.dump(1);

    Daemon daemon(directory_ / "run");
    const json asked = ingeroctl(daemon.socket(), {});
    EXPECT_EQ(state_of(asked, "control-socket"), "pass");
    EXPECT_EQ(state_of(asked, "daemon"), "pass");
    EXPECT_EQ(asked.at("ready"), true) << asked.dump(1);
    for (const char* name : {"kernel", "btf", "bpf", "uprobe-session", "uprobe-multi", "perf-uprobe", "attach",
                             "capabilities", "lockdown", "mmap-records", "return-probes", "clock", "worker"}) {
        ASSERT_FALSE(checks_of(local, name).empty()) << name;
        EXPECT_EQ(checks_of(local, name), checks_of(asked, name)) << name;
    }
    EXPECT_EQ(state_of(ingeroctl(daemon.socket(), {"--local"}), "daemon"), "absent");
    EXPECT_EQ(daemon.stop(), 0);
}

TEST_F(CheckCommand, names_the_libraries_that_a_program_uses_to_who_may_see_it) {
    Workload workload({"calls", "--count", "10", "--op", "launch"},
                      {.environment = {}, .uid = someone, .drop_capabilities = false});
    const std::string pid = std::to_string(workload.pid());
    const auto mapped = [](const json& answer) {
        std::string text;
        for (const json& check : checks_of(answer, "mapped-library")) text += check.dump() + "\n";
        return text;
    };
    EXPECT_THAT(mapped(ingeroctl("/nonexistent/s", {})), HasSubstr("libcudart.so")) << "without a daemon";

    Daemon daemon(directory_ / "run");
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const ChildOptions as_owner{.environment = {}, .uid = someone, .drop_capabilities = false},
        as_other{.environment = {}, .uid = someone - 1, .drop_capabilities = false};
    const std::string all = mapped(ingeroctl(daemon.socket(), {})),
                      own = mapped(ingeroctl(daemon.socket(), {}, as_owner)),
                      others = mapped(ingeroctl(daemon.socket(), {}, as_other));
    for (const std::string& seen : {all, own}) {
        EXPECT_THAT(seen, HasSubstr("libcudart.so"));
        EXPECT_THAT(seen, HasSubstr("libcuda.so"));
        EXPECT_THAT(seen, HasSubstr("used by 1 process, traced: "));
        EXPECT_THAT(seen, HasSubstr(" single-stepped"));
    }
    EXPECT_EQ(others, "");
    workload.open_gate();
    EXPECT_EQ(workload.finish(), 0);
    EXPECT_EQ(daemon.stop(), 0);
}

TEST_F(CheckCommand, without_rights_is_not_ready_and_says_which_are_missing) {
    const ChildOptions no_rights{.environment = {}, .uid = someone, .drop_capabilities = false};
    const json answer = ingeroctl("/nonexistent/s", {"--probe"}, no_rights);
    EXPECT_EQ(answer.at("ready"), false);
    EXPECT_EQ(state_of(answer, "bpf"), "fail");
    EXPECT_EQ(state_of(answer, "attach"), "fail");
    EXPECT_EQ(state_of(answer, "capabilities"), "fail");
    EXPECT_EQ(state_of(answer, "mmap-records"), "fail");
    EXPECT_EQ(state_of(answer, "probe-events"), "fail");
    EXPECT_EQ(state_of(answer, "return-probes"), state_of(ingerod({}), "return-probes")) << "takes no right to tell";
    EXPECT_EQ(answer.at("probe"), nullptr);
    for (const char* name :
         {"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE"})
        EXPECT_THAT(checks_of(answer, "capabilities")[0].at("detail").get<std::string>(), HasSubstr(name));

    Daemon daemon(directory_ / "run");
    EXPECT_EQ(ingeroctl(daemon.socket(), {}, no_rights).at("ready"), true) << "the daemon has the rights";
    const Finished refused = test::run({INGEROCTL_PROGRAM, "--socket", daemon.socket(), "check", "--probe"}, no_rights);
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.errors, HasSubstr("only root may ask the daemon to probe"));
    EXPECT_EQ(daemon.stop(), 0);
}

class CheckProbe : public CheckCommand, public testing::WithParamInterface<AttachWay> {
  protected:
    static void expect_all_came_back(const json& answer) {
        EXPECT_EQ(state_of(answer, "probe-events"), "pass") << answer.dump(1);
        EXPECT_EQ(state_of(answer, "probe-seccomp"), "pass") << answer.dump(1);
        ASSERT_TRUE(answer.at("probe").is_object());
        EXPECT_EQ(answer.at("probe").at("attach_method"), GetParam().name);
        EXPECT_EQ(answer.at("probe").at("calls"), 1000);
        EXPECT_EQ(answer.at("probe").at("events"), 1000);
        // An emulated probe, entry and return: far from nothing and from a millisecond on any machine.
        EXPECT_GT(answer.at("probe").at("cost_ns"), 50);
        EXPECT_LT(answer.at("probe").at("cost_ns"), 1'000'000);
        std::cout << GetParam().name << ": " << answer.at("probe").at("cost_ns") << " ns a traced call\n";
    }
};

TEST_P(CheckProbe, shows_that_events_come_back_from_a_program_also_under_a_seccomp_filter) {
    std::vector<std::string> arguments = GetParam().options;
    arguments.emplace_back("--probe");
    const json answer = ingerod(arguments);
    // Of perf uprobes it may also say which right a service needs for them.
    EXPECT_THAT(checks_of(answer, "attach")[0].at("detail").get<std::string>(), StartsWith(GetParam().name));
    expect_all_came_back(answer);
}

TEST_P(CheckProbe, is_done_by_a_daemon_beside_what_it_traces) {
    Daemon daemon(directory_ / "run", GetParam().options);
    Workload workload({"calls", "--count", "100", "--op", "launch"});
    const auto pid = static_cast<uint32_t>(workload.pid());
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    expect_all_came_back(ingeroctl(daemon.socket(), {"--probe"}));
    workload.open_gate();
    EXPECT_EQ(workload.finish(), 0);
    EXPECT_EQ(daemon.stop(), 0);
    // Other programs of this host may be in it too, but none that the check has run.
    const StoreContents store = read_store(daemon.store());
    const auto own = [&](const Event& event) {
        const Op* op = find_op(event.op);
        return event.tgid == pid && op && op->op_class == OpClass::launch;
    };
    EXPECT_EQ(std::count_if(store.events.begin(), store.events.end(), own), 200);
    for (const Process& process : store.processes)
        EXPECT_NE(process.comm.substr(0, 12), "ingero-probe") << process.comm;
}

INSTANTIATE_TEST_SUITE_P(All, CheckProbe,
                         testing::ValuesIn(once_under_sanitizers<AttachWay>({
                             {"uprobe-session", {}},
                             {"uprobe-multi", by_uprobe_multi},
                             {"perf-uprobe", by_perf_uprobes},
                         })),
                         name_of_parameter<AttachWay>);

TEST_F(CheckCommand, tells_of_a_program_that_tracing_harms_under_a_filter) {
    const json answer = ingerod({"--probe", "--probe-target", HARMED_FILTERED});
    EXPECT_EQ(state_of(answer, "probe-events"), "pass") << answer.dump(1);
    EXPECT_EQ(state_of(answer, "probe-seccomp"), "fail");
    EXPECT_EQ(answer.at("ready"), false);
    EXPECT_THAT(checks_of(answer, "probe-seccomp")[0].at("detail").get<std::string>(), HasSubstr("signal 11"));
}

TEST_F(CheckCommand, tells_which_call_came_back_otherwise_than_made) {
    const json answer = ingerod({"--probe", "--probe-target", HARMED_ARGUMENT});
    EXPECT_EQ(state_of(answer, "probe-events"), "fail");
    EXPECT_EQ(checks_of(answer, "probe-events")[0].at("detail"), "call 500 came back with bytes 1 in place of 4595");
    EXPECT_EQ(answer.at("probe"), nullptr);
}

TEST_F(CheckCommand, tells_of_programs_of_the_package_that_are_missing_or_no_programs) {
    const json no_target = ingerod({"--probe", "--probe-target", "/nonexistent/target"});
    EXPECT_EQ(state_of(no_target, "probe-events"), "fail");
    const json no_elf = ingerod({"--probe", "--probe-target", "/etc/passwd"});
    EXPECT_EQ(state_of(no_elf, "probe-events"), "fail");
    const json no_worker = ingerod({"--probe", "--worker", "/nonexistent/worker"});
    EXPECT_EQ(state_of(no_worker, "worker"), "fail");
    EXPECT_EQ(state_of(no_worker, "probe-events"), "fail");
}

TEST_F(CheckCommand, prints_plain_text_with_what_to_do) {
    const Finished text = test::run({INGEROCTL_PROGRAM, "--socket", "/nonexistent/s", "check"});
    EXPECT_EQ(text.status, 0) << text.output << text.errors;
    EXPECT_THAT(text.output, HasSubstr("note  control-socket "));
    EXPECT_THAT(text.output, HasSubstr("\n      fix: start it with: systemctl enable --now ingerod"));
    EXPECT_THAT(text.output, StartsWith("Ready, node "));
    EXPECT_THAT(text.output, Not(HasSubstr("\x1b"))) << "colours away from a terminal";
    const Finished denied = test::run({INGEROD_PROGRAM, "--config", "/dev/null", "--check", "--deny-feature", "bpf"});
    EXPECT_EQ(denied.status, 4);
    EXPECT_THAT(denied.output, HasSubstr("FAIL  bpf"));
    EXPECT_THAT(denied.output, HasSubstr("denied by option"));
}

}  // namespace
