#include "core/diagnosis/judge.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/diagnosis/assign.h"
#include "core/diagnosis/evidence/gap_causes.h"
#include "core/model/host_event.h"
#include "core/store/block/block_rows.h"

namespace ingero {

namespace {

bool is_failure(const Event& call) {
    // What was asked about is not done yet.
    constexpr int not_ready = 600, in_progress = 7;  // of CUDA; of NCCL
    return call.return_code != 0 && call.return_code != (op_source(call.op) == source_nccl ? in_progress : not_ready);
}

bool slower(const SlowCall& a, const SlowCall& b) {
    if (a.excess_ns != b.excess_ns) return a.excess_ns > b.excess_ns;
    return a.event.sequence < b.event.sequence;
}

}  // namespace

void SlowCalls::add(SlowCall call) {
    heap_.push_back(std::move(call));
    std::push_heap(heap_.begin(), heap_.end(), slower);
    if (heap_.size() <= limit_) return;
    std::pop_heap(heap_.begin(), heap_.end(), slower);
    heap_.pop_back();
}

std::vector<SlowCall> SlowCalls::take() {
    std::sort(heap_.begin(), heap_.end(), slower);
    return std::move(heap_);
}

Judge::Judge(const DetectorContext& context, EventFilter filter, SlowCalls& slow, JudgedTotals& totals)
    : window_(context.window),
      of_ops_(all_ops().size()),
      filter_(std::move(filter)),
      any_process_(filter_.of_any_process()),
      waits_(context.processes, any_process_),
      gaps_(context.window, context.processes),
      cycles_(context.window),
      processes_(context.processes),
      clock_(context.clock),
      ledger_(context.options, context.window, context.clock),
      with_groups_(context.options.with_groups),
      excess_(context.window, context.options.slices),
      slow_(slow),
      totals_(totals) {
    for (const CatalogueEntry& entry : catalogue()) {
        if (!entry.make) continue;
        detectors_.push_back(entry.make(context));
        if (detectors_.back()->wants_failures()) of_failures_.push_back(detectors_.back().get());
    }
}

const std::vector<Detector*>& Judge::watchers_of(const Op& op) {
    Watched& watched = of_ops_[static_cast<size_t>(&op - all_ops().data())];
    if (!watched.known) {
        watched.known = true;
        for (const auto& detector : detectors_)
            if (detector->wants(op)) watched.detectors.push_back(detector.get());
    }
    return watched.detectors;
}

void Judge::show(std::span<const Event> block, bool before) {
    shown_.clear();
    for (const Event& event : block) {
        if (before != (event.start_ns < window_.from_ns)) continue;
        const Op* op = ops_(event.op);
        if (!op || (watchers_of(*op).empty() && event.return_code == 0)) continue;
        if (filter_.matches(event)) shown_.push_back(&event);
    }
    const auto earlier = [](const Event* a, const Event* b) { return a->start_ns < b->start_ns; };
    if (!std::is_sorted(shown_.begin(), shown_.end(), earlier)) std::stable_sort(shown_.begin(), shown_.end(), earlier);
    for (const Event* event : shown_) {
        const Op& op = *ops_(event->op);
        const auto show_to = [&](Detector* detector) {
            if (before)
                detector->before(*event, op);
            else
                detector->see(*event, op);
        };
        const auto& watchers = watchers_of(op);
        for (Detector* detector : watchers) show_to(detector);
        if (event->return_code == 0) continue;
        for (Detector* detector : of_failures_)
            if (std::find(watchers.begin(), watchers.end(), detector) == watchers.end()) show_to(detector);
    }
}

Window Judge::looks_back_at() const {
    Window all;
    for (const auto& detector : detectors_) {
        const Window wanted = detector->looks_back_at();
        if (wanted.length_ns() == 0) continue;
        all = all.length_ns() == 0 ? wanted
                                   : Window{std::min(all.from_ns, wanted.from_ns), std::max(all.to_ns, wanted.to_ns)};
    }
    return all;
}

void Judge::look_back(std::span<const Event> block) {
    shown_.clear();
    for (const Event& event : block)
        if (ops_(event.op) && filter_.matches(event)) shown_.push_back(&event);
    std::stable_sort(shown_.begin(), shown_.end(),
                     [](const Event* a, const Event* b) { return a->start_ns < b->start_ns; });
    for (const auto& detector : detectors_) {
        if (detector->looks_back_at().length_ns() == 0) continue;
        for (const Event* event : shown_) detector->look_back(*event, *ops_(event->op));
    }
}

std::vector<Finding> Judge::findings(const JudgementContext& context) const {
    std::vector<Finding> all = ledger_.findings(context);
    const size_t of_splits = all.size();
    const GapCauses gaps(gaps_, waits_, context);
    JudgementContext with_gaps = context;
    with_gaps.gaps = &gaps;
    with_gaps.drained = &gaps_;
    with_gaps.waits = &waits_;
    for (const auto& detector : detectors_) detector->find(with_gaps, all);
    for (size_t i = of_splits; i < all.size(); ++i) {
        all[i].lost_all();
        // What held requests up are these causes: none is ruled out.
        if (all[i].kind != "slow-request") ledger_.add_rejected(all[i]);
    }
    return all;
}

void Judge::take_waits(std::span<const Event> block) {
    for (const Event& event : block) {
        if (!WaitTable::wants(event.op)) continue;
        if (event.op == op_retransmit) {
            if (event.start_ns > window_.from_ns && any_process_.matches(event)) waits_.add(event);
            continue;
        }
        if (event.start_ns >= window_.to_ns) continue;
        const uint64_t until_ns = saturating_add(event.start_ns, std::max(event.duration_ns, event.args[1]));
        const bool in_window =
            event.op == op_wait ? saturating_end_ns(event) > window_.from_ns : until_ns > window_.from_ns;
        if (in_window && any_process_.matches(event)) waits_.add(event);
    }
}

void Judge::learn(std::span<const Event> block) {
    show(block, true);
    take_waits(block);
    const auto visit = [&](const auto& take) {
        for (const Event& event : block)
            if (event.depth == 0 && filter_.matches(event)) take(event);
    };
    visit([&](const Event& event) {
        if (is_call(event.op)) learn(event, ops_(event.op));
    });
    // Of threads that calls have made known.
    visit([&](const Event& event) {
        if (event.op == op_wait) cycles_.learn_gap_wait(event);
    });
    cycles_.end_learnt_block();
}

void Judge::learn(const Event& call, const Op* op) {
    if (!call.split_uncertain()) expected_.add(call, op);
    cycles_.learn(call, op);
    const Window time{call.start_ns, saturating_end_ns(call)};
    if (op && op->waits_for_device && time.to_ns > window_.from_ns) work_.learn_wait(call.process(), call.tid, time);
}

Result<void> Judge::learn(BlockView& block) {
    const BlockHeader& header = block.header();
    const bool may_match = filter_.may_match(header);
    const bool has_history = may_match && header.first_start_ns < window_.from_ns;
    rows_.clear();
    const auto as_rows = [&](const OpSummary& summary) {
        if (summary.op == op_waits_summed || summary.op == op_retransmit) return true;
        const Op* op = has_history ? ops_(summary.op) : nullptr;
        return op && (summary.errors != 0 || !watchers_of(*op).empty());
    };
    auto decoded = decode_rows(block, as_rows, rows_);
    if (!decoded) return decoded;
    show(rows_, true);
    take_waits(rows_);
    std::optional<size_t> of_waits;
    for (size_t segment = 0; segment < block.ops().size(); ++segment) {
        const OpId op = block.ops()[segment].op;
        if (op == op_wait) of_waits = segment;
        if (!may_match || !is_call(op)) continue;
        columns_.open(block, segment);
        if (auto learnt = learn_calls(op); !learnt) return learnt;
    }
    // Of threads that calls have made known.
    if (of_waits && (may_match || header.max_end_ns > window_.from_ns)) {
        columns_.open(block, *of_waits);
        if (auto learnt = learn_waits(block, *of_waits); !learnt) return learnt;
    }
    cycles_.end_learnt_block();
    return {};
}

/// Of the many short ones that are not kept no row is made.
Result<void> Judge::learn_waits(BlockView& block, size_t segment) {
    using enum ColumnId;
    auto decoded = columns_.decode(depth, tgid, tid, process_start, start, duration, runnable, blocked_reason,
                                   waker_tgid, argument_0);
    if (!decoded) return decoded;
    const auto depths = columns_[depth], tgids = columns_[tgid], tids = columns_[tid],
               process_starts = columns_[process_start], starts = columns_[start], durations = columns_[duration],
               runnables = columns_[runnable], reasons = columns_[blocked_reason], wakers = columns_[waker_tgid],
               places = columns_[argument_0];
    Event wait;
    wait.op = op_wait;
    for (size_t row = 0; row < starts.size(); ++row) {
        if (depths[row] != 0) continue;
        wait.tgid = static_cast<uint32_t>(tgids[row]);
        wait.process_start_ns = process_starts[row];
        if (!filter_.matches(wait.process())) continue;
        wait.tid = static_cast<uint32_t>(tids[row]);
        wait.start_ns = starts[row];
        wait.duration_ns = durations[row];
        wait.runnable_ns = runnables[row];
        wait.blocked_reason = static_cast<BlockedReason>(reasons[row]);
        wait.waker_tgid = static_cast<uint32_t>(wakers[row]);
        wait.args[0] = places[row];
        cycles_.learn_gap_wait(wait);
    }
    if (block.header().max_end_ns <= window_.from_ns) return {};
    wanted_.clear();
    for (size_t row = 0; row < starts.size(); ++row) {
        const Window time{starts[row], saturating_add(starts[row], durations[row])};
        if (time.from_ns < window_.to_ns && time.to_ns > window_.from_ns && !waits_.is_short(durations[row]))
            wanted_.push_back(static_cast<uint16_t>(row));
    }
    rows_.clear();
    if (decoded = decode_rows(block, segment, wanted_, rows_); !decoded) return decoded;
    auto next = rows_.begin();
    for (size_t row = 0; row < starts.size(); ++row) {
        const Window time{starts[row], saturating_add(starts[row], durations[row])};
        if (time.from_ns >= window_.to_ns || time.to_ns <= window_.from_ns) continue;
        const bool has_row = next != rows_.end() && wanted_[static_cast<size_t>(next - rows_.begin())] == row;
        const ProcessKey process{static_cast<uint32_t>(tgids[row]), process_starts[row]};
        if (any_process_.matches(process)) {
            if (has_row)
                waits_.add(*next);
            else
                waits_.add_short(process, static_cast<uint32_t>(tids[row]), time);
        }
        if (has_row) ++next;
    }
    return {};
}

Result<void> Judge::learn_calls(OpId id) {
    using enum ColumnId;
    auto decoded = columns_.decode(depth, flags, tgid, process_start, start, sequence, duration, runnable, blocked,
                                   blocked_reason, argument_0, stream, weight, time_weight);
    if (!decoded) return decoded;
    const auto depths = columns_[depth], all_flags = columns_[flags], tgids = columns_[tgid],
               process_starts = columns_[process_start], starts = columns_[start], sequences = columns_[sequence],
               durations = columns_[duration], runnables = columns_[runnable], blocks = columns_[blocked],
               reasons = columns_[blocked_reason], arguments = columns_[argument_0], streams = columns_[stream],
               weights = columns_[weight], time_weights = columns_[time_weight];
    const Op* const known = ops_(id);
    // Of most calls it is enough that they waited for nothing.
    const bool may_wait = (known && known->waits_for_device) || !columns_.is_default(runnable) ||
                          !columns_.is_default(blocked) || !columns_.is_default(flags);
    if (may_wait) decoded = columns_.decode(tid, device, last_wait, last_runnable, last_reason, tail);
    if (!decoded) return decoded;
    Event call;
    call.op = id;
    for (size_t row = 0; row < depths.size(); ++row) {
        if (depths[row] != 0) continue;
        call.tgid = static_cast<uint32_t>(tgids[row]);
        call.process_start_ns = process_starts[row];
        if (!filter_.matches(call)) continue;
        call.sequence = sequences[row];
        call.start_ns = starts[row];
        call.duration_ns = durations[row];
        call.runnable_ns = runnables[row];
        call.blocked_ns = blocks[row];
        call.blocked_reason = static_cast<BlockedReason>(reasons[row]);
        call.args[0] = arguments[row];
        call.stream = streams[row];
        call.weight = static_cast<uint32_t>(weights[row]);
        call.time_weight = static_cast<uint32_t>(time_weights[row]);
        call.flags = static_cast<uint8_t>(all_flags[row]);
        if (!may_wait) {
            expected_.add(call, known);
            continue;
        }
        call.tid = static_cast<uint32_t>(columns_[tid][row]);
        call.device = static_cast<uint16_t>(columns_[device][row]);
        call.last_wait_ns = columns_[last_wait][row];
        call.last_runnable_ns = columns_[last_runnable][row];
        call.last_reason = static_cast<BlockedReason>(columns_[last_reason][row]);
        call.tail_ns = columns_[tail][row];
        learn(call, known);
    }
    return {};
}

void Judge::finish_learning() {
    expected_.finish();
    waits_.finish();
    work_.finish_learning();
    cycles_.finish_learning();
}

void Judge::finish_judging() {
    cycles_.finish(losses_);
    take_losses();
}

void Judge::take_losses() {
    for (const ThreadLoss& loss : losses_) ledger_.lose(loss);
    losses_.clear();
}

void Judge::forget_samples() {
    expected_ = ExpectedTimes();
    cycles_ = Cycles(window_);
}

Result<void> Judge::add_gap_waits(BlockView& block, std::vector<Event>& ret_rows) {
    using enum ColumnId;
    const auto of_waits = std::find_if(block.ops().begin(), block.ops().end(),
                                       [](const OpSummary& summary) { return summary.op == op_wait; });
    if (of_waits == block.ops().end() || !filter_.may_match(block.header())) return {};
    const auto segment = static_cast<size_t>(of_waits - block.ops().begin());
    columns_.open(block, segment);
    if (columns_.is_default(runnable) && columns_.is_default(blocked_reason)) return {};
    if (auto decoded = columns_.decode(depth, flags, tgid, tid, process_start, runnable, blocked_reason); !decoded)
        return decoded;
    const auto depths = columns_[depth], all_flags = columns_[flags], tgids = columns_[tgid], tids = columns_[tid],
               process_starts = columns_[process_start], runnables = columns_[runnable],
               reasons = columns_[blocked_reason];
    wanted_.clear();
    for (size_t row = 0; row < depths.size(); ++row) {
        const ProcessKey process{static_cast<uint32_t>(tgids[row]), process_starts[row]};
        if (depths[row] == 0 && (runnables[row] != 0 || may_hold_up(static_cast<BlockedReason>(reasons[row]))) &&
            (all_flags[row] & INGERO_CALL_SPLIT_UNCERTAIN) == 0 &&
            cycles_.has_cycles(process, static_cast<uint32_t>(tids[row])))
            wanted_.push_back(static_cast<uint16_t>(row));
    }
    return decode_rows(block, segment, wanted_, ret_rows);
}

bool Judge::is_gap_wait(const Event& event) {
    return event.op == op_wait && event.depth == 0 && (event.runnable_ns != 0 || may_hold_up(event.blocked_reason)) &&
           !event.split_uncertain() && filter_.matches(event) && cycles_.has_cycles(event.process(), event.tid);
}

/// Whether the thread had work under way for a device. A futex may be a queue: a thread that waits to be asked sleeps
/// on one too. What sleeps for as long as Python's threads wait for their interpreter before they ask for it, and by
/// itself wakes up, is none; but where another thread of its waits for a device, it may be for that one.
bool Judge::slept_in_work(const Event& wait) const {
    constexpr uint64_t interval_ns = 5'000'000, late_ns = 1'000'000;
    const Window time{wait.start_ns, saturating_end_ns(wait)};
    if (!may_hold_up(wait.blocked_reason) || time.from_ns < window_.from_ns ||
        !work_.has_work(wait.process(), wait.tid, time.from_ns))
        return false;
    if (wait.blocked_reason != BlockedReason::futex) return true;
    return wait.waker_kind == WakerKind::interrupt && wait.blocked_ns >= interval_ns &&
           wait.blocked_ns < interval_ns + late_ns && !work_.another_waits(wait.process(), wait.tid, time);
}

void Judge::judge_gap_wait(const Event& wait) {
    cycles_.judge_sleep(wait);
    const Event blamed = is_throttled(wait) ? blame_quota(wait, call_time(wait).runnable_ns) : wait;
    const CallTime time = call_time(blamed);
    const auto add = [&](const Assignment& assignment) {
        ledger_.add(blamed, time, nullptr, assignment);
        cycles_.judge_gap_wait(blamed, assignment);
    };
    if (time.runnable_ns != 0) add(name_neighbours(blamed, assign_between_calls(blamed, time)));
    if (slept_in_work(wait)) add(assign_sleep_between_calls(blamed, time));
}

void Judge::judge(std::span<const Event> block, size_t others) {
    totals_.recorded = saturating_add(totals_.recorded, others);
    show(block, false);
    gaps_.take(block, filter_, work_);
    const std::vector<uint8_t>& queue_full = queues_.observe(block);
    for (size_t row = 0; row < block.size(); ++row) {
        totals_.recorded = saturating_add(totals_.recorded, block[row].weight);
        if (block[row].depth == 0 && is_call(block[row].op) && filter_.matches(block[row]))
            judge(block[row], queue_full[row]);
        else if (is_gap_wait(block[row]))
            judge_gap_wait(block[row]);
    }
    cycles_.end_judged_block(losses_);
    take_losses();
}

Event Judge::blame_quota(const Event& event) const {
    const uint64_t ns = waits_.throttled_ns(event.process(), event.tid, {event.start_ns, saturating_end_ns(event)});
    // Waits too short to be recorded one by one are not known to be of the quota.
    if (ns == 0 || ns < event.runnable_ns - std::min(ns, event.runnable_ns)) return event;
    return blame_quota(event, ns);
}

Event Judge::blame_quota(Event event, uint64_t ns) {
    event.preemptor_comm = to_comm(quota_name);
    event.preemptor_tgid = INGERO_PID_OUTSIDE;
    event.preemptor_ns = ns;
    return event;
}

bool Judge::is_neighbour(const Event& event, uint32_t preemptor_tgid) const {
    if (!processes_ || preemptor_tgid == event.tgid) return false;
    const Process* const own = processes_->find(event.process());
    const Process* const other = processes_->during(preemptor_tgid, {event.start_ns, saturating_end_ns(event)});
    if (!own || !other || own->cgroup.empty() || other->cgroup.empty()) return false;
    // A group below its own is its own too. All are below the root, which is nobody's.
    const auto is_below = [](const std::string& path, const std::string& above) {
        return above != "/" && path.starts_with(above + "/");
    };
    return own->cgroup != other->cgroup && !is_below(own->cgroup, other->cgroup) &&
           !is_below(other->cgroup, own->cgroup);
}

Assignment Judge::name_preemptors(const Event& event, Assignment assignment) const {
    const uint64_t contention_ns = assignment[Cause::cpu_contention];
    if (contention_ns == 0) return assignment;
    std::vector<Preemptor>& preemptors = assignment.preemptors;
    if (!assignment.has_main_preemptor()) {
        std::vector<Preemptor> of_waits =
            waits_.preemptors(event.process(), event.tid, {event.start_ns, saturating_end_ns(event)});
        std::erase_if(of_waits, [](const Preemptor& one) { return !suspect_exclusion(one.comm).empty(); });
        if (!of_waits.empty()) preemptors = std::move(of_waits);
        uint64_t unnamed_ns = assignment.contended_ns;
        for (Preemptor& one : preemptors) unnamed_ns -= one.ns = std::min(one.ns, unnamed_ns);
    }
    return name_neighbours(event, std::move(assignment));
}

Assignment Judge::name_neighbours(const Event& event, Assignment assignment) const {
    const uint64_t contention_ns = assignment[Cause::cpu_contention];
    std::vector<Preemptor>& preemptors = assignment.preemptors;
    uint64_t neighbours_ns = 0;
    for (Preemptor& one : preemptors) {
        if (!is_neighbour(event, one.tgid)) continue;
        one.cause = Cause::noisy_neighbour;
        neighbours_ns += one.ns;
    }
    if (neighbours_ns == 0) return assignment;
    // Of tasks that are not known it is not known either whose they are.
    if (assignment.has_main_preemptor() && preemptors[0].cause == Cause::noisy_neighbour)
        neighbours_ns = assignment.contended_ns;
    const auto moved_ns =
        static_cast<uint64_t>(static_cast<unsigned __int128>(contention_ns) * neighbours_ns / assignment.contended_ns);
    assignment[Cause::cpu_contention] = contention_ns - moved_ns;
    assignment[Cause::noisy_neighbour] = moved_ns;
    return assignment;
}

Assignment Judge::name_resent(const Event& event, Assignment assignment) const {
    if (assignment[Cause::network] == 0 || !waits_.has_resent()) return assignment;
    const auto [ns, longest] = waits_.resent(event.process(), event.tid, {event.start_ns, saturating_end_ns(event)});
    const uint64_t moved_ns = std::min(ns, assignment[Cause::network]);
    assignment[Cause::network] -= moved_ns;
    assignment[Cause::network_retransmit] = moved_ns;
    assignment.resent = longest;
    return assignment;
}

void Judge::judge(const Event& returned, bool queue_full) {
    totals_.calls = saturating_add(totals_.calls, returned.weight);
    if (returned.split_uncertain()) totals_.uncertain = saturating_add(totals_.uncertain, returned.weight);
    if (is_failure(returned)) totals_.failed = saturating_add(totals_.failed, returned.weight);
    ledger_.saw(returned);
    if (with_groups_) excess_.saw(returned);
    const Op* op = ops_(returned.op);
    const auto [baseline, first] = expected_.of(returned, op);
    const bool is_longer = !baseline || returned.duration_ns > baseline->expected_ns();
    const bool may_hide = op && op->waits_for_device && returned.runnable_ns != 0 && !returned.split_uncertain();
    if (!is_longer && !may_hide) return cycles_.judge(returned, op, nullptr);
    std::optional<Event> by_quota;
    if (returned.runnable_ns != 0 && waits_.has_throttled()) by_quota = blame_quota(returned);
    const Event& event = by_quota ? *by_quota : returned;
    const CallTime time = call_time(event);
    if (!is_longer) {
        ledger_.add_hidden(event, time, op, name_preemptors(event, assign_hidden(event, time, *baseline)));
        return cycles_.judge(returned, op, nullptr);
    }
    if (!baseline) {
        // A first call of its kind is always unlike what is known: no sign of anything.
        if (!first && !event.split_uncertain())
            ledger_.add_unjudged(event, time, op,
                                 name_resent(event, name_preemptors(event, assign_unjudged(event, time, op))));
        return cycles_.judge(returned, op, nullptr);
    }
    const bool first_use = first && is_cold(time.duration_ns, *baseline);
    Assignment assignment;
    if (event.split_uncertain()) {
        // How long it took is known, what it did meanwhile is not: it counts, and is no evidence.
        assignment.expected_ns = baseline->expected_ns();
        assignment.excess_ns = time.duration_ns - assignment.expected_ns;
        stand_for_all(event, assignment);
        if (with_groups_) excess_.add_uncertain(event, assignment.of_all(assignment.excess_ns));
        cycles_.judge(returned, op, nullptr);
    } else {
        assignment = name_preemptors(event, assign(event, time, op, *baseline, first_use, queue_full));
        assignment = name_resent(event, std::move(assignment));
        ledger_.add(event, time, op, assignment);
        cycles_.judge(returned, op, &assignment);
        if (with_groups_) excess_.add(event, assignment);
        for (const auto& detector : detectors_) detector->judged({event, time, op, assignment, first_use});
    }
    totals_.excess_ns = saturating_add(totals_.excess_ns, assignment.of_all(assignment.excess_ns));
    totals_.explained_ns = saturating_add(totals_.explained_ns, assignment.of_all(assignment.explained_ns()));
    if (slow_.wants(assignment.excess_ns)) slow_.add(make_slow_call(event, time, op, assignment, clock_));
}

}  // namespace ingero
