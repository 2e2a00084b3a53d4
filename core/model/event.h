// One stored row: a finished call with its time split. The store keeps these as columns; everything else passes them
// about as rows or walks the columns.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "bpf/event.h"

namespace ingero {

/// Source in the high byte, number in the low one: the ids that published traces use. See op.h.
using OpId = uint16_t;

/// Event::stream of a call whose stream was not recorded: only imported traces have it.
inline constexpr uint64_t unknown_stream = UINT64_MAX;

/// A task's name as the kernel keeps it: NUL-padded, not necessarily UTF-8 and never trusted.
using Comm = std::array<char, INGERO_COMM_LENGTH>;

std::string_view to_string_view(const Comm& comm);
Comm to_comm(std::string_view text);

/// The pid to show to a user: 0 where the process is outside the daemon's pid namespace.
constexpr uint32_t visible_pid(uint32_t tgid) {
    return tgid == INGERO_PID_OUTSIDE ? 0 : tgid;
}

/// Who a process is: a pid alone is reused.
struct ProcessKey {
    uint32_t pid = 0;
    uint64_t start_ns = 0;  ///< CLOCK_BOOTTIME
    auto operator<=>(const ProcessKey&) const = default;
};

struct ProcessKeyHash {
    size_t operator()(const ProcessKey& key) const {
        return std::hash<uint64_t>()(key.start_ns * 0x9e3779b97f4a7c15ULL + key.pid);
    }
};

/// A process's start as /proc has it, of the kernel's own.
constexpr uint64_t reported_start_ns(uint64_t kernel_start_ns) {
    return kernel_start_ns / INGERO_START_UNIT_NS * INGERO_START_UNIT_NS;
}

enum class BlockedReason : uint8_t {
    none = INGERO_BLOCKED_NONE,
    disk = INGERO_BLOCKED_DISK,
    network_fs = INGERO_BLOCKED_NETWORK_FS,
    futex = INGERO_BLOCKED_FUTEX,
    ioctl = INGERO_BLOCKED_IOCTL,
    page_fault = INGERO_BLOCKED_PAGE_FAULT,
    poll = INGERO_BLOCKED_POLL,
    socket = INGERO_BLOCKED_SOCKET,
    pipe = INGERO_BLOCKED_PIPE,
    child = INGERO_BLOCKED_CHILD,
    timer = INGERO_BLOCKED_TIMER,
    other = INGERO_BLOCKED_OTHER,
    stopped = INGERO_BLOCKED_STOPPED,
};

enum class WakerKind : uint8_t {
    unknown = INGERO_WAKER_UNKNOWN,
    task = INGERO_WAKER_TASK,
    interrupt = INGERO_WAKER_INTERRUPT,
};

/// "disk", "network_fs", "futex" and so on: the names used in JSON and SQL.
std::string_view to_string(BlockedReason reason);
std::string_view to_string(WakerKind kind);

/// All times CLOCK_MONOTONIC of the boot the row belongs to, in ns, unless said otherwise.
struct Event {
    uint64_t sequence = 0;  ///< from 1, never reused within a store
    uint64_t start_ns = 0;
    uint64_t duration_ns = 0;
    uint64_t runnable_ns = 0;   ///< could run and did not
    uint64_t preempted_ns = 0;  ///< the part of runnable_ns that began with a switch-out while runnable
    uint64_t blocked_ns = 0;    ///< slept
    uint64_t longest_sleep_ns = 0;
    uint64_t preemptor_ns = 0;       ///< of runnable_ns, held by the named preemptor
    uint64_t last_wait_ns = 0;       ///< the last time off the CPU in a call; 0: none, or not recorded
    uint64_t last_runnable_ns = 0;   ///< of it, could run: all of it where the thread lost its CPU, else once woken
    uint64_t tail_ns = 0;            ///< from its end to the return of the call
    std::array<uint64_t, 3> args{};  ///< by class of op, see bpf/event.h
    uint64_t stream = 0;             ///< handle; 0 is the default stream, or see unknown_stream
    uint64_t process_start_ns = 0;   ///< CLOCK_BOOTTIME
    uint32_t tgid = 0;
    uint32_t tid = 0;
    uint32_t cpu = 0;             ///< where the call returned
    uint32_t waits = 0;           ///< number of off-CPU intervals
    int32_t return_code = 0;      ///< cudaError_t or CUresult
    uint32_t preemptor_tgid = 0;  ///< 0: idle or none
    uint32_t waker_tgid = 0;
    uint32_t stack = 0;   ///< native stack at entry, a key of the store's stacks; 0: none
    uint32_t weight = 1;  ///< calls that this row stands for: more than 1 where the op was thinned
    /// How often its times count: less than `weight` where it was seen in a slice, since the probes took a part of that
    /// and not of the time that the row stands for. 0: as often as `weight`.
    uint32_t time_weight = 0;
    OpId op = 0;
    uint16_t blocked_syscall = 0xffff;
    uint16_t device = INGERO_DEVICE_UNKNOWN;  ///< ordinal, current for the thread when the call returned
    uint8_t depth = 0;
    uint8_t flags = 0;  ///< INGERO_CALL_*
    BlockedReason blocked_reason = BlockedReason::none;
    BlockedReason last_reason = BlockedReason::none;  ///< of the sleep that last_wait_ns began with
    WakerKind waker_kind = WakerKind::unknown;
    Comm preemptor_comm{};
    Comm waker_comm{};

    uint64_t end_ns() const { return start_ns + duration_ns; }
    uint32_t times() const { return time_weight == 0 ? weight : time_weight; }
    /// The thread ran: not the same as work, since synchronising calls spin.
    uint64_t on_cpu_ns() const {
        const uint64_t off = runnable_ns + blocked_ns;
        return duration_ns > off ? duration_ns - off : 0;
    }
    bool split_uncertain() const { return flags & INGERO_CALL_SPLIT_UNCERTAIN; }
    ProcessKey process() const { return {tgid, process_start_ns}; }
};

}  // namespace ingero
