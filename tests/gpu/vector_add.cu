// Allocates, copies, launches, waits, frees: one round is one vector addition. Each round launches once by <<<>>> and
// once by the function. Built with `--default-stream per-thread` too, which is other functions of the runtime.
#include <vector>

#include "runtime.h"

namespace {

constexpr int count = 1 << 16;
constexpr int block = 256;
constexpr size_t bytes = count * sizeof(float);

__global__ void add(const float* a, const float* b, float* sum, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}

bool add_once(const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& sum) {
    void *first = nullptr, *second = nullptr, *result = nullptr;
    COUNTED(cudaMalloc, &first, bytes);
    COUNTED(cudaMalloc, &second, bytes);
    COUNTED(cudaMalloc, &result, bytes);
    COUNTED(cudaMemcpy, first, a.data(), bytes, cudaMemcpyHostToDevice);
    COUNTED(cudaMemcpy, second, b.data(), bytes, cudaMemcpyHostToDevice);
    COUNTED(cudaMemset, result, 0, bytes);
    COUNTED_LAUNCH(add<<<count / block, block>>>(static_cast<float*>(first), static_cast<float*>(second),
                                                 static_cast<float*>(result), count));
    // The sum once more, with itself in place of the first: a + b + b.
    int n = count;
    void* arguments[] = {&result, &second, &result, &n};
    COUNTED(cudaLaunchKernel, reinterpret_cast<const void*>(add), dim3(count / block), dim3(block), arguments, 0,
            nullptr);
    COUNTED(cudaDeviceSynchronize);
    const bool copied = COUNTED(cudaMemcpy, sum.data(), result, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    COUNTED(cudaFree, first);
    COUNTED(cudaFree, second);
    COUNTED(cudaFree, result);
    for (int i = 0; copied && i < count; ++i)
        if (sum[i] != a[i] + b[i] + b[i]) return false;
    return copied;
}

}  // namespace

int main(int argc, char** argv) {
    const counted::Options options = counted::read_options(argc, argv);
    begin(options);
    std::vector<float> a(count), b(count), sum(count);
    for (int i = 0; i < count; ++i) {
        a[i] = static_cast<float>(i % 1000);
        b[i] = static_cast<float>(i % 777);
    }
    bool right = true;
    for (unsigned round = 0; round < options.rounds; ++round) right = add_once(a, b, sum) && right;
    return counted::finish(right);
}
