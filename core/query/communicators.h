// NCCL's communicators as a store records them, with the ranks that follow from what each rank gave to ncclCommSplit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/store/store.h"

namespace ingero {

struct Communicator {
    CommunicatorRow row;
    /// After a split they follow from the colors and keys of all the parent's ranks: nothing where one of those was not
    /// seen.
    std::optional<uint32_t> rank;
    std::optional<uint32_t> ranks;

    /// Of the ranks whose collectives have the same numbers as this one's that begins at that time; 0: not known.
    uint64_t hash_at(uint64_t monotonic_ns) const {
        return row.interrupted_ns == 0 || monotonic_ns < row.interrupted_ns ? row.hash : 0;
    }
};

/// Of a process: its rank in the largest communicator that it made, and how many ranks that one has.
struct JobRank {
    uint32_t rank = 0;
    uint32_t ranks = 0;
    bool operator==(const JobRank&) const = default;
};
/// Of the communicators of one process, those that it has ended too. Nothing where none is known, or it has had several
/// ranks in those of that size: one for each of its devices, or of several groups.
std::optional<JobRank> rank_in_largest(std::span<const CommunicatorRow> of_process);
/// The same for its facts, where no variable gives its rank. Whether they change by it.
bool set_rank(ProcessFacts& facts, const std::optional<JobRank>& in_largest);

class Communicators {
  public:
    Communicators() = default;
    explicit Communicators(std::vector<CommunicatorRow> rows);
    /// Errors: those of the store.
    static Result<Communicators> read(const StoreSnapshot& snapshot);

    /// Forgets those of other processes; the ranks that follow from them stay.
    void keep_if(const std::function<bool(const ProcessKey&)>& wanted);
    /// nullptr where the store does not record it.
    const Communicator* find(const ProcessKey& process, uint64_t id) const;
    /// In order of process and id. A rank that a split left without a communicator has none here.
    const std::vector<Communicator>& all() const { return communicators_; }

  private:
    void interrupt_splits();
    void settle_splits();
    void number();
    /// Of all members of one split; false where not all that it takes is known.
    bool settle_split(const std::vector<size_t>& members);

    std::vector<Communicator> communicators_;
    std::map<std::pair<ProcessKey, uint64_t>, size_t> places_;
};

}  // namespace ingero
