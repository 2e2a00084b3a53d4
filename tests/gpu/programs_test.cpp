// Programs built by nvcc, with NVIDIA's own runtime beside them or inside: each call is recorded under its name and
// with its return code, as the program counted it. Without a GPU every call returns an error, and is one all the same.
#include <gtest/gtest.h>

#include <map>

#include "core/model/op.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

/// How often, by operation and return code.
using Calls = std::map<std::pair<std::string, int64_t>, uint64_t>;

class GpuProgram : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = WHY_NO_GPU_PROGRAMS; !why.empty()) GTEST_SKIP() << why;
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    static Calls made(const json& answer) {
        Calls calls;
        for (const auto& [function, results] : answer.at("calls").items()) {
            const auto op = op_of_function(function);
            EXPECT_TRUE(op) << function << " is counted and not traced";
            for (const auto& [result, count] : results.items())
                calls[{op ? op_name(*op) : function, std::stoll(result)}] += count.get<uint64_t>();
        }
        return calls;
    }

    /// The calls that the program itself makes: of the driver, or of the runtime after the gate.
    static Calls traced(const StoreContents& store, uint32_t pid, bool driver) {
        Calls calls;
        for (const Event& event : store.events) {
            const bool by_driver = op_name(event.op).starts_with("cu") && !op_name(event.op).starts_with("cuda");
            const bool before_gate = op_name(event.op) == "__cudaRegisterFunction";
            if (event.tgid == pid && by_driver == driver && !before_gate)
                calls[{op_name(event.op), event.return_code}]++;
        }
        return calls;
    }

    /// Runs the program behind its gates and compares.
    void expect_traced(const std::vector<std::string>& command, int gates, bool driver) {
        const TemporaryDirectory directory;
        Daemon daemon(directory / "run");
        Child program(command);
        for (int gate = 0; gate < gates; ++gate) {
            ASSERT_TRUE(program.wait_for_line("ready")) << program.output() << program.errors();
            ASSERT_TRUE(daemon.wait_traced(program.pid())) << daemon.process().output();
            program.write_line("go");
        }
        const auto pid = static_cast<uint32_t>(program.pid());
        const auto line = program.wait_for_line("calls");
        ASSERT_TRUE(line) << program.output() << program.errors();
        EXPECT_EQ(program.wait(), 0);
        EXPECT_EQ(daemon.stop(), 0) << daemon.process().output();
        const StoreContents store = read_store(daemon.store());
        const Calls own = made(json::parse(*line));
        EXPECT_GT(own.size(), 5u) << *line;
        EXPECT_EQ(traced(store, pid, driver), own);
        EXPECT_EQ(store.lost(), 0u);
    }
};

class GpuPrograms : public GpuProgram, public testing::WithParamInterface<const char*> {};

TEST_P(GpuPrograms, each_call_of_a_program_with_the_runtime_beside_it_is_recorded_with_its_result) {
    expect_traced({std::string(GPU_PROGRAMS "/") + GetParam() + "-shared", "--gate", "--rounds", "20"}, 2, false);
}

TEST_P(GpuPrograms, each_call_of_a_program_with_the_runtime_inside_is_recorded_with_its_result) {
    expect_traced({std::string(GPU_PROGRAMS "/") + GetParam() + "-static", "--gate", "--rounds", "20"}, 2, false);
}

INSTANTIATE_TEST_SUITE_P(All, GpuPrograms,
                         testing::Values("vector_add", "vector_add_ptds", "streams", "graphs", "errors"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(GpuProgram, each_call_into_the_driver_is_recorded_with_its_result) {
    const std::string stub = DRIVER_STUB;
    if (stub.empty()) GTEST_SKIP() << "this CUDA toolkit has no stub of the driver's library";
    expect_traced({GPU_PROGRAMS "/driver", "--gate", "--rounds", "20", "--driver", stub}, 1, true);
}

}  // namespace
