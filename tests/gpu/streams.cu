// Two streams, copies from pinned and from pageable memory, events, host functions, pools: all that is asynchronous.
// Two threads do it at once.
#include <atomic>
#include <thread>
#include <vector>

#include "runtime.h"

namespace {

constexpr size_t bytes = 1 << 20;
constexpr int block = 256;
constexpr int count = bytes / sizeof(int);

__global__ void increment(int* values, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i]++;
}

void CUDART_CB on_host(void* data) {
    ++*static_cast<std::atomic<unsigned>*>(data);
}

/// Host memory in which all numbers are 1 comes back as 3: incremented once in each of two streams.
bool work(cudaStream_t first, cudaStream_t second, cudaEvent_t event, int* host, std::atomic<unsigned>* called) {
    for (int i = 0; host && i < count; ++i) host[i] = 1;
    void* device = nullptr;
    COUNTED(cudaMallocAsync, &device, bytes, first);
    COUNTED(cudaMemsetAsync, device, 0, bytes, first);
    COUNTED(cudaMemcpyAsync, device, host, bytes, cudaMemcpyHostToDevice, first);
    COUNTED_LAUNCH(increment<<<count / block, block, 0, first>>>(static_cast<int*>(device), count));
    (void)cudaEventRecord(event, first);
    COUNTED(cudaStreamWaitEvent, second, event, 0);
    COUNTED_LAUNCH(increment<<<count / block, block, 0, second>>>(static_cast<int*>(device), count));
    COUNTED(cudaMemcpyAsync, host, device, bytes, cudaMemcpyDeviceToHost, second);
    COUNTED(cudaLaunchHostFunc, second, on_host, called);
    COUNTED(cudaFreeAsync, device, second);
    (void)cudaEventRecord(event, second);
    COUNTED(cudaEventSynchronize, event);
    COUNTED(cudaStreamSynchronize, first);
    const bool done = COUNTED(cudaStreamSynchronize, second) == cudaSuccess;
    return done && host && host[0] == 3 && host[count - 1] == 3;
}

bool run_thread(unsigned rounds) {
    COUNTED(cudaSetDevice, 0);
    cudaStream_t first = nullptr, second = nullptr;
    cudaEvent_t event = nullptr;
    (void)cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    (void)cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    (void)cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    void *pinned = nullptr, *mapped = nullptr;
    if (COUNTED(cudaMallocHost, &pinned, bytes) != cudaSuccess) pinned = nullptr;
    if (COUNTED(cudaHostAlloc, &mapped, bytes, cudaHostAllocDefault) != cudaSuccess) mapped = nullptr;
    std::vector<int> pageable(count);
    std::atomic<unsigned> called{0};
    bool right = true;
    for (unsigned round = 0; round < rounds; ++round)
        for (int* host : {static_cast<int*>(pinned), static_cast<int*>(mapped), pageable.data()})
            right = work(first, second, event, host, &called) && right;
    right = right && called == 3 * rounds;
    COUNTED(cudaFreeHost, pinned);
    COUNTED(cudaFreeHost, mapped);
    (void)cudaEventDestroy(event);
    (void)cudaStreamDestroy(first);
    (void)cudaStreamDestroy(second);
    return right;
}

}  // namespace

int main(int argc, char** argv) {
    const counted::Options options = counted::read_options(argc, argv);
    begin(options);
    bool other_right = false;
    std::thread other([&] { other_right = run_thread(options.rounds); });
    const bool right = run_thread(options.rounds);
    other.join();
    return counted::finish(right && other_right);
}
