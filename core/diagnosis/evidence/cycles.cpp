#include "core/diagnosis/evidence/cycles.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <tuple>
#include <utility>

#include "core/diagnosis/evidence/expected.h"
#include "core/model/call_time.h"

namespace ingero {

namespace {

/// How far losses by cycles may be off for what cycles do not show, such as caches that others used meanwhile.
constexpr int64_t error_divisor = 7;  // 14 %
int64_t clamped(uint64_t length_ns, uint64_t usual_ns, uint64_t limit_ns) {
    const auto limit = static_cast<int64_t>(std::min<uint64_t>(limit_ns, INT64_MAX));
    return std::clamp(static_cast<int64_t>(std::min<uint64_t>(length_ns, INT64_MAX)) -
                          static_cast<int64_t>(std::min<uint64_t>(usual_ns, INT64_MAX)),
                      -limit, limit);
}

int64_t part_of(int64_t whole, uint64_t part, uint64_t of) {
    return of == 0 ? 0 : static_cast<int64_t>(static_cast<__int128>(whole) * part / of);
}

int64_t saturating_sum(int64_t a, int64_t b) {
    int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) return a < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

}  // namespace

void CycleLoss::add(const CycleLoss& other) {
    low_ns = saturating_sum(low_ns, other.low_ns);
    point_ns = saturating_sum(point_ns, other.point_ns);
    high_ns = saturating_sum(high_ns, other.high_ns);
}

bool Cycles::has_cycles(const ProcessKey& process, uint32_t tid) const {
    const uint32_t thread = index_.find({process, tid});
    return thread != KeyIndex<ThreadKey>::none && threads_[threads_[thread].leader].length;
}

/// What is none of a finding's is of others.
Cycles::Delays Cycles::delays_of(const Assignment& assignment) {
    Delays delays{};
    uint64_t rest_ns = assignment.of_all(assignment.explained_ns() - assignment[Cause::device_wait]);
    for (size_t cause = 0; cause < finding_causes; ++cause) {
        if (!assignment.speaks_for(static_cast<Cause>(cause))) continue;
        delays[cause] = std::min(rest_ns, assignment.of_all(assignment.ns[cause]));
        rest_ns -= delays[cause];
    }
    delays.back() = rest_ns;
    return delays;
}

void Cycles::judge_gap_wait(const Event& wait, const Assignment& assignment) {
    Judged judged{.call = gap_wait(wait), .delays = delays_of(assignment)};
    judged.call.of = index_.find({wait.process(), wait.tid});
    if (judged.call.of == KeyIndex<ThreadKey>::none) return;
    judged.call.thread = threads_[judged.call.of].leader;
    judged_.push_back(judged);
}

void Cycles::judge_sleep(const Event& wait) {
    Judged judged{.call = gap_wait(wait), .is_sleep = true};
    judged.call.of = judged.call.thread = index_.find({wait.process(), wait.tid});
    if (judged.call.of != KeyIndex<ThreadKey>::none && is_for_other(judged.call)) judged_.push_back(judged);
}

uint64_t Cycles::sum(const Delays& delays) {
    uint64_t total = 0;
    for (const uint64_t ns : delays) total = saturating_add(total, ns);
    return total;
}

void Cycles::add(Delays& sums, const Delays& delays) {
    for (size_t cause = 0; cause < sums.size(); ++cause) sums[cause] = saturating_add(sums[cause], delays[cause]);
}

void Cycles::judge(const Event& call, const Op* op, const Assignment* assignment) {
    Judged judged;
    judged.call = {.is_certain = !call.split_uncertain(),
                   .start_ns = call.start_ns,
                   .end_ns = saturating_end_ns(call),
                   .sequence = call.sequence,
                   .what = kind_of(call, op)};
    if (assignment) judged.delays = delays_of(*assignment);
    if (op && op->waits_for_device) {
        const uint64_t assigned_ns = sum(judged.delays);
        // Which of its waits was the last is known, and not which cause had that one: each its share.
        const uint64_t possible_ns = possible_delay_ns(call, op, assignment && (*assignment)[Cause::lock_wait] != 0);
        uint64_t rest_ns = possible_ns;
        for (size_t cause = 0; cause < finding_causes; ++cause) {
            const auto part_ns = static_cast<uint64_t>(part_of(
                static_cast<int64_t>(std::min<uint64_t>(possible_ns, INT64_MAX)), judged.delays[cause], assigned_ns));
            judged.delays[cause] = std::min(part_ns, rest_ns);
            rest_ns -= judged.delays[cause];
        }
        judged.delays.back() = rest_ns;
    }
    const bool has_delays =
        std::any_of(judged.delays.begin(), judged.delays.end(), [](uint64_t ns) { return ns != 0; });
    if (judged.call.what == 0 && !has_delays && judged.call.is_certain) return;
    judged.call.of = forgot_callers_ ? index_.find({call.process(), call.tid}) : thread_of(call.process(), call.tid);
    if (judged.call.of == KeyIndex<ThreadKey>::none)
        return add_loss(call.process(), call.tid, judged, false, of_others_);
    judged.call.thread = threads_[judged.call.of].leader;
    judged_.push_back(judged);
}

uint64_t Cycles::gaps_ns(Thread& thread, const Window& cycle) const {
    uint64_t total_ns = 0;
    while (thread.next_gap < thread.gap_waits.size() && thread.gap_waits[thread.next_gap].to_ns <= cycle.from_ns)
        ++thread.next_gap;
    for (size_t number = thread.next_gap; number < thread.gap_waits.size(); ++number) {
        const Window& wait = thread.gap_waits[number];
        if (wait.to_ns > cycle.to_ns) break;
        total_ns += Window{std::max(wait.from_ns, cycle.from_ns), wait.to_ns}.length_ns();
    }
    return total_ns;
}

void Cycles::settle(uint32_t number, bool has_ended, std::vector<ThreadLoss>& ret_losses) {
    Thread& thread = threads_[number];
    const Window cycle{thread.from_ns, std::max(thread.from_ns, thread.last_ns)};
    const Delays delays = std::exchange(thread.delays, {});
    const Delays gap_delays = std::exchange(thread.gap_delays, {});
    const auto between_calls = std::exchange(thread.between_calls, {});
    const bool is_certain = std::exchange(thread.is_certain, true);
    const bool is_whole = cycle.from_ns != 0 && is_certain && cycle.length_ns() != 0;
    thread.from_ns = has_ended ? cycle.to_ns : 0;
    uint64_t all_ns = sum(delays);
    if (all_ns == 0) return;

    // One that is too short to be of the work whose length is known says nothing either.
    const bool is_known = is_whole && cycle.length_ns() >= thread.length->alike_from_ns;
    CycleLoss loss;
    if (is_known) {
        all_ns = saturating_add(all_ns, saturating_subtract(gaps_ns(thread, cycle), sum(gap_delays)));
        loss = {clamped(cycle.length_ns(), thread.length->most_ns, all_ns),
                clamped(cycle.length_ns(), thread.length->usual_ns, all_ns),
                clamped(cycle.length_ns(), thread.length->least_ns, all_ns)};
    }
    if (is_known && has_ended) {
        thread.lost_ns = saturating_sum(thread.lost_ns, loss.point_ns);
        thread.delayed_ns = saturating_add(thread.delayed_ns, all_ns);
    } else {
        // How long it took is not known, or it has not ended: as much as in the others, and what is lost already. One
        // that takes twice as long as any may be none: a program may go on without such waits.
        const auto limit = static_cast<int64_t>(std::min<uint64_t>(all_ns, INT64_MAX));
        const int64_t usual = thread.delayed_ns == 0 ? limit / 2 : part_of(thread.lost_ns, all_ns, thread.delayed_ns);
        const bool is_like_others = is_known && cycle.length_ns() / 2 <= thread.length->most_ns;
        loss.low_ns = is_like_others ? std::max<int64_t>(loss.low_ns, 0) : 0;
        loss.point_ns = std::clamp(std::max(loss.point_ns, usual), loss.low_ns, limit);
        loss.high_ns = limit;
    }
    loss.low_ns = saturating_sum(loss.low_ns, -std::abs(loss.low_ns / error_divisor));
    loss.high_ns = saturating_sum(loss.high_ns, std::abs(loss.high_ns / error_divisor));
    ThreadLoss& thread_loss = ret_losses.emplace_back();
    thread_loss.process = index_.key(number).process;
    thread_loss.tid = index_.key(number).tid;
    // A cycle that has not ended is reported again when it has.
    thread_loss.sequence = has_ended ? thread.last_sequence : 0;
    thread_loss.last_call = thread.last_sequence;
    thread_loss.has_others = thread.leads;
    for (size_t cause = 0; cause < finding_causes; ++cause) {
        thread_loss.causes[cause] = {part_of(loss.low_ns, delays[cause], all_ns),
                                     part_of(loss.point_ns, delays[cause], all_ns),
                                     part_of(loss.high_ns, delays[cause], all_ns)};
        thread_loss.between_calls[cause] = between_calls[cause];
    }
}

void Cycles::take_sleep(Thread& thread, const Judged& sleep, std::vector<ThreadLoss>& ret_losses) {
    // Threads that work side by side hold it up no longer than it slept.
    uint64_t room_ns = sleep.call.slept_ns;
    for (Judged& other : thread.judged_others) {
        const uint64_t delay_ns = sum(other.delays), both_ns = in_sleep(other.call, sleep.call).length_ns();
        const uint64_t ns = std::min({delay_ns, both_ns, room_ns});
        room_ns -= ns;
        thread.is_certain &= other.call.is_certain || both_ns == 0;
        for (size_t cause = 0; cause < other.delays.size(); ++cause) {
            const auto whole_ns = static_cast<int64_t>(std::min<uint64_t>(other.delays[cause], INT64_MAX));
            const auto part_ns = static_cast<uint64_t>(part_of(whole_ns, ns, delay_ns));
            thread.next_others[cause] = saturating_add(thread.next_others[cause], part_ns);
            other.delays[cause] -= part_ns;
            if (part_ns != 0 && cause < finding_causes) thread.between_calls[cause] |= other.call.is_gap_wait;
        }
    }
    leave_others(thread, true, ret_losses);
}

void Cycles::leave_others(Thread& thread, bool has_ended, std::vector<ThreadLoss>& ret_losses) {
    for (Judged& other : thread.judged_others) {
        if (!has_ended) other.call.sequence = 0;  // they are reported again
        const ThreadKey& key = index_.key(other.call.of);
        if (sum(other.delays) != 0) add_loss(key.process, key.tid, other, false, ret_losses);
    }
    thread.judged_others.clear();
}

void Cycles::end_judged_block(std::vector<ThreadLoss>& ret_losses) {
    uint64_t latest_ns = 0;
    for (const Judged& judged : judged_) latest_ns = std::max(latest_ns, judged.call.end_ns);
    if (const uint64_t until_ns = settled_ns(judged_until_, latest_ns, judged_.size()); until_ns != 0)
        take_judged(until_ns, ret_losses);
    ret_losses.insert(ret_losses.end(), of_others_.begin(), of_others_.end());
    of_others_.clear();
}

void Cycles::take_judged(uint64_t until_ns, std::vector<ThreadLoss>& ret_losses) {
    const auto held = std::partition(judged_.begin(), judged_.end(),
                                     [until_ns](const Judged& judged) { return judged.call.end_ns <= until_ns; });
    std::sort(judged_.begin(), held, [](const Judged& a, const Judged& b) { return is_before(a.call, b.call); });
    for (const Judged& judged : std::span(judged_.begin(), held)) {
        Thread& thread = threads_[judged.call.thread];
        const ThreadKey& key = index_.key(judged.call.of);
        if (judged.is_sleep) {
            take_sleep(thread, judged, ret_losses);
            continue;
        }
        if (judged.call.is_of_others() || judged.call.is_gap_wait) {
            // Before the first cycle begins it is not known what a wait costs.
            const bool is_of_others = judged.call.is_of_others();
            if (thread.from_ns == 0 || (is_of_others && thread.judged_others.size() == max_others))
                add_loss(key.process, key.tid, judged, false, ret_losses);
            else if (is_of_others)
                thread.judged_others.push_back(judged);
            else
                add(thread.next_delays, judged.delays);
            continue;
        }
        if (!thread.length) {
            const bool runs_ahead = thread.feeds_device || (thread.enqueues && waits_.contains(key.process));
            add_loss(key.process, key.tid, judged, !runs_ahead, ret_losses);
            continue;
        }
        thread.last_ns = std::max(thread.last_ns, judged.call.end_ns);
        thread.last_sequence = judged.call.sequence;
        for (size_t cause = 0; cause < finding_causes; ++cause)
            thread.between_calls[cause] |= thread.next_delays[cause] != 0;
        add(thread.delays, judged.delays);
        add(thread.delays, thread.next_delays);
        add(thread.delays, thread.next_others);
        add(thread.gap_delays, std::exchange(thread.next_delays, {}));
        add(thread.gap_delays, std::exchange(thread.next_others, {}));
        thread.is_certain &= judged.call.is_certain;
        if (judged.call.what != 0) leave_others(thread, true, ret_losses);
        if (judged.call.what == thread.pacing) settle(judged.call.thread, true, ret_losses);
    }
    judged_.erase(judged_.begin(), held);
}

// A thread that waits for no device loses what it waits. Of one that does, and has too few cycles, it is not known; nor
// of one that gives a device work for which another thread of its process waits.
void Cycles::add_loss(const ProcessKey& process, uint32_t tid, const Judged& judged, bool is_lost,
                      std::vector<ThreadLoss>& ret_losses) {
    ThreadLoss& thread_loss = ret_losses.emplace_back();
    thread_loss.process = process;
    thread_loss.tid = tid;
    thread_loss.sequence = judged.call.sequence;
    for (size_t cause = 0; cause < finding_causes; ++cause) {
        const auto ns = static_cast<int64_t>(std::min<uint64_t>(judged.delays[cause], INT64_MAX));
        thread_loss.causes[cause] = is_lost ? CycleLoss{ns, ns, ns} : CycleLoss{0, ns / 2, ns};
    }
}

void Cycles::finish(std::vector<ThreadLoss>& ret_losses) {
    take_judged(UINT64_MAX, ret_losses);
    for (uint32_t number = 0; number < threads_.size(); ++number) {
        if (!threads_[number].length) continue;
        leave_others(threads_[number], false, ret_losses);
        settle(number, false, ret_losses);
        // After the last call it may be that nothing was left to do.
        Delays rest = threads_[number].next_delays;
        add(rest, threads_[number].next_others);
        if (sum(rest) == 0) continue;
        ThreadLoss& thread_loss = ret_losses.emplace_back();
        thread_loss.process = index_.key(number).process;
        thread_loss.tid = index_.key(number).tid;
        for (size_t cause = 0; cause < finding_causes; ++cause)
            thread_loss.causes[cause].high_ns = static_cast<int64_t>(std::min<uint64_t>(rest[cause], INT64_MAX));
    }
}

}  // namespace ingero
