#include <algorithm>
#include <compare>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "core/diagnosis/evidence/cycles.h"
#include "core/diagnosis/evidence/expected.h"
#include "core/model/call_time.h"
#include "core/model/host_event.h"

namespace ingero {

namespace {

constexpr size_t max_threads = 1'024;       ///< that are kept from one learnt block to the next
constexpr size_t max_with_block = 16'384;   ///< with those that a block adds, or the judged calls
constexpr size_t crowd = max_threads / 16;  ///< of threads: a process with more makes room before others do
constexpr size_t max_kinds = 4;
constexpr size_t max_gap_waits = 262'144;
/// How much later than another a row may come that ended before it: what is stored at once is of a second at most.
constexpr uint64_t late_ns = 2'000'000'000;
/// Rows that wait for such ones; beyond so many, only for those of the next block.
constexpr size_t max_held = 65'536;
/// Undisturbed cycles, for each of which there are at most so many others: fewer are exceptions. Where the others'
/// waits explain their lengths, these are believed rather than few that differ as much: some of them had waits that
/// were not recorded.
constexpr uint64_t others_for_each = 64, others_if_explained = 8;
/// Cycles that it takes where all are disturbed.
constexpr size_t enough_disturbed = 16;
/// Where cycles differ by what their waits differ by, they differ so many times less without these.
constexpr float is_explained = 8;
/// And at most one part in so many of that was time without a CPU in waits for the device.
constexpr float few_for_device = 4;
/// Cycles of the same work are at most so much shorter than most of them.
constexpr float alike_part = 0.875;

/// Where one thread waits for the devices, others do for at most such a part of all that is waited.
constexpr uint64_t others_wait_part = 16;
constexpr uint64_t other_device = uint64_t{1} << 63;

/// Cycles of the same work differ by one part in so many of themselves.
constexpr uint64_t little = 64;

bool is_disturbed(uint64_t delay_ns, uint64_t length_ns) {
    return delay_ns > std::max<uint64_t>(20'000, length_ns / little);
}

uint64_t device_bit(uint16_t device) {
    return device < 63 ? uint64_t{1} << device : other_device;
}

}  // namespace

Cycles::Cycles(const Window& window) : window_(window), index_(max_with_block) {}

uint32_t Cycles::thread_of(const ProcessKey& process, uint32_t tid) {
    const ThreadKey key{process, tid};
    if (last_number_ != KeyIndex<ThreadKey>::none && key == last_) return last_number_;
    const uint32_t number = index_.find_or_add(key);
    if (number == KeyIndex<ThreadKey>::none) return number;
    if (number == threads_.size()) {
        threads_.emplace_back().feeds_device = forgot_callers_;
        threads_.back().leader = number;
    }
    last_ = key;
    return last_number_ = number;
}

uint64_t Cycles::kind_of(const Event& call, const Op* op) {
    if (!op || !op->waits_for_device) return 0;
    return hash_words(call.op, call.stream) | 1;
}

Cycles::Learnt Cycles::gap_wait(const Event& wait) {
    const bool on_futex = wait.blocked_reason == BlockedReason::futex;
    return {.start_ns = wait.start_ns,
            .end_ns = saturating_end_ns(wait),
            .delay_ns = saturating_end_ns(wait) - wait.start_ns,
            .is_gap_wait = true,
            .may_be_idle = on_futex || !may_hold_up(wait.blocked_reason),
            .waker = on_futex && wait.waker_tgid == wait.tgid ? wait_place(wait).waker_tid : 0,
            .slept_ns = wait.duration_ns - call_time(wait).runnable_ns};
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
    const bool enqueued = op && enqueues(*op);
    threads_[thread].enqueues |= enqueued;
    if (enqueued) threads_[thread].devices |= device_bit(call.device);
    if (learnt.what != 0) threads_[thread].waited_for |= device_bit(call.device);
    learnt.of = thread;
    learnt_.push_back(learnt);
}

void Cycles::note_wait(const Learnt& call) {
    Thread& thread = threads_[call.of];
    const ThreadKey& key = index_.key(call.of);
    if (!thread.waits) {
        const auto found = waits_.find(key.process);
        if (found == waits_.end() && waits_.size() == max_with_block) return;
        thread.waits = found == waits_.end() ? &waits_[key.process] : &found->second;
    }
    const uint64_t waited_ns = std::max<uint64_t>(call.end_ns - call.start_ns, 1);
    thread.waited_ns = saturating_add(thread.waited_ns, waited_ns);
    thread.waits->all_ns = saturating_add(thread.waits->all_ns, waited_ns);
    if (thread.waited_ns < thread.waits->waited_ns) return;
    thread.waits->waited_ns = thread.waited_ns;
    thread.waits->tid = key.tid;
}

uint32_t Cycles::find_leader(uint32_t number) {
    Thread& thread = threads_[number];
    if (!thread.enqueues || thread.waited_ns != 0) return number;
    const ProcessKey& process = index_.key(number).process;
    if (!thread.waits) {
        const auto found = waits_.find(process);
        if (found == waits_.end()) return number;
        thread.waits = &found->second;
    }
    const Waits& waits = *thread.waits;
    if (waits.waited_ns < waits.all_ns - waits.all_ns / others_wait_part) return number;
    const uint32_t leader = index_.find({process, waits.tid});
    if (leader == KeyIndex<ThreadKey>::none || (thread.devices & ~threads_[leader].waited_for) != 0) return number;
    return leader;
}

// Of a thread that waits for no device, and has no calls that were held up, it is of no interest.
void Cycles::learn_gap_wait(const Event& wait) {
    const uint32_t thread = index_.find({wait.process(), wait.tid});
    if (thread == KeyIndex<ThreadKey>::none) return;
    learnt_.push_back(gap_wait(wait));
    learnt_.back().of = thread;
}

bool Cycles::is_for_other(const Learnt& wait) const {
    const Thread& thread = threads_[wait.of];
    if (wait.waker == 0 || !thread.leads || wait.end_ns <= thread.leads_from_ns) return false;
    const uint32_t waker = index_.find({index_.key(wait.of).process, wait.waker});
    return waker != KeyIndex<ThreadKey>::none && waker != wait.of && threads_[waker].leader == wait.of;
}

void Cycles::take_gap_wait(Learnt& ret_wait) {
    ret_wait.is_for_other = is_for_other(ret_wait);
    if (ret_wait.is_for_other || (ret_wait.is_of_others() && ret_wait.may_be_idle))
        ret_wait.delay_ns = saturating_subtract(ret_wait.delay_ns, ret_wait.slept_ns);
}

void Cycles::keep_gap_wait(Thread& thread, const Learnt& wait) {
    if (wait.delay_ns == 0 || wait.end_ns <= window_.from_ns || gap_waits_ == max_gap_waits) return;
    thread.gap_waits.push_back({wait.end_ns - std::min(wait.delay_ns, wait.end_ns), wait.end_ns});
    ++gap_waits_;
}

Window Cycles::in_sleep(const Learnt& other, const Learnt& sleep) {
    const uint64_t from_ns = std::max(other.start_ns, sleep.start_ns);
    return {from_ns, std::max(from_ns, std::min(other.end_ns, saturating_add(sleep.start_ns, sleep.slept_ns)))};
}

void Cycles::end_learnt_block() {
    const std::span block = std::span(learnt_).subspan(held_);
    for (const Learnt& call : block)
        if (call.what != 0) note_wait(call);
    for (Learnt& call : block) {
        threads_[call.of].leader = call.thread = find_leader(call.of);
        Thread& leader = threads_[call.thread];
        if (call.is_of_others() && !leader.leads) leader.leads_from_ns = leader.learnt_until_ns;
        leader.leads |= call.is_of_others();
    }
    // Once it is known who leads.
    uint64_t latest_ns = 0;
    for (Learnt& call : block) {
        if (call.is_gap_wait) take_gap_wait(call);
        uint64_t& until_ns = threads_[call.of].learnt_until_ns;
        until_ns = std::max(until_ns, call.end_ns);
        latest_ns = std::max(latest_ns, call.end_ns);
    }
    held_ = learnt_.size();
    if (const uint64_t until_ns = settled_ns(learnt_until_, latest_ns, held_); until_ns != 0) take_learnt(until_ns);
    if (threads_.size() > max_threads) make_room();
}

uint64_t Cycles::settled_ns(Settled& settled, uint64_t latest_ns, size_t held) {
    const uint64_t before_ns = settled.latest_ns;
    settled.latest_ns = std::max(before_ns, latest_ns);
    if (held > max_held) return settled.taken_ns = before_ns;
    // Many at once, so that those that are left are not looked at again and again.
    const uint64_t until_ns = saturating_subtract(settled.latest_ns, late_ns);
    return until_ns - std::min(until_ns, settled.taken_ns) < late_ns ? 0 : settled.taken_ns = until_ns;
}

void Cycles::take_learnt(uint64_t until_ns) {
    const auto held = std::partition(learnt_.begin(), learnt_.end(),
                                     [until_ns](const Learnt& call) { return call.end_ns <= until_ns; });
    std::sort(learnt_.begin(), held, is_before);
    std::for_each(learnt_.begin(), held, [this](const Learnt& call) { take(threads_[call.thread], call); });
    learnt_.erase(learnt_.begin(), held);
    held_ = learnt_.size();
}

bool Cycles::is_before(const Learnt& a, const Learnt& b) {
    const auto rank = [](const Learnt& one) {
        return std::tuple(one.thread, one.end_ns, one.sequence, !one.is_of_others(), one.start_ns, one.of);
    };
    return rank(a) < rank(b);
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
        gap_waits_ -= threads_[rank->number].gap_waits.size();
        forgot_callers_ |= rank->is_caller;
    }
    std::sort(kept_from, ranks.end(), [](const Rank& a, const Rank& b) { return a.number < b.number; });
    KeyIndex<ThreadKey> kept_index(max_with_block);
    std::vector<Thread> kept;
    std::vector<uint32_t> numbers(threads_.size(), KeyIndex<ThreadKey>::none);
    for (auto rank = kept_from; rank != ranks.end(); ++rank) {
        numbers[rank->number] = static_cast<uint32_t>(kept.size());
        kept_index.find_or_add({rank->process, rank->tid});
        kept.push_back(std::move(threads_[rank->number]));
    }
    std::erase_if(learnt_, [&](const Learnt& call) { return numbers[call.of] == KeyIndex<ThreadKey>::none; });
    for (Learnt& call : learnt_) {
        call.of = numbers[call.of];
        call.thread = numbers[call.thread] == KeyIndex<ThreadKey>::none ? call.of : numbers[call.thread];
    }
    held_ = learnt_.size();
    for (uint32_t number = 0; number < kept.size(); ++number) {
        uint32_t& leader = kept[number].leader;
        leader = numbers[leader] == KeyIndex<ThreadKey>::none ? number : numbers[leader];
    }
    index_ = std::move(kept_index);
    threads_ = std::move(kept);
    last_number_ = KeyIndex<ThreadKey>::none;
}

void Cycles::take(Thread& thread, Learnt call) {
    if (call.is_of_others()) {
        if (thread.others.size() < max_others) thread.others.push_back(call);
        return;
    }
    if (call.is_for_other) {
        uint64_t held_up_ns = 0;
        for (const Learnt& other : thread.others) {
            const uint64_t both_ns = in_sleep(other, call).length_ns();
            held_up_ns = saturating_add(held_up_ns, std::min(other.delay_ns, both_ns));
            call.is_certain &= other.is_certain || both_ns == 0;
        }
        call.delay_ns = saturating_add(call.delay_ns, std::min(held_up_ns, call.slept_ns));
    }
    if (call.is_for_other || call.what != 0) thread.others.clear();
    if (call.is_gap_wait) keep_gap_wait(thread, call);
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
    struct Waits {
        std::vector<Weighted<float>> lengths, rests;
        bool is_enough = false, explain = false;
    };
    const auto spread = [](auto& values) { return quantile_of(values, 0.9) - quantile_of(values, 0.1); };
    std::optional<Waits> known;
    const auto waits = [&]() -> Waits& {
        if (known) return *known;
        auto& [lengths, rests, is_enough, explain] = known.emplace();
        float delays = 0, delays_for_device = 0;
        for (const auto& [cycle, hash] : kind.cycles.kept()) {
            if (cycle.length < from) continue;
            lengths.push_back({cycle.length});
            rests.push_back({cycle.length - cycle.delay});
            delays += cycle.delay;
            delays_for_device += cycle.delay_for_device;
        }
        is_enough = lengths.size() >= enough_disturbed;
        explain =
            is_enough && spread(rests) * is_explained < spread(lengths) && delays_for_device * few_for_device < delays;
        return *known;
    };
    // Of cycles that were left alone, those of this work; and how many of all of them that makes.
    const auto undisturbed = [&](const Sampler<float>& sampled, uint64_t count,
                                 uint64_t disturbed) -> std::optional<Length> {
        std::vector<Weighted<float>> alone;
        for (const auto& [one, hash] : sampled.kept())
            if (one >= from) alone.push_back({one});
        if (alone.empty()) return std::nullopt;
        count = count * alone.size() / sampled.size();
        if (count < enough_calls || count < disturbed / others_for_each) return std::nullopt;
        if (count < disturbed / others_if_explained && waits().explain &&
            spread(alone) * is_explained > spread(waits().lengths))
            return std::nullopt;
        return between(alone);
    };
    if (auto inside = undisturbed(kind.lengths_inside, kind.undisturbed_inside, kind.disturbed_inside)) return inside;
    if (auto all = undisturbed(kind.undisturbed_lengths, kind.undisturbed, kind.disturbed)) return all;
    auto& [lengths, rests, is_enough, explain] = waits();
    if (!is_enough) return std::nullopt;
    if (explain) return between(rests);
    const auto [least, most] = std::minmax({quantile_of(rests, 0.9), quantile_of(lengths, 0.1)});
    return length(least, least + (most - least) / 2, most + most / little);
}

void Cycles::finish_learning() {
    take_learnt(UINT64_MAX);
    for (Thread& thread : threads_) {
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
    }
    std::vector<bool> leads(threads_.size());
    for (uint32_t number = 0; number < threads_.size(); ++number) {
        Thread& thread = threads_[number];
        thread.leader = find_leader(number);
        if (!threads_[thread.leader].length) thread.leader = number;
        if (thread.leader != number) leads[thread.leader] = true;
    }
    for (uint32_t number = 0; number < threads_.size(); ++number)
        threads_[number].leads = threads_[number].leads && leads[number];
    for (Thread& thread : threads_)
        std::sort(thread.gap_waits.begin(), thread.gap_waits.end(),
                  [](const Window& a, const Window& b) { return a.to_ns < b.to_ns; });
}

}  // namespace ingero
