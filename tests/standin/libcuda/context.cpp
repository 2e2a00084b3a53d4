// Devices, contexts, modules, names and errors.
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

#include "../engine/options.h"
#include "variants.h"

namespace ingero::standin {
namespace {

bool is_device(int device) {
    return device >= 0 && device < int(options().devices);
}

// The primary context of a device has the device's number plus 1 as its index; one that was created, 16 times its own
// number more.
constexpr uint32_t most_devices = 16;

uint64_t primary_context(int device) {
    return make_handle(HandleKind::context, uint32_t(device) + 1);
}

/// Those that were created and not yet destroyed.
class CreatedContexts {
  public:
    static CreatedContexts& instance() {
        static CreatedContexts& made = *std::make_unique<CreatedContexts>().release();
        return made;
    }
    uint32_t add(int device) {
        const std::lock_guard guard(lock_);
        const uint32_t index = ++last_ * most_devices + uint32_t(device) + 1;
        live_.insert(index);
        return index;
    }
    bool remove(uint32_t index) {
        const std::lock_guard guard(lock_);
        return live_.erase(index) != 0;
    }
    bool has(uint32_t index) {
        const std::lock_guard guard(lock_);
        return live_.contains(index);
    }

  private:
    std::mutex lock_;
    uint32_t last_ = 0;
    std::unordered_set<uint32_t> live_;
};

/// The context's index, or 0 for what is none.
uint32_t find_context(CUcontext context) {
    const uint32_t index = handle_index(HandleKind::context, from_pointer(context));
    if (index <= most_devices) return index <= options().devices ? index : 0;
    return CreatedContexts::instance().has(index) ? index : 0;
}

void take_top() {
    ThreadState& thread = thread_state;
    thread.has_context = thread.context_count > 0;
    if (thread.has_context) thread.device = int((thread.contexts[thread.context_count - 1] - 1) % most_devices);
    thread.logged_device = thread.has_context ? uint16_t(thread.device) : uint16_t(GROUND_TRUTH_NO_DEVICE);
}

int push_context(uint32_t index) {
    ThreadState& thread = thread_state;
    if (thread.context_count == max_contexts) return out_of_memory;
    thread.contexts[thread.context_count++] = index;
    take_top();
    return success;
}

int push_context(CUcontext context) {
    const uint32_t index = find_context(context);
    return index == 0 ? int(invalid_context) : push_context(index);
}

int current_context(CUcontext* context) {
    if (context == nullptr) return invalid_value;
    const ThreadState& thread = thread_state;
    *context = nullptr;
    if (thread.context_count > 0)
        *context = to_pointer<CUcontext>(make_handle(HandleKind::context, thread.contexts[thread.context_count - 1]));
    return success;
}

void leave_context() {
    if (thread_state.context_count > 0) --thread_state.context_count;
    take_top();
}

int pop_context(CUcontext* context) {
    if (thread_state.context_count == 0) return invalid_context;
    if (context != nullptr) current_context(context);
    leave_context();
    return success;
}

// In the place of the one that is current; none: back to the one before.
int set_context(CUcontext context) {
    const uint32_t index = find_context(context);
    if (context != nullptr && index == 0) return invalid_context;
    if (thread_state.context_count > 0 || index == 0) leave_context();
    return index == 0 ? int(success) : push_context(index);
}

int retain_primary(CUcontext* context, int device) {
    return is_device(device) ? give_handle(context, primary_context(device)) : int(invalid_device);
}

int create_context(CUcontext* context, int device) {
    if (context == nullptr) return invalid_value;
    if (!is_device(device)) return invalid_device;
    const uint32_t index = CreatedContexts::instance().add(device);
    const int result = push_context(index);
    if (result != success) return result;
    *context = to_pointer<CUcontext>(make_handle(HandleKind::context, index));
    return success;
}

int destroy_context(CUcontext context) {
    const uint32_t index = handle_index(HandleKind::context, from_pointer(context));
    if (!CreatedContexts::instance().remove(index)) return invalid_context;
    const ThreadState& thread = thread_state;
    if (thread.context_count > 0 && thread.contexts[thread.context_count - 1] == index) leave_context();
    return success;
}

int current_device(CUdevice* device) {
    return thread_state.has_context ? give(device, thread_state.device) : int(invalid_context);
}

int device_name(char* name, int size, int device) {
    if (name == nullptr || size <= 0) return invalid_value;
    if (!is_device(device)) return invalid_device;
    std::snprintf(name, size_t(size), "Stand-in GPU");
    return success;
}

int bus_id(char* id, int size, int device) {
    if (id == nullptr || size < 13) return invalid_value;
    if (!is_device(device)) return invalid_device;
    std::snprintf(id, size_t(size), "0000:%02X:00.0", unsigned(device) + 1);
    return success;
}

// Attributes that programs look at before they start; any other is 1.
int attribute(int* value, int which, int device) {
    if (value == nullptr) return invalid_value;
    if (!is_device(device)) return invalid_device;
    switch (which) {
        case 1:
            *value = 1024;
            break;  // threads a block
        case 10:
            *value = 32;
            break;  // warp size
        case 16:
            *value = 132;
            break;  // multiprocessors
        case 39:
            *value = 2048;
            break;  // threads a multiprocessor
        case 75:
            *value = 9;
            break;  // compute capability, major
        case 76:
            *value = 0;
            break;  // and minor
        default:
            *value = 1;
            break;
    }
    return success;
}

int set_schedule(int device, unsigned flags) {
    if (!is_device(device)) return invalid_device;
    const unsigned schedule = flags & 7;
    if (schedule > 4 || schedule == 3) return invalid_value;
    constexpr std::array<Schedule, 5> by_flag{Schedule::automatic, Schedule::spin, Schedule::yield, Schedule::automatic,
                                              Schedule::block};
    Devices::instance().set_schedule(device, by_flag[schedule]);
    return success;
}

// One module is as good as another: only its functions' names count, and they are looked up in one place.
template <typename Handle>
int load_module(Handle* module) {
    static std::atomic<uint32_t> last{0};
    if (module == nullptr) return invalid_value;
    *module = to_pointer<Handle>(make_handle(HandleKind::module, last.fetch_add(1) % 0xff'ffff + 1));
    return success;
}

template <typename Handle>
int find_function(Handle* function, const void* module, const char* name) {
    if (function == nullptr || name == nullptr) return invalid_value;
    if (handle_index(HandleKind::module, from_pointer(module)) == 0) return invalid_handle;
    *function = to_pointer<Handle>(Devices::instance().function(name));
    return *function == nullptr ? out_of_memory : success;
}

int kernel_function(CUfunction* function, CUkernel kernel) {
    if (Devices::instance().find_function(from_pointer(kernel)) == nullptr) return invalid_handle;
    return give_handle(function, from_pointer(kernel));
}

int function_name(const char** name, CUfunction function) {
    const Kernel* kernel = Devices::instance().find_function(from_pointer(function));
    if (kernel == nullptr || name == nullptr) return invalid_handle;
    *name = kernel->name.c_str();
    return success;
}

// Names of which the second form came with CUDA 13, to programs built for it.
bool keeps_first_form(std::string_view name, int version) {
    return version < 13000 &&
           (name == "cuCtxSynchronize" || name == "cuMemPrefetchAsync" || name == "cuEventElapsedTime");
}

// The newest variant that there was in the version asked for; with the flag for it, the variant that takes stream 0 as
// the thread's own.
void* find_symbol(const char* name, int version, bool per_thread) {
    static void* const self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    static constexpr std::array<std::string_view, 6> suffixes{"_v2_ptsz", "_v2_ptds", "_v2", "_ptsz", "_ptds", ""};
    for (const std::string_view suffix : suffixes) {
        if (!per_thread && suffix.find("_pt") != suffix.npos) continue;
        if (suffix.starts_with("_v2") && keeps_first_form(name, version)) continue;
        if (void* found = dlsym(self, (std::string(name) + std::string(suffix)).c_str())) return found;
    }
    return nullptr;
}

int get_symbol(const char* name, void** function, int version, unsigned long long flags, int* status) {
    if (name == nullptr || function == nullptr) return invalid_value;
    const bool per_thread = (flags & 2) != 0;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
    *function = find_symbol(name, version, per_thread);
    if (status != nullptr) *status = *function == nullptr ? 1 : 0;
    return *function == nullptr ? not_found : success;
}

int error_text(int code, const char** text, const char* ResultName::*which) {
    const ResultName* known = find_result(code);
    if (text == nullptr) return invalid_value;
    *text = known == nullptr ? nullptr : known->*which;
    return known == nullptr ? invalid_value : success;
}

}  // namespace
}  // namespace ingero::standin

using namespace ingero::standin;

#pragma GCC diagnostic ignored "-Wunused-parameter"

STANDIN_FUNCTION(cuInit, (unsigned flags), told(), flags == 0 ? success : invalid_value)
STANDIN_FUNCTION(cuDriverGetVersion, (int* version), told(), give(version, 13000))
STANDIN_FUNCTION(cuGetProcAddress, (const char* name, void** function, int version, unsigned long long flags), told(),
                 get_symbol(name, function, version, flags, nullptr))
STANDIN_FUNCTION(cuGetProcAddress_v2,
                 (const char* name, void** function, int version, unsigned long long flags, int* status), told(),
                 get_symbol(name, function, version, flags, status))

STANDIN_FUNCTION(cuDeviceGet, (CUdevice * device, int ordinal), told(),
                 is_device(ordinal) ? give(device, ordinal) : int(invalid_device))
STANDIN_FUNCTION(cuDeviceGetCount, (int* count), told(), give(count, options().devices))
STANDIN_FUNCTION(cuDeviceGetName, (char* name, int size, CUdevice device), told(), device_name(name, size, device))
STANDIN_FUNCTION(cuDeviceGetAttribute, (int* value, int which, CUdevice device), told(),
                 attribute(value, which, device))
STANDIN_FUNCTION(cuDeviceGetPCIBusId, (char* id, int size, CUdevice device), told(), bus_id(id, size, device))
STANDIN_FUNCTION(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device), told(),
                 is_device(device) ? give(bytes, options().memory_bytes) : int(invalid_device))
STANDIN_EXPORT int cuDeviceTotalMem(size_t* bytes, CUdevice device) __attribute__((alias("cuDeviceTotalMem_v2")));

STANDIN_FUNCTION(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), told(0, device).gives(0, context),
                 retain_primary(context, device))
STANDIN_FUNCTION(cuDevicePrimaryCtxRelease_v2, (CUdevice device), told(), is_device(device) ? success : invalid_device)
STANDIN_EXPORT int cuDevicePrimaryCtxRelease(CUdevice device) __attribute__((alias("cuDevicePrimaryCtxRelease_v2")));
STANDIN_FUNCTION(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned flags), told(), set_schedule(device, flags))

STANDIN_FUNCTION(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device),
                 told(0, device).gives(0, context), create_context(context, device))
STANDIN_EXPORT int cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device)
    __attribute__((alias("cuCtxCreate_v2")));
STANDIN_FUNCTION(cuCtxCreate_v3, (CUcontext * context, void* affinity, int count, unsigned flags, CUdevice device),
                 told(0, device).gives(0, context), create_context(context, device))
STANDIN_FUNCTION(cuCtxCreate_v4, (CUcontext * context, void* parameters, unsigned flags, CUdevice device),
                 told(0, device).gives(0, context), create_context(context, device))
STANDIN_FUNCTION(cuCtxDestroy_v2, (CUcontext context), told(context), destroy_context(context))
STANDIN_EXPORT int cuCtxDestroy(CUcontext context) __attribute__((alias("cuCtxDestroy_v2")));
STANDIN_FUNCTION(cuCtxSetCurrent, (CUcontext context), told(context), set_context(context))
STANDIN_FUNCTION(cuCtxGetCurrent, (CUcontext * context), told(), current_context(context))
STANDIN_FUNCTION(cuCtxGetDevice, (CUdevice * device), told(), current_device(device))
STANDIN_FUNCTION(cuCtxPushCurrent_v2, (CUcontext context), told(context), push_context(context))
STANDIN_FUNCTION(cuCtxPopCurrent_v2, (CUcontext * context), told().gives(0, context), pop_context(context))

STANDIN_FUNCTION(cuModuleLoad, (CUmodule * module, const char* path), told().gives(0, module), load_module(module))
STANDIN_FUNCTION(cuModuleLoadData, (CUmodule * module, const void* image), told().gives(0, module), load_module(module))
STANDIN_FUNCTION(cuModuleLoadDataEx,
                 (CUmodule * module, const void* image, unsigned count, void* jit, void** jit_values),
                 told().gives(0, module), load_module(module))
STANDIN_FUNCTION(cuModuleLoadFatBinary, (CUmodule * module, const void* image), told().gives(0, module),
                 load_module(module))
STANDIN_FUNCTION(cuModuleUnload, (CUmodule module), told(), success)
STANDIN_FUNCTION(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name),
                 told(0, module).gives(0, function).named(name), find_function(function, module, name))

STANDIN_FUNCTION(cuLibraryLoadData,
                 (CUlibrary * library, const void* code, void* jit, void** jit_values, unsigned jit_count,
                  void* options, void** option_values, unsigned option_count),
                 told().gives(0, library), load_module(library))
STANDIN_FUNCTION(cuLibraryLoadFromFile,
                 (CUlibrary * library, const char* path, void* jit, void** jit_values, unsigned jit_count,
                  void* options, void** option_values, unsigned option_count),
                 told().gives(0, library), load_module(library))
STANDIN_FUNCTION(cuLibraryUnload, (CUlibrary library), told(), success)
STANDIN_FUNCTION(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name),
                 told(0, library).gives(0, kernel).named(name), find_function(kernel, library, name))
// A kernel is launched by its own handle as well as by its function's: in ours the two are one.
STANDIN_FUNCTION(cuKernelGetFunction, (CUfunction * function, CUkernel kernel), told(0, kernel).gives(0, function),
                 kernel_function(function, kernel))
STANDIN_FUNCTION(cuFuncGetName, (const char** name, CUfunction function), told(), function_name(name, function))

STANDIN_FUNCTION(cuGetErrorName, (CUresult code, const char** text), told(),
                 error_text(code, text, &ResultName::driver))
STANDIN_FUNCTION(cuGetErrorString, (CUresult code, const char** text), told(),
                 error_text(code, text, &ResultName::text))
