// What the bus service asks of the daemon: the seam that lets it be tested without probes or a store.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/diagnosis/incidents/incidents.h"
#include "core/model/event.h"
#include "core/model/result.h"
#include "daemon/ingerod/control/control_backend.h"

namespace ingero {

/// What /proc shows everyone of a traced process. Text is valid UTF-8.
struct PublicProcess {
    ProcessKey key;  ///< start_ns in CLOCK_BOOTTIME, as everywhere
    uint32_t uid = 0;
    std::string comm;
    std::string unit;
    std::string container;
    std::string state;  ///< "tracing", "attaching", "failed"
};

struct ProbeSetState {
    std::string library;  ///< base name: libcudart.so.12
    std::string set;      ///< "launch", "memory", "copy", "sync", "graph", "nccl", "other"
    bool attached = false;
};

struct PublicFigures {
    std::string version;
    std::string state;
    std::string node;
    uint64_t uptime_ns = 0;
    uint64_t events_recorded = 0;
    uint64_t events_lost = 0;
    uint64_t store_bytes = 0;
    std::optional<double> overhead_permille;  ///< of the traced threads' time; empty: not measured
};

/// A straggler as `StragglerDetected` reports it.
struct Straggler {
    std::string id;
    std::string scope;    ///< "local": among the ranks of this host
    std::string subject;  ///< "rank 3 (python, pid 4711)"
    uint64_t lateness_ns = 0;
    uint64_t threshold_ns = 0;
    uint64_t since_realtime_ns = 0;
    nlohmann::json details = nlohmann::json::object();  ///< flat: strings, numbers and booleans
};

/// Loop thread only, like the service itself. status(), processes() and query() as on the control socket: what a caller
/// may see is decided by `Caller` alone.
class BusBackend : public ControlBackend {
  public:
    /// As hand_over(), but answered to the caller of this, once, on the loop thread.
    virtual void query(const Caller& caller, const std::string& method, const nlohmann::json& params,
                       std::function<void(Result<nlohmann::json>)> done) = 0;
    virtual PublicFigures figures() const = 0;
    virtual std::vector<PublicProcess> public_processes() const = 0;
    virtual std::vector<ProbeSetState> probe_sets() const = 0;
    virtual std::vector<Incident> open_incidents() const = 0;
    /// Turns a probe set of every library on or off, until the daemon ends. Errors: bad_request (no such set).
    virtual Result<void> set_probe(const std::string& set, bool on) = 0;
};

}  // namespace ingero
