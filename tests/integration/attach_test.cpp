// Libraries are found and traced whichever way they come and whatever the kernel offers.
#include <bpf/btf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/model/op.h"
#include "daemon/ingerod/probes/kernel/kernel_features.h"
#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using testing::HasSubstr;
using testing::Not;

namespace {

class Attach : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    /// The calls of a traced run of 2,000 launches, and the session.
    StoreContents trace(std::vector<std::string> daemon_options, std::vector<std::string> workload_options) {
        const TemporaryDirectory directory;
        Daemon daemon(directory / "run", std::move(daemon_options));
        std::vector<std::string> arguments = {"calls", "--count", "2000", "--rate", "10000", "--op", "launch"};
        arguments.insert(arguments.end(), workload_options.begin(), workload_options.end());
        Workload workload(arguments);
        EXPECT_TRUE(daemon.wait_traced(workload.pid())) << daemon.process().output();
        workload.open_gate();
        EXPECT_EQ(workload.finish(), 0);
        EXPECT_EQ(daemon.stop(), 0);
        return read_store(daemon.store());
    }

    static size_t launches(const StoreContents& store, uint8_t source) {
        return static_cast<size_t>(std::count_if(store.events.begin(), store.events.end(), [&](const Event& event) {
            return event.op == make_op(source, source == source_cuda ? 3 : 1);
        }));
    }
};

struct Method : AttachWay {
    const char* declared;  ///< in the kernel's enum bpf_attach_type where it offers the method; null: it always does
};

/// By the kernel's BTF, and so not by what the daemon finds out by trying.
bool kernel_declares(const char* attach_type) {
    if (!attach_type) return true;
    const std::unique_ptr<btf, decltype(&btf__free)> types(btf__load_vmlinux_btf(), btf__free);
    const int id = types ? btf__find_by_name_kind(types.get(), "bpf_attach_type", BTF_KIND_ENUM) : -1;
    if (id < 0) return false;
    const btf_type* type = btf__type_by_id(types.get(), static_cast<uint32_t>(id));
    const struct btf_enum* values = btf_enum(type);
    return std::any_of(values, values + btf_vlen(type), [&](const struct btf_enum& value) {
        return std::string_view(btf__name_by_offset(types.get(), value.name_off)) == attach_type;
    });
}

void PrintTo(const Method& method, std::ostream* stream) {
    *stream << method.name;
}

class AttachMethods : public Attach, public testing::WithParamInterface<Method> {};

TEST_P(AttachMethods, records_runtime_and_driver_calls_with_their_depth) {
    if (!kernel_declares(GetParam().declared)) GTEST_SKIP() << "this kernel has no " << GetParam().name;
    const StoreContents store = trace(GetParam().options, {});
    ASSERT_EQ(store.sessions.size(), 1u);
    EXPECT_EQ(store.sessions[0].attach_method, GetParam().name);
    EXPECT_EQ(launches(store, source_cuda), 2000u);
    EXPECT_EQ(launches(store, source_driver), 2000u);
    EXPECT_EQ(store.lost(), 0u);
    for (const Event& event : store.events) {
        if (event.op == op::cudaLaunchKernel) {
            EXPECT_EQ(event.depth, 0);
        }
        if (event.op == op::cuLaunchKernel) {
            EXPECT_EQ(event.depth, 1);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, AttachMethods,
                         testing::Values(Method{{"uprobe-session", {}}, "BPF_TRACE_UPROBE_SESSION"},
                                         Method{{"uprobe-multi", by_uprobe_multi}, "BPF_TRACE_UPROBE_MULTI"},
                                         Method{{"perf-uprobe", by_perf_uprobes}, nullptr}),
                         name_of_parameter<Method>);

TEST_F(Attach, by_default_the_best_method_is_used) {
    KernelFeatures features;
    const StoreContents store = trace({}, {});
    ASSERT_EQ(store.sessions.size(), 1u);
    EXPECT_EQ(store.sessions[0].attach_method, to_string(features.attach_method()));
    EXPECT_EQ(launches(store, source_cuda), 2000u);
    EXPECT_EQ(store.lost(), 0u);
}

TEST_F(Attach, a_library_that_is_already_mapped_is_found_by_scanning) {
    const TemporaryDirectory directory;
    Workload workload({"calls", "--count", "100", "--op", "launch"});
    Daemon daemon(directory / "run");
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0);
    // What the answer rests on.
    const nlohmann::json found =
        daemon.call("query", {{"sql",
                               "SELECT state, functions > 50, length(build_id) FROM libraries "
                               "WHERE library IN ('libcudart', 'libcuda') AND file LIKE '%/lib/libcuda%'"}});
    const nlohmann::json attached = {"attached", 1, 40};
    EXPECT_EQ(found.at("rows"), nlohmann::json::array({attached, attached})) << found.dump();
    ASSERT_EQ(daemon.stop(), 0);
    EXPECT_EQ(launches(read_store(daemon.store()), source_cuda), 100u);
}

TEST_F(Attach, a_library_loaded_late_is_found_as_it_is_mapped) {
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    Workload workload({"calls", "--count", "100000000", "--rate", "20000", "--op", "launch", "--late-load"});
    const int pid = workload.pid();
    workload.open_gate();
    // What was called before the probes were in place cannot be seen.
    EXPECT_TRUE(wait_until([&] {
        uint64_t calls = 0;
        const nlohmann::json stats = daemon.call("stats", {{"pid", pid}});
        for (const nlohmann::json& op : stats.at("ops")) calls += op.at("count").get<uint64_t>();
        return calls > 10'000;
    })) << daemon.process().output();
    workload.child().signal(SIGKILL);
    workload.finish();
    EXPECT_EQ(daemon.stop(), 0);
}

class StaticRuntime : public Attach, public testing::WithParamInterface<bool> {};

TEST_P(StaticRuntime, inside_a_program_is_found_by_the_symbols_of_the_program) {
    const bool program_first = GetParam();
    const TemporaryDirectory directory;
    std::optional<Workload> workload;
    const std::vector<std::string> arguments = {"calls", "--count", "1000", "--op", "launch", "--load", "static"};
    if (program_first) workload.emplace(arguments);
    Daemon daemon(directory / "run");
    if (!program_first) workload.emplace(arguments);
    ASSERT_TRUE(daemon.wait_attached("standin-workload-static")) << daemon.process().output();
    ASSERT_TRUE(daemon.wait_traced(workload->pid()));
    const auto pid = static_cast<uint32_t>(workload->pid());
    workload->open_gate();
    ASSERT_EQ(workload->finish(), 0);
    ASSERT_EQ(daemon.stop(), 0);
    StoreContents store = read_store(daemon.store());
    std::erase_if(store.events, [&](const Event& event) { return event.tgid != pid; });
    EXPECT_EQ(launches(store, source_cuda), 1000u);
    EXPECT_EQ(launches(store, source_driver), 1000u);
    for (const Event& event : store.events) {
        if (event.op == op::cudaLaunchKernel) {
            EXPECT_EQ(event.depth, 0);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Attach, StaticRuntime, testing::Bool(), [](const auto& info) {
    return info.param ? "that_runs_when_the_daemon_starts" : "that_starts_later";
});

TEST_F(Attach, a_program_with_the_runtime_inside_is_named_only_to_who_runs_it_or_sees_all) {
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    constexpr uint32_t owner = 12'345, stranger = 12'346;
    const std::string name = "standin-workload-static";
    Workload program({"calls", "--count", "10", "--op", "launch", "--load", "static"},
                     {.environment = {}, .uid = owner, .drop_capabilities = false, .wanted_pid = {}});
    Workload library({"calls", "--count", "10", "--op", "launch"});
    ASSERT_TRUE(daemon.wait_attached(name)) << daemon.process().output();
    ASSERT_TRUE(daemon.wait_traced(library.pid()));
    const auto probes_as = [&](uint32_t uid) {
        const Finished probes =
            test::run({INGEROCTL_PROGRAM, "--socket", daemon.socket(), "--json", "probes"},
                      {.environment = {}, .uid = uid, .drop_capabilities = false, .wanted_pid = {}});
        EXPECT_EQ(probes.status, 0) << probes.errors;
        return probes.output;
    };
    EXPECT_THAT(probes_as(owner), HasSubstr(name));
    const std::string strange = probes_as(stranger);
    EXPECT_THAT(strange, Not(HasSubstr(name)));
    EXPECT_THAT(strange, HasSubstr("libcudart.so")) << "root's files are everybody's";
}

TEST_F(Attach, two_copies_of_the_runtime_are_both_traced) {
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    Workload old_one({"calls", "--count", "500", "--op", "launch"});
    Workload new_one({"calls", "--count", "700", "--op", "launch", "--cudart", CUDART13_LIBRARY});
    ASSERT_TRUE(daemon.wait_traced(old_one.pid()));
    ASSERT_TRUE(daemon.wait_traced(new_one.pid()));
    const uint32_t old_pid = static_cast<uint32_t>(old_one.pid()), new_pid = static_cast<uint32_t>(new_one.pid());
    old_one.open_gate();
    new_one.open_gate();
    ASSERT_EQ(old_one.finish(), 0);
    ASSERT_EQ(new_one.finish(), 0);
    ASSERT_EQ(daemon.stop(), 0);
    const StoreContents store = read_store(daemon.store());
    EXPECT_EQ(launches(store, source_cuda), 1200u);
    std::set<uint32_t> pids;
    for (const Process& process : store.processes) pids.insert(process.key.pid);
    EXPECT_TRUE(pids.contains(old_pid) && pids.contains(new_pid));
}

TEST_F(Attach, the_arguments_of_launches_copies_and_allocations_are_read) {
    const TemporaryDirectory directory;
    const std::string log = directory / "truth";
    Daemon daemon(directory / "run");
    Workload workload({"calls", "--count", "4000", "--op", "mixed", "--log", log});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0);
    ASSERT_EQ(daemon.stop(), 0);
    const auto truth = standin::GroundTruth::open(log);
    ASSERT_TRUE(truth);
    std::map<OpId, uint64_t> logged_bytes, traced_bytes;
    for (const standin::Record& record : truth->records())
        if (const auto op = op_of_function(truth->name(record))) logged_bytes[*op] += record.bytes;
    for (const Event& event : read_store(daemon.store()).events) {
        const Op* op = find_op(event.op);
        ASSERT_TRUE(op);
        if (op->op_class == OpClass::alloc || op->op_class == OpClass::copy) traced_bytes[event.op] += event.args[0];
        if (op->op_class == OpClass::alloc && event.return_code == 0) {
            EXPECT_NE(event.args[1], 0u);
        }
        if (op->op_class == OpClass::launch) {
            EXPECT_GE(event.args[1] & 0xffffffff, 1u) << "grid x";
        }
    }
    ASSERT_FALSE(traced_bytes.empty());
    for (const auto& [op, bytes] : traced_bytes) EXPECT_EQ(bytes, logged_bytes[op]) << op_name(op);
}

TEST_F(Attach, a_user_sees_only_their_own_processes) {
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    constexpr uint32_t someone = 65534, someone_else = 65533;
    Workload workload({"calls", "--count", "1000", "--op", "launch"},
                      {.environment = {}, .uid = someone, .drop_capabilities = false});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const int pid = workload.pid();
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0);
    daemon.call_when_stored("stats", {{"pid", pid}});
    const std::vector<std::string> stats = {INGEROCTL_PROGRAM, "--socket", daemon.socket(), "--json", "stats"};
    const Finished root = test::run(stats);
    const Finished owner = test::run(stats, {.environment = {}, .uid = someone, .drop_capabilities = false});
    const Finished other = test::run(stats, {.environment = {}, .uid = someone_else, .drop_capabilities = false});
    for (const Finished* one : {&root, &owner, &other}) EXPECT_EQ(one->status, 0) << one->errors;
    EXPECT_FALSE(nlohmann::json::parse(root.output).at("ops").empty());
    const nlohmann::json own = nlohmann::json::parse(owner.output).at("ops");
    EXPECT_GE(own.size(), 2u) << owner.output;
    for (const nlohmann::json& row : own) EXPECT_EQ(row.at("pid"), pid) << owner.output;
    EXPECT_TRUE(nlohmann::json::parse(other.output).at("ops").empty()) << other.output;
    EXPECT_EQ(daemon.stop(), 0);
}

}  // namespace
