#include "core/diagnosis/evidence/late_waits.h"

#include <algorithm>
#include <iterator>

#include "core/model/call_time.h"

namespace ingero {

namespace {

/// Times that overlap, of which each moment counts once.
class CountedOnce {
  public:
    /// The parts of a time that were in none before.
    std::vector<Window> add(const Window& time) {
        std::vector<Window> parts;
        if (time.length_ns() == 0) return parts;
        Window whole = time;
        uint64_t rest_from_ns = time.from_ns;
        auto one = counted_.upper_bound(time.from_ns);
        if (one != counted_.begin() && std::prev(one)->second >= time.from_ns) --one;
        while (one != counted_.end() && one->first <= time.to_ns) {
            if (one->first > rest_from_ns) parts.push_back({rest_from_ns, one->first});
            rest_from_ns = std::max(rest_from_ns, one->second);
            whole = {std::min(whole.from_ns, one->first), std::max(whole.to_ns, one->second)};
            one = counted_.erase(one);
        }
        if (rest_from_ns < time.to_ns) parts.push_back({rest_from_ns, time.to_ns});
        counted_.emplace(whole.from_ns, whole.to_ns);
        return parts;
    }

  private:
    std::map<uint64_t, uint64_t> counted_;  ///< from and to, of times that do not touch
};

uint64_t together_ns(const std::vector<Window>& parts) {
    uint64_t ns = 0;
    for (const Window& part : parts) ns += part.length_ns();
    return ns;
}

/// `parts`: of the wait, those that no wait before has.
void add(const LateArrival& arrival, const Waited& waited, const std::vector<Window>& parts, LateWaitSums& ret_sums) {
    const uint64_t ns = together_ns(parts);
    if (ns == 0) return;
    LateOne& late = ret_sums.late[arrival.late.process];
    late.ns = saturating_add(late.ns, ns);
    for (const Window& part : parts) late.parts.emplace_back(&arrival, part);
    if (ns > late.longest_ns) {
        late.longest = &arrival;
        late.longest_ns = ns;
    }
    if (ns > ret_sums.longest_ns) {
        ret_sums.longest = &waited;
        ret_sums.longest_ns = ns;
    }
    ret_sums.lost_ns = saturating_add(ret_sums.lost_ns, ns);
    // One of which most has been counted is no further wait.
    if (ns < waited.ns - waited.ns / 2) return;
    ++ret_sums.times;
    ret_sums.evidence.add(waited.ns, waited.rank.sync_call);
}

}  // namespace

LateWaitSums sum_late_waits(LateWaits waits, uint64_t new_from_sequence) {
    // As they were recorded, so that what the pass before counted is counted in the same way.
    const auto place = [](const auto& wait) {
        return std::pair(wait.second->rank.sync_call, wait.first->late.arrival_ns);
    };
    std::stable_sort(waits.begin(), waits.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
    LateWaitSums sums;
    CountedOnce counted, surely_counted;
    // Of a wait that is certain in part it is not known which part: those that are in whole come first.
    for (const bool in_whole : {true, false})
        for (const auto& [arrival, waited] : waits) {
            const uint64_t surely_ns = arrival->certain_ns(waited->ns);
            if (surely_ns == 0 || (surely_ns >= waited->ns) != in_whole) continue;
            const uint64_t more_ns = together_ns(surely_counted.add(arrival->before(waited->ns)));
            sums.certain_ns = saturating_add(sums.certain_ns, std::min(surely_ns, more_ns));
        }
    for (const auto& [arrival, waited] : waits) {
        const Window time = arrival->before(waited->ns);
        const uint64_t before_ns = sums.lost_ns;
        add(*arrival, *waited, counted.add(time), sums);
        if (waited->rank.sync_call >= new_from_sequence)
            sums.newly_lost_ns = saturating_add(sums.newly_lost_ns, sums.lost_ns - before_ns);
    }
    return sums;
}

}  // namespace ingero
