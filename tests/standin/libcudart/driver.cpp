#include <dlfcn.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "runtime.h"

namespace ingero::standin::runtime {

namespace {

// The one that the program has already, else the one beside this library, else what the system finds. By path, since in
// a program with a sanitizer dlopen does not see who calls it, and so not this library's $ORIGIN.
void* open_library() {
    if (void* loaded = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) return loaded;
    Dl_info self;
    if (dladdr(reinterpret_cast<const void*>(&open_library), &self) != 0) {
        const std::string path = self.dli_fname;
        const std::string beside = path.substr(0, path.rfind('/') + 1) + "libcuda.so.1";
        if (void* loaded = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL)) return loaded;
    }
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

const Driver* open_driver() {
    void* library = open_library();
    if (library == nullptr) return nullptr;
    static Driver driver;
    bool whole = true;
#define STANDIN_LOOK_UP(name, parameters)                                         \
    driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(library, #name)); \
    whole = whole && driver.name != nullptr;
    STANDIN_DRIVER_FUNCTIONS(STANDIN_LOOK_UP)
#undef STANDIN_LOOK_UP
    return whole ? &driver : nullptr;
}

struct Registered {
    std::atomic<const void*> symbol{nullptr};
    std::atomic<CUfunction> function{nullptr};
    std::string name;
};

// Looked up in every launch, so without a lock: entries are added, and stay.
constexpr size_t most_kernels = 8192;
std::array<Registered, most_kernels>& kernels() {
    static auto& table = *std::make_unique<std::array<Registered, most_kernels>>().release();
    return table;
}
std::mutex registration;

size_t place_of(const void* symbol) {
    return size_t((from_pointer(symbol) >> 3) * 0x9e3779b97f4a7c15u >> 40) % most_kernels;
}

// The symbol's entry, or the empty one where it would be; null when the table is full.
Registered* find_entry(const void* symbol) {
    auto& table = kernels();
    size_t place = place_of(symbol);
    for (size_t i = 0; i < most_kernels; ++i, place = (place + 1) % most_kernels) {
        const void* seen = table[place].symbol.load(std::memory_order_acquire);
        if (seen == symbol || seen == nullptr) return &table[place];
    }
    return nullptr;
}

// The library that holds all kernels of the program is loaded when the first of them is needed.
int resolve(const Driver& driver, Registered& entry) {
    static std::atomic<CUlibrary> library{nullptr};
    if (library.load() == nullptr) {
        CUlibrary loaded = nullptr;
        static const char image = 0;
        const int result = driver.cuLibraryLoadData(&loaded, &image, nullptr, nullptr, 0, nullptr, nullptr, 0);
        if (result != success) return result;
        library.store(loaded);
    }
    CUkernel kernel = nullptr;
    const int result = driver.cuLibraryGetKernel(&kernel, library.load(), entry.name.c_str());
    if (result == success) entry.function.store(reinterpret_cast<CUfunction>(kernel), std::memory_order_release);
    return result;
}

}  // namespace

const Driver* load_driver() {
    static const Driver* const driver = open_driver();
    return driver;
}

int enter_context(const Driver& driver) {
    static std::atomic<bool> initialised{false};
    if (!initialised.load()) {
        int count = 0;
        if (const int result = driver.cuInit(0); result != success) return result;
        if (const int result = driver.cuDeviceGetCount(&count); result != success) return result;
        initialised.store(true);
    }
    CUcontext context = nullptr;
    if (const int result = driver.cuDevicePrimaryCtxRetain(&context, thread_state.device); result != success)
        return result;
    return driver.cuCtxSetCurrent(context);
}

void register_kernel(const void* symbol, const char* name) {
    const std::lock_guard guard(registration);
    Registered* entry = find_entry(symbol);
    if (entry == nullptr || entry->symbol.load() != nullptr) return;
    entry->name = name;
    entry->symbol.store(symbol, std::memory_order_release);
}

CUfunction find_kernel(const Driver& driver, const void* symbol, int& result) {
    result = success;
    if (handle_index(HandleKind::function, from_pointer(symbol)) != 0) {
        return to_pointer<CUfunction>(from_pointer(symbol));
    }
    Registered* entry = find_entry(symbol);
    if (entry != nullptr && entry->symbol.load(std::memory_order_acquire) == nullptr) {
        register_kernel(symbol, "unregistered");
        entry = find_entry(symbol);
    }
    if (entry == nullptr || symbol == nullptr) {
        result = invalid_value;
        return nullptr;
    }
    if (CUfunction known = entry->function.load(std::memory_order_acquire)) return known;
    result = resolve(driver, *entry);
    return entry->function.load(std::memory_order_acquire);
}

}  // namespace ingero::standin::runtime

/// Loads the driver, so that a program can have all libraries in place before its first call. Not part of the API.
extern "C" __attribute__((visibility("default"))) int standin_load_driver(void) {
    ingero::standin::runtime::kernels();
    return ingero::standin::runtime::load_driver() == nullptr ? 1 : 0;
}
