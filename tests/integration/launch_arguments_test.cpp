// Parameters as each architecture's calling convention passes them: in registers, on the stack, structures by value.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <stdexcept>

#include "core/model/op.h"
#include "test_paths.h"
#include "tests/standin/libcudart/abi.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

constexpr dim3 grid{11, 12, 13}, block{3, 5, 7};
constexpr uint64_t shared_bytes = 4096 + 17;
constexpr uint64_t packed_grid = uint64_t{11} | uint64_t{12} << 32 | uint64_t{13} << 48;
constexpr uint64_t packed_block = uint64_t{3} | uint64_t{5} << 11 | uint64_t{7} << 22 | shared_bytes << 32;

/// The runtime in this process, and what is traced of one call of each function.
class Arguments : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        if (!why_no_bpf().empty()) return;
        const TemporaryDirectory directory;
        Daemon daemon(directory / "run");
        library = dlopen(CUDART12_LIBRARY, RTLD_NOW);
        ASSERT_TRUE(library) << dlerror();
        function<int()>("standin_load_driver")();
        ASSERT_TRUE(daemon.wait_traced(getpid())) << daemon.process().output();
        register_kernel();
        ASSERT_EQ(function<int(CUstream*, unsigned)>("cudaStreamCreateWithFlags")(&stream, 1), 0);
        ASSERT_NE(stream, nullptr);
        call_each();
        ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
        store = read_store(daemon.store());
    }

    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    /// The one call of a function; a failure and zeros where there is not exactly one.
    static Event traced(const char* name) {
        std::vector<Event> found;
        for (const Event& event : store.events)
            if (event.op == *op_of_function(name) && event.tgid == static_cast<uint32_t>(getpid()))
                found.push_back(event);
        EXPECT_EQ(found.size(), 1u) << name;
        return found.size() == 1 ? found[0] : Event{};
    }

    static void expect_launch(const char* name, int depth) {
        const Event event = traced(name);
        EXPECT_EQ(event.depth, depth);
        EXPECT_EQ(event.return_code, 0);
        EXPECT_EQ(event.args[1], packed_grid) << std::hex << event.args[1];
        EXPECT_EQ(event.args[2], packed_block) << std::hex << event.args[2];
        EXPECT_EQ(event.stream, address_of(stream));
    }

    static uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

    static constexpr size_t width = 96, height = 5;
    static inline char kernel = 0;
    static inline CUstream stream = nullptr;
    static inline void* allocated = nullptr;
    static inline StoreContents store;

  private:
    template <class Signature>
    static Signature* function(const char* name) {
        auto* found = reinterpret_cast<Signature*>(dlsym(library, name));
        if (!found) throw std::runtime_error(std::string("no function ") + name);
        return found;
    }

    static void register_kernel() {
        static char fat_binary = 0;
        void** handle = function<void**(void*)>("__cudaRegisterFatBinary")(&fat_binary);
        function<void(void**, const void*, char*, const char*, int, void*, void*, void*, void*, void*)>(
            "__cudaRegisterFunction")(handle, &kernel, nullptr, "kernel", -1, nullptr, nullptr, nullptr, nullptr,
                                      nullptr);
    }

    static void call_each() {
        auto* launch = function<int(const void*, dim3, dim3, void**, size_t, CUstream)>("cudaLaunchKernel");
        EXPECT_EQ(launch(&kernel, grid, block, nullptr, shared_bytes, stream), 0);

        cudaLaunchConfig_t config{};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
        auto* configured = function<int(const cudaLaunchConfig_t*, const void*, void**)>("cudaLaunchKernelExC");
        EXPECT_EQ(configured(&config, &kernel, nullptr), 0);

        char from[2 * width * height] = {}, to[2 * width * height] = {};
        using Copy = int(void*, size_t, const void*, size_t, size_t, size_t, int, CUstream);
        EXPECT_EQ(
            function<Copy>("cudaMemcpy2DAsync")(to, 2 * width, from, 2 * width, width, height, host_to_host, stream),
            0);
        EXPECT_EQ(function<int(void**, size_t)>("cudaMalloc")(&allocated, 12'345), 0);
    }

    static constexpr int host_to_host = 0;
    static inline void* library = nullptr;
};

TEST_F(Arguments, of_a_launch_are_read_from_registers_stack_and_structures_by_value) {
    expect_launch("cudaLaunchKernel", 0);
    expect_launch("cuLaunchKernel", 1);
    EXPECT_EQ(traced("cudaLaunchKernel").args[0], address_of(&kernel));
    EXPECT_NE(traced("cuLaunchKernel").args[0], 0u) << "the function's handle";
}

TEST_F(Arguments, of_a_configured_launch_are_read_from_the_callers_memory) {
    expect_launch("cudaLaunchKernelExC", 0);
    expect_launch("cuLaunchKernelEx", 1);
    EXPECT_EQ(traced("cudaLaunchKernelExC").args[0], address_of(&kernel));
}

TEST_F(Arguments, of_a_copy_with_eight_parameters_are_read_to_the_last) {
    const Event copy = traced("cudaMemcpy2DAsync");
    EXPECT_EQ(copy.args[0], width * height);
    EXPECT_EQ(copy.args[1], 0u) << "host to host";
    EXPECT_EQ(copy.stream, address_of(stream));
}

TEST_F(Arguments, of_an_allocation_have_the_address_that_came_back) {
    EXPECT_EQ(traced("cudaMalloc").args[0], 12'345u);
    EXPECT_EQ(traced("cudaMalloc").args[1], address_of(allocated));
}

TEST_F(Arguments, of_no_call_are_lost) {
    EXPECT_EQ(store.lost_to_rings(), 0u);
}

}  // namespace
