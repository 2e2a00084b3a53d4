// Captures a stream into a graph, makes an executable of it in each way that there is, and launches it.
#include "runtime.h"

namespace {

constexpr int launches = 20;

__global__ void increment(int* value) {
    ++*value;
}

cudaGraph_t capture(cudaStream_t stream, int* value, int kernels) {
    cudaGraph_t graph = nullptr;
    COUNTED(cudaStreamBeginCapture, stream, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < kernels; ++i) {
        COUNTED_LAUNCH(increment<<<1, 1, 0, stream>>>(value));
    }
    COUNTED(cudaStreamEndCapture, stream, &graph);
    return graph;
}

void launch(cudaGraphExec_t executable, cudaStream_t stream, int times) {
    for (int i = 0; i < times; ++i) COUNTED(cudaGraphLaunch, executable, stream);
}

/// What the kernels of one round add up to, or -1.
int run_round(cudaStream_t stream) {
    void* value = nullptr;
    COUNTED(cudaMalloc, &value, sizeof(int));
    COUNTED(cudaMemset, value, 0, sizeof(int));
    const cudaGraph_t graph = capture(stream, static_cast<int*>(value), 3);
    cudaGraphExec_t plain = nullptr, flagged = nullptr, with_params = nullptr;
    COUNTED(cudaGraphInstantiate, &plain, graph, 0);
    COUNTED(cudaGraphInstantiateWithFlags, &flagged, graph, 0);
    cudaGraphInstantiateParams params{};
    COUNTED(cudaGraphInstantiateWithParams, &with_params, graph, &params);
    COUNTED(cudaGraphUpload, plain, stream);
    launch(plain, stream, launches);
    launch(flagged, stream, 1);
    launch(with_params, stream, 1);
    COUNTED(cudaStreamSynchronize, stream);
    cudaGraphExecUpdateResultInfo update{};
    COUNTED(cudaGraphExecUpdate, plain, graph, &update);
    launch(plain, stream, launches);
    COUNTED(cudaStreamSynchronize, stream);
    int result = -1;
    if (COUNTED(cudaMemcpy, &result, value, sizeof result, cudaMemcpyDeviceToHost) != cudaSuccess) result = -1;
    for (const cudaGraphExec_t executable : {plain, flagged, with_params}) COUNTED(cudaGraphExecDestroy, executable);
    COUNTED(cudaGraphDestroy, graph);
    COUNTED(cudaFree, value);
    return result;
}

}  // namespace

int main(int argc, char** argv) {
    const counted::Options options = counted::read_options(argc, argv);
    begin(options);
    cudaStream_t stream = nullptr;
    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    bool right = true;
    for (unsigned round = 0; round < options.rounds; ++round)
        right = run_round(stream) == 3 * (2 * launches + 2) && right;
    (void)cudaStreamDestroy(stream);
    return counted::finish(right);
}
