// What a running daemon adds to the answer of `ingerod --check`: its own state and the libraries it traces.
#pragma once

#include <string>
#include <vector>

#include "daemon/ingerod/check/library_check.h"

namespace ingero {

struct DaemonFacts {
    std::string node;
    std::string version;
    std::string state;  ///< as in the status answer
    std::string attach_method;
    std::string store_error;                  ///< why the store takes no events; empty where it does
    std::vector<std::string> missing_probes;  ///< as in each answer
    std::vector<MappedLibrary> libraries;     ///< that the caller may see
};

/// The whole answer, from that of the program.
nlohmann::json add_daemon_checks(nlohmann::json answer, const DaemonFacts& facts);

}  // namespace ingero
