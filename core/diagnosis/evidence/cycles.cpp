#include "core/diagnosis/evidence/cycles.h"

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "core/diagnosis/evidence/expected.h"
#include "core/model/call_time.h"

namespace ingero {

namespace {

constexpr size_t max_threads = 1'024;       ///< that are kept from one learnt block to the next
constexpr size_t max_with_block = 16'384;   ///< with those that a block adds, or the judged calls
constexpr size_t crowd = max_threads / 16;  ///< of threads: a process with more makes room before others do
constexpr size_t max_kinds = 4;
constexpr size_t max_gap_waits = 262'144;
/// A thread that was off the CPU when the device was done returns so soon after it is back, or within such a part of
/// the call: by whatever polls for the device, by the probes' own time, and by what else has the CPU that no scheduler
/// sees, interrupts or a hypervisor. Those some hundred us, in one wait of fifty, made cycles that were held up look
/// left alone.
constexpr uint64_t moment_ns = 500'000;
constexpr uint64_t moment_part = 16;
/// Undisturbed cycles, for each of which there are at most so many others: fewer are exceptions.
constexpr uint64_t others_for_each = 64;
/// Cycles that it takes where all are disturbed.
constexpr size_t enough_disturbed = 16;
/// How far losses by cycles may be off for what cycles do not show, such as caches that others used meanwhile.
constexpr int64_t error_divisor = 7;  // 14 %
/// Where cycles differ by what their waits differ by, they differ so many times less without these.
constexpr float is_explained = 8;
/// And at most one part in so many of that was time without a CPU in waits for the device.
constexpr float few_for_device = 4;
/// Cycles of the same work are at most so much shorter than most of them.
constexpr float alike_part = 0.875;

/// Cycles of the same work differ by one part in so many of themselves.
constexpr uint64_t little = 64;

bool is_disturbed(uint64_t delay_ns, uint64_t length_ns) {
    return delay_ns > std::max<uint64_t>(20'000, length_ns / little);
}

/// 0 is none.
uint64_t kind_of(const Event& call, const Op* op) {
    if (!op || !op->waits_for_device) return 0;
    return hash_words(call.op, call.stream) | 1;
}

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

uint64_t possible_delay_ns(const Event& call, const Op* op, bool sleeps_for_lock) {
    const CallTime time = call_time(call);
    const auto is_purpose = [&](BlockedReason reason) {
        return sleep_may_be_purpose(reason, op) && !(sleeps_for_lock && reason == BlockedReason::futex);
    };
    const uint64_t slept_ns = is_purpose(call.blocked_reason) ? 0 : time.blocked_ns;
    // Of rows without the last wait any may have been it.
    if (!op || !op->waits_for_device || call.last_wait_ns == 0) return time.runnable_ns + slept_ns;
    if (call.tail_ns > std::max(moment_ns, time.duration_ns / moment_part)) return 0;
    const uint64_t last_ns = call.last_reason == BlockedReason::none || is_purpose(call.last_reason)
                                 ? call.last_runnable_ns
                                 : call.last_wait_ns;
    return std::min(last_ns, time.runnable_ns + time.blocked_ns);
}

Cycles::Cycles(const Window& window) : window_(window), index_(max_with_block) {}

uint32_t Cycles::thread_of(const ProcessKey& process, uint32_t tid) {
    const ThreadKey key{process, tid};
    if (last_number_ != KeyIndex<ThreadKey>::none && key == last_) return last_number_;
    const uint32_t number = index_.find_or_add(key);
    if (number == KeyIndex<ThreadKey>::none) return number;
    if (number == threads_.size()) threads_.emplace_back().feeds_device = forgot_callers_;
    last_ = key;
    return last_number_ = number;
}

void Cycles::learn(const Event& call, const Op* op) {
    Learnt learnt{.is_certain = !call.split_uncertain(),
                  .start_ns = call.start_ns,
                  .end_ns = saturating_end_ns(call),
                  .delay_ns = possible_delay_ns(call, op),
                  .sequence = call.sequence,
                  .what = kind_of(call, op)};
    if (learnt.what != 0)
        learnt.delay_for_device_ns =
            std::min(learnt.delay_ns, call.last_wait_ns == 0 ? call.runnable_ns : call.last_runnable_ns);
    if (learnt.what == 0 && learnt.delay_ns == 0 && learnt.is_certain) return;
    const uint32_t thread = thread_of(call.process(), call.tid);
    forgot_callers_ |= thread == KeyIndex<ThreadKey>::none;
    if (thread == KeyIndex<ThreadKey>::none) return;
    threads_[thread].enqueues |= op && enqueues(*op);
    learnt_.push_back(learnt);
    learnt_.back().thread = thread;
}

// Of a thread that waits for no device, and has no calls that were held up, it is of no interest.
void Cycles::learn_gap_wait(const ProcessKey& process, uint32_t tid, const Window& time) {
    const uint32_t thread = index_.find({process, tid});
    if (thread == KeyIndex<ThreadKey>::none) return;
    learnt_.push_back({.thread = thread, .start_ns = time.from_ns, .end_ns = time.to_ns, .delay_ns = time.length_ns()});
    if (time.to_ns <= window_.from_ns || gap_waits_ == max_gap_waits) return;
    threads_[thread].gap_waits.push_back(time);
    ++gap_waits_;
}

void Cycles::end_learnt_block() {
    std::sort(learnt_.begin(), learnt_.end(), [](const Learnt& a, const Learnt& b) {
        return std::tie(a.thread, a.end_ns, a.sequence) < std::tie(b.thread, b.end_ns, b.sequence);
    });
    for (const Learnt& call : learnt_) take(threads_[call.thread], call);
    learnt_.clear();
    if (threads_.size() > max_threads) make_room();
}

// A server that starts a thread for each request has more threads in ten minutes than there is room for, and nearly all
// of them have ended. Threads are forgotten at the end of a block, so that the order of its rows does not matter; and
// many at once, since each time takes a while.
void Cycles::make_room() {
    std::map<ProcessKey, size_t> threads_of;
    for (uint32_t number = 0; number < threads_.size(); ++number) ++threads_of[index_.key(number).process];
    struct Rank {
        bool is_caller = false;  ///< it called in the window, in which others may not have yet
        bool is_of_few = false;
        uint64_t learnt_until_ns = 0;
        ProcessKey process;
        uint32_t tid = 0;
        uint32_t number = 0;
        auto operator<=>(const Rank&) const = default;
    };
    std::vector<Rank> ranks;
    ranks.reserve(threads_.size());
    size_t callers = 0;
    for (uint32_t number = 0; number < threads_.size(); ++number) {
        const auto& [process, tid] = index_.key(number);
        const uint64_t until_ns = threads_[number].learnt_until_ns;
        callers += until_ns > window_.from_ns;
        ranks.push_back({until_ns > window_.from_ns, threads_of[process] <= crowd, until_ns, process, tid, number});
    }
    const size_t others = std::min(threads_.size() - callers, max_threads / 4);
    const auto kept_from = ranks.begin() + static_cast<std::ptrdiff_t>(std::max(threads_.size() - max_threads, others));
    std::nth_element(ranks.begin(), kept_from, ranks.end());
    for (auto rank = ranks.begin(); rank != kept_from; ++rank) {
        note_waits(rank->process, threads_[rank->number]);
        gap_waits_ -= threads_[rank->number].gap_waits.size();
        forgot_callers_ |= rank->is_caller;
    }
    std::sort(kept_from, ranks.end(), [](const Rank& a, const Rank& b) { return a.number < b.number; });
    KeyIndex<ThreadKey> kept_index(max_with_block);
    std::vector<Thread> kept;
    for (auto rank = kept_from; rank != ranks.end(); ++rank) {
        kept_index.find_or_add({rank->process, rank->tid});
        kept.push_back(std::move(threads_[rank->number]));
    }
    index_ = std::move(kept_index);
    threads_ = std::move(kept);
    last_number_ = KeyIndex<ThreadKey>::none;
}

void Cycles::note_waits(const ProcessKey& process, const Thread& thread) {
    if (!thread.kinds.empty() && waiting_.size() < max_with_block) waiting_.insert(process);
}

void Cycles::take(Thread& thread, const Learnt& call) const {
    thread.learnt_until_ns = std::max(thread.learnt_until_ns, call.end_ns);
    bool is_known = call.what == 0;
    for (Kind& kind : thread.kinds) {
        kind.delay_ns = saturating_add(kind.delay_ns, call.delay_ns);
        kind.delay_for_device_ns = saturating_add(kind.delay_for_device_ns, call.delay_for_device_ns);
        kind.is_certain &= call.is_certain;
        if (kind.what == call.what) {
            is_known = true;
            end_cycle(kind, call);
        }
        if (call.end_ns > window_.from_ns) continue;
        kind.entered_ns = kind.from_ns;
        kind.entered_delay_ns = kind.delay_ns;
        kind.entered_certain = kind.is_certain;
    }
    if (is_known) return;
    if (thread.kinds.size() < max_kinds) {
        thread.kinds.emplace_back();
    } else {
        // What a program waits for while it starts makes room for what it waits for afterwards.
        const auto least = std::min_element(thread.kinds.begin(), thread.kinds.end(),
                                            [](const Kind& a, const Kind& b) { return a.waited_ns < b.waited_ns; });
        if (least->waited_ns > call.end_ns - call.start_ns) return;
        std::rotate(least, least + 1, thread.kinds.end());
        thread.kinds.back() = {};
    }
    thread.kinds.back().what = call.what;
    end_cycle(thread.kinds.back(), call);
    if (call.end_ns <= window_.from_ns) thread.kinds.back().entered_ns = call.end_ns;
}

void Cycles::end_cycle(Kind& kind, const Learnt& call) const {
    const bool is_inside = call.end_ns > window_.from_ns;
    const uint64_t length_ns = saturating_subtract(call.end_ns, kind.from_ns);
    if (kind.from_ns != 0 && kind.is_certain && length_ns != 0) {
        const auto hash = static_cast<uint32_t>(mix_bits(call.sequence));
        const uint64_t delay_ns = std::min(kind.delay_ns, length_ns);
        const Cycle cycle{static_cast<float>(length_ns), static_cast<float>(delay_ns),
                          static_cast<float>(std::min(kind.delay_for_device_ns, delay_ns))};
        kind.cycles.add(hash, cycle);
        if (is_inside) kind.cycles_inside.add(hash, cycle);
        if (is_disturbed(delay_ns, length_ns)) {
            ++kind.disturbed;
            kind.disturbed_inside += is_inside;
        } else {
            ++kind.undisturbed;
            kind.undisturbed_lengths.add(hash, static_cast<float>(length_ns));
            if (is_inside) kind.lengths_inside.add(hash, static_cast<float>(length_ns));
            kind.undisturbed_inside += is_inside;
        }
    }
    kind.waited_ns = saturating_add(kind.waited_ns, call.end_ns - call.start_ns);
    kind.returns += is_inside;
    kind.from_ns = std::max(kind.from_ns, call.end_ns);
    kind.delay_ns = kind.delay_for_device_ns = 0;
    kind.is_certain = true;
}

/// A thread waits for the device in the same way for other work too, such as for each tensor of a model while it is
/// loaded. What it does again and again for most of the window's time takes at least this long without its waits.
float Cycles::alike_from(const Kind& kind) {
    constexpr float alike_most = 1.25;
    struct Rest {
        float ns = 0;
        double length_ns = 0;
        bool operator<(const Rest& other) const { return ns < other.ns; }
    };
    std::vector<Rest> rests;
    const auto add = [&rests](const auto& cycles) {
        for (const auto& [cycle, hash] : cycles.kept()) rests.push_back({cycle.length - cycle.delay, cycle.length});
    };
    if (kind.cycles_inside.size() >= enough_calls)
        add(kind.cycles_inside);
    else
        add(kind.cycles);
    std::sort(rests.begin(), rests.end());
    float from = 0;
    double most_ns = 0, sum_ns = 0;
    for (size_t first = 0, end = 0; first < rests.size(); sum_ns -= rests[first++].length_ns) {
        for (; end < rests.size() && rests[end].ns <= rests[first].ns * alike_most; ++end)
            sum_ns += rests[end].length_ns;
        if (end - first < enough_calls || sum_ns <= most_ns) continue;
        most_ns = sum_ns;
        from = rests[first + (end - first) / 2].ns;
    }
    return from * alike_part;
}

/// Where too few cycles were left alone, what is known of each is that it took its length, of which its waits made up
/// no more than they can have. Where the cycles differ by just what their waits differ by, these made up all of it:
/// unless the thread had no CPU while it waited for the device for many of them. The device works on meanwhile, and
/// where nearly every cycle ends with a wait that is longer than the device takes, that shows in none.
std::optional<Cycles::Length> Cycles::length_of(const Kind& kind) {
    const float from = alike_from(kind);
    const auto length = [from](float least, float usual, float most) {
        return Length{saturating_ns(least), saturating_ns(usual), saturating_ns(most), saturating_ns(from)};
    };
    const auto between = [&length](auto& lengths) {
        return length(quantile_of(lengths, 0.1), quantile_of(lengths, 0.5), quantile_of(lengths, 0.9));
    };
    // Of cycles that were left alone, those of this work; and how many of all of them that makes.
    const auto undisturbed = [&](const Sampler<float>& sampled, uint64_t count,
                                 uint64_t disturbed) -> std::optional<Length> {
        std::vector<Weighted<float>> lengths;
        for (const auto& [one, hash] : sampled.kept())
            if (one >= from) lengths.push_back({one});
        if (lengths.empty()) return std::nullopt;
        count = count * lengths.size() / sampled.size();
        if (count < enough_calls || count < disturbed / others_for_each) return std::nullopt;
        return between(lengths);
    };
    if (auto inside = undisturbed(kind.lengths_inside, kind.undisturbed_inside, kind.disturbed_inside)) return inside;
    if (auto all = undisturbed(kind.undisturbed_lengths, kind.undisturbed, kind.disturbed)) return all;
    std::vector<Weighted<float>> lengths, rests;
    float delays = 0, delays_for_device = 0;
    for (const auto& [cycle, hash] : kind.cycles.kept()) {
        if (cycle.length < from) continue;
        lengths.push_back({cycle.length});
        rests.push_back({cycle.length - cycle.delay});
        delays += cycle.delay;
        delays_for_device += cycle.delay_for_device;
    }
    if (lengths.size() < enough_disturbed) return std::nullopt;
    const auto spread = [](auto& values) { return quantile_of(values, 0.9) - quantile_of(values, 0.1); };
    if (spread(rests) * is_explained < spread(lengths) && delays_for_device * few_for_device < delays)
        return between(rests);
    const auto [least, most] = std::minmax({quantile_of(rests, 0.9), quantile_of(lengths, 0.1)});
    return length(least, least + (most - least) / 2, most + most / little);
}

void Cycles::finish_learning() {
    for (uint32_t number = 0; number < threads_.size(); ++number) {
        Thread& thread = threads_[number];
        note_waits(index_.key(number).process, thread);
        uint64_t most_waited_ns = 0;
        thread.feeds_device |= !thread.kinds.empty();
        for (const Kind& kind : thread.kinds) {
            const auto length = kind.returns == 0 ? std::nullopt : length_of(kind);
            if (!length || kind.waited_ns < most_waited_ns) continue;
            most_waited_ns = kind.waited_ns;
            thread.length = length;
            thread.pacing = kind.what;
            thread.from_ns = kind.entered_ns;
            thread.is_certain = kind.entered_certain;
            thread.delays.back() = kind.entered_delay_ns;
        }
        thread.kinds = {};
        std::sort(thread.gap_waits.begin(), thread.gap_waits.end(),
                  [](const Window& a, const Window& b) { return a.to_ns < b.to_ns; });
    }
}

bool Cycles::has_cycles(const ProcessKey& process, uint32_t tid) const {
    const uint32_t thread = index_.find({process, tid});
    return thread != KeyIndex<ThreadKey>::none && threads_[thread].length;
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
    Judged judged{.call = {.thread = index_.find({wait.process(), wait.tid}),
                           .start_ns = wait.start_ns,
                           .end_ns = saturating_end_ns(wait)},
                  .delays = delays_of(assignment),
                  .is_gap_wait = true};
    if (judged.call.thread != KeyIndex<ThreadKey>::none) judged_.push_back(judged);
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
    judged.call.thread =
        forgot_callers_ ? index_.find({call.process(), call.tid}) : thread_of(call.process(), call.tid);
    if (judged.call.thread == KeyIndex<ThreadKey>::none)
        add_loss(call.process(), call.tid, judged, false, of_others_);
    else
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
    for (size_t cause = 0; cause < finding_causes; ++cause) {
        thread_loss.causes[cause] = {part_of(loss.low_ns, delays[cause], all_ns),
                                     part_of(loss.point_ns, delays[cause], all_ns),
                                     part_of(loss.high_ns, delays[cause], all_ns)};
        thread_loss.between_calls[cause] = gap_delays[cause] != 0;
    }
}

void Cycles::end_judged_block(std::vector<ThreadLoss>& ret_losses) {
    std::sort(judged_.begin(), judged_.end(), [](const Judged& a, const Judged& b) {
        return std::tie(a.call.thread, a.call.end_ns, a.call.sequence) <
               std::tie(b.call.thread, b.call.end_ns, b.call.sequence);
    });
    for (const Judged& judged : judged_) {
        Thread& thread = threads_[judged.call.thread];
        if (judged.is_gap_wait) {
            if (thread.from_ns != 0) {
                add(thread.next_delays, judged.delays);
            } else {
                // Before the first cycle begins it is not known what a wait costs.
                const ThreadKey& key = index_.key(judged.call.thread);
                add_loss(key.process, key.tid, judged, false, ret_losses);
            }
            continue;
        }
        thread.last_ns = std::max(thread.last_ns, judged.call.end_ns);
        thread.last_sequence = judged.call.sequence;
        if (thread.length) {
            add(thread.delays, judged.delays);
            add(thread.delays, thread.next_delays);
            add(thread.gap_delays, std::exchange(thread.next_delays, {}));
            thread.is_certain &= judged.call.is_certain;
            if (judged.call.what == thread.pacing) settle(judged.call.thread, true, ret_losses);
            continue;
        }
        const ThreadKey& key = index_.key(judged.call.thread);
        const bool runs_ahead = thread.feeds_device || (thread.enqueues && waiting_.contains(key.process));
        add_loss(key.process, key.tid, judged, !runs_ahead, ret_losses);
    }
    judged_.clear();
    ret_losses.insert(ret_losses.end(), of_others_.begin(), of_others_.end());
    of_others_.clear();
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
    for (uint32_t number = 0; number < threads_.size(); ++number) {
        if (!threads_[number].length) continue;
        settle(number, false, ret_losses);
        // After the last call it may be that nothing was left to do.
        const Delays& rest = threads_[number].next_delays;
        if (sum(rest) == 0) continue;
        ThreadLoss& thread_loss = ret_losses.emplace_back();
        thread_loss.process = index_.key(number).process;
        thread_loss.tid = index_.key(number).tid;
        for (size_t cause = 0; cause < finding_causes; ++cause)
            thread_loss.causes[cause].high_ns = static_cast<int64_t>(std::min<uint64_t>(rest[cause], INT64_MAX));
    }
}

}  // namespace ingero
