#include "daemon/ingerod/footprint/footprint_tally.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

namespace ingero {

namespace {

constexpr size_t max_pending = 16'384;
constexpr int max_errno = 4'095;

struct OpenFlag {
    uint64_t value;
    const char* name;
};

#ifndef O_TMPFILE
#error "needs _GNU_SOURCE"
#endif
// Flags that change what is done to the file; O_CLOEXEC and the like do not matter, and would distinguish like files.
// O_TMPFILE holds the bit of O_DIRECTORY.
constexpr OpenFlag open_flags[] = {
    {O_CREAT, "O_CREAT"},     {O_EXCL, "O_EXCL"},           {O_TRUNC, "O_TRUNC"}, {O_APPEND, "O_APPEND"},
    {O_TMPFILE, "O_TMPFILE"}, {O_DIRECTORY, "O_DIRECTORY"}, {O_PATH, "O_PATH"},   {O_NOFOLLOW, "O_NOFOLLOW"},
};

constexpr uint64_t shown_flags = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_TMPFILE | O_PATH | O_NOFOLLOW;

std::vector<std::string> names_of_flags(uint64_t flags) {
    constexpr const char* modes[] = {"O_RDONLY", "O_WRONLY", "O_RDWR", "O_NOACCESS"};
    std::vector<std::string> names = {modes[flags & O_ACCMODE]};
    for (const OpenFlag& flag : open_flags) {
        if ((flags & flag.value) != flag.value) continue;
        names.emplace_back(flag.name);
        flags &= ~flag.value;
    }
    return names;
}

/// Names innermost first, each with its NUL, to "/outer/inner".
std::string path_of(std::span<const char> base, uint16_t bits) {
    std::vector<std::string_view> names;
    for (size_t at = 0; at < base.size();) {
        const std::string_view rest(base.data() + at, base.size() - at);
        const size_t length = std::min(rest.find('\0'), rest.size());
        names.push_back(rest.substr(0, length));
        at += length + 1;
    }
    std::string path;
    if (bits & INGERO_FOOTPRINT_BASE_CUT) path = "…";
    const bool detached = (bits & INGERO_FOOTPRINT_DETACHED) != 0;
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
        if (!detached || name != names.rbegin()) path += '/';
        path += *name;
    }
    return path.empty() ? "/" : path;
}

std::string_view text_of(std::span<const char> bytes) {
    const std::string_view text(bytes.data(), bytes.size());
    return text.substr(0, text.find('\0'));
}

std::string action_of(uint16_t number) {
    switch (number) {
        case SYS_connect:
            return "connect";
        case SYS_bind:
            return "bind";
        case SYS_accept:
        case SYS_accept4:
            return "accept";
        default:
            return "send";
    }
}

std::string family_name(uint16_t family) {
    switch (family) {
        case AF_UNIX:
            return "unix";
        case AF_INET:
            return "inet";
        case AF_INET6:
            return "inet6";
        case AF_NETLINK:
            return "netlink";
        case AF_PACKET:
            return "packet";
        case AF_VSOCK:
            return "vsock";
        case AF_ALG:
            return "alg";
        case AF_UNSPEC:
            return "none";
        default:
            return std::to_string(family);
    }
}

std::string transport_name(uint16_t family, uint16_t type, uint16_t protocol) {
    if (family == AF_INET || family == AF_INET6) {
        switch (protocol) {
            case IPPROTO_TCP:
                return "tcp";
            case IPPROTO_UDP:
                return "udp";
            case IPPROTO_ICMP:
            case IPPROTO_ICMPV6:
                return "icmp";
            default:
                break;
        }
    }
    switch (type) {
        case SOCK_STREAM:
            return "stream";
        case SOCK_DGRAM:
            return "dgram";
        case SOCK_RAW:
            return "raw";
        case SOCK_SEQPACKET:
            return "seqpacket";
        default:
            return "";
    }
}

struct Address {
    uint16_t family = AF_UNSPEC;
    std::string text{};
    std::optional<uint16_t> port{};
};

/// Without what the kernel does not read of it: padding, and what follows a path's NUL.
Address parse_address(std::string_view bytes) {
    Address result;
    if (bytes.size() < sizeof result.family) return result;
    std::memcpy(&result.family, bytes.data(), sizeof result.family);
    char text[INET6_ADDRSTRLEN] = {};
    if (result.family == AF_INET && bytes.size() >= sizeof(sockaddr_in)) {
        sockaddr_in address;
        std::memcpy(&address, bytes.data(), sizeof address);
        result.text = inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
        result.port = ntohs(address.sin_port);
    } else if (result.family == AF_INET6 && bytes.size() >= offsetof(sockaddr_in6, sin6_scope_id)) {
        sockaddr_in6 address{};
        std::memcpy(&address, bytes.data(), std::min(sizeof address, bytes.size()));
        result.text = inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
        result.port = ntohs(address.sin6_port);
    } else if (result.family == AF_UNIX && bytes.size() > sizeof result.family) {
        const std::string_view path = bytes.substr(sizeof result.family);
        // An abstract name is all of its bytes; a path ends at its NUL.
        result.text =
            path[0] == '\0' ? '@' + std::string(path.substr(1)) : std::string(path.substr(0, path.find('\0')));
    }
    return result;
}

Outcome outcome_of(int64_t result) {
    return result < 0 && result >= -max_errno ? static_cast<int>(-result) : 0;
}

}  // namespace

template <class Key>
void FootprintTally::count(std::map<Key, uint64_t>& rows, Key key, size_t bytes, size_t most, uint64_t& left_out) {
    if (const auto row = rows.find(key); row != rows.end()) {
        row->second++;
    } else if (rows.size() < most && bytes <= max_text_bytes - text_bytes_) {
        text_bytes_ += bytes;
        rows.emplace(std::move(key), 1);
    } else {
        left_out++;
    }
}

void FootprintTally::add(const ingero_footprint_record& record, std::span<const char> data) {
    if (size_t{record.base_bytes} + record.text_bytes > data.size()) return;
    const auto base = data.first(record.base_bytes), text = data.subspan(record.base_bytes, record.text_bytes);
    switch (record.kind) {
        case INGERO_FOOTPRINT_START:
            return start(record, text);
        case INGERO_FOOTPRINT_END:
            if (const auto process = processes_.find(record.tgid); process != processes_.end())
                process->second.ended = record.flags == 0;
            return;
        case INGERO_FOOTPRINT_EXEC:
            return run(record, data);
        case INGERO_FOOTPRINT_LIBRARY: {
            std::string path = path_of(base, record.bits);
            const size_t bytes = path.size();
            return count(libraries_, std::move(path), bytes, max_libraries, left_out_.libraries);
        }
        case INGERO_FOOTPRINT_OPEN: {
            if (record.bits & INGERO_FOOTPRINT_UNREADABLE) return;
            std::string path(text_of(text));
            if (!base.empty()) path = path_of(base, record.bits) + "/" + path;
            const bool cut = (record.bits & (INGERO_FOOTPRINT_TEXT_CUT | INGERO_FOOTPRINT_BASE_CUT)) != 0;
            return take(record, {.sequence = record.sequence,
                                 .is_file = true,
                                 .file = {.path = std::move(path), .cut = cut, .flags = record.flags & shown_flags}});
        }
        case INGERO_FOOTPRINT_ENDPOINT:
            if (record.bits & INGERO_FOOTPRINT_UNREADABLE) return;
            return take(record, {.sequence = record.sequence, .is_file = false, .endpoint = endpoint_of(record, text)});
        case INGERO_FOOTPRINT_RESULT:
            if (const auto found = pending_.find(record.tid);
                found != pending_.end() && found->second.sequence == record.sequence) {
                settle(std::move(found->second), outcome_of(record.result));
                pending_.erase(found);
            }
            return;
        default:
            return;
    }
}

FootprintTally::EndpointKey FootprintTally::endpoint_of(const ingero_footprint_record& record,
                                                        std::span<const char> bytes) {
    Address address = parse_address({bytes.data(), bytes.size()});
    return {.action = action_of(record.number),
            .family = family_name(address.family),
            .transport = transport_name(address.family, record.socket_type, record.protocol),
            .address = std::move(address.text),
            .port = address.port};
}

void FootprintTally::start(const ingero_footprint_record& record, std::span<const char> text) {
    if (processes_.size() >= max_processes && !processes_.contains(record.tgid)) {
        left_out_.processes++;
        return;
    }
    FootprintProcess& process = processes_[record.tgid];
    const auto parent = processes_.find(static_cast<uint32_t>(record.result));
    process.pid = record.pid;
    process.parent_pid = record.result != 0 && parent != processes_.end() ? parent->second.pid : 0;
    process.comm = text_of(text);
    process.ended = false;
}

void FootprintTally::run(const ingero_footprint_record& record, std::span<const char> data) {
    const auto base = data.first(record.base_bytes), text = data.subspan(record.base_bytes, record.text_bytes);
    std::string path = path_of(base, record.bits), named(text_of(text)), first_argument;
    if (named.size() + 1 < text.size()) first_argument = text_of(text.subspan(named.size() + 1));
    if (const auto process = processes_.find(record.tgid); process != processes_.end())
        process->second.comm = named.substr(named.rfind('/') + 1).substr(0, 15);
    const size_t bytes = path.size() + named.size() + first_argument.size();
    count(programs_, std::tuple(std::move(path), std::move(named), std::move(first_argument)), bytes, max_programs,
          left_out_.programs);
}

void FootprintTally::take(const ingero_footprint_record& record, Pending call) {
    if (record.bits & INGERO_FOOTPRINT_HAS_RESULT) return settle(std::move(call), outcome_of(record.result));
    if (const auto before = pending_.find(record.tid); before != pending_.end()) {
        settle(std::move(before->second), std::nullopt);  // its result was lost
        before->second = std::move(call);
    } else if (pending_.size() < max_pending) {
        pending_.emplace(record.tid, std::move(call));
    } else {
        settle(std::move(call), std::nullopt);
    }
}

void FootprintTally::settle(Pending call, Outcome outcome) {
    if (call.is_file) {
        call.file.outcome = outcome;
        const size_t bytes = call.file.path.size();
        count(files_, std::move(call.file), bytes, max_files, left_out_.files);
    } else {
        call.endpoint.outcome = outcome;
        const size_t bytes = call.endpoint.address.size();
        count(endpoints_, std::move(call.endpoint), bytes, max_endpoints, left_out_.endpoints);
    }
}

void FootprintTally::finish() {
    for (auto& [thread, call] : pending_) settle(std::move(call), std::nullopt);
    pending_.clear();
}

void FootprintTally::add_calls(uint32_t tgid, uint64_t calls) {
    if (const auto process = processes_.find(tgid); process != processes_.end()) process->second.calls += calls;
}

void FootprintTally::write(Footprint& footprint) const {
    for (const auto& [tgid, process] : processes_) footprint.processes.push_back(process);
    for (const auto& [key, count] : files_)
        footprint.files.push_back({.path = key.path,
                                   .cut = key.cut,
                                   .flags = names_of_flags(key.flags),
                                   .outcome = key.outcome,
                                   .count = count});
    for (const auto& [key, count] : endpoints_)
        footprint.endpoints.push_back({.action = key.action,
                                       .family = key.family,
                                       .transport = key.transport,
                                       .address = key.address,
                                       .port = key.port,
                                       .outcome = key.outcome,
                                       .count = count});
    for (const auto& [key, count] : programs_)
        footprint.programs.push_back(
            {.path = std::get<0>(key), .named = std::get<1>(key), .first_argument = std::get<2>(key), .count = count});
    for (const auto& [path, count] : libraries_) footprint.libraries.push_back({.path = path, .count = count});
    footprint.losses.files += left_out_.files;
    footprint.losses.endpoints += left_out_.endpoints;
    footprint.losses.programs += left_out_.programs;
    footprint.losses.libraries += left_out_.libraries;
    footprint.losses.processes += left_out_.processes;
}

}  // namespace ingero
