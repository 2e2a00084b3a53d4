#include "core/model/host_event.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>

#include <array>
#include <cstring>

#include "core/model/text/format.h"
#include "core/model/time.h"

namespace ingero {

namespace {

// Operations of the block layer, linux/blk_types.h.
enum : uint8_t { block_read = 0, block_write = 1, block_flush = 2, block_discard = 3, block_write_zeroes = 9 };

std::string_view request_name(uint8_t kind) {
    switch (kind) {
        case block_read:
            return "read";
        case block_write:
        case block_write_zeroes:
            return "write";
        case block_flush:
            return "flush";
        case block_discard:
            return "discard";
        default:
            return "request";
    }
}

// As the kernel keeps a device's number.
constexpr unsigned minor_bits = 20;
std::string device_text(uint64_t device) {
    return std::to_string(device >> minor_bits) + ":" + std::to_string(device & ((1U << minor_bits) - 1));
}

}  // namespace

std::string socket_address_text(const std::array<uint64_t, 2>& address, uint16_t port) {
    std::array<uint8_t, sizeof(address)> bytes;
    memcpy(bytes.data(), address.data(), bytes.size());
    constexpr std::array<uint8_t, 12> mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const bool v4 = memcmp(bytes.data(), mapped.data(), mapped.size()) == 0;
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(v4 ? AF_INET : AF_INET6, bytes.data() + (v4 ? mapped.size() : 0), text, sizeof(text));
    const std::string host = text;
    return (v4 ? host : "[" + host + "]") + ":" + std::to_string(port);
}

std::string peer_text(const Event& event) {
    const auto port = [](uint64_t ports) { return static_cast<uint16_t>(ports >> 16); };
    if (event.op == op_retransmit || event.op == op_socket_error)
        return socket_address_text({event.args[0], event.args[1]}, port(event.stream));
    if (event.op == op_wait && wait_detail(event) == WaitDetail::socket)
        return socket_address_text({event.args[1], event.args[2]}, port(event.stream));
    return {};
}

std::string wait_detail_text(const Event& wait) {
    if (wait.op != op_wait) return {};
    char lock[32];
    switch (wait_detail(wait)) {
        case WaitDetail::lock:
            snprintf(lock, sizeof(lock), "lock 0x%" PRIx64, wait.args[1]);
            return lock;
        case WaitDetail::file:
            return "file " + device_text(wait.args[1]) + " inode " + std::to_string(wait.args[2]);
        case WaitDetail::socket:
            return peer_text(wait);
        case WaitDetail::local_socket:
            return "pid " + std::to_string(wait.args[1]);
        case WaitDetail::request:
            return std::string(request_name(static_cast<uint8_t>(wait.args[2]))) +
                   (static_cast<uint8_t>(wait.args[2]) == block_flush ? "" : " of " + format_bytes(wait.args[2] >> 8)) +
                   (static_cast<uint8_t>(wait.args[2]) == block_read ? " from " : " to ") + device_text(wait.args[1]) +
                   " in " + format_duration(wait.stream);
        default:
            return {};
    }
}

bool request_of_wait(const Event& wait, Event& ret_request) {
    if (wait.op != op_wait || wait_detail(wait) != WaitDetail::request) return false;
    const auto kind = static_cast<uint8_t>(wait.args[2]);
    const uint64_t device = wait.args[1];
    ret_request = Event{};
    ret_request.op = kind == block_read      ? op_block_read
                     : kind == block_flush   ? op_block_flush
                     : kind == block_discard ? op_block_discard
                                             : op_block_write;
    // It was complete when it woke the thread.
    const uint64_t done = wait.start_ns + wait.blocked_ns;
    ret_request.duration_ns = wait.stream < done ? wait.stream : 0;
    ret_request.start_ns = done - ret_request.duration_ns;
    ret_request.args = {wait.args[2] >> 8, (device >> minor_bits) << 32 | (device & ((1U << minor_bits) - 1)), kind};
    ret_request.process_start_ns = wait.process_start_ns;
    ret_request.tgid = wait.tgid;
    ret_request.tid = wait.tid;
    ret_request.cpu = wait.cpu;
    ret_request.device = INGERO_DEVICE_UNKNOWN;
    ret_request.depth = wait.depth;
    return true;
}

}  // namespace ingero
