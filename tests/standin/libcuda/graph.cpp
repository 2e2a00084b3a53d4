// Graphs: what is captured from a stream is kept as one length of device time, and a launch of the graph takes that.
#include "variants.h"

namespace ingero::standin {
namespace {

int begin_capture(Stream& stream) { return stream.begin_capture() ? success : capture_unsupported; }

int end_capture(Stream& stream, CUgraph* graph) {
    Graph captured;
    if (graph == nullptr) return invalid_value;
    if (!stream.end_capture(captured)) return capture_illegal_state;
    *graph = to_pointer<CUgraph>(Devices::instance().add_graph(captured, false));
    return *graph == nullptr ? out_of_memory : success;
}

int is_capturing(Stream& stream, int* status) {
    if (status == nullptr) return invalid_value;
    *status = stream.capturing() ? 1 : 0;
    return success;
}

int instantiate(CUgraphExec* exec, CUgraph handle) {
    if (exec == nullptr) return invalid_value;
    const Graph* graph = Devices::instance().find_graph(from_pointer(handle), false);
    if (graph == nullptr) return invalid_handle;
    *exec = to_pointer<CUgraphExec>(Devices::instance().add_graph(*graph, true));
    return *exec == nullptr ? out_of_memory : success;
}

int instantiate(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
    if (parameters == nullptr) return invalid_value;
    const int result = instantiate(exec, graph);
    parameters->hErrNode_out = nullptr;
    parameters->result_out = result == success ? 0 : 1;
    return result;
}

int update(CUgraphExec exec, CUgraph graph) {
    const Graph* from = Devices::instance().find_graph(from_pointer(graph), false);
    Graph* to = Devices::instance().find_graph(from_pointer(exec), true);
    if (from == nullptr || to == nullptr) return invalid_handle;
    *to = *from;
    return success;
}

int launch(Call& call, Stream& stream, CUgraphExec exec) {
    const Graph* graph = Devices::instance().find_graph(from_pointer(exec), true);
    if (graph == nullptr) return invalid_handle;
    stream.enqueue(graph->duration_ns, call.note);
    return success;
}

}  // namespace
}  // namespace ingero::standin

using namespace ingero::standin;

#pragma GCC diagnostic ignored "-Wunused-parameter"

STANDIN_WITH_PTSZ(cuStreamBeginCapture, (CUstream stream), stream, return begin_capture(stream);)

STANDIN_WITH_PTSZ(cuStreamBeginCapture_v2, (CUstream stream, int mode), stream, return begin_capture(stream);)

STANDIN_WITH_PTSZ(cuStreamEndCapture, (CUstream stream, CUgraph* graph), stream, return end_capture(stream, graph);)

STANDIN_WITH_PTSZ(cuStreamIsCapturing, (CUstream stream, int* status), stream, return is_capturing(stream, status);)

STANDIN_FUNCTION(cuGraphCreate, (CUgraph * graph, unsigned flags), if (graph == nullptr) return invalid_value;
                 *graph = to_pointer<CUgraph>(Devices::instance().add_graph({}, false));
                 return *graph == nullptr ? out_of_memory : success;)

STANDIN_FUNCTION(cuGraphInstantiate,
                 (CUgraphExec * exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_size),
                 return instantiate(exec, graph);)

STANDIN_FUNCTION(cuGraphInstantiate_v2,
                 (CUgraphExec * exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_size),
                 return instantiate(exec, graph);)

STANDIN_FUNCTION(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
                 return instantiate(exec, graph);)

// The stream is in the parameters, and stream 0 of the _ptsz form is for the upload only: nothing to simulate.
STANDIN_FUNCTION(cuGraphInstantiateWithParams,
                 (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                 return instantiate(exec, graph, parameters);)

STANDIN_FUNCTION(cuGraphInstantiateWithParams_ptsz,
                 (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                 return instantiate(exec, graph, parameters);)

STANDIN_FUNCTION(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, int* result),
                 if (result != nullptr) *result = 0;
                 return update(exec, graph);)

STANDIN_FUNCTION(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info),
                 if (info != nullptr) *info = {};
                 return update(exec, graph);)

STANDIN_WITH_PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), stream,
                  return Devices::instance().find_graph(from_pointer(exec), true) == nullptr ? invalid_handle : success;)

STANDIN_WITH_PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), stream, return launch(call, stream, exec);)

STANDIN_FUNCTION(cuGraphDestroy, (CUgraph graph),
                 return Devices::instance().destroy_graph(from_pointer(graph), false) ? success : invalid_handle;)

STANDIN_FUNCTION(cuGraphExecDestroy, (CUgraphExec exec),
                 return Devices::instance().destroy_graph(from_pointer(exec), true) ? success : invalid_handle;)
