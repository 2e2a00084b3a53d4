// Rows of what the kernel does to a thread, beside those of calls: waits off the CPU, block requests, memory reclaim,
// interrupts, sockets. They are Events whose op is no call (is_call), with these meanings of their fields.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/event.h"
#include "core/model/op.h"

namespace ingero {

/// A thread off the CPU once, or many times each for short: durations, runnable, blocked, preemptor and waker as of a
/// call; depth is that of the calls it was inside of, 0: between calls.
inline constexpr OpId op_wait = INGERO_OP_WAIT;
/// Summed: the duration is that of all of them; args are the time that interrupts took of the thread, from the start on
/// how long was summed, and how often the thread was moved to another CPU in that time, in long waits too.
inline constexpr OpId op_waits_summed = INGERO_OP_WAITS_SUMMED;
inline constexpr OpId op_direct_reclaim =
    INGERO_OP_DIRECT_RECLAIM;                              ///< args[0]: pages, args[1]: how many times, in one record
inline constexpr OpId op_interrupt = INGERO_OP_INTERRUPT;  ///< args[0]: its number
inline constexpr OpId op_soft_interrupt = INGERO_OP_SOFT_INTERRUPT;  ///< args[0]: its vector
/// The request that ended a wait of its thread: args are bytes, device (major << 32 | minor), operation of the block
/// layer.
inline constexpr OpId op_block_read = op::block_read;
inline constexpr OpId op_block_write = op::block_write;
inline constexpr OpId op_block_discard = op::block_discard;
inline constexpr OpId op_block_flush = op::block_flush;
/// args: address of the other end in 16 bytes, as in WaitDetail::socket, and, of a retransmit, for how many ns nothing
/// that was sent had arrived by then (0: not known); stream: ports. return_code: errno.
inline constexpr OpId op_retransmit = INGERO_OP_RETRANSMIT;
inline constexpr OpId op_socket_error = INGERO_OP_SOCKET_ERROR;
/// Of the process that was killed, traced or not; before Linux 6.8 only where its first thread is watched.
inline constexpr OpId op_oom_kill = INGERO_OP_OOM_KILL;
inline constexpr OpId op_exec = op::process_exec;
inline constexpr OpId op_exit = op::process_exit;  ///< return_code: as wait(2) reports it

/// In return_code of op_wait: the thread's cgroup had used up its quota, which is why it had no CPU.
inline constexpr int32_t wait_throttled = 0x100;

/// What a wait was about, of op_wait: in the low byte of return_code, with args[1], args[2] and stream as bpf/event.h
/// has detail[0..2].
enum class WaitDetail : int32_t {
    none = INGERO_DETAIL_NONE,
    lock = INGERO_DETAIL_LOCK,
    file = INGERO_DETAIL_FILE,
    socket = INGERO_DETAIL_SOCKET,
    local_socket = INGERO_DETAIL_LOCAL_SOCKET,
    request = INGERO_DETAIL_REQUEST,
};

/// Of op_wait and op_waits_summed.
struct WaitPlace {
    uint32_t waker_tid = 0;      ///< 0: not known, or no task
    uint16_t from_cpu = 0;       ///< that the thread left
    bool waker_watched = false;  ///< for all of the sleep: what the waker did meanwhile has rows too
};
constexpr uint64_t pack_wait_place(WaitPlace place) {
    return place.waker_tid | uint64_t{place.from_cpu} << 32 | uint64_t{place.waker_watched} << 48;
}
constexpr WaitPlace wait_place(const Event& wait) {
    return {static_cast<uint32_t>(wait.args[0]), static_cast<uint16_t>(wait.args[0] >> 32),
            (wait.args[0] >> 48 & 1) != 0};
}

constexpr WaitDetail wait_detail(const Event& wait) {
    return static_cast<WaitDetail>(wait.return_code & 0xff);
}
constexpr bool is_throttled(const Event& wait) {
    return wait.op == op_wait && (wait.return_code & wait_throttled) != 0;
}

/// "10.0.0.7:5000", "[fe80::1]:80": `address` in 16 bytes of network order, v4 mapped.
std::string socket_address_text(const std::array<uint64_t, 2>& address, uint16_t port);
/// The other end of a socket, of a wait for one, a retransmit or an error; empty: not known.
std::string peer_text(const Event& event);
/// "lock 0x7f..", "file 259:1 inode 77", "10.0.0.7:5000", "pid 77", "write of 4.00 KiB to 259:0 in 1.2 ms";
/// empty: none.
std::string wait_detail_text(const Event& wait);
/// Its time, size and device, of a wait that a block request ended: the row that is stored beside it.
bool request_of_wait(const Event& wait, Event& ret_request);

}  // namespace ingero
