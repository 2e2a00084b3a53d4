// `every`: allocation, copies and sets.
#include "every.h"

namespace ingero::standin {

namespace {

using Fate = Every::Fate;

constexpr size_t too_much = size_t(1) << 50;

// What the old functions write is 32 bits wide, and what lies beside it is not theirs.
struct NarrowPlace {
    uint32_t value = 0;
    uint32_t beside = 0xdeadbeef;
};

void call_plain_allocations(Every& every, std::vector<void*>& device, std::vector<void*>& host) {
    const auto allocate = [&](const char* name, Fate fate, size_t bytes, std::vector<void*>& kept) {
        using Allocate = int(void**, size_t);
        void* pointer = nullptr;
        if (every.call<Allocate>(fate, name, &pointer, bytes) == 0) kept.push_back(pointer);
        every.call<Allocate>(name, &pointer, too_much);
        every.call<Allocate>(name, nullptr, bytes);
    };
    every.each({"cudaMalloc", "cuMemAlloc_v2"},
               [&](const char* name, Fate fate) { allocate(name, fate, every.wide(), device); });
    every.each({"cudaMallocHost", "cuMemAllocHost_v2"},
               [&](const char* name, Fate fate) { allocate(name, fate, every.narrow(), host); });
    every.each({"cuMemAllocHost"}, [&](const char* name, Fate fate) {
        void* pointer = nullptr;
        if (every.call<int(void**, unsigned)>(fate, name, &pointer, every.narrow()) == 0) host.push_back(pointer);
    });
    const auto allocate_with_flags = [&](const char* name, Fate fate, unsigned flags, std::vector<void*>& kept) {
        void* pointer = nullptr;
        if (every.call<int(void**, size_t, unsigned)>(fate, name, &pointer, size_t(every.narrow()), flags) == 0)
            kept.push_back(pointer);
    };
    every.each({"cudaMallocManaged", "cuMemAllocManaged"},
               [&](const char* name, Fate fate) { allocate_with_flags(name, fate, 1, device); });
    every.each({"cudaHostAlloc", "cuMemHostAlloc"},
               [&](const char* name, Fate fate) { allocate_with_flags(name, fate, 4, host); });
}

void call_pitched_allocations(Every& every, std::vector<void*>& device) {
    size_t pitch = 0;
    every.each({"cudaMallocPitch"}, [&](const char* name, Fate fate) {
        void* pointer = nullptr;
        const size_t width = every.narrow(), height = every.narrow();
        if (every.call<int(void**, size_t*, size_t, size_t)>(fate, name, &pointer, &pitch, width, height) == 0)
            device.push_back(pointer);
    });
    every.each({"cuMemAllocPitch_v2"}, [&](const char* name, Fate fate) {
        void* pointer = nullptr;
        const size_t width = every.narrow(), height = every.wide() >> 16;
        if (every.call<int(void**, size_t*, size_t, size_t, unsigned)>(fate, name, &pointer, &pitch, width, height,
                                                                       8u) == 0)
            device.push_back(pointer);
    });
}

void call_stream_allocations(Every& every, std::vector<void*>& device) {
    every.each(
        {"cudaMallocAsync", "cudaMallocAsync_ptsz", "cuMemAllocAsync", "cuMemAllocAsync_ptsz"},
        [&](const char* name, Fate fate) {
            void* pointer = nullptr;
            if (every.call<int(void**, size_t, void*)>(fate, name, &pointer, size_t(every.wide()), every.stream()) == 0)
                device.push_back(pointer);
        });
    every.each({"cudaMallocFromPoolAsync", "cudaMallocFromPoolAsync_ptsz", "cuMemAllocFromPoolAsync",
                "cuMemAllocFromPoolAsync_ptsz"},
               [&](const char* name, Fate fate) {
                   void* pointer = nullptr;
                   void* pool = reinterpret_cast<void*>(uintptr_t(every.narrow()));
                   if (every.call<int(void**, size_t, void*, void*)>(fate, name, &pointer, size_t(every.wide()), pool,
                                                                     every.stream()) == 0)
                       device.push_back(pointer);
               });
}

void call_old_allocations(Every& every) {
    std::vector<uint32_t> kept;
    every.each({"cuMemAlloc"}, [&](const char* name, Fate fate) {
        for (int i = 0; i < 2; ++i) {
            NarrowPlace pointer;
            if (every.call<int(uint32_t*, unsigned)>(fate, name, &pointer.value, every.narrow()) == 0)
                kept.push_back(pointer.value);
        }
    });
    every.each({"cuMemAllocPitch"}, [&](const char* name, Fate fate) {
        NarrowPlace pointer;
        unsigned pitch = 0;
        const unsigned width = every.narrow(), height = 1 + every.narrow() % 97;
        if (every.call<int(uint32_t*, unsigned*, unsigned, unsigned, unsigned)>(fate, name, &pointer.value, &pitch,
                                                                                width, height, 4u) == 0)
            kept.push_back(pointer.value);
    });
    every.each({"cuMemFree"}, [&](const char* name, Fate fate) {
        const uint32_t pointer = kept.back();
        if (every.call<int(uint32_t)>(fate, name, pointer) == 0) kept.pop_back();
    });
    for (const uint32_t pointer : kept) every.call<int(uint32_t)>("cuMemFree", pointer);
}

void call_mappings(Every& every) {
    using Create = int(uint64_t*, size_t, const void*, unsigned long long);
    uint64_t handle = 0, address = 0;
    every.each({"cuMemCreate"}, [&](const char* name, Fate fate) {
        uint64_t made = 0;
        if (every.call<Create>(fate, name, &made, size_t(every.wide()), nullptr, 0ull) == 0) handle = made;
        every.call<Create>(name, &made, too_much, nullptr, 0ull);
    });
    every.call<int(uint64_t*, size_t, size_t, uint64_t, unsigned long long)>(
        "cuMemAddressReserve", &address, size_t(every.wide()), size_t(0), uint64_t(0), 0ull);
    every.each({"cuMemMap"}, [&](const char* name, Fate fate) {
        every.call<int(uint64_t, size_t, size_t, uint64_t, unsigned long long)>(fate, name, address, every.wide(),
                                                                                size_t(0), handle, 0ull);
    });
    every.each({"cuMemUnmap"}, [&](const char* name, Fate fate) {
        every.call<int(uint64_t, size_t)>(fate, name, address, every.wide());
        every.call<int(uint64_t, size_t)>(name, address, size_t(0));
    });
    every.call<int(uint64_t)>(Fate::fails, "cuMemRelease", handle);
    every.call<int(uint64_t)>("cuMemRelease", handle);
    every.call<int(uint64_t)>("cuMemRelease", handle);
}

// The first of what is kept by each function, the rest by the last.
void call_frees(Every& every, std::initializer_list<const char*> names, std::vector<void*>& kept) {
    every.each(names, [&](const char* name, Fate fate) {
        const bool on_stream = std::string_view(name).find("Async") != std::string_view::npos;
        const auto free = [&](Fate how, void* pointer) {
            if (on_stream) return every.call<int(void*, void*)>(how, name, pointer, every.stream());
            return every.call<int(void*)>(how, name, pointer);
        };
        if (free(fate, kept.back()) == 0) kept.pop_back();
        free(Fate::succeeds, reinterpret_cast<void*>(uintptr_t(every.narrow())));  // no memory of CUDA's
    });
}

}  // namespace

void call_every_allocation(Every& every) {
    std::vector<void*> device, host;
    call_plain_allocations(every, device, host);
    call_pitched_allocations(every, device);
    call_stream_allocations(every, device);
    call_frees(
        every,
        {"cudaFree", "cuMemFree_v2", "cudaFreeAsync", "cudaFreeAsync_ptsz", "cuMemFreeAsync", "cuMemFreeAsync_ptsz"},
        device);
    call_frees(every, {"cudaFreeHost", "cuMemFreeHost"}, host);
    for (void* pointer : device) every.call<int(void*)>("cudaFree", pointer);
    for (void* pointer : host) every.call<int(void*)>("cudaFreeHost", pointer);
    every.call<int(void*)>("cudaFree", nullptr);
    call_old_allocations(every);
    call_mappings(every);
}

namespace {

constexpr int to_device = 1, to_host = 2;

void call_runtime_copies(Every& every) {
    void* device = every.device_memory();
    void* host = every.host_memory();
    every.each({"cudaMemcpy", "cudaMemcpy_ptds"}, [&](const char* name, Fate fate) {
        for (int kind = 0; kind <= 4; ++kind)
            every.call<int(void*, const void*, size_t, int)>(fate, name, device, host, every.wide(), kind);
    });
    every.each({"cudaMemcpyAsync", "cudaMemcpyAsync_ptsz"}, [&](const char* name, Fate fate) {
        using Copy = int(void*, const void*, size_t, int, void*);
        for (int kind = 0; kind <= 4; ++kind)
            every.call<Copy>(fate, name, device, host, every.wide(), kind, every.stream());
        every.call<Copy>(name, device, host, every.wide(), to_device, Every::no_stream());
    });
    every.each({"cudaMemcpy2D", "cudaMemcpy2D_ptds"}, [&](const char* name, Fate fate) {
        const size_t width = every.narrow(), height = every.narrow();
        every.call<int(void*, size_t, const void*, size_t, size_t, size_t, int)>(fate, name, device, width * 2, host,
                                                                                 width + 1, width, height, to_device);
    });
    every.each({"cudaMemcpy2DAsync", "cudaMemcpy2DAsync_ptsz"}, [&](const char* name, Fate fate) {
        const size_t width = every.narrow(), height = every.narrow();
        every.call<int(void*, size_t, const void*, size_t, size_t, size_t, int, void*)>(
            fate, name, host, width * 2, device, width + 1, width, height, to_host, every.stream());
    });
    every.each({"cudaMemcpyPeer"}, [&](const char* name, Fate fate) {
        every.call<int(void*, int, const void*, int, size_t)>(fate, name, device, 1, device, 0, every.wide());
    });
    every.each({"cudaMemcpyPeerAsync"}, [&](const char* name, Fate fate) {
        every.call<int(void*, int, const void*, int, size_t, void*)>(fate, name, device, 1, device, 0, every.wide(),
                                                                     every.stream());
    });
}

void call_runtime_sets(Every& every) {
    void* device = every.device_memory();
    every.each({"cudaMemset", "cudaMemset_ptds"}, [&](const char* name, Fate fate) {
        every.call<int(void*, int, size_t)>(fate, name, device, 7, every.wide());
    });
    every.each({"cudaMemsetAsync", "cudaMemsetAsync_ptsz"}, [&](const char* name, Fate fate) {
        every.call<int(void*, int, size_t, void*)>(fate, name, device, 7, every.wide(), every.stream());
    });
    every.each({"cudaMemset2D", "cudaMemset2D_ptds"}, [&](const char* name, Fate fate) {
        const size_t width = every.narrow(), height = every.narrow();
        every.call<int(void*, size_t, int, size_t, size_t)>(fate, name, device, width * 2, 7, width, height);
    });
    every.each({"cudaMemset2DAsync", "cudaMemset2DAsync_ptsz"}, [&](const char* name, Fate fate) {
        const size_t width = every.narrow(), height = every.narrow();
        every.call<int(void*, size_t, int, size_t, size_t, void*)>(fate, name, device, width * 2, 7, width, height,
                                                                   every.stream());
    });
}

// By device number in the first form, by place in the second, which CUDA 13 gave the first one's name.
void call_prefetches(Every& every) {
    using ByDevice = int(const void*, size_t, int, void*);
    using ByPlace = int(const void*, size_t, CUmemLocation, unsigned, void*);
    void* device = every.device_memory();
    const auto by_device = [&](const char* name, Fate fate) {
        every.call<ByDevice>(fate, name, device, every.wide(), 1, every.stream());
    };
    const auto by_place = [&](const char* name, Fate fate) {
        every.call<ByPlace>(fate, name, device, every.wide(), CUmemLocation{1, 1}, 0u, every.stream());
    };
    if (every.is_cuda_13()) {
        every.each({"cudaMemPrefetchAsync", "cudaMemPrefetchAsync_ptsz"}, by_place);
    } else {
        every.each({"cudaMemPrefetchAsync", "cudaMemPrefetchAsync_ptsz"}, by_device);
        every.each({"cudaMemPrefetchAsync_v2", "cudaMemPrefetchAsync_v2_ptsz"}, by_place);
    }
    every.each({"cuMemPrefetchAsync", "cuMemPrefetchAsync_ptsz"}, by_device);
    every.each({"cuMemPrefetchAsync_v2", "cuMemPrefetchAsync_v2_ptsz"}, by_place);
}

void call_driver_copies(Every& every) {
    void* device = every.device_memory();
    void* host = every.host_memory();
    using Copy = int(void*, void*, size_t);
    using CopyAsync = int(void*, void*, size_t, void*);
    every.each({"cuMemcpy", "cuMemcpy_ptds", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds", "cuMemcpyDtoH_v2",
                "cuMemcpyDtoH_v2_ptds", "cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds"},
               [&](const char* name, Fate fate) { every.call<Copy>(fate, name, device, host, every.wide()); });
    every.each(
        {"cuMemcpyAsync", "cuMemcpyAsync_ptsz", "cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2_ptsz",
         "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2_ptsz", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync_v2_ptsz"},
        [&](const char* name, Fate fate) {
            every.call<CopyAsync>(fate, name, device, host, every.wide(), every.stream());
        });
    every.each({"cuMemcpyPeer", "cuMemcpyPeer_ptds"}, [&](const char* name, Fate fate) {
        every.call<int(void*, void*, void*, void*, size_t)>(fate, name, device, nullptr, device, nullptr, every.wide());
    });
    every.each({"cuMemcpyPeerAsync", "cuMemcpyPeerAsync_ptsz"}, [&](const char* name, Fate fate) {
        every.call<int(void*, void*, void*, void*, size_t, void*)>(fate, name, device, nullptr, device, nullptr,
                                                                   every.wide(), every.stream());
    });
}

// Of before addresses had 64 bits: device addresses and sizes have 32.
void call_old_copies(Every& every) {
    const uint32_t device = 0x1000'0000;
    void* host = every.host_memory();
    every.each({"cuMemcpyHtoD"}, [&](const char* name, Fate fate) {
        every.call<int(uint32_t, const void*, unsigned)>(fate, name, device, host, every.narrow());
    });
    every.each({"cuMemcpyDtoH"}, [&](const char* name, Fate fate) {
        every.call<int(void*, uint32_t, unsigned)>(fate, name, host, device, every.narrow());
    });
    every.each({"cuMemcpyDtoD"}, [&](const char* name, Fate fate) {
        every.call<int(uint32_t, uint32_t, unsigned)>(fate, name, device, device, every.narrow());
    });
    every.each({"cuMemcpyHtoDAsync"}, [&](const char* name, Fate fate) {
        every.call<int(uint32_t, const void*, unsigned, void*)>(fate, name, device, host, every.narrow(),
                                                                every.stream());
    });
    every.each({"cuMemcpyDtoHAsync"}, [&](const char* name, Fate fate) {
        every.call<int(void*, uint32_t, unsigned, void*)>(fate, name, host, device, every.narrow(), every.stream());
    });
    every.each({"cuMemcpyDtoDAsync"}, [&](const char* name, Fate fate) {
        every.call<int(uint32_t, uint32_t, unsigned, void*)>(fate, name, device, device, every.narrow(),
                                                             every.stream());
    });
}

void call_shaped_copies(Every& every) {
    const auto fill = [&](auto& shape) {
        shape = {};
        shape.WidthInBytes = every.narrow();
        shape.Height = every.narrow();
        shape.srcPitch = shape.dstPitch = shape.WidthInBytes + 1;
        shape.srcMemoryType = shape.dstMemoryType = 2;
        shape.srcDevice = shape.dstDevice = 0x1000'0000;
    };
    every.each({"cuMemcpy2D", "cuMemcpy2DAsync"}, [&](const char* name, Fate fate) {
        CUDA_MEMCPY2D_v1 shape;
        fill(shape);
        if (std::string_view(name).find("Async") == std::string_view::npos)
            every.call<int(const CUDA_MEMCPY2D_v1*)>(fate, name, &shape);
        else
            every.call<int(const CUDA_MEMCPY2D_v1*, void*)>(fate, name, &shape, every.stream());
    });
    every.each({"cuMemcpy2D_v2", "cuMemcpy2D_v2_ptds"}, [&](const char* name, Fate fate) {
        CUDA_MEMCPY2D shape;
        fill(shape);
        every.call<int(const CUDA_MEMCPY2D*)>(fate, name, &shape);
        every.call<int(const CUDA_MEMCPY2D*)>(name, nullptr);
    });
    every.each({"cuMemcpy2DAsync_v2", "cuMemcpy2DAsync_v2_ptsz"}, [&](const char* name, Fate fate) {
        CUDA_MEMCPY2D shape;
        fill(shape);
        every.call<int(const CUDA_MEMCPY2D*, void*)>(fate, name, &shape, every.stream());
    });
}

template <typename Element>
void call_sets_of(Every& every, const std::string& name) {
    const std::string second = name + "_v2", second_own = second + "_ptds", async = name + "Async",
                      async_own = async + "_ptsz";
    const Element value = 3;
    every.each({name.c_str()}, [&](const char* set, Fate fate) {
        every.call<int(uint32_t, Element, unsigned)>(fate, set, 0x1000'0000u, value, every.narrow());
    });
    every.each({second.c_str(), second_own.c_str()}, [&](const char* set, Fate fate) {
        every.call<int(void*, Element, size_t)>(fate, set, every.device_memory(), value, every.wide());
    });
    every.each({async.c_str(), async_own.c_str()}, [&](const char* set, Fate fate) {
        every.call<int(void*, Element, size_t, void*)>(fate, set, every.device_memory(), value, every.wide(),
                                                       every.stream());
    });
}

void call_driver_sets(Every& every) {
    call_sets_of<unsigned char>(every, "cuMemsetD8");
    call_sets_of<unsigned short>(every, "cuMemsetD16");
    call_sets_of<unsigned>(every, "cuMemsetD32");
    const unsigned char value = 3;
    void* device = every.device_memory();
    every.each({"cuMemsetD2D8"}, [&](const char* name, Fate fate) {
        const unsigned width = every.narrow(), height = every.narrow() % 89;
        every.call<int(uint32_t, unsigned, unsigned char, unsigned, unsigned)>(fate, name, 0x1000'0000u, width * 2,
                                                                               value, width, height);
    });
    every.each({"cuMemsetD2D8_v2", "cuMemsetD2D8_v2_ptds"}, [&](const char* name, Fate fate) {
        const size_t width = every.narrow(), height = every.wide() >> 16;
        every.call<int(void*, size_t, unsigned char, size_t, size_t)>(fate, name, device, width * 2, value, width,
                                                                      height);
    });
    every.each({"cuMemsetD2D8Async", "cuMemsetD2D8Async_ptsz"}, [&](const char* name, Fate fate) {
        const size_t width = every.narrow(), height = every.narrow();
        every.call<int(void*, size_t, unsigned char, size_t, size_t, void*)>(fate, name, device, width * 2, value,
                                                                             width, height, every.stream());
    });
}

}  // namespace

void call_every_copy(Every& every) {
    call_runtime_copies(every);
    call_runtime_sets(every);
    call_prefetches(every);
    call_driver_copies(every);
    call_old_copies(every);
    call_shaped_copies(every);
    call_driver_sets(every);
}

}  // namespace ingero::standin
