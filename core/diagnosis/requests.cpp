#include "core/diagnosis/requests.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/diagnosis/assign.h"
#include "core/diagnosis/label_spans.h"
#include "core/model/host_event.h"
#include "core/query/event_filter.h"
#include "core/query/op_lookup.h"
#include "core/spans/request_rows.h"
#include "core/spans/span.h"
#include "core/wire/utf8.h"

namespace ingero {

// Each a single literal, so that a search finds it.
// clang-format off
const char* const shared_calls_note = "Note: under continuous batching a kernel inside a request's span is not exclusively that request's work; the same event is counted in every request whose span contains it. Do not sum these counts across rows.";
const char* const ranking_note = "Note: rows are ranked by measured span duration only. prompt_tokens and output_tokens are advisory labels from the emitter and never affect ranking.";
// clang-format on

namespace {

constexpr size_t max_spans = 1'000'000;
constexpr size_t max_occupants = 3;
constexpr uint64_t stall_floor_ns = 10'000;
/// Stalls kept for later, and times the spans, before those that are nobody's longest go.
constexpr size_t most_stalls = 1 << 16;
constexpr size_t most_stalls_a_span = 4;

bool is_cgroup(const std::string& scope) {
    return scope.starts_with('/');
}

/// Which processes a scope group has: those that were registered for it, those of its cgroup, and the descendants of
/// all of them and of the process that reported its spans.
class ScopeGroups {
  public:
    explicit ScopeGroups(const std::vector<Process>& processes) : processes_(processes) {
        for (const Process& process : processes_) {
            by_parent_.emplace(process.parent_pid, &process);
            know(process.key);
        }
    }

    /// Of a process that reported spans: it may call no CUDA, and then is not among the processes.
    void know(const ProcessKey& process) { known_.insert(process); }

    void register_process(const SpanRow& registration) { registered_[registration.scope].insert(registration.process); }

    /// Adds the others to `members`, which has those that reported spans.
    void complete(std::set<ProcessKey>& members, const std::string& scope) const {
        if (scope.empty()) return;
        if (const auto registered = registered_.find(scope); registered != registered_.end())
            members.insert(registered->second.begin(), registered->second.end());
        if (is_cgroup(scope))
            for (const Process& process : processes_)
                if (process.cgroup == scope || process.cgroup.starts_with(scope + "/")) members.insert(process.key);
        std::vector<ProcessKey> to_visit(members.begin(), members.end());
        while (!to_visit.empty()) {
            const ProcessKey parent = to_visit.back();
            to_visit.pop_back();
            const auto [first, last] = by_parent_.equal_range(parent.pid);
            for (auto child = first; child != last; ++child)
                if (is_parent(parent, child->second->key) && members.insert(child->second->key).second)
                    to_visit.push_back(child->second->key);
        }
    }

  private:
    /// Pids are given out again: of those that had the pid, the latest that had begun when the child did.
    bool is_parent(const ProcessKey& parent, const ProcessKey& child) const {
        if (child.start_ns < parent.start_ns) return false;
        const auto next = known_.upper_bound(parent);
        return next == known_.end() || next->pid != parent.pid || next->start_ns > child.start_ns;
    }

    const std::vector<Process>& processes_;
    std::set<ProcessKey> known_;
    std::multimap<uint32_t, const Process*> by_parent_;
    std::map<std::string, std::set<ProcessKey>> registered_;
};

/// Of a damaged store a span may end before it begins.
uint64_t duration_of(const SpanRow& span) {
    return saturating_subtract(span.end_ns, span.start_ns);
}

/// Where the quota of its control group kept the thread off the CPU: as if that had had it.
Event blame_quota(Event wait) {
    wait.preemptor_comm = to_comm(quota_name);
    wait.preemptor_tgid = INGERO_PID_OUTSIDE;
    wait.preemptor_ns = wait.runnable_ns;
    return wait;
}

/// Name empty where nobody is known.
Culprit culprit_of(Cause cause, const Event& event) {
    if (cause == Cause::wake_up) return {};
    if (cause == Cause::excluded_task) return {std::string(to_string_view(event.preemptor_comm)), 0, 0};
    const auto [comm, pid] = suspect_of(cause, event);
    return {std::string(to_string_view(comm)), pid, 0};
}

RequestStall to_stall(const Event& stalled, uint64_t stalled_ns, const Op* op, const ClockTriple& clock) {
    const Event event = is_throttled(stalled) ? blame_quota(stalled) : stalled;
    RequestStall stall;
    const CallTime time = call_time(event);
    stall.ns = stalled_ns;
    const Assignment assigned =
        event.op == op_wait ? assign_between_calls(event, time) : assign_unjudged(event, time, op);
    const auto largest = std::max_element(assigned.ns.begin(), assigned.ns.end());
    const bool named = *largest > 0;
    const auto cause = static_cast<Cause>(largest - assigned.ns.begin());
    stall.kind = named ? std::string(to_string(cause)) : "unexplained";
    if (named) {
        uint64_t ns = *largest;
        if (cause == Cause::cpu_contention && !assigned.preemptors.empty() && !assigned.has_main_preemptor())
            ns = assigned.preemptors[0].ns;
        stall.culprit = culprit_of(cause, event);
        stall.culprit.ns = std::min(ns, stalled_ns);
    }
    stall.op = event.op;
    stall.pid = event.tgid;
    stall.tid = event.tid;
    const uint64_t from_ns = event.op == op_wait ? saturating_end_ns(event) - time.runnable_ns : event.start_ns;
    stall.start_realtime_ns = clock.to_realtime(from_ns);
    stall.sequence = event.sequence;
    return stall;
}

/// The spans of one scope group and boot.
struct Group {
    std::string scope;
    std::set<ProcessKey> members;
    std::vector<SpanRow> spans;  ///< by start
    std::unique_ptr<SpanJoin> join;
    std::vector<Event> stalled;  ///< by tag
    bool is_wanted = true;       ///< the process asked for is in it

    void add_stall(const Window& call, uint64_t stalled_ns, const Event& event) {
        join->add_stall(call, stalled_ns, stalled.size());
        stalled.push_back(event);
        if (stalled.size() < std::max(most_stalls, most_stalls_a_span * spans.size())) return;
        std::vector<Event> kept;
        for (const size_t tag : join->prune_stalls()) kept.push_back(stalled[tag]);
        stalled = std::move(kept);
    }
};

CallSums sums_of(const Event& event, const Op* op) {
    CallSums sums;
    const CallTime time = call_time(event);
    const uint64_t weight = event.weight, times = event.times();
    sums[CallSums::calls] = weight;
    if (op_source(event.op) == source_nccl) {
        if (!op || op->op_class == OpClass::collective) sums[CallSums::collectives] = weight;
    } else if (op) {
        if (op->op_class == OpClass::launch) sums[CallSums::launches] = weight;
        if (op->op_class == OpClass::copy) sums[CallSums::copies] = weight;
        if (op->op_class == OpClass::sync) sums[CallSums::syncs] = weight;
        if (op->op_class == OpClass::alloc) sums[CallSums::allocations] = weight;
    }
    sums[CallSums::errors] = event.return_code != 0 ? weight : 0;
    const bool waits = op && op->waits_for_device;
    sums[waits ? CallSums::device_wait_ns : CallSums::on_cpu_ns] = saturating_multiply(time.on_cpu_ns, times);
    sums[CallSums::runnable_ns] = saturating_multiply(time.runnable_ns, times);
    sums[CallSums::blocked_ns] = saturating_multiply(time.blocked_ns, times);
    sums[CallSums::duration_ns] = saturating_multiply(time.duration_ns, times);
    return sums;
}

/// The part of a request in which it had nothing yet.
Window wait_of(const SpanRow& span) {
    return {span.start_ns, span.first_token_ns.value_or(span.end_ns)};
}

/// `by_start`: all spans of the group, by start; `longest_ns`: of the longest of them.
std::vector<Occupant> occupants(const SpanRow& span, const std::vector<SpanRow>& by_start, uint64_t longest_ns) {
    const Window wait = wait_of(span);
    std::map<std::string, double> overlap;
    double total = 0;
    // What begins more than the longest span's length before the wait has ended by then.
    const uint64_t earliest = saturating_subtract(wait.from_ns, longest_ns);
    auto other = std::lower_bound(by_start.begin(), by_start.end(), earliest,
                                  [](const SpanRow& row, uint64_t time) { return row.start_ns < time; });
    for (; other != by_start.end() && other->start_ns < wait.to_ns; ++other) {
        // Who has one id does not hold itself up; what has no id is each for itself.
        if (&*other == &span || (!span.id.empty() && other->id == span.id)) continue;
        const uint64_t from = std::max(other->start_ns, wait.from_ns), to = std::min(other->end_ns, wait.to_ns);
        if (to <= from) continue;
        // Each completion has a place of its own in the engine.
        const double ns = static_cast<double>(to - from) * completions_of(*other);
        overlap[other->id] += ns;
        total += ns;
    }
    std::vector<Occupant> result;
    for (const auto& [id, ns] : overlap) result.push_back({id, static_cast<uint64_t>(std::min(ns, 9e18)), ns / total});
    std::stable_sort(result.begin(), result.end(), [](const Occupant& a, const Occupant& b) { return a.ns > b.ns; });
    if (result.size() > max_occupants) result.resize(max_occupants);
    return result;
}

class RequestsOfBoot {
  public:
    RequestsOfBoot(const StoreSnapshot& snapshot, const RequestsQuery& query, const BootWindow& boot,
                   const std::vector<Process>& processes)
        : snapshot_(snapshot), query_(query), boot_(boot), processes_(processes), scopes_(processes) {}

    Result<void> run(RequestsAnswer& answer);
    /// Of the spans that overlap `wanted`.
    Result<void> list(const Window& wanted, RequestCalls& ret_calls);

  private:
    Result<void> read_spans();
    void form_groups();
    /// take(group, call, op) of each call of a process of a group; it returns false to end. end_block(block) after
    /// each.
    template <class Take, class EndBlock>
    Result<void> read_calls(Take take, EndBlock end_block);
    void take(Group& group, const Event& event, const Op* op);
    /// What the threads that have called until now lacked a CPU for between their calls.
    void take_gap_waits(std::span<const Event> block);
    void give(Group& group, RequestsAnswer& answer);
    bool is_wanted(const SpanRow& span) const {
        const bool named =
            !query_.id || span.id == *query_.id || span.id == query_.hash || to_valid_utf8(span.id) == *query_.id;
        return named && duration_of(span) >= query_.slower_than_ns;
    }

    const StoreSnapshot& snapshot_;
    const RequestsQuery& query_;
    const BootWindow& boot_;
    const std::vector<Process>& processes_;
    std::vector<SpanRow> spans_;
    ScopeGroups scopes_;
    std::vector<std::unique_ptr<Group>> groups_;
    std::map<ProcessKey, std::vector<Group*>> groups_of_;
    std::set<std::pair<ProcessKey, uint32_t>> callers_;  ///< threads
    std::pair<ProcessKey, uint32_t> last_caller_;
    Window calls_;  ///< from the first span's start to the last one's end
};

Result<void> RequestsOfBoot::run(RequestsAnswer& answer) {
    if (auto read = read_spans(); !read) return read;
    if (spans_.empty()) return {};
    form_groups();
    const auto take_all = [&](Group& group, const Event& event, const Op* op) {
        answer.counts_collectives = answer.counts_collectives || op_source(event.op) == source_nccl;
        take(group, event, op);
        return true;
    };
    if (auto read = read_calls(take_all, [&](std::span<const Event> block) { take_gap_waits(block); }); !read)
        return read;
    for (const auto& group : groups_)
        if (group->is_wanted) give(*group, answer);
    return {};
}

Result<void> RequestsOfBoot::read_spans() {
    const bool by_labels = query_.kind == SpanKind::step || query_.kind == SpanKind::phase;
    const auto is_asked = [&](const SpanRow& span) {
        const bool is_kind = span.kind == query_.kind || (by_labels && span.kind == SpanKind::label);
        return is_kind && (!query_.filter.uid || span.uid == *query_.filter.uid);
    };
    auto spans = snapshot_.spans(boot_.boot_index, boot_.monotonic, is_asked);
    if (!spans) return tl::unexpected(spans.error());
    if (spans->size() > max_spans)
        return fail(ErrorCode::limit, "more than 1,000,000 spans to answer from are in the window",
                    "ask for a shorter window");
    if (by_labels) spans_ = spans_of_labels(*spans, query_.kind);
    for (SpanRow& span : *spans)
        if (span.kind == query_.kind) spans_.push_back(std::move(span));
    merge_request_rows(spans_);
    // A process is registered once, and long before most of its spans.
    std::set<std::string> scopes;
    for (const SpanRow& span : spans_)
        if (!span.scope.empty()) scopes.insert(span.scope);
    for (const std::string& scope : scopes) {
        auto registered = snapshot_.spans_of(registration_id(scope), {});
        if (!registered) return tl::unexpected(registered.error());
        for (const SpanRow& span : *registered)
            if (span.kind == SpanKind::scope && span.scope == scope) scopes_.register_process(span);
    }
    return {};
}

void RequestsOfBoot::form_groups() {
    std::map<std::tuple<std::string, ProcessKey>, Group*> known;
    calls_ = {UINT64_MAX, 0};
    for (SpanRow& span : spans_) {
        calls_.from_ns = std::min(calls_.from_ns, span.start_ns);
        calls_.to_ns = std::max({calls_.to_ns, span.end_ns, saturating_add(span.start_ns, 1)});
        // A scope that is a cgroup is one group, whichever process reports it; else each process has its own.
        Group*& group = known[{span.scope, is_cgroup(span.scope) ? ProcessKey{} : span.process}];
        if (!group) {
            group = groups_.emplace_back(std::make_unique<Group>()).get();
            group->scope = span.scope;
        }
        group->members.insert(span.process);
        scopes_.know(span.process);
        group->spans.push_back(std::move(span));
    }
    spans_.clear();
    for (const auto& group : groups_) {
        scopes_.complete(group->members, group->scope);
        group->is_wanted = !query_.filter.pid;
        for (const ProcessKey& member : group->members) {
            group->is_wanted = group->is_wanted || member.pid == *query_.filter.pid;
            groups_of_[member].push_back(group.get());
        }
        std::vector<Window> windows;
        windows.reserve(group->spans.size());
        for (const SpanRow& span : group->spans) windows.push_back({span.start_ns, span.end_ns});
        group->join = std::make_unique<SpanJoin>(std::move(windows));
    }
}

void RequestsOfBoot::take(Group& group, const Event& event, const Op* op) {
    const Window call{event.start_ns, saturating_end_ns(event)};
    const CallTime time = call_time(event);
    const uint64_t stalled = time.runnable_ns + time.blocked_ns;
    if (const std::pair caller(event.process(), event.tid); caller != last_caller_)
        callers_.insert(last_caller_ = caller);
    if (group.join->add(call, sums_of(event, op)) == 0) return;
    if (stalled >= stall_floor_ns) group.add_stall(call, stalled, event);
}

// Of a sleep between calls it is not known whether there was anything to do.
void RequestsOfBoot::take_gap_waits(std::span<const Event> block) {
    for (const Event& event : block) {
        if (event.op != op_wait || event.depth != 0 || event.split_uncertain()) continue;
        const uint64_t lacked_ns = call_time(event).runnable_ns;
        if (lacked_ns < stall_floor_ns || !callers_.contains({event.process(), event.tid})) continue;
        const auto groups = groups_of_.find(event.process());
        if (groups == groups_of_.end()) continue;
        // It may have slept first.
        const uint64_t end_ns = saturating_end_ns(event);
        for (Group* group : groups->second) group->add_stall({end_ns - lacked_ns, end_ns}, lacked_ns, event);
    }
}

template <class Take, class EndBlock>
Result<void> RequestsOfBoot::read_calls(Take take, EndBlock end_block) {
    EventFilter filter({.window = {}, .uid = query_.filter.uid, .pid = query_.filter.pid}, processes_);
    OpLookup find;
    bool is_late = false;
    auto scanned = snapshot_.scan(boot_.boot_index, calls_, [&](std::span<const Event> block) {
        is_late = std::chrono::steady_clock::now() >= query_.deadline;
        if (is_late) return false;
        for (const Event& event : block) {
            // A call inside another is that one's time already.
            if (!is_call(event.op) || event.depth != 0 || !filter.matches(event)) continue;
            const auto groups = groups_of_.find(event.process());
            if (groups == groups_of_.end()) continue;
            for (Group* group : groups->second)
                if (!take(*group, event, find(event.op))) return false;
        }
        end_block(block);
        return true;
    });
    if (scanned && is_late) return fail(ErrorCode::deadline, "it took too long", "ask for a shorter time");
    return scanned;
}

/// Which of the listed spans a call overlaps, and how many of all: in a time that spans which last long do not
/// lengthen. Half-open all; what is empty counts as 1 ns, as in SpanJoin.
class Overlaps {
  public:
    template <class IsListed>
    Overlaps(const std::vector<SpanRow>& by_start, IsListed is_listed) {
        for (size_t i = 0; i < by_start.size(); ++i) {
            starts_.push_back(by_start[i].start_ns);
            ends_.push_back(end_of(by_start[i]));
            if (is_listed(by_start[i])) listed_.push_back(i);
        }
        leaves_ = std::bit_ceil(std::max<size_t>(listed_.size(), 1));
        latest_end_.resize(2 * leaves_);
        for (size_t i = 0; i < listed_.size(); ++i) latest_end_[leaves_ + i] = ends_[listed_[i]];
        for (size_t i = leaves_; i-- > 1;) latest_end_[i] = std::max(latest_end_[2 * i], latest_end_[2 * i + 1]);
        std::sort(ends_.begin(), ends_.end());
    }

    /// Those that have begun before its end, less those that had ended at its begin.
    size_t count(const Window& call) const {
        const auto begun = std::lower_bound(starts_.begin(), starts_.end(), end_of(call)) - starts_.begin();
        const auto ended = std::upper_bound(ends_.begin(), ends_.end(), call.from_ns) - ends_.begin();
        return static_cast<size_t>(begun - ended);
    }

    /// take(index in all spans) of each listed one, by start; it returns false to end.
    template <class Take>
    bool visit(const Window& call, Take take) const {
        const auto begins_before = [&](size_t i, uint64_t time) { return starts_[i] < time; };
        const auto end = std::lower_bound(listed_.begin(), listed_.end(), end_of(call), begins_before);
        return visit(1, 0, leaves_, static_cast<size_t>(end - listed_.begin()), call.from_ns, take);
    }

    static uint64_t end_of(const SpanRow& span) { return std::max(span.end_ns, saturating_add(span.start_ns, 1)); }

  private:
    static uint64_t end_of(const Window& call) { return std::max(call.to_ns, saturating_add(call.from_ns, 1)); }

    /// Of the leaves [first, first + leaves) under a node, those before `end` that last beyond `time`.
    template <class Take>
    bool visit(size_t node, size_t first, size_t leaves, size_t end, uint64_t time, Take& take) const {
        if (first >= end || latest_end_[node] <= time) return true;
        if (leaves == 1) return take(listed_[first]);
        return visit(2 * node, first, leaves / 2, end, time, take) &&
               visit(2 * node + 1, first + leaves / 2, leaves / 2, end, time, take);
    }

    std::vector<uint64_t> starts_, ends_;  ///< of all, each sorted
    std::vector<size_t> listed_;
    size_t leaves_ = 1;
    std::vector<uint64_t> latest_end_;  ///< a tree over listed_: of the leaves under each node, from 1
};

Result<void> RequestsOfBoot::list(const Window& wanted, RequestCalls& ret_calls) {
    if (auto read = read_spans(); !read) return read;
    if (spans_.empty()) return {};
    form_groups();
    const auto is_listed = [&](const SpanRow& span) {
        return is_wanted(span) && span.start_ns < wanted.to_ns && Overlaps::end_of(span) > wanted.from_ns;
    };
    // Who else shares a call is known of all spans, and the calls are read of those listed.
    calls_ = {UINT64_MAX, 0};
    for (const auto& group : groups_) {
        for (const SpanRow& span : group->spans) {
            if (!is_listed(span)) continue;
            calls_ = {std::min(calls_.from_ns, span.start_ns), std::max(calls_.to_ns, Overlaps::end_of(span))};
        }
    }
    if (calls_.from_ns >= calls_.to_ns) return {};
    std::map<const Group*, Overlaps> overlaps;
    for (const auto& group : groups_) overlaps.emplace(group.get(), Overlaps(group->spans, is_listed));
    std::map<std::pair<const Group*, size_t>, uint32_t> places;
    bool too_many = false;
    const auto add_pairs = [&](Group& group, const Event& event, const Op*) {
        const Window call{event.start_ns, saturating_end_ns(event)};
        const Overlaps& of_group = overlaps.at(&group);
        const auto shared_by = static_cast<uint32_t>(of_group.count(call));
        const CallTime time = call_time(event);
        return of_group.visit(call, [&](size_t i) {
            const SpanRow& span = group.spans[i];
            too_many = ret_calls.calls.size() == max_request_calls;
            if (too_many) return false;
            const auto [place, added] =
                places.try_emplace({&group, i}, static_cast<uint32_t>(ret_calls.requests.size()));
            if (added) ret_calls.requests.push_back(span);
            const uint64_t from = std::max(call.from_ns, span.start_ns), to = std::min(call.to_ns, span.end_ns);
            ret_calls.calls.push_back({.request = place->second,
                                       .tgid = event.tgid,
                                       .tid = event.tid,
                                       .op = event.op,
                                       .return_code = event.return_code,
                                       .weight = event.weight,
                                       .time_weight = event.times(),
                                       .shared_by = shared_by,
                                       .start_ns = event.start_ns,
                                       .duration_ns = time.duration_ns,
                                       .overlap_ns = saturating_subtract(to, from),
                                       .on_cpu_ns = time.on_cpu_ns,
                                       .runnable_ns = time.runnable_ns,
                                       .blocked_ns = time.blocked_ns,
                                       .sequence = event.sequence});
            return true;
        });
    };
    if (auto read = read_calls(add_pairs, [](std::span<const Event>) {}); !read) return read;
    if (too_many)
        return fail(ErrorCode::limit, "more than 1,000,000 pairs of a request and a call",
                    "ask for a shorter time, or one request: WHERE request_id = 'ID'");
    return {};
}

void RequestsOfBoot::give(Group& group, RequestsAnswer& answer) {
    const std::vector<JoinedSpan> joined = group.join->finish();
    OpLookup find;
    uint64_t longest = 0;
    for (const SpanRow& span : group.spans) longest = std::max(longest, duration_of(span));
    const auto duration = [&](size_t i) { return duration_of(group.spans[i]); };
    std::vector<size_t> wanted;
    for (size_t i = 0; i < group.spans.size(); ++i)
        if (is_wanted(group.spans[i])) wanted.push_back(i);
    answer.found += wanted.size();
    std::stable_sort(wanted.begin(), wanted.end(), [&](size_t a, size_t b) { return duration(a) > duration(b); });
    if (query_.limit != 0 && wanted.size() > query_.limit) wanted.resize(query_.limit);
    for (const size_t i : wanted) {
        const SpanRow& span = group.spans[i];
        RequestStats request;
        request.span = span;
        request.start_realtime_ns = boot_.clock.to_realtime(span.start_ns);
        request.duration_ns = duration_of(span);
        if (span.scheduled_ns) request.queue_ns = saturating_subtract(*span.scheduled_ns, span.start_ns);
        if (span.first_token_ns) request.ttft_ns = saturating_subtract(*span.first_token_ns, span.start_ns);
        request.sums = joined[i].sums;
        request.co_resident = joined[i].co_resident;
        if (const auto tag = joined[i].longest_stall) {
            const Event& event = group.stalled[*tag];
            request.longest_stall = to_stall(event, joined[i].stall_ns, find(event.op), boot_.clock);
        }
        if (query_.with_occupants) request.occupied_by = occupants(span, group.spans, longest);
        answer.requests.push_back(std::move(request));
    }
}

/// The window, and what of the requests lies outside of it, up to the end of what there is.
Window answered_window(const StoreSnapshot& snapshot, const RequestsAnswer& answer) {
    Window window = answer.window;
    const uint64_t end = whole_trace(snapshot).to_ns;
    for (const RequestStats& request : answer.requests) {
        window.from_ns = std::min(window.from_ns, request.start_realtime_ns);
        const uint64_t last = std::min(end, saturating_add(request.start_realtime_ns, request.duration_ns));
        window.to_ns = std::max(window.to_ns, last);
    }
    return window;
}

}  // namespace

Result<RequestCalls> list_request_calls(const StoreSnapshot& snapshot, const BootWindow& boot,
                                        const RequestsQuery& query, const Window& wanted) {
    RequestCalls calls;
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());
    if (auto done = RequestsOfBoot(snapshot, query, boot, *processes).list(wanted, calls); !done)
        return tl::unexpected(done.error());
    return calls;
}

Result<RequestsAnswer> compute_requests(const StoreSnapshot& snapshot, const RequestsQuery& query) {
    RequestsAnswer answer;
    answer.window = query.filter.window;
    answer.kind = query.kind;
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());
    for (const BootWindow& boot : boot_windows(snapshot, query.filter.window))
        if (auto done = RequestsOfBoot(snapshot, query, boot, *processes).run(answer); !done)
            return tl::unexpected(done.error());
    // By what was measured alone, and by arrival where that is equal.
    std::stable_sort(answer.requests.begin(), answer.requests.end(), [](const RequestStats& a, const RequestStats& b) {
        return std::tuple(b.duration_ns, a.start_realtime_ns) < std::tuple(a.duration_ns, b.start_realtime_ns);
    });
    if (query.limit != 0 && answer.requests.size() > query.limit) answer.requests.resize(query.limit);
    auto covered =
        coverage(snapshot, answered_window(snapshot, answer), {.uid = query.filter.uid, .pid = query.filter.pid});
    if (!covered) return tl::unexpected(covered.error());
    answer.coverage = std::move(*covered);
    return answer;
}

}  // namespace ingero
