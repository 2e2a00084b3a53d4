#include <algorithm>
#include <deque>
#include <optional>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/findings.h"
#include "core/diagnosis/live/live_memory.h"
#include "core/model/text/error_names.h"
#include "core/model/text/format.h"

namespace ingero {

namespace {

constexpr size_t max_processes = 1'024;
constexpr size_t max_culprits = 10;
constexpr size_t max_others = 64;
constexpr size_t max_unanswered = 64;  ///< a process
constexpr size_t max_granted = 256;    ///< the same
/// Allocations and processes, in all, to describe one failure after another that was answered.
constexpr size_t max_looked_at = 16 * LiveMemory::max_allocations;
/// Who is refused and asks for less does so within this.
constexpr uint64_t backs_off_within_ns = 1'000'000'000;
/// What is got later is another request's: that one has failed.
constexpr uint64_t asks_again_within_ns = 10'000'000'000;
/// cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY.
constexpr int32_t out_of_memory = 2;

/// A call for device memory.
struct Request {
    uint64_t bytes = 0;
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
    uint32_t tid = 0;
    uint16_t device = 0;

    bool is_like(const Request& other) const {
        return bytes == other.bytes && tid == other.tid && device == other.device;
    }
};

Request request_of(const Event& call) {
    return {call.args[0], call.start_ns, saturating_end_ns(call), call.tid, call.device};
}

/// Whether a thread that was refused then got the memory: PyTorch frees what it keeps and asks again, JAX and
/// TensorFlow ask for less and less.
bool answers(const Request& granted, const Request& refused) {
    if (refused.bytes == 0 || granted.tid != refused.tid || granted.device != refused.device) return false;
    if (granted.start_ns < refused.start_ns) return false;
    const uint64_t later_ns = saturating_subtract(granted.start_ns, refused.end_ns);
    if (granted.bytes >= refused.bytes) return later_ns <= asks_again_within_ns;
    return granted.bytes >= refused.bytes - refused.bytes / 2 && later_ns <= backs_off_within_ns;
}

/// Another process that uses the device, or may.
struct Other {
    ProcessKey process;
    uint64_t bytes = 0;  ///< that it was seen to hold there
    bool same_device = true;
    bool known = true;  ///< all its calls are
};

/// A failure in the window, and what was held then: of the first that no later call answers, or of the latest.
struct Failure {
    Event call;
    DeviceMemory memory;  ///< of the process on the device
    bool overflowed = false;
    bool several_devices = false;
    std::vector<std::pair<uint64_t, std::pair<uint32_t, OpId>>> sites;  ///< bytes by stack and op, largest first
    std::vector<Other> others;
    bool all_others = true;  ///< there was room for
};

struct Memory {
    LiveMemory live;
    std::optional<Failure> failure;
    uint64_t failures = 0;
    uint64_t failing_ns = 0;  ///< in calls that failed
    uint64_t newly_failing_ns = 0;
    std::vector<uint64_t> evidence;
    std::deque<Request> granted;      ///< in the window, the latest that were taken
    std::vector<Request> unanswered;  ///< failures; of those that are alike the latest
    bool more_unanswered = false;     ///< for which there was no room
    bool took_less = false;           ///< in place of what was refused

    bool is_unanswered() const { return more_unanswered || !unanswered.empty(); }
    bool is_unanswered(const Request& refused) const {
        const auto is_like = [&](const Request& one) { return one.is_like(refused); };
        return more_unanswered || std::any_of(unanswered.begin(), unanswered.end(), is_like);
    }
    bool is_evidence() const { return failures > 0; }
    uint64_t worth() const { return live.bytes(); }
};

/// What is to be reported of a failure, with what became known since.
struct Judgement {
    bool from_start = false;
    bool exact = false;  ///< what the process held is known to the byte
    bool in_pieces = false;
};

class GpuOom final : public Detector {
  public:
    explicit GpuOom(const DetectorContext& context) : context_(context), processes_(max_processes, context.processes) {}

    bool wants(const Op& op) const override { return is_device_memory(op) || frees_device_memory(op); }
    void before(const Event& event, const Op& op) override { take(event, op, false); }
    void see(const Event& event, const Op& op) override { take(event, op, true); }

    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const override {
        for (const auto& [process, memory] : processes_)
            if (memory.failure) find(process, memory, context, ret_findings);
    }

  private:
    void take(const Event& event, const Op& op, bool in_window) {
        if (event.depth != 0) return;
        Memory& memory =
            processes_.at(event.process(), event.start_ns, [this](const Memory& gone) { gone.live.release(taken_); });
        Allocation freed;
        memory.live.take(event, op, taken_, freed);
        if (!in_window || !is_device_memory(op)) return;
        if (event.return_code == out_of_memory) fail(memory, event);
        if (event.return_code == 0) grant(memory, request_of(event));
    }

    static void grant(Memory& memory, const Request& granted) {
        std::erase_if(memory.unanswered, [&](const Request& refused) {
            if (!answers(granted, refused)) return false;
            memory.took_less |= granted.bytes < refused.bytes;
            return true;
        });
        memory.granted.push_back(granted);
        if (memory.granted.size() > max_granted) memory.granted.pop_front();
    }

    /// Whether nothing answers it yet. Of calls in several blocks the later one may be taken first.
    static bool refuse(Memory& memory, const Request& refused) {
        for (const Request& granted : memory.granted) {
            if (!answers(granted, refused)) continue;
            memory.took_less |= granted.bytes < refused.bytes;
            return false;
        }
        const auto like = std::find_if(memory.unanswered.begin(), memory.unanswered.end(),
                                       [&](const Request& one) { return one.is_like(refused); });
        if (like == memory.unanswered.end() && memory.unanswered.size() < max_unanswered)
            memory.unanswered.push_back(refused);
        else if (like == memory.unanswered.end())
            memory.more_unanswered = true;
        else if (like->start_ns < refused.start_ns)
            *like = refused;
        return true;
    }

    void fail(Memory& memory, const Event& event) {
        memory.failing_ns = saturating_add(memory.failing_ns, event.duration_ns);
        if (memory.evidence.size() < max_evidence) memory.evidence.push_back(event.sequence);
        // A failure is news however short its call was.
        if (event.sequence >= context_.options.new_from_sequence)
            memory.newly_failing_ns = saturating_add(memory.newly_failing_ns, std::max<uint64_t>(event.duration_ns, 1));
        ++memory.failures;
        const bool is_shown_answered = memory.failure && !memory.is_unanswered(request_of(memory.failure->call));
        const bool is_unanswered = refuse(memory, request_of(event));
        if (memory.failure && (!is_shown_answered || !is_unanswered || looked_at_ >= max_looked_at)) return;
        describe(memory, event);
    }

    void describe(Memory& memory, const Event& event) {
        Failure& failure = memory.failure.emplace();
        failure.call = event;
        failure.memory = memory.live.on(event.device);
        failure.overflowed = memory.live.overflowed;
        failure.several_devices = memory.live.devices().size() > 1;
        std::map<std::pair<uint32_t, OpId>, uint64_t> sites;
        for (const auto& [address, allocation] : memory.live.live())
            if (allocation.device == event.device) sites[{allocation.stack, allocation.op}] += allocation.bytes;
        for (const auto& [site, bytes] : sites) failure.sites.emplace_back(bytes, site);
        std::sort(failure.sites.rbegin(), failure.sites.rend());
        looked_at_ += memory.live.live().size();
        for (const auto& [process, other] : processes_) {
            ++looked_at_;
            if (&other != &memory) add_other(failure, process, other);
        }
        std::sort(failure.others.begin(), failure.others.end(),
                  [](const Other& a, const Other& b) { return a.bytes > b.bytes; });
        failure.all_others = failure.others.size() <= max_others;
        if (!failure.all_others) failure.others.resize(max_others);
    }

    /// Its memory went when it ended.
    void add_other(Failure& failure, const ProcessKey& process, const Memory& memory) const {
        const Event& call = failure.call;
        if (context_.processes && context_.processes->exited_ns(process) <= call.start_ns) return;
        Other surely{process, 0, true, !memory.live.overflowed}, perhaps{process, 0, false, !memory.live.overflowed};
        bool uses = false, may_use = false;
        for (const auto& [device, held] : memory.live.devices()) {
            const SameDevice same = context_.processes
                                        ? context_.processes->same_device(call.process(), call.device, process, device)
                                        : SameDevice::unknown;
            if (same == SameDevice::no) continue;
            Other& other = same == SameDevice::yes ? surely : perhaps;
            other.bytes = saturating_add(other.bytes, held.bytes);
            (same == SameDevice::yes ? uses : may_use) = true;
        }
        if (uses) failure.others.push_back(surely);
        if (may_use) failure.others.push_back(perhaps);
        // It was seen to free there at most: whatever it holds is older.
        if (!uses && !may_use && memory.live.unknown_frees > 0) failure.others.push_back({process, 0, false, false});
    }

    Judgement judge(const ProcessKey& process, const Failure& failure, const JudgementContext& context) const {
        Judgement judgement;
        judgement.from_start = context.knows_from_start(process);
        const uint64_t lost = context.lost_calls(context.learnt_from_ns, saturating_end_ns(failure.call),
                                                 {OpClass::alloc, OpClass::free});
        judgement.exact = judgement.from_start && !failure.overflowed && !context.lossy && lost == 0;
        // What the process has had at once before, it could have again, were it in one piece and nobody else there.
        const uint64_t wanted = failure.call.args[0];
        const bool had_room = wanted > 0 && !failure.memory.elastic &&
                              saturating_add(failure.memory.bytes, wanted) <= failure.memory.peak_bytes;
        const bool alone = !context.filtered && failure.all_others &&
                           std::all_of(failure.others.begin(), failure.others.end(), [&](const Other& other) {
                               return other.bytes == 0 && other.known && context.knows_from_start(other.process);
                           });
        judgement.in_pieces = judgement.exact && had_room && alone;
        return judgement;
    }

    void find(const ProcessKey& process, const Memory& memory, const JudgementContext& context,
              std::vector<Finding>& ret_findings) const {
        const Failure& failure = *memory.failure;
        const Judgement judgement = judge(process, failure, context);
        Finding finding = make_finding("gpu-oom", process, "", context);
        finding.severity = memory.is_unanswered() ? Severity::high : Severity::low;
        finding.lost_ns = memory.failing_ns;
        finding.newly_lost_ns = memory.newly_failing_ns;
        finding.window_share = share_of(memory.failing_ns, context.time_of(process));
        finding.verdict = judgement.exact && failure.memory.bytes > 0 ? Verdict::proven : Verdict::partial;
        finding.explained_fraction = finding.verdict == Verdict::proven ? 1 : 0;
        finding.worst =
            make_slow_call(failure.call, call_time(failure.call), find_op(failure.call.op), {}, context_.clock);
        finding.worst.cause = error_name(failure.call.op, failure.call.return_code);
        finding.evidence = memory.evidence;
        finding.culprits = holders(process, failure, context);
        write_text(finding, memory, judgement, context);
        ret_findings.push_back(std::move(finding));
    }

    static std::vector<Culprit> holders(const ProcessKey& process, const Failure& failure,
                                        const JudgementContext& context) {
        std::vector<std::pair<uint64_t, Culprit>> all;
        for (const auto& [bytes, site] : failure.sites) {
            const std::string where = site.first ? ", stack " + std::to_string(site.first) : "";
            all.emplace_back(bytes,
                             Culprit{format_bytes(bytes) + " by " + op_name(site.second) + where, process.pid, 0, 0});
        }
        for (const Other& other : failure.others) {
            if (other.bytes == 0 || !other.same_device) continue;
            const std::string name = context.processes ? context.processes->name(other.process) : std::string();
            all.emplace_back(other.bytes,
                             Culprit{format_bytes(other.bytes) + " by " + (name.empty() ? "another process" : name),
                                     other.process.pid, 0, 0});
        }
        std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        if (all.size() > max_culprits) all.resize(max_culprits);
        std::vector<Culprit> culprits;
        for (auto& [bytes, culprit] : all) culprits.push_back(std::move(culprit));
        return culprits;
    }

    static void write_text(Finding& finding, const Memory& memory, const Judgement& judgement,
                           const JudgementContext& context) {
        const Failure& failure = *memory.failure;
        const std::string who = process_text(finding), op = op_name(failure.call.op);
        finding.summary = op + " of " + format_bytes(failure.call.args[0]) + " failed in " + who + ", which had ";
        if (!judgement.exact) finding.summary += "at least ";
        finding.summary += format_bytes(failure.memory.bytes) + " allocated";
        if (failure.several_devices) finding.summary += " on device " + std::to_string(failure.call.device);
        const std::string peak = format_bytes(failure.memory.peak_bytes);
        if (judgement.in_pieces)
            finding.summary += "; it had " + peak +
                               " at once before: the free memory is fragmented, unless a process "
                               "that is not traced holds it";
        else if (judgement.exact)
            finding.summary += peak == format_bytes(failure.memory.bytes) ? ", its peak" : "; its peak was " + peak;
        else if (!judgement.from_start)
            finding.summary += "; the process began before the inspected time";
        else
            finding.summary += "; some of its calls were not recorded";
        if (memory.failures > 1)
            finding.summary +=
                "; " + format_count(memory.failures - 1, "more allocation", "more allocations") + " failed";
        if (!memory.is_unanswered())
            finding.summary +=
                memory.took_less ? "; it then got the memory, or at least half of it" : "; it then got the memory";
        if (context.filtered) finding.summary += "; memory of other processes is not counted";
        if (!memory.is_unanswered())
            finding.fix = "The program went on, and lost only the time that it took to free memory and ask again. ";
        finding.fix +=
            judgement.in_pieces
                ? "Allocate large blocks first and keep them, or use an allocator that maps pages together "
                  "(cudaMallocAsync with a release threshold; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)."
                : "Allocate less: a smaller batch or cache, or free what another process holds; the culprits are the "
                  "largest holders. 'ingeroctl stacks --op " +
                      op + "' shows who allocates.";
        finding.confirm = "Run explain again after the change: no allocation of " + who + " should fail.";
    }

    DetectorContext context_;
    ProcessTable<Memory> processes_;
    size_t taken_ = 0;      ///< allocations known, of all processes
    size_t looked_at_ = 0;  ///< allocations and processes, for failures that were described
};

}  // namespace

std::unique_ptr<Detector> make_gpu_oom(const DetectorContext& context) {
    return std::make_unique<GpuOom>(context);
}

}  // namespace ingero
