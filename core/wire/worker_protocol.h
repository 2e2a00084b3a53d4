// What those that start workers and the workers agree on: MessagePack-RPC over a socketpair, descriptors by SCM_RIGHTS
// with the first byte of the request they belong to. Methods and their parameters: docs/worker.md.
#pragma once

#include "core/wire/rpc.h"

namespace ingero {

/// The worker's end of the socketpair has this number while it serves.
inline constexpr int worker_socket_fd = 3;
/// Of a worker that speaks MCP: its client.
inline constexpr int worker_client_fd = 4;
/// The only other one it may write to: a copy of the store goes there, or an answer to a client. Above all that it has
/// open.
inline constexpr int worker_output_fd = 15;

/// Wider than on the control socket: the peer is our own program. Its output is still untrusted, since it has read
/// foreign bytes.
inline constexpr RpcLimits worker_rpc_limits{
    .message_bytes = 32 << 20, .depth = 16, .string_bytes = 64 << 10, .elements = 1'000'000};

/// The notification a worker sends first, once it is sandboxed: dying before it is a failure to start.
inline constexpr const char* worker_ready = "ready";
/// The notification of a worker that begins to answer a client on its own connection: its request had the parameter
/// answer_to, the id that the client waits for, and that connection as descriptor. The response on the worker's own
/// socket follows when all is written: null, or the code of the error that the client was sent.
inline constexpr const char* worker_answers = "answers";
/// What a worker that speaks MCP asks before it looks for an answer: null comes once it may. From then on its deadline
/// runs, and few others look, until it notifies that it is done.
inline constexpr const char* session_turn = "turn";
inline constexpr const char* session_idle = "idle";

}  // namespace ingero
