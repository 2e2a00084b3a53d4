// `every`: functions by which kernels get their names, and those that say which device a thread works on.
#include <array>

#include "every.h"

namespace ingero::standin {

namespace {

using Fate = Every::Fate;

// As the compiler writes them; the last is longer than most places that are kept for a name.
constexpr const char* kernel_names_of_every[] = {
    "_Z5saxpyifPKfPf", "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEviT0_",
    "plain_kernel",
    "_ZN7cutlass6KernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10collective15CollectiveMmaINS1_"
    "34MainloopSm90TmaGmmaWarpSpecializedILi4ENS5_IJNS4_1CILi2EEENSA_ILi1EEESC_EEENS1_"
    "30KernelTmaWarpSpecializedPingpongEEENS5_IJNSA_ILi64EEENSA_ILi128EEESH_EEENS_10bfloat16_tENS5_IJlSC_lEEESJ_SK_"
    "EEEEEvNT_6ParamsE"};

const char symbols[std::size(kernel_names_of_every)] = {};

void register_functions(Every& every) {
    const Runtime& runtime = every.caller.runtime();
    void** handle = runtime.register_fat_binary(nullptr);
    ++every.caller.totals.calls;
    for (size_t i = 0; i < std::size(symbols); ++i) {
        every.caller.count([&] {
            runtime.register_function(handle, &symbols[i], nullptr, kernel_names_of_every[i], -1, nullptr, nullptr,
                                      nullptr, nullptr, nullptr);
            return 0;
        });
    }
    every.mark("__cudaRegisterFunction");
}

void* load(Every& every, const char* name, Fate fate) {
    void* loaded = nullptr;
    const std::string_view which = name;
    if (which.starts_with("cuLibrary"))
        every.call<int(void**, const void*, void*, void**, unsigned, void*, void**, unsigned)>(
            fate, name, &loaded, "a path, or code", nullptr, nullptr, 0u, nullptr, nullptr, 0u);
    else if (which == "cuModuleLoadDataEx")
        every.call<int(void**, const void*, unsigned, void*, void**)>(fate, name, &loaded, "an image", 0u, nullptr,
                                                                      nullptr);
    else
        every.call<int(void**, const void*)>(fate, name, &loaded, "a path, or an image");
    return loaded;
}

// Two handles to a name, so that the name must be kept by handle.
void get_functions(Every& every, const char* name, void* from) {
    using Get = int(void**, void*, const char*);
    every.each({name}, [&](const char* get, Fate fate) {
        for (const char* kernel : kernel_names_of_every) {
            void* function = nullptr;
            every.call<Get>(fate, get, &function, from, kernel);
            if (function != nullptr) every.functions.push_back(function);
        }
    });
    void* none = nullptr;
    every.call<Get>(name, &none, reinterpret_cast<void*>(uintptr_t(16)), "of_no_module");
}

}  // namespace

const void* every_symbol(size_t index) {
    return &symbols[index % std::size(symbols)];
}

void call_every_name(Every& every) {
    register_functions(every);
    void* module = nullptr;
    void* library = nullptr;
    every.each({"cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary"},
               [&](const char* name, Fate fate) {
                   if (void* loaded = load(every, name, fate)) module = loaded;
               });
    every.each({"cuLibraryLoadData", "cuLibraryLoadFromFile"}, [&](const char* name, Fate fate) {
        if (void* loaded = load(every, name, fate)) library = loaded;
    });
    get_functions(every, "cuModuleGetFunction", module);
    get_functions(every, "cuLibraryGetKernel", library);
    every.each({"cuKernelGetFunction"}, [&](const char* name, Fate fate) {
        void* function = nullptr;
        every.call<int(void**, void*)>(fate, name, &function, every.functions.back());
    });
}

namespace {

// A launch tells which device a record has to name.
void launch_here(Every& every) {
    const Dim3 grid = every.grid(), block = every.block();
    every.call<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)>(
        "cuLaunchKernel", every.functions.front(), grid.x, grid.y, grid.z, block.x, block.y, block.z, every.narrow(),
        nullptr, nullptr, nullptr);
}

void* create_context(Every& every, const char* name, Fate fate, int device) {
    void* context = nullptr;
    const std::string_view which = name;
    if (which == "cuCtxCreate_v3")
        every.call<int(void**, void*, int, unsigned, int)>(fate, name, &context, nullptr, 0, 0u, device);
    else if (which == "cuCtxCreate_v4")
        every.call<int(void**, void*, unsigned, int)>(fate, name, &context, nullptr, 0u, device);
    else
        every.call<int(void**, unsigned, int)>(fate, name, &context, 0u, device);
    return context;
}

void call_every_creation(Every& every) {
    std::vector<void*> contexts;
    int device = 0;
    every.each({"cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"}, [&](const char* name, Fate fate) {
        device = 1 - device;
        if (void* context = create_context(every, name, fate, device)) {
            launch_here(every);
            contexts.push_back(context);
            every.call<int(void**)>("cuCtxPopCurrent_v2", nullptr);
        }
        launch_here(every);
    });
    create_context(every, "cuCtxCreate_v2", Fate::succeeds, 99);
    size_t next = 0;
    every.each({"cuCtxDestroy", "cuCtxDestroy_v2"}, [&](const char* name, Fate fate) {
        every.call<int(void*)>("cuCtxPushCurrent_v2", contexts.at(next));
        every.call<int(void*)>(fate, name, contexts.at(next));
        launch_here(every);
        if (fate == Fate::fails) every.call<int(void*)>(name, contexts.at(next));
        ++next;
    });
    every.call<int(void*)>("cuCtxDestroy_v2", contexts.front());
}

}  // namespace

void call_every_device(Every& every) {
    using Take = int(void*);
    using Give = int(void**);
    every.each({"cudaSetDevice"}, [&](const char* name, Fate fate) {
        for (const int device : {1, 0, 1}) {
            every.call<int(int)>(fate, name, device);
            launch_here(every);
        }
        every.call<int(int)>(name, 7);
        every.call<int(int)>(name, -1);
    });
    std::array<void*, 2> primary{};
    every.each({"cuDevicePrimaryCtxRetain"}, [&](const char* name, Fate fate) {
        for (int device = 0; device < 3; ++device) {
            void* context = nullptr;
            every.call<int(void**, int)>(fate, name, &context, device);
            if (context != nullptr) primary.at(size_t(device)) = context;
        }
    });
    every.each({"cuCtxSetCurrent", "cuCtxPushCurrent_v2"}, [&](const char* name, Fate fate) {
        for (void* context : primary) {
            every.call<Take>(fate, name, context);
            launch_here(every);
        }
        every.call<Take>(name, reinterpret_cast<void*>(uintptr_t(32)));
    });
    call_every_creation(every);
    // Down to no context at all, from which the runtime helps itself.
    every.each({"cuCtxPopCurrent_v2"}, [&](const char* name, Fate fate) {
        void* context = nullptr;
        every.call<Give>(fate, name, &context);
        launch_here(every);
    });
    while (every.call<Give>("cuCtxPopCurrent_v2", nullptr) == 0) {
    }
    every.call<Take>("cuCtxSetCurrent", nullptr);
    every.caller.launch(every_symbol(0), nullptr);
}

}  // namespace ingero::standin
