// `every`: launches, what waits for them, and graphs.
#include "every.h"

namespace ingero::standin {

namespace {

using Fate = Every::Fate;
using HostFunction = void (*)(void*);

// Two, to tell them apart by address.
void host_function(void*) {}
void other_host_function(void* data) {
    *static_cast<int*>(data) += 1;
}

void* function_of(Every& every, size_t index) {
    return every.functions.at(index % every.functions.size());
}

void call_runtime_launches(Every& every) {
    using Launch = int(const void*, Dim3, Dim3, void**, size_t, void*);
    size_t turn = 0;
    every.each(
        {"cudaLaunchKernel", "cudaLaunchKernel_ptsz", "cudaLaunchCooperativeKernel", "cudaLaunchCooperativeKernel_ptsz",
         "__cudaLaunchKernel"},
        [&](const char* name, Fate fate) {
            const Dim3 grid = every.grid(), block = every.block();
            const size_t shared = every.narrow();
            every.call<Launch>(fate, name, every_symbol(turn++), grid, block, nullptr, shared, every.stream());
            if (fate == Fate::succeeds) return;
            every.call<Launch>(name, nullptr, grid, block, nullptr, shared, every.stream());
            every.call<Launch>(name, every_symbol(turn++), Dim3{0, 1, 1}, block, nullptr, shared, Every::no_stream());
        });
    every.each({"cudaLaunchKernelExC", "cudaLaunchKernelExC_ptsz"}, [&](const char* name, Fate fate) {
        const Dim3 grid = every.grid(), block = every.block();
        cudaLaunchConfig_t config{};
        config.gridDim = {grid.x, grid.y, grid.z};
        config.blockDim = {block.x, block.y, block.z};
        config.dynamicSmemBytes = every.narrow();
        config.stream = static_cast<CUstream>(every.stream());
        every.call<int(const cudaLaunchConfig_t*, const void*, void**)>(fate, name, &config, every_symbol(turn++),
                                                                        nullptr);
    });
}

void call_driver_launches(Every& every) {
    size_t turn = 0;
    every.each({"cuLaunchKernel", "cuLaunchKernel_ptsz"}, [&](const char* name, Fate fate) {
        const Dim3 grid = every.grid(), block = every.block();
        using Launch =
            int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
        every.call<Launch>(fate, name, function_of(every, turn++), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                           every.narrow(), every.stream(), nullptr, nullptr);
        every.call<Launch>(name, reinterpret_cast<void*>(uintptr_t(every.narrow())), grid.x, grid.y, grid.z, block.x,
                           block.y, block.z, every.narrow(), every.stream(), nullptr, nullptr);
    });
    every.each({"cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz"}, [&](const char* name, Fate fate) {
        const Dim3 grid = every.grid(), block = every.block();
        every.call<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**)>(
            fate, name, function_of(every, turn++), grid.x, grid.y, grid.z, block.x, block.y, block.z, every.narrow(),
            every.stream(), nullptr);
    });
    every.each({"cuLaunchKernelEx", "cuLaunchKernelEx_ptsz"}, [&](const char* name, Fate fate) {
        const Dim3 grid = every.grid(), block = every.block();
        const CUlaunchConfig config{grid.x,  grid.y,  grid.z,         block.x,
                                    block.y, block.z, every.narrow(), static_cast<CUstream>(every.stream()),
                                    nullptr, 0};
        every.call<int(const CUlaunchConfig*, void*, void**, void**)>(fate, name, &config, function_of(every, turn++),
                                                                      nullptr, nullptr);
    });
}

}  // namespace

void call_every_launch(Every& every, bool tail_jump) {
    call_runtime_launches(every);
    call_driver_launches(every);
    every.each({"cudaLaunchHostFunc", "cudaLaunchHostFunc_ptsz", "cuLaunchHostFunc", "cuLaunchHostFunc_ptsz"},
               [&](const char* name, Fate fate) {
                   using Launch = int(void*, HostFunction, void*);
                   int counted = 0;
                   every.call<Launch>(fate, name, every.stream(), host_function, nullptr);
                   every.call<Launch>(name, every.stream(), other_host_function, &counted);
                   every.call<Launch>(name, Every::no_stream(), other_host_function, &counted);
               });
    if (tail_jump)
        every.call<int(const void*, Dim3, Dim3, void**, size_t, void*)>("__cudaLaunchKernel_ptsz", every_symbol(0),
                                                                        every.grid(), every.block(), nullptr,
                                                                        size_t(every.narrow()), every.stream());
}

void call_every_synchronization(Every& every) {
    every.each(
        {"cudaStreamSynchronize", "cudaStreamSynchronize_ptsz", "cuStreamSynchronize", "cuStreamSynchronize_ptsz"},
        [&](const char* name, Fate fate) {
            for (int i = 0; i < 5; ++i) every.call<int(void*)>(fate, name, every.stream());
            every.call<int(void*)>(name, Every::no_stream());
        });
    every.each({"cudaStreamWaitEvent", "cudaStreamWaitEvent_ptsz", "cuStreamWaitEvent", "cuStreamWaitEvent_ptsz"},
               [&](const char* name, Fate fate) {
                   using Wait = int(void*, void*, unsigned);
                   every.call<Wait>(fate, name, every.stream(), every.event(), 0u);
                   every.call<Wait>(name, every.stream(), reinterpret_cast<void*>(uintptr_t(every.narrow())), 0u);
               });
    every.each({"cudaEventSynchronize", "cuEventSynchronize"}, [&](const char* name, Fate fate) {
        every.call<int(void*)>(fate, name, every.event());
        every.call<int(void*)>(name, reinterpret_cast<void*>(uintptr_t(every.narrow())));
    });
    every.each({"cudaDeviceSynchronize", "cuCtxSynchronize"},
               [&](const char* name, Fate fate) { every.call<int(void)>(fate, name); });
    every.each({"cuCtxSynchronize_v2"}, [&](const char* name, Fate fate) {
        void* context = nullptr;
        every.call<int(void**)>("cuCtxGetCurrent", &context);
        every.call<int(void*)>(fate, name, context);
        every.call<int(void*)>(name, reinterpret_cast<void*>(uintptr_t(every.narrow())));
    });
}

namespace {

struct CapturePair {
    const char* begin;
    const char* end;
};

void begin_capture(Every& every, Fate fate, const char* name, int mode) {
    const std::string_view which = name;
    if (which == "cuStreamBeginCapture" || which == "cuStreamBeginCapture_ptsz")
        every.call<int(void*)>(fate, name, every.own_stream());
    else
        every.call<int(void*, int)>(fate, name, every.own_stream(), mode);
}

// A beginning that failed leaves nothing to be ended, and an end that was scripted to fail leaves the capture open.
void* capture(Every& every, const CapturePair& pair, int mode) {
    using End = int(void*, void**);
    void* graph = nullptr;
    begin_capture(every, Fate::fails, pair.begin, mode);
    every.call<End>(pair.end, every.own_stream(), &graph);
    begin_capture(every, Fate::succeeds, pair.begin, mode);
    begin_capture(every, Fate::succeeds, pair.begin, mode);
    every.caller.launch(every_symbol(0), every.own_stream());
    every.call<End>(Fate::fails, pair.end, every.own_stream(), &graph);
    every.call<End>(pair.end, every.own_stream(), &graph);
    return graph;
}

void call_every_instantiation(Every& every, void* graph, std::vector<void*>& execs) {
    const auto keep = [&execs](void* exec) {
        if (exec != nullptr) execs.push_back(exec);
    };
    void* const no_graph = reinterpret_cast<void*>(uintptr_t(48));
    every.each({"cudaGraphInstantiate", "cudaGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags"},
               [&](const char* name, Fate fate) {
                   using Instantiate = int(void**, void*, unsigned long long);
                   void* exec = nullptr;
                   every.call<Instantiate>(fate, name, &exec, graph, 8ull);
                   keep(exec);
                   every.call<Instantiate>(name, &exec, no_graph, 1ull);
               });
    every.each({"cuGraphInstantiate", "cuGraphInstantiate_v2"}, [&](const char* name, Fate fate) {
        void *exec = nullptr, *node = nullptr;
        char text[16];
        every.call<int(void**, void*, void**, char*, size_t)>(fate, name, &exec, graph, &node, text, sizeof text);
        keep(exec);
    });
    every.each({"cudaGraphInstantiateWithParams", "cudaGraphInstantiateWithParams_ptsz", "cuGraphInstantiateWithParams",
                "cuGraphInstantiateWithParams_ptsz"},
               [&](const char* name, Fate fate) {
                   void* exec = nullptr;
                   CUDA_GRAPH_INSTANTIATE_PARAMS parameters{10, static_cast<CUstream>(every.own_stream()), nullptr, 0};
                   every.call<int(void**, void*, CUDA_GRAPH_INSTANTIATE_PARAMS*)>(fate, name, &exec, graph,
                                                                                  &parameters);
                   keep(exec);
               });
}

void call_every_use(Every& every, void* graph, const std::vector<void*>& execs) {
    size_t turn = 0;
    const auto next = [&] { return execs.at(turn++ % execs.size()); };
    every.each({"cudaGraphExecUpdate", "cuGraphExecUpdate_v2"}, [&](const char* name, Fate fate) {
        CUgraphExecUpdateResultInfo info{};
        every.call<int(void*, void*, CUgraphExecUpdateResultInfo*)>(fate, name, next(), graph, &info);
    });
    every.each({"cuGraphExecUpdate"}, [&](const char* name, Fate fate) {
        void* node = nullptr;
        int info = 0;
        every.call<int(void*, void*, void**, int*)>(fate, name, next(), graph, &node, &info);
    });
    every.each({"cudaGraphUpload", "cudaGraphUpload_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz", "cudaGraphLaunch",
                "cudaGraphLaunch_ptsz", "cuGraphLaunch", "cuGraphLaunch_ptsz"},
               [&](const char* name, Fate fate) {
                   every.call<int(void*, void*)>(fate, name, next(), every.stream());
                   every.call<int(void*, void*)>(name, graph, every.stream());
               });
}

void call_every_end(Every& every, void* graph) {
    every.each({"cudaGraphExecDestroy", "cuGraphExecDestroy"}, [&](const char* name, Fate fate) {
        void* exec = nullptr;
        every.call<int(void**, void*, unsigned long long)>("cudaGraphInstantiate", &exec, graph, 0ull);
        every.call<int(void*)>(fate, name, exec);
        every.call<int(void*)>(name, exec);  // the second time there is none, unless the first was scripted to fail
    });
    every.each({"cudaGraphDestroy", "cuGraphDestroy"}, [&](const char* name, Fate fate) {
        void* made = nullptr;
        every.call<int(void**, unsigned)>("cudaGraphCreate", &made, 0u);
        every.call<int(void*)>(fate, name, made);
        every.call<int(void*)>(name, made);
    });
}

}  // namespace

void call_every_graph(Every& every) {
    constexpr CapturePair pairs[] = {{"cudaStreamBeginCapture", "cudaStreamEndCapture"},
                                     {"cudaStreamBeginCapture_ptsz", "cudaStreamEndCapture_ptsz"},
                                     {"cuStreamBeginCapture", "cuStreamEndCapture"},
                                     {"cuStreamBeginCapture_ptsz", "cuStreamEndCapture_ptsz"},
                                     {"cuStreamBeginCapture_v2", "cuStreamEndCapture"},
                                     {"cuStreamBeginCapture_v2_ptsz", "cuStreamEndCapture_ptsz"}};
    void* graph = nullptr;
    int mode = 0;
    for (const CapturePair& pair : pairs) graph = capture(every, pair, ++mode % 3);
    std::vector<void*> execs;
    call_every_instantiation(every, graph, execs);
    call_every_use(every, graph, execs);
    call_every_end(every, graph);
}

}  // namespace ingero::standin
