// The daemon on D-Bus: io.ingero.Ingero1 (dbus/io.ingero.Ingero1.xml is the source). The bus is optional: without one
// the daemon works, and one that appears later, or comes back, is found. Loop thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/diagnosis/incidents/incidents.h"
#include "daemon/ingerod/bus/bus_backend.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero {

struct BusOptions {
    std::string group = "ingero";  ///< its members see every process
    std::chrono::milliseconds retry{2'000};
    /// Signals that leave in one burst, and how often the burst is granted anew: what waits meanwhile is coalesced by
    /// incident.
    size_t burst = 50;
    std::chrono::milliseconds burst_period{250};
    /// Incidents that may wait to be reported; beyond it the oldest update, then the oldest closing, is dropped and
    /// counted.
    size_t waiting = 1'024;
};

class BusService {
  public:
    /// Begins to connect; never blocks the loop and never fails. Loop and backend must outlive it.
    BusService(EventLoop& loop, BusBackend& backend, BusOptions options = {});
    ~BusService();
    BusService(const BusService&) = delete;
    BusService& operator=(const BusService&) = delete;

    /// Bounded and coalesced by incident: an update overtakes an earlier one that has not left, a closing takes the
    /// place of updates. Objects and properties follow at once, signals as the burst allows.
    void emit(const IncidentChange& change);
    void straggler_detected(const Straggler& straggler);
    void straggler_resolved(const std::string& id, uint64_t at_realtime_ns);
    /// Processes, state, probes or figures may read differently: objects and PropertiesChanged follow, coalesced.
    void changed();

    bool connected() const;
    uint64_t dropped_signals() const;  ///< since start

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
