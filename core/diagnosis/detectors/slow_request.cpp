#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/evidence/gap_causes.h"
#include "core/diagnosis/findings.h"
#include "core/model/host_event.h"
#include "core/spans/request_rows.h"

namespace ingero {

namespace {

constexpr size_t max_stalls = 16'384;
constexpr uint64_t stall_floor_ns = 1'000'000;
/// Requests of a group, to know what is usual.
constexpr size_t enough_requests = 20;
constexpr uint64_t slow_by_ns = 20'000'000;
constexpr uint64_t slow_ratio = 2;
/// A request that asks for more takes longer: it is slow for a stall only where that is most of the difference.
constexpr double stalled_from = 0.5;
/// Of what a thread lost: where its longest stall is less, the summary does not say that this is all.
constexpr double nearly_all = 0.95;
constexpr size_t max_named = 10;

/// Something that held up a thread for `ns` of `time`.
struct Stall {
    Window time;
    uint64_t ns = 0;
    ProcessKey process;
    uint32_t tid = 0;
    OpId op = 0;
    uint64_t call = 0;
    std::string why;
};

struct Stalls {
    std::vector<Stall> all;
    std::vector<std::span<const Stall>> threads;  ///< parts of `all`, see split_by_thread()
    /// When each process was first held up: who it descends from is known of then, later its parents may have ended.
    std::map<ProcessKey, uint64_t> first;
    std::vector<const SpanRow*> registered;  ///< for scopes
};

/// Of one or several rows, see is_same_request().
struct Request {
    const SpanRow* span = nullptr;  ///< the first row
    Window time;
    bool is_new = false;  ///< reported since the pass before
};

/// Requests of one scope group, or of one process.
struct Group {
    std::vector<Request> requests;
    std::map<ProcessKey, bool> members;  ///< as they were asked about
};

/// What one thread's stalls inside of a request come to.
struct StalledThread {
    uint64_t ns = 0, longest_ns = 0;
    const Stall* longest = nullptr;
};

struct SlowRequest {
    const Request* request = nullptr;
    uint64_t duration_ns = 0, excess_ns = 0;
    StalledThread stalled;  ///< the thread that was held up for longest: threads wait at the same time
};

uint64_t duration_of(const Request& request) {
    return saturating_subtract(request.time.to_ns, request.time.from_ns);
}

/// Rows of one request become one.
void merge(std::vector<Request>& ret_requests) {
    std::stable_sort(ret_requests.begin(), ret_requests.end(), [](const Request& a, const Request& b) {
        return std::tie(a.span->process, a.span->id, a.time.from_ns, a.time.to_ns) <
               std::tie(b.span->process, b.span->id, b.time.from_ns, b.time.to_ns);
    });
    std::vector<Request> merged;
    for (const Request& one : ret_requests) {
        if (merged.empty() || !is_same_request(*merged.back().span, *one.span)) {
            merged.push_back(one);
            continue;
        }
        // Sent again, or a further completion of it.
        Request& request = merged.back();
        const bool is_longer = duration_of(request) < duration_of(one);
        request.is_new = request.is_new || (is_longer && one.is_new);
        request.time.to_ns = std::max(request.time.to_ns, one.time.to_ns);
    }
    ret_requests = std::move(merged);
}

uint64_t overlap(const Window& a, const Window& b) {
    return saturating_subtract(std::min(a.to_ns, b.to_ns), std::max(a.from_ns, b.from_ns));
}

/// Sorts them. Each thread's are in order of start.
std::vector<std::span<const Stall>> split_by_thread(std::vector<Stall>& ret_stalls) {
    std::stable_sort(ret_stalls.begin(), ret_stalls.end(), [](const Stall& a, const Stall& b) {
        return std::tie(a.process, a.tid, a.time.from_ns) < std::tie(b.process, b.tid, b.time.from_ns);
    });
    std::vector<std::span<const Stall>> threads;
    for (auto from = ret_stalls.cbegin(); from != ret_stalls.cend();) {
        const auto to = std::find_if(from, ret_stalls.cend(), [&](const Stall& one) {
            return one.process != from->process || one.tid != from->tid;
        });
        threads.emplace_back(from, to);
        from = to;
    }
    return threads;
}

/// Of one thread. Stalls that overlap, as parts of one gap do, come to no more than the time that they cover together.
StalledThread stalled_within(const Window& time, std::span<const Stall> stalls) {
    StalledThread thread;
    Window covered;
    uint64_t before_ns = 0, covered_sum_ns = 0;
    for (const Stall& stall : stalls) {
        if (stall.time.from_ns >= time.to_ns) break;
        const uint64_t ns = std::min(stall.ns, overlap(time, stall.time));
        if (ns == 0) continue;
        if (stall.time.from_ns >= covered.to_ns) {
            covered = stall.time;
            before_ns = thread.ns;
            covered_sum_ns = 0;
        }
        covered.to_ns = std::max(covered.to_ns, stall.time.to_ns);
        covered_sum_ns = saturating_add(covered_sum_ns, ns);
        thread.ns = saturating_add(before_ns, std::min(covered_sum_ns, overlap(time, covered)));
        if (ns <= thread.longest_ns) continue;
        thread.longest_ns = ns;
        thread.longest = &stall;
    }
    return thread;
}

class SlowRequests final : public Detector {
  public:
    explicit SlowRequests(const DetectorContext& context) : options_(context.options), clock_(context.clock) {}

    void judged(const JudgedCall& call) override {
        // What calls wait for the device is the device's work, of which requests have more and less.
        const uint64_t ns = call.assignment.host_explained_ns() + call.assignment[Cause::first_use];
        if (ns < stall_floor_ns) return;
        uint64_t most = 0;
        Cause cause = Cause::first_use;
        for (size_t i = 0; i < cause_count; ++i) {
            if (call.assignment.ns[i] <= most || static_cast<Cause>(i) == Cause::device_wait) continue;
            most = call.assignment.ns[i];
            cause = static_cast<Cause>(i);
        }
        std::string why(cause == Cause::first_use ? "cold-start" : to_string(cause));
        if (cause != Cause::first_use) {
            const Comm comm = suspect_of(cause, call.event).first;
            const std::string_view who = to_string_view(comm);
            if (!who.empty() && who != to_string(BlockedReason::other)) why += " (" + std::string(who) + ")";
        }
        add({{call.event.start_ns, saturating_end_ns(call.event)},
             ns,
             call.event.process(),
             call.event.tid,
             call.event.op,
             call.event.sequence,
             why + " in " + op_name(call.event.op)});
    }

    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const override {
        if (!context.spans || context.spans->empty()) return;
        std::map<std::tuple<SpanKind, std::string, ProcessKey>, Group> groups;
        for (const SpanRow& span : *context.spans) {
            if (span.kind != SpanKind::request && span.kind != SpanKind::step) continue;
            const bool is_cgroup = span.scope.starts_with('/');
            const bool is_new = static_cast<size_t>(&span - context.spans->data()) >= context.new_spans_from;
            groups[{span.kind, span.scope, is_cgroup ? ProcessKey{} : span.process}].requests.push_back(
                {&span, {span.start_ns, span.end_ns}, is_new});
        }
        for (auto& [key, group] : groups) merge(group.requests);
        Stalls stalls{stalls_, {}, {}, {}};
        add_gaps(context, stalls.all);
        stalls.threads = split_by_thread(stalls.all);
        for (const Stall& stall : stalls.all) {
            const auto [first, added] = stalls.first.try_emplace(stall.process, stall.time.from_ns);
            if (!added) first->second = std::min(first->second, stall.time.from_ns);
        }
        for (const SpanRow& span : *context.spans)
            if (span.kind == SpanKind::scope && !span.scope.empty()) stalls.registered.push_back(&span);
        for (auto& [key, group] : groups) find(std::get<std::string>(key), group, stalls, context, ret_findings);
    }

  private:
    void add(Stall stall) {
        const auto shorter = [](const Stall& a, const Stall& b) { return a.ns > b.ns; };
        stalls_.push_back(std::move(stall));
        std::push_heap(stalls_.begin(), stalls_.end(), shorter);
        if (stalls_.size() <= max_stalls) return;
        std::pop_heap(stalls_.begin(), stalls_.end(), shorter);
        stalls_.pop_back();
    }

    /// Of what a thread does between calls, what it waits for: its own work is the request's.
    static void add_gaps(const JudgementContext& context, std::vector<Stall>& stalls) {
        if (!context.gaps) return;
        for (const GapAccount& account : context.gaps->all()) {
            for (const AccountedGap& gap : account.gaps) {
                for (const SpentPart& part : gap.parts) {
                    const bool own_work = part.spent == Spent::ran && is_own(gap, account, part);
                    const bool chosen = part.spent == Spent::timer || part.spent == Spent::clients;
                    if (own_work || chosen || part.ns < stall_floor_ns) continue;
                    std::string why(hypothesis(part.spent));
                    const std::string_view who = to_string_view(part.comm);
                    if (!is_own(gap, account, part) && !who.empty()) why = std::string(who) + " " + why;
                    stalls.push_back({gap.gap->time, part.ns, account.process, gap.gap->tid, op_wait, gap.gap->call,
                                      std::move(why)});
                }
            }
        }
    }

    /// Who is in the scope's control group, or registered for it or reported its requests, or descends from one that
    /// did.
    static bool is_member(const ProcessKey& process, uint64_t at_ns, const std::string& scope, const Group& group,
                          const std::vector<const SpanRow*>& registered, const JudgementContext& context) {
        const Process* const known = context.processes ? context.processes->find(process) : nullptr;
        if (scope.starts_with('/') && known && (known->cgroup == scope || known->cgroup.starts_with(scope + "/")))
            return true;
        const auto descends_from = [&](const ProcessKey& ancestor) {
            if (ancestor == process) return true;
            constexpr unsigned max_generations = 8;
            const Process* one = known;
            for (unsigned generation = 0; one && generation < max_generations; ++generation) {
                if (one->parent_pid == ancestor.pid) return one->key.start_ns >= ancestor.start_ns;
                one = context.processes->at(one->parent_pid, at_ns);
            }
            return false;
        };
        for (const SpanRow* span : registered)
            if (span->scope == scope && descends_from(span->process)) return true;
        ProcessKey last;
        for (const Request& request : group.requests) {
            const ProcessKey& process = request.span->process;
            if (process != std::exchange(last, process) && descends_from(process)) return true;
        }
        return false;
    }

    void find(const std::string& scope, Group& group, const Stalls& all, const JudgementContext& context,
              std::vector<Finding>& ret_findings) const {
        if (group.requests.size() < enough_requests) return;
        std::vector<uint64_t> durations;
        for (const Request& request : group.requests) durations.push_back(duration_of(request));
        const auto middle = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2);
        std::nth_element(durations.begin(), middle, durations.end());
        const uint64_t usual_ns = *middle;
        std::vector<SlowRequest> slow;
        for (const Request& request : group.requests) {
            const uint64_t duration_ns = duration_of(request);
            const uint64_t excess_ns = saturating_subtract(duration_ns, usual_ns);
            if (excess_ns >= slow_by_ns && duration_ns / slow_ratio >= usual_ns)
                slow.push_back({&request, duration_ns, excess_ns, {}});
        }
        if (slow.empty()) return;
        std::vector<std::span<const Stall>> threads;
        for (const auto& [process, at_ns] : all.first)
            group.members[process] = is_member(process, at_ns, scope, group, all.registered, context);
        for (const std::span<const Stall> thread : all.threads)
            if (group.members.at(thread.front().process)) threads.push_back(thread);
        for (SlowRequest& request : slow) explain(request, threads);
        const size_t candidates = slow.size();
        std::erase_if(slow, [](const SlowRequest& request) {
            return share_of(request.stalled.ns, request.excess_ns) < stalled_from;
        });
        if (!slow.empty()) report(scope, group, std::move(slow), candidates, usual_ns, context, ret_findings);
    }

    static void explain(SlowRequest& request, const std::vector<std::span<const Stall>>& threads) {
        for (const std::span<const Stall> stalls : threads) {
            const StalledThread thread = stalled_within(request.request->time, stalls);
            if (thread.ns > request.stalled.ns) request.stalled = thread;
        }
        request.stalled.ns = std::min(request.stalled.ns, request.excess_ns);
    }

    void report(const std::string& scope, const Group& group, std::vector<SlowRequest> slow, size_t candidates,
                uint64_t usual_ns, const JudgementContext& context, std::vector<Finding>& ret_findings) const {
        std::stable_sort(slow.begin(), slow.end(),
                         [](const SlowRequest& a, const SlowRequest& b) { return a.excess_ns > b.excess_ns; });
        const SpanRow& worst = *slow[0].request->span;
        Finding finding = make_finding("slow-request", worst.process, scope, context);
        finding.owner = worst.process;
        finding.owner_uid = worst.uid;
        Evidence evidence;
        uint64_t excess_ns = 0;
        for (const SlowRequest& one : slow) {
            excess_ns = saturating_add(excess_ns, one.excess_ns);
            finding.lost_ns = saturating_add(finding.lost_ns, one.stalled.ns);
            evidence.add(one.stalled.ns, one.stalled.longest->call);
            // It is reported when it has ended, which may be long after its stall, or before what held it up is known.
            if (one.request->is_new || one.stalled.longest->call >= options_.new_from_sequence)
                finding.newly_lost_ns = saturating_add(finding.newly_lost_ns, one.stalled.ns);
            if (finding.culprits.size() < max_named)
                finding.culprits.push_back({one.stalled.longest->why, 0, one.stalled.ns, 0, one.request->span->id});
        }
        // Requests overlap: of the window, what their users waited for longest.
        finding.window_share = share_of(slow[0].stalled.ns, context.time_of(worst.process));
        finding.severity = severity_of(static_cast<double>(slow.size()) / static_cast<double>(group.requests.size()));
        finding.explained_fraction = share_of(finding.lost_ns, excess_ns);
        finding.verdict = verdict_of(finding.explained_fraction, context.lossy);
        finding.evidence = evidence.sequences();
        const StalledThread& stalled = slow[0].stalled;
        const Stall& stall = *stalled.longest;
        Event& event = finding.worst.event;
        event.sequence = stall.call;
        event.op = stall.op;
        event.tgid = stall.process.pid;
        event.process_start_ns = stall.process.start_ns;
        event.tid = stall.tid;
        event.start_ns = stall.time.from_ns;
        event.duration_ns = stall.time.length_ns();
        finding.worst.start_realtime_ns = clock_.to_realtime(event.start_ns);
        finding.worst.excess_ns = finding.worst.explained_ns = stall.ns;
        finding.worst.cause = finding.kind;
        finding.summary = std::to_string(slow.size()) + " of " + std::to_string(group.requests.size()) +
                          " requests of " + process_text(finding) + " took at least twice the usual " +
                          format_duration(usual_ns) + " because of stalls: the slowest took " +
                          format_duration(slow[0].duration_ns) + ", " + format_duration(stalled.ns) + " of it ";
        if (share_of(stalled.longest_ns, stalled.ns) < nearly_all)
            finding.summary += "in stalls of one thread, the longest " + format_duration(stalled.longest_ns) + " ";
        finding.summary += stall.why;
        if (candidates > slow.size())
            finding.summary += "; " + std::to_string(candidates - slow.size()) +
                               " more were as slow, and no known stall explains them";
        finding.fix =
            "ingeroctl requests --request ID shows a request's longest stall. Remove its cause; long stalls "
            "are findings of their own.";
        finding.confirm = "Run explain again over a window with as many requests: none should take twice the usual " +
                          format_duration(usual_ns) + " for a stall.";
        ret_findings.push_back(std::move(finding));
    }

    ExplainOptions options_;
    ClockTriple clock_;
    std::vector<Stall> stalls_;  ///< a heap, the shortest on top
};

}  // namespace

std::unique_ptr<Detector> make_slow_request(const DetectorContext& context) {
    return std::make_unique<SlowRequests>(context);
}

}  // namespace ingero
