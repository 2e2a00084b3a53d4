#include "core/query/communicators.h"

#include <algorithm>
#include <tuple>

namespace ingero {

std::optional<JobRank> rank_in_largest(std::span<const CommunicatorRow> of_process) {
    std::optional<JobRank> largest;
    bool has_several = false;
    for (const CommunicatorRow& row : of_process) {
        if (row.rank < 0 || static_cast<uint32_t>(row.rank) >= row.ranks || (largest && row.ranks < largest->ranks))
            continue;
        const JobRank its{.rank = static_cast<uint32_t>(row.rank), .ranks = row.ranks};
        has_several = largest && its.ranks == largest->ranks && (has_several || its.rank != largest->rank);
        largest = its;
    }
    return has_several ? std::nullopt : largest;
}

bool set_rank(ProcessFacts& facts, const std::optional<JobRank>& in_largest) {
    constexpr const char* source = "nccl";
    if (facts.rank && facts.rank_source != source) return false;
    const auto before = std::pair(facts.rank, facts.world_size);
    facts.rank.reset();
    facts.world_size.reset();
    facts.rank_source = in_largest ? source : "";
    if (in_largest) {
        facts.rank = in_largest->rank;
        facts.world_size = in_largest->ranks;
    }
    return before != std::pair(facts.rank, facts.world_size);
}

Result<Communicators> Communicators::read(const StoreSnapshot& snapshot) {
    auto rows = snapshot.communicators();
    if (!rows) return tl::unexpected(rows.error());
    return Communicators(std::move(*rows));
}

Communicators::Communicators(std::vector<CommunicatorRow> rows) {
    for (CommunicatorRow& row : rows) {
        Communicator one{.row = row, .rank = std::nullopt, .ranks = std::nullopt};
        if (row.rank >= 0 && row.ranks != 0) {
            one.rank = static_cast<uint32_t>(row.rank);
            one.ranks = row.ranks;
        }
        communicators_.push_back(one);
    }
    std::sort(communicators_.begin(), communicators_.end(),
              [](const Communicator& a, const Communicator& b) { return a.row.seen_ns < b.row.seen_ns; });
    number();
    interrupt_splits();
    settle_splits();
    std::erase_if(communicators_, [](const Communicator& one) { return one.row.split != 0 && one.row.color < 0; });
    std::sort(communicators_.begin(), communicators_.end(), [](const Communicator& a, const Communicator& b) {
        return std::tie(a.row.process, a.row.id) < std::tie(b.row.process, b.row.id);
    });
    number();
}

void Communicators::number() {
    places_.clear();
    for (size_t i = 0; i < communicators_.size(); ++i)
        places_.emplace(std::pair(communicators_[i].row.process, communicators_[i].row.id), i);
}

void Communicators::keep_if(const std::function<bool(const ProcessKey&)>& wanted) {
    std::erase_if(communicators_, [&](const Communicator& one) { return !wanted(one.row.process); });
    number();
}

// Splits are numbered too: one of a communicator whose splits were not all seen may have another's hash.
void Communicators::interrupt_splits() {
    for (Communicator& one : communicators_) {
        const Communicator* parent = one.row.split != 0 ? find(one.row.process, one.row.parent) : nullptr;
        if (parent && parent->hash_at(one.row.seen_ns) != parent->row.hash) one.row.interrupted_ns = one.row.seen_ns;
    }
}

// A part may itself be split, and its ranks may be known before those of all its siblings: a settled split can settle
// others. What was made earlier comes first, so that one round is nearly always enough.
void Communicators::settle_splits() {
    constexpr int max_rounds = 64;
    std::map<std::pair<uint64_t, uint32_t>, std::vector<size_t>> by_split;
    std::vector<const std::vector<size_t>*> open;  // in order of their first member
    for (size_t i = 0; i < communicators_.size(); ++i) {
        const CommunicatorRow& row = communicators_[i].row;
        if (row.split == 0 || row.parent_hash == 0 || row.interrupted_ns == row.seen_ns) continue;
        std::vector<size_t>& members = by_split[{row.parent_hash, row.split}];
        if (members.empty()) open.push_back(&members);
        members.push_back(i);
    }
    for (int round = 0; round < max_rounds; ++round)
        if (std::erase_if(open, [this](const auto* members) { return settle_split(*members); }) == 0) break;
}

// NCCL orders the ranks of one color by key, equal ones by their rank in the parent.
bool Communicators::settle_split(const std::vector<size_t>& members) {
    std::vector<std::tuple<int32_t, int32_t, uint32_t, size_t>> order;  // color, key, rank in the parent, place
    for (const size_t member : members) {
        const CommunicatorRow& one = communicators_[member].row;
        const Communicator* parent = find(one.process, one.parent);
        if (!parent || !parent->rank || parent->ranks != members.size()) return false;
        order.emplace_back(one.color, one.key, *parent->rank, member);
    }
    std::sort(order.begin(), order.end());
    for (size_t from = 0, to = 0; from < order.size(); from = to) {
        while (to < order.size() && std::get<0>(order[to]) == std::get<0>(order[from])) ++to;
        if (std::get<0>(order[from]) < 0) continue;
        for (size_t at = from; at < to; ++at) {
            Communicator& one = communicators_[std::get<3>(order[at])];
            one.rank = static_cast<uint32_t>(at - from);
            one.ranks = static_cast<uint32_t>(to - from);
        }
    }
    return true;
}

const Communicator* Communicators::find(const ProcessKey& process, uint64_t id) const {
    const auto found = places_.find({process, id});
    return found == places_.end() ? nullptr : &communicators_[found->second];
}

}  // namespace ingero
