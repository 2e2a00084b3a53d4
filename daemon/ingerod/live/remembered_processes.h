// The processes that findings can name: those that live, and for a while those that have ended, since their calls can
// still be in the window and other ranks can still wait for them. In bounded memory: a build starts thousands of
// processes a minute. Its owner guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/model/process/process.h"

namespace ingero {

/// Where there is no room, the lower one goes first.
enum class ProcessRole : uint8_t {
    bystander,  ///< not traced: it woke a traced thread or had its CPU
    traced,
    rank,  ///< it has communicators, so that others may wait for it
};

class RememberedProcesses {
  public:
    /// At most `limit` processes; one that ended is forgotten after `remembered_ns`.
    RememberedProcesses(size_t limit, uint64_t remembered_ns) : limit_(limit), remembered_ns_(remembered_ns) {}

    /// A new or changed process; a role that was higher stays. Returns the process that was dropped to make room, which
    /// may be this one: those that ended go before those that live, and of one role those that ended first, or that did
    /// not change for longest. Logarithmic time.
    std::optional<Process> put(const Process& process, ProcessRole role);
    /// It has communicators now. One that is not known stays so.
    void set_rank(const ProcessKey& process);
    void erase(const ProcessKey& process);
    /// Forgets those that ended so long ago, but for ranks. Logarithmic time for each that goes.
    void forget_ended(uint64_t now_ns);
    /// The ranks that ended so long ago: whether somebody still waits for them is the caller's to know.
    std::vector<ProcessKey> long_ended_ranks(uint64_t now_ns) const;

    /// nullptr where it is not known. Valid until the next change.
    const Process* find(const ProcessKey& process) const;
    std::vector<Process> all() const;
    size_t size() const { return processes_.size(); }

  private:
    struct Remembered {
        Process process;
        ProcessRole role = ProcessRole::bystander;
        uint64_t put_number = 0;  ///< the latest one's
    };
    /// In the order in which they go.
    struct Place {
        bool lives = false;
        ProcessRole role = ProcessRole::bystander;
        uint64_t since = 0;  ///< exited_ns, or put_number while it lives
        ProcessKey process;
        auto operator<=>(const Place&) const = default;
    };
    static Place place_of(const Remembered& one);
    /// The first place after those of this role that ended so long ago.
    std::set<Place>::const_iterator end_of_long_ended(ProcessRole role, uint64_t now_ns) const;

    size_t limit_;
    uint64_t remembered_ns_;
    std::map<ProcessKey, Remembered> processes_;
    std::set<Place> places_;  ///< of all of them
    uint64_t puts_ = 0;
};

}  // namespace ingero
