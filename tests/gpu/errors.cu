// Errors on purpose, of the kind that leave the device as it was, and a walk over the devices.
#include "runtime.h"

namespace {

__global__ void nothing() {}

/// What fails is to fail with this; without a GPU everything fails, with another.
bool run_round() {
    bool right = true;
    const auto expect = [&](cudaError_t result, cudaError_t wanted, cudaError_t or_wanted = cudaSuccess) {
        right = right && (result == wanted || (or_wanted != cudaSuccess && result == or_wanted));
        (void)cudaGetLastError();
    };
    void* pointer = nullptr;
    int devices = 0;
    (void)cudaGetDeviceCount(&devices);
    for (int device = 0; device < devices; ++device) expect(COUNTED(cudaSetDevice, device), cudaSuccess);
    expect(COUNTED(cudaSetDevice, 9999), cudaErrorInvalidDevice);
    expect(COUNTED(cudaSetDevice, 0), cudaSuccess);
    expect(COUNTED(cudaMalloc, &pointer, size_t{1} << 50), cudaErrorMemoryAllocation);
    expect(COUNTED(cudaMalloc, nullptr, 16), cudaErrorInvalidValue);
    expect(COUNTED(cudaMemcpy, nullptr, nullptr, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    expect(COUNTED(cudaMemcpyAsync, nullptr, nullptr, 16, cudaMemcpyDeviceToHost, nullptr), cudaErrorInvalidValue);
    expect(COUNTED(cudaLaunchKernel, reinterpret_cast<const void*>(nothing), dim3(1), dim3(4096), nullptr, 0, nullptr),
           cudaErrorInvalidConfiguration, cudaErrorInvalidValue);  // the latter from CUDA 13 on
    COUNTED_LAUNCH(nothing<<<1, dim3(2048, 2)>>>());
    COUNTED_LAUNCH(nothing<<<1, 32>>>());
    expect(COUNTED(cudaDeviceSynchronize), cudaSuccess);
    return right;
}

}  // namespace

int main(int argc, char** argv) {
    const counted::Options options = counted::read_options(argc, argv);
    begin(options);
    bool right = true;
    for (unsigned round = 0; round < options.rounds; ++round) right = run_round() && right;
    return counted::finish(right);
}
