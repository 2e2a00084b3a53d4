// What a process tree touched while it was recorded: `ingeroctl record --footprint`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/model/process/process.h"
#include "core/model/time.h"

namespace ingero {

/// How a touch ended: nothing where that is not known, as of a call that has not returned; 0 or an errno.
using Outcome = std::optional<int>;

struct FootprintCall {
    std::string abi;  ///< "native", "32-bit", "x32": each has numbers of its own
    uint32_t number = 0;
    std::string name;  ///< empty where the number has none that is known here
    uint64_t count = 0;
    uint64_t returned = 0;
    uint64_t total_ns = 0;           ///< of those that returned
    std::map<int, uint64_t> errors;  ///< how often, by errno
};

struct FootprintProcess {
    uint32_t pid = 0;
    uint32_t parent_pid = 0;  ///< 0: it is the first of the tree
    std::string comm;
    uint64_t calls = 0;
    bool ended = false;
};

struct FootprintFile {
    std::string path;  ///< as the process sees it; of a relative one with its directory before it
    bool cut = false;  ///< it goes on, or its directory has more above
    std::vector<std::string> flags;
    Outcome outcome;
    uint64_t count = 0;
};

struct FootprintEndpoint {
    std::string action;     ///< "connect", "bind", "send", "accept"
    std::string family;     ///< "inet", "inet6", "unix", "netlink" and so on, or its number
    std::string transport;  ///< "tcp", "udp", "stream", "dgram" and so on; empty where it is not known
    std::string address;    ///< or the path, "@name" of an abstract socket
    std::optional<uint16_t> port;
    Outcome outcome;
    uint64_t count = 0;
};

struct FootprintProgram {
    std::string path;   ///< the file that is run: of a script its interpreter
    std::string named;  ///< as execve(2) was given it
    std::string first_argument;
    uint64_t count = 0;
};

struct FootprintLibrary {
    std::string path;
    uint64_t count = 0;
};

/// What could not be listed or counted.
struct FootprintLosses {
    uint64_t files = 0, endpoints = 0, programs = 0, libraries = 0;  ///< touches of which there is no row
    uint64_t processes = 0;                                          ///< not followed, or not listed
    uint64_t records = 0;                                            ///< touches that were dropped unseen
    uint64_t unreadable = 0;                                         ///< paths and addresses that could not be read
    uint64_t calls = 0;                                              ///< that are in no count
    uint64_t untimed = 0;                                            ///< whose time and outcome are not known
    uint64_t errors = 0;                                             ///< outcomes that are in no count
    uint64_t other_users = 0;     ///< processes that were left, since they became another user's
    uint64_t compat_calls = 0;    ///< of which nothing but their number is seen
    uint64_t io_uring_calls = 0;  ///< each may have had any number of operations done, which nothing here sees
};

struct Footprint {
    Process process;
    Window window;  ///< CLOCK_REALTIME
    std::vector<FootprintProcess> processes;
    std::vector<FootprintCall> calls;
    std::vector<FootprintFile> files;
    std::vector<FootprintEndpoint> endpoints;
    std::vector<FootprintProgram> programs;
    std::vector<FootprintLibrary> libraries;
    FootprintLosses losses;
};

/// "ENOENT"; "ERESTARTSYS" of a call that a signal interrupted and that is made again; the number of what has no name.
std::string errno_name(int error);

}  // namespace ingero
