// Devices, the program's kernels, and errors.
#include "runtime.h"

namespace ingero::standin::runtime {
namespace {

unsigned flags_of(Schedule schedule) {
    switch (schedule) {
        case Schedule::automatic:
            return 0;
        case Schedule::spin:
            return 1;
        case Schedule::yield:
            return 2;
        case Schedule::block:
            return 4;
    }
    return 0;
}

int set_device(const Driver& driver, int device) {
    CUcontext context = nullptr;
    const int result = driver.cuDevicePrimaryCtxRetain(&context, device);
    return result == success ? driver.cuCtxSetCurrent(context) : result;
}

// All that was on the device is done with, its fault too.
int reset_device(const Driver& driver) {
    const int result = driver.cuCtxSynchronize();
    const Devices& devices = Devices::instance();
    Note note;
    if (devices.fault(thread_state.device, note) == success) return result;
    Devices::instance().clear_fault(thread_state.device);
    return success;
}

int function_name(const Driver& driver, const char** name, const void* symbol) {
    int result = success;
    const CUfunction function = find_kernel(driver, symbol, result);
    return function == nullptr ? result : driver.cuFuncGetName(name, function);
}

int take_last_error() {
    const int error = thread_state.last_error;
    thread_state.last_error = success;
    return error;
}

}  // namespace
}  // namespace ingero::standin::runtime

using namespace ingero::standin;
using namespace ingero::standin::runtime;

#pragma GCC diagnostic ignored "-Wunused-parameter"

STANDIN_RUNTIME(cudaSetDevice, (int device), told(device), set_device(driver, device))
STANDIN_RUNTIME(cudaGetDevice, (int* device), told(), give(device, thread_state.device))
STANDIN_RUNTIME(cudaGetDeviceCount, (int* count), told(), driver.cuDeviceGetCount(count))
STANDIN_RUNTIME(cudaSetDeviceFlags, (unsigned flags), told(),
                driver.cuDevicePrimaryCtxSetFlags_v2(thread_state.device, flags))
STANDIN_RUNTIME(cudaGetDeviceFlags, (unsigned* flags), told(),
                give(flags, flags_of(Devices::instance().schedule(thread_state.device))))
STANDIN_RUNTIME(cudaDeviceGetAttribute, (int* value, int attribute, int device), told(),
                driver.cuDeviceGetAttribute(value, attribute, device))
STANDIN_RUNTIME(cudaDeviceReset, (void), told(), reset_device(driver))
STANDIN_RUNTIME(cudaFuncGetName, (const char** name, const void* symbol), told(), function_name(driver, name, symbol))
STANDIN_RUNTIME(cudaDriverGetVersion, (int* version), told(), driver.cuDriverGetVersion(version))
STANDIN_PLAIN(cudaRuntimeGetVersion, (int* version), told(), give(version, STANDIN_CUDART_MAJOR * 1000))

// These do not go through the function that remembers errors: reading one must not be one.
STANDIN_FUNCTION(cudaGetLastError, (void), told(), take_last_error())
STANDIN_FUNCTION(cudaPeekAtLastError, (void), told(), thread_state.last_error)

STANDIN_EXPORT const char* cudaGetErrorName(int code) {
    Call call(Fn::cudaGetErrorName);
    call.begin(Fn::cudaGetErrorName);
    const ResultName* known = find_result(code);
    call.leave(success);
    return known == nullptr ? "unrecognized error code" : known->runtime;
}

STANDIN_EXPORT const char* cudaGetErrorString(int code) {
    Call call(Fn::cudaGetErrorString);
    call.begin(Fn::cudaGetErrorString);
    const ResultName* known = find_result(code);
    call.leave(success);
    return known == nullptr ? "unrecognized error code" : known->text;
}

// What a program that the CUDA compiler made calls before main.
STANDIN_EXPORT void** __cudaRegisterFatBinary(void* binary) {
    Call call(Fn::__cudaRegisterFatBinary);
    call.begin(Fn::__cudaRegisterFatBinary);
    static void* handle = nullptr;
    handle = binary;
    call.leave(success);
    return &handle;
}

STANDIN_EXPORT void __cudaRegisterFatBinaryEnd(void** handle) {
    Call call(Fn::__cudaRegisterFatBinaryEnd);
    call.begin(Fn::__cudaRegisterFatBinaryEnd);
    call.leave(success);
}

STANDIN_EXPORT void __cudaUnregisterFatBinary(void** handle) {
    Call call(Fn::__cudaUnregisterFatBinary);
    call.begin(Fn::__cudaUnregisterFatBinary);
    call.leave(success);
}

STANDIN_EXPORT void __cudaRegisterFunction(void** handle, const char* symbol, char* device_function,
                                           const char* device_name, int thread_limit, void* thread_id, void* block_id,
                                           dim3* block, dim3* grid, int* warp_size) {
    Call call(Fn::__cudaRegisterFunction);
    if (call.is_logged()) call.tell(told(symbol).named(device_name));
    call.begin(Fn::__cudaRegisterFunction);
    register_kernel(symbol, device_name);
    call.leave(success);
}
