// Records of the rings, of any length and content, up to the lines that a reader sees of them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/model/host_event.h"
#include "core/render/trace.h"
#include "daemon/ingerod/ingest/ingest.h"
#include "daemon/ingerod/probes/in_flight.h"

namespace {

void show(ingero::TracedCall traced) {
    traced.comm = ingero::to_string_view(traced.call.preemptor_comm);
    const auto lines = ingero::trace_lines(ingero::trace_chunk({traced}, traced.call.weight % 2), "node");
    if (lines.empty()) abort();
    for (const auto& line : lines)
        if (ingero::text_trace(line).empty()) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
    ingero::TracedCall traced;
    if (ingero::decode_call(bytes, traced.call)) show(traced);
    ingero::FunctionRow function;
    uint64_t name_address = 0;
    (void)ingero::decode_function(bytes, function, name_address);
    ingero::CommunicatorRow communicator;
    (void)ingero::decode_communicator(bytes, communicator);
    ingero::WaitRow wait;
    if (ingero::decode_wait(bytes, wait)) {
        ingero::Event request;
        (void)ingero::wait_detail_text(wait.event);
        (void)ingero::request_of_wait(wait.event, request);
    }
    ingero::SocketRow socket;
    if (ingero::decode_socket(bytes, socket)) (void)ingero::peer_text(socket.event);
    ingero::InFlightCall call;
    if (ingero::decode_in_flight(bytes, call)) {
        traced.call = call.call;
        traced.activity = call.activity;
        traced.activity_ns = call.activity_ns;
        show(traced);
    }
    return 0;
}
