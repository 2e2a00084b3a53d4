// Graphs: what is captured from a stream is kept as one length of device time, and a launch of the graph takes that.
#include "variants.h"

namespace ingero::standin {
namespace {

Graph* find_graph(CUgraph graph) {
    return Devices::instance().find_graph(from_pointer(graph), false);
}
Graph* find_exec(CUgraphExec exec) {
    return Devices::instance().find_graph(from_pointer(exec), true);
}

int begin_capture(Stream& stream) {
    return stream.begin_capture() ? success : capture_unsupported;
}

int end_capture(Stream& stream, CUgraph* graph) {
    Graph captured;
    if (graph == nullptr) return invalid_value;
    if (!stream.end_capture(captured)) return capture_illegal_state;
    return give_handle(graph, Devices::instance().add_graph(captured, false));
}

int create(CUgraph* graph) {
    return give_handle(graph, graph == nullptr ? 0 : Devices::instance().add_graph({}, false));
}

int instantiate(CUgraphExec* exec, CUgraph handle) {
    if (exec == nullptr) return invalid_value;
    const Graph* graph = find_graph(handle);
    return graph == nullptr ? int(invalid_handle) : give_handle(exec, Devices::instance().add_graph(*graph, true));
}

int instantiate(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
    if (parameters == nullptr) return invalid_value;
    const int result = instantiate(exec, graph);
    parameters->hErrNode_out = nullptr;
    parameters->result_out = result == success ? 0 : 1;
    return result;
}

uint64_t flags_of(const CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
    return parameters == nullptr ? 0 : parameters->flags;
}

template <typename Info>
int update(CUgraphExec exec, CUgraph graph, Info* info) {
    const Graph* from = find_graph(graph);
    Graph* to = find_exec(exec);
    if (from == nullptr || to == nullptr) return invalid_handle;
    *to = *from;
    if (info != nullptr) *info = {};
    return success;
}

int launch(Call& call, Stream& stream, CUgraphExec exec) {
    const Graph* graph = find_exec(exec);
    if (graph == nullptr) return invalid_handle;
    if (graph->fault != 0) thread_state.pending_fault = graph->fault;
    stream.enqueue(graph->duration_ns, call.note);
    return success;
}

int destroy(uint64_t handle, bool executable) {
    return Devices::instance().destroy_graph(handle, executable) ? success : invalid_handle;
}

}  // namespace
}  // namespace ingero::standin

using namespace ingero::standin;

#pragma GCC diagnostic ignored "-Wunused-parameter"

STANDIN_WITH_PTSZ(cuStreamBeginCapture, (CUstream stream), stream, told(), begin_capture(stream))
STANDIN_WITH_PTSZ(cuStreamBeginCapture_v2, (CUstream stream, int mode), stream, told(0, 0, mode), begin_capture(stream))
STANDIN_WITH_PTSZ(cuStreamEndCapture, (CUstream stream, CUgraph* graph), stream, told().gives(0, graph),
                  end_capture(stream, graph))
STANDIN_WITH_PTSZ(cuStreamIsCapturing, (CUstream stream, int* status), stream, told(), give(status, stream.capturing()))

STANDIN_FUNCTION(cuGraphCreate, (CUgraph * graph, unsigned flags), told(), create(graph))
STANDIN_FUNCTION(cuGraphInstantiate,
                 (CUgraphExec * exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_size),
                 told(graph).gives(1, exec), instantiate(exec, graph))
STANDIN_FUNCTION(cuGraphInstantiate_v2,
                 (CUgraphExec * exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_size),
                 told(graph).gives(1, exec), instantiate(exec, graph))
STANDIN_FUNCTION(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
                 told(graph, 0, flags).gives(1, exec), instantiate(exec, graph))
// The stream is in the parameters, and stream 0 of the _ptsz form is for the upload only: nothing to simulate.
STANDIN_FUNCTION(cuGraphInstantiateWithParams,
                 (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                 told(graph, 0, flags_of(parameters)).gives(1, exec), instantiate(exec, graph, parameters))
STANDIN_FUNCTION(cuGraphInstantiateWithParams_ptsz,
                 (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                 told(graph, 0, flags_of(parameters)).gives(1, exec), instantiate(exec, graph, parameters))
STANDIN_FUNCTION(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, int* info),
                 told(graph, exec), update(exec, graph, info))
STANDIN_FUNCTION(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info),
                 told(graph, exec), update(exec, graph, info))

STANDIN_WITH_PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), stream, told(0, exec),
                  find_exec(exec) == nullptr ? invalid_handle : success)
STANDIN_WITH_PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), stream, told(0, exec), launch(call, stream, exec))
STANDIN_FUNCTION(cuGraphDestroy, (CUgraph graph), told(graph), destroy(from_pointer(graph), false))
STANDIN_FUNCTION(cuGraphExecDestroy, (CUgraphExec exec), told(0, exec), destroy(from_pointer(exec), true))
