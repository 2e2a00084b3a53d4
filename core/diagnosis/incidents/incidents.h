// The life of an incident: a finding of the live window that lasts opens one, later passes update it, quiet closes it.
// Pure bookkeeping: the clock and the findings are handed in, what changed is handed back. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/diagnosis/explain.h"
#include "core/model/event.h"
#include "core/model/time.h"

namespace ingero {

struct Incident {
    std::string id;  ///< 16 hex digits; one that comes back after it was closed gets another
    std::string kind;
    Severity severity = Severity::low;
    Verdict verdict = Verdict::unexplained;
    std::string summary;
    ProcessKey process;  ///< the one that lost the time
    std::string comm;
    uint64_t lost_ns = 0;  ///< since it began, not only in the latest window
    double explained_fraction = 0;
    uint64_t opened_monotonic_ns = 0;  ///< what is stored: the wall clock may be set while it is open
    uint64_t opened_realtime_ns = 0;   ///< the same, by the wall clock of then
    uint64_t closed_realtime_ns = 0;   ///< 0 while open
    std::vector<Culprit> culprits;     ///< of the latest window that had the finding; largest first, pids visible ones
    Finding finding;                   ///< the one of those that lost the most, or the latest of who decides its life
};

struct IncidentChange {
    enum class What { opened, updated, closed } what = What::opened;
    Incident incident;
};

struct IncidentOptions {
    /// That found more time lost, while the finding stays in the window: one odd second is no incident. High severity
    /// opens at once.
    unsigned passes_to_open = 2;
    Severity open_from = Severity::medium;
    uint64_t quiet_to_close_ns = 15'000'000'000;
    size_t max_open = 256;  ///< further ones are counted and not opened
    /// The kind whose incidents put() and end() report.
    std::string_view put_kind = "straggler";
    /// An update is reported when the lost time has grown by so much, or severity or verdict have changed.
    double update_growth = 0.1;
};

class IncidentTracker {
  public:
    explicit IncidentTracker(std::string boot_id, IncidentOptions options = {});
    ~IncidentTracker();

    /// The findings of one pass over the live window, with newly_lost_ns. A pass is due each second while waiting(),
    /// also one without findings: only time closes.
    /// Findings of a kind whose incidents put() has are left to it.
    std::vector<IncidentChange> observe(const std::vector<Finding>& findings, const ClockTriple& now);
    /// Opens or updates an incident of which others know when it begins and ends; returns nothing for an unchanged
    /// one, nor for one that is not severe enough to be opened, or is over. The finding's lost_ns is all that it lost.
    std::optional<IncidentChange> put(const std::string& id, const Finding& finding, const ClockTriple& now,
                                      bool is_over = false);
    /// It is over.
    std::optional<IncidentChange> end(const std::string& id, uint64_t at_realtime_ns);

    /// In order of opening.
    std::vector<Incident> open() const;
    /// Anything to wait for: an open incident, or a finding on its way to become one.
    bool waiting() const;
    uint64_t refused() const;  ///< not opened for want of room

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
