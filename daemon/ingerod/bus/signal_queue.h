// What is still to be sent on the bus: bounded, and coalesced by incident, so that a storm of incidents becomes a few
// signals a second that say how things stand. Pure: no bus, no clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>

#include "core/diagnosis/incidents/incidents.h"
#include "daemon/ingerod/bus/bus_service.h"

namespace ingero {

/// One signal. A straggler is detected (opened) and resolved (closed).
struct Notice {
    using What = IncidentChange::What;
    What what = What::opened;
    std::variant<Incident, Straggler> about;  ///< of a resolved straggler the id alone
    uint64_t resolved_realtime_ns = 0;        ///< of a straggler
};

/// In order of what has waited longest. Signals of one incident leave in order: opened, updated, closed; each at most
/// once, with its latest figures.
class SignalQueue {
  public:
    /// Incidents and stragglers that may wait; of more the oldest update, then the oldest closing, is dropped.
    explicit SignalQueue(size_t waiting) : waiting_(waiting) {}

    void push(const IncidentChange& change);
    void detected(const Straggler& straggler);
    void resolved(const std::string& id, uint64_t at_realtime_ns);
    std::optional<Notice> pop();

    bool empty() const { return entries_.empty(); }
    size_t size() const { return entries_.size(); }  ///< incidents and stragglers, not signals
    uint64_t dropped() const { return dropped_; }    ///< signals, since the beginning
    void clear();

  private:
    struct Entry {
        std::string key;
        bool opened = false;
        bool updated = false;
        bool closed = false;
        Notice notice;
    };

    void add(std::string key, Notice notice);
    void file(uint64_t number, const Entry& entry);
    void drop_one();
    void erase(uint64_t number);

    const size_t waiting_;
    uint64_t last_number_ = 0;
    uint64_t dropped_ = 0;
    std::map<uint64_t, Entry> entries_;  ///< by number, which grows
    std::unordered_map<std::string, uint64_t> by_key_;
    std::set<uint64_t> updates_;   ///< entries that are nothing else
    std::set<uint64_t> closings_;  ///< entries that end with one
};

/// So many in a burst, granted anew a period after the burst's first one.
class Burst {
  public:
    using Clock = std::chrono::steady_clock;

    Burst(size_t most, std::chrono::milliseconds period) : most_(most), period_(period) {}

    /// Takes one, but not of the last `reserved`, which are for others. False: wait until next_grant().
    bool take(Clock::time_point now, size_t reserved = 0);
    Clock::time_point next_grant() const { return begun_ + period_; }

  private:
    const size_t most_;
    const std::chrono::milliseconds period_;
    Clock::time_point begun_{};
    size_t taken_ = 0;
};

}  // namespace ingero
