// Every symbol of the tables, called once and more on the stand-in libraries: what was recorded of each call is what
// the libraries say of it.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "core/model/op.h"
#include "core/symbols/elf_symbols.h"
#include "daemon/ingerod/probes/attach/targets.h"
#include "test_paths.h"
#include "tests/support/daemon.h"
#include "tests/support/side_by_side.h"

using namespace ingero;
using namespace ingero::test;

namespace {

/// Jumps to cudaLaunchKernel_ptsz with its caller's frame: the log has what it jumps to. In version 13 it does
/// nothing else: it is another name of that one, and not recorded by itself.
constexpr std::string_view jumping = "__cudaLaunchKernel_ptsz", jumped_to = "cudaLaunchKernel_ptsz";
/// Before a thread's first call has set a context its device is not known; the library says 0.
constexpr size_t most_unknown_devices = 2;

/// The table's symbols that the library exports, by where they begin.
std::map<uint64_t, std::set<std::string>> exported(Library library, const std::string& path) {
    std::map<uint64_t, std::set<std::string>> functions;
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const auto symbols = read_function_symbols(file.get(), symbol_names(library), false);
    if (!symbols) {
        ADD_FAILURE() << path << ": " << symbols.error().message;
        return functions;
    }
    for (const FunctionSymbol& symbol : symbols->functions)
        functions[symbol.jumps_to != 0 ? symbol.jumps_to : symbol.file_offset].insert(symbol.name);
    return functions;
}

struct Way {
    const char* name;
    const char* cudart;
    std::vector<std::string> options;
};

class EverySymbol : public testing::TestWithParam<Way> {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }
};

TEST_P(EverySymbol, is_recorded_as_it_was_called) {
    const auto& [way, cudart, options] = GetParam();
    const TemporaryDirectory directory;
    const std::string log = directory / "truth";
    Daemon daemon(directory / "run", options);
    Workload workload({"every", "--cudart", cudart, "--log", log, "--standin", "devices=2", "--tail-jump"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const auto pid = static_cast<uint32_t>(workload.pid());
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0) << workload.child().output() << workload.child().errors();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const auto truth = standin::GroundTruth::open(log);
    ASSERT_TRUE(truth);
    const StoreContents store = read_store(daemon.store());
    const std::vector<Process> rows = rows_of(store, pid);
    ASSERT_EQ(rows.size(), 1u);
    const SideBySide trace = lay_side_by_side(*truth, store.events, rows[0].key);
    std::set<std::string> succeeded;
    std::map<uint32_t, uint64_t> known_from_ns;  // of each thread, when a call first returned with its device
    for (const Event& event : trace.events) {
        if (event.device == INGERO_DEVICE_UNKNOWN) continue;
        const auto [known, added] = known_from_ns.try_emplace(event.tid, event.end_ns());
        known->second = std::min(known->second, event.end_ns());
    }
    size_t jumps = 0, unknown_devices = 0;
    uint64_t inside_jump_until_ns = 0;
    for (size_t i = 0; i < trace.calls.size(); ++i) {
        const standin::Record& call = *trace.calls[i];
        const std::string name(truth->name(call));
        ASSERT_LT(i + jumps, trace.events.size()) << "nothing was recorded of " << name;
        if (name == jumped_to && trace.events[i + jumps].op == *op_of_function(jumping)) {
            inside_jump_until_ns = trace.events[i + jumps].end_ns();
            EXPECT_EQ(trace.events[i + jumps].args[0], call.args[0]);
            succeeded.emplace(jumping);
            jumps++;
            ASSERT_LT(i + jumps, trace.events.size());
        }
        const Event& event = trace.events[i + jumps];
        EXPECT_EQ(event.tid, call.tid) << name;
        expect_same(call, name, trace.depths[i] + (call.start_ns < inside_jump_until_ns), event);
        if (event.device == INGERO_DEVICE_UNKNOWN && event.end_ns() < known_from_ns[event.tid])
            unknown_devices++;
        else
            EXPECT_EQ(event.device, call.device) << name;
        if (call.result == 0) succeeded.insert(name);
        ASSERT_FALSE(HasFailure()) << "call " << i << " of " << trace.calls.size();
    }
    EXPECT_EQ(trace.events.size(), trace.calls.size() + jumps);
#if defined(__x86_64__)
    EXPECT_EQ(jumps != 0, cudart == std::string_view(CUDART12_LIBRARY));
#endif
    EXPECT_LE(unknown_devices, most_unknown_devices);

    size_t walked = 0;
    for (const auto& [library, path] : {std::pair(Library::cuda_runtime, std::string(cudart)),
                                        std::pair(Library::cuda_driver, std::string(CUDA_LIBRARY))}) {
        for (const auto& [offset, names] : exported(library, path)) {
            const bool called = std::any_of(names.begin(), names.end(),
                                            [&](const std::string& name) { return succeeded.contains(name); });
            EXPECT_TRUE(called) << *names.begin() << " was never called with success";
            walked += names.size();
        }
    }
    std::cout << trace.calls.size() << " calls of " << walked << " symbols, device not known in " << unknown_devices
              << "\n";

    std::map<uint64_t, std::string> stored;
    for (const FunctionRow& function : store.functions)
        if (function.process.pid == pid) stored[function.handle] = function.name;
    size_t named = 0;
    for (const auto* call : trace.calls) {
        if (call->kernel_name == 0 || call->result != 0) continue;
        named++;
        const std::string_view name = truth->kernel_name(call->pid, call->args[0]);
        EXPECT_EQ(stored[call->args[0]], name.substr(0, INGERO_MAX_NAME - 1)) << truth->name(*call);
    }
    EXPECT_GT(named, 0u);
}

INSTANTIATE_TEST_SUITE_P(with, EverySymbol,
                         testing::ValuesIn(once_under_sanitizers<Way>({
                             {"runtime_12", CUDART12_LIBRARY, {}},
                             {"runtime_13", CUDART13_LIBRARY, {}},
                             {"uprobe_multi", CUDART12_LIBRARY, by_uprobe_multi},
                             {"perf_uprobes", CUDART13_LIBRARY, by_perf_uprobes},
                         })),
                         name_of_parameter<Way>);

}  // namespace
