#include "core/diagnosis/evidence/expected.h"

#include <algorithm>
#include <bit>

namespace ingero {

namespace {

constexpr size_t max_kinds = 65'536;
constexpr size_t max_functions = 65'536;
/// So many kinds have so many samples each. Each time there are twice as many kinds, all have half as many.
constexpr size_t first_kinds = 8'192;
constexpr uint32_t first_samples = 512;

/// A thread that was off the CPU when the device was done returns so soon after it is back, or within such a part of
/// the call: by whatever polls for the device, by the probes' own time, and by what else has the CPU that no scheduler
/// sees, interrupts or a hypervisor. Those some hundred us, in one wait of fifty, made cycles that were held up look
/// left alone.
constexpr uint64_t moment_ns = 500'000;
constexpr uint64_t moment_part = 16;

/// Off the CPU no longer than a wake-up takes, or a sixteenth of the call.
bool is_quiet(float duration_ns, float disturbed_ns) {
    return disturbed_ns <= std::max(duration_ns / 16, 20'000.0f);
}

}  // namespace

bool sleep_may_be_purpose(BlockedReason reason, const Op* op) {
    switch (reason) {
        case BlockedReason::disk:
        case BlockedReason::network_fs:
        case BlockedReason::page_fault:
        case BlockedReason::stopped:
            return false;
        // Blocking synchronisation may sleep on a futex that a thread of the driver wakes.
        case BlockedReason::futex:
            return op && op->waits_for_device;
        default:
            return true;
    }
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

ExpectedTimes::ExpectedTimes()
    : keys_(max_kinds), room_(first_kinds), most_samples_(first_samples), functions_(max_functions) {}

ExpectedTimes::Key ExpectedTimes::key_of(const Event& event, const Op* op) {
    Key key{event.process_start_ns, 0, event.stream, event.tgid, event.op, false};
    if (!op) return key;
    if (op->op_class == OpClass::launch) key.what = event.args[0];
    if (op->op_class == OpClass::copy || op->op_class == OpClass::alloc) {
        key.what = static_cast<uint64_t>(std::bit_width(event.args[0]));
    }
    return key;
}

void ExpectedTimes::add_kind(const Op* op) {
    if (kinds_.size() == room_) {
        room_ *= 2;
        most_samples_ /= 2;
        for (Kind& kind : kinds_) kind.samples.limit(most_samples_);
    }
    Kind& kind = kinds_.emplace_back();
    kind.samples.limit(most_samples_);
    kind.waits_for_device = op && op->waits_for_device;
}

uint32_t ExpectedTimes::kind_of(const Event& event, const Op* op) {
    Key key = key_of(event, op);
    const uint32_t number = keys_.find_or_add(key);
    if (number != kinds_.size()) return number;

    const bool launch = op && op->op_class == OpClass::launch;
    add_kind(op);
    Key function = key;
    function.stream = 0;
    if (!launch) function.what = 0;
    const uint32_t first_use = functions_.find_or_add(function);
    if (first_use == first_uses_.size()) first_uses_.emplace_back();
    key.what = key.stream = 0;
    key.whole_op = true;
    const uint32_t whole_op = keys_.find_or_add(key);
    if (whole_op == kinds_.size()) add_kind(op);
    kinds_[number].function = first_use;
    kinds_[number].whole_op = whole_op;
    return number;
}

void ExpectedTimes::keep(Kind& kind, uint64_t sequence, const Sample& sample) {
    const auto hash = static_cast<uint32_t>(mix_bits(sequence));
    kind.samples.add(hash, sample);
    if (kind.whole_op != KeyIndex<Key>::none) kinds_[kind.whole_op].samples.add(hash, sample);
}

void ExpectedTimes::add(const Event& event, const Op* op) {
    const CallTime time = call_time(event);
    const bool purpose = sleep_may_be_purpose(event.blocked_reason, op);
    Sample sample;
    sample.on_cpu_ns = static_cast<float>(time.on_cpu_ns);
    sample.purpose_ns = purpose ? static_cast<float>(time.blocked_ns) : 0.0f;
    sample.disturbed_ns = static_cast<float>(purpose ? time.runnable_ns : time.runnable_ns + time.blocked_ns);
    sample.calls = std::max<uint32_t>(event.weight, 1);

    const uint32_t number = kind_of(event, op);
    if (number == KeyIndex<Key>::none) {
        // No room for another kind: the op's own median is still worth having.
        Key key = key_of(event, op);
        key.what = key.stream = 0;
        key.whole_op = true;
        const uint32_t whole_op = keys_.find(key);
        if (whole_op != KeyIndex<Key>::none) keep(kinds_[whole_op], event.sequence, sample);
        return;
    }
    Kind& kind = kinds_[number];
    const FirstCall call{event.start_ns, event.sequence};
    if (kind.function == KeyIndex<Key>::none) return keep(kind, event.sequence, sample);
    first_uses_[kind.function] = std::min(first_uses_[kind.function], call);
    if (call < kind.first) {
        if (kind.first.sequence != UINT64_MAX) keep(kind, kind.first.sequence, kind.first_sample);
        kind.first = call;
        kind.first_sample = sample;
    } else {
        keep(kind, event.sequence, sample);
    }
}

void ExpectedTimes::finish() {
    for (Kind& kind : kinds_) {
        if (kind.first.sequence == UINT64_MAX || kind.first == first_uses_[kind.function]) continue;
        keep(kind, kind.first.sequence, kind.first_sample);
    }
    for (Kind& kind : kinds_) kind.baseline = baseline_of(kind);
}

// On-CPU time is what a call costs by itself: a preempted call has no more of it than an undisturbed one, so its median
// stands even where all calls are preempted. Calls that wait for the device by spinning are different: what they spend
// on the CPU is the device's time, which goes on while they are preempted, and a preempted call spins the less for it.
// There the undisturbed calls show how long the device takes, where there are any; where there are none, the time spun
// is the best lower bound. No blame can come of an expectation that is too low but for time the thread verifiably stood
// still.
Baseline ExpectedTimes::baseline_of(const Kind& kind) {
    std::vector<Weighted<float>> on_cpu, purpose, whole, quiet, quiet_purpose;
    for (const auto& [sample, hash] : kind.samples.kept()) {
        on_cpu.push_back({sample.on_cpu_ns, sample.calls});
        purpose.push_back({sample.purpose_ns, sample.calls});
        const float duration = sample.on_cpu_ns + sample.purpose_ns + sample.disturbed_ns;
        whole.push_back({duration, sample.calls});
        if (!kind.waits_for_device || !is_quiet(duration, sample.disturbed_ns)) continue;
        quiet.push_back({duration, sample.calls});
        quiet_purpose.push_back({sample.purpose_ns, sample.calls});
    }
    Baseline baseline;
    baseline.rows = static_cast<uint32_t>(on_cpu.size());
    baseline.high_ns = saturating_ns(quantile_of(whole, 0.95));
    if (quiet.size() >= enough_calls) {
        baseline.blocked_ns = saturating_ns(quantile_of(quiet_purpose, 0.5));
        baseline.on_cpu_ns = saturating_subtract(saturating_ns(quantile_of(quiet, 0.5)), baseline.blocked_ns);
    } else {
        baseline.on_cpu_ns = saturating_ns(quantile_of(on_cpu, 0.5));
        baseline.blocked_ns = saturating_ns(quantile_of(purpose, 0.5));
    }
    return baseline;
}

Expectation ExpectedTimes::of(const Event& event, const Op* op) const {
    Key key = key_of(event, op);
    Expectation expectation;
    const uint32_t number = keys_.find(key);
    if (number != KeyIndex<Key>::none && kinds_[number].function != KeyIndex<Key>::none) {
        const Kind& kind = kinds_[number];
        expectation.first_use = FirstCall{event.start_ns, event.sequence} == first_uses_[kind.function];
        // A first use is not among the samples; any other call is one of them and must not vouch for itself.
        const uint32_t others = kind.baseline.rows - (!expectation.first_use && kind.baseline.rows ? 1 : 0);
        if (!expectation.first_use && others >= enough_calls) {
            expectation.baseline = &kind.baseline;
            return expectation;
        }
    }
    key.what = key.stream = 0;
    key.whole_op = true;
    const uint32_t whole_op = keys_.find(key);
    if (whole_op == KeyIndex<Key>::none) return expectation;
    const Baseline& all = kinds_[whole_op].baseline;
    if (all.rows >= enough_calls + !expectation.first_use) expectation.baseline = &all;
    return expectation;
}

}  // namespace ingero
