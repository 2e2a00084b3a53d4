#include <algorithm>
#include <array>
#include <deque>
#include <tuple>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/findings.h"
#include "core/model/text/error_names.h"
#include "core/model/text/format.h"
#include "core/query/kernel_names.h"

namespace ingero {

namespace {

constexpr size_t max_processes = 1'024;
constexpr size_t max_streams = 1'024;  ///< a process
constexpr size_t max_devices = 64;     ///< a process
constexpr size_t max_functions = 64;   ///< a stream
constexpr size_t max_sequences = 16;   ///< a function
constexpr size_t max_culprits = 16;
/// How long before the first error its launch is looked for.
constexpr uint64_t look_back_ns = 10'000'000'000;

/// A return code after which every call of the context fails: an illegal address, an assert and the like. Numbers as of
/// CUDA 10.1, the same in runtime and driver.
bool is_sticky_error(int32_t return_code) {
    constexpr std::array sticky = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719};
    return std::find(sticky.begin(), sticky.end(), return_code) != sticky.end();
}
/// cudaStreamPerThread, CU_STREAM_PER_THREAD.
constexpr uint64_t per_thread_stream = 2;

/// Launches of one function that are not known to be done.
struct Launches {
    uint64_t count = 0;
    uint64_t latest_end_ns = 0;      ///< of the calls
    std::deque<uint64_t> sequences;  ///< the latest
};

struct StreamKey {
    uint16_t device = 0;
    uint64_t stream = 0;
    uint32_t tid = 0;  ///< of a thread's own default stream
    auto operator<=>(const StreamKey&) const = default;
};

struct Stream {
    std::map<uint64_t, Launches> functions;
    uint64_t nameless_ns = 0;  ///< end of the latest call that gave it work of functions that nothing names
    uint64_t synced_ns = 0;    ///< what returned before this is done; 0: not known of anything
};

struct Fault {
    Event error;                           ///< the first
    std::map<int32_t, uint64_t> failures;  ///< outermost calls, by return code
    uint64_t last_ns = 0;                  ///< of those

    // What was under way, from `from_ns` on.
    uint64_t from_ns = 0;
    std::map<StreamKey, Stream> streams;
    std::map<uint16_t, uint64_t> devices;  ///< like Stream::synced_ns, of all streams of a device
    uint64_t nameless_ns = 0;              ///< like Stream::nameless_ns, on whichever stream
    bool full = false;                     ///< there was no room for all

    bool is_evidence() const { return true; }
    uint64_t worth() const { return error.start_ns; }

    uint64_t device_synced_ns(uint16_t device) const {
        const auto found = devices.find(device);
        return found == devices.end() ? 0 : found->second;
    }
};

/// What was under way on all streams, as far as it is known.
struct UnderWay {
    std::map<uint64_t, Launches> functions;
    uint64_t launches = 0;
    bool unknown = false;  ///< there may have been others
};

StreamKey key_of(const Event& event) {
    return {event.device, event.stream, event.stream == per_thread_stream ? event.tid : 0};
}

/// The call that returned first reports the fault; an inner one only where no outermost one does.
bool is_earlier(const Event& a, const Event& b) {
    return std::tuple(a.depth != 0, saturating_end_ns(a), a.sequence) <
           std::tuple(b.depth != 0, saturating_end_ns(b), b.sequence);
}

class DeviceFault final : public Detector {
  public:
    explicit DeviceFault(const DetectorContext& context)
        : context_(context), faults_(max_processes, context.processes) {}

    bool wants_failures() const override { return true; }

    /// A failure from before the window has been reported already.
    void before(const Event& event, const Op&) override {
        if (is_sticky_error(event.return_code) && reported_.size() < max_processes)
            reported_.emplace(event.process(), event.return_code);
    }

    void see(const Event& event, const Op&) override {
        if (!is_sticky_error(event.return_code)) return;
        const auto known = reported_.find(event.process());
        if (known != reported_.end() && known->second == event.return_code) return;
        Fault& fault = faults_.at(event.process(), event.start_ns);
        const bool first = fault.error.return_code == 0;
        if (first || is_earlier(event, fault.error)) fault.error = event;
        fault.last_ns = std::max(fault.last_ns, saturating_end_ns(event));
        if (event.depth == 0) fault.failures[event.return_code] += event.weight;
    }

    Window looks_back_at() const override {
        Window window{UINT64_MAX, 0};
        for (const auto& [process, fault] : faults_) {
            window.from_ns = std::min(window.from_ns, saturating_subtract(fault.error.start_ns, look_back_ns));
            window.to_ns = std::max(window.to_ns, saturating_end_ns(fault.error));
        }
        return window.from_ns < window.to_ns ? window : Window{};
    }

    void look_back(const Event& event, const Op& op) override {
        Fault* const fault = faults_.find(event.process());
        // What was enqueued while the failing call waited may have failed too.
        if (!fault || event.depth != 0 || event.return_code != 0) return;
        if (event.start_ns >= saturating_end_ns(fault->error)) return;
        fault->from_ns = saturating_subtract(fault->error.start_ns, look_back_ns);
        if (saturating_end_ns(event) < fault->from_ns) return;
        if (op.op_class == OpClass::launch)
            launch(*fault, event);
        else if (op.op_class == OpClass::sync)
            synchronize(*fault, event, op);
        else if (op.op_class == OpClass::collective || op.name.find("GraphLaunch") != std::string_view::npos ||
                 op.name.find("BeginCapture") != std::string_view::npos)
            give_nameless_work(*fault, event);
        else if (op.name == "ncclGroupEnd")
            fault->nameless_ns = std::max(fault->nameless_ns, saturating_end_ns(event));
    }

    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const override {
        for (const auto& [process, fault] : faults_) find(process, fault, context, ret_findings);
    }

  private:
    static Stream* stream_of(Fault& fault, const Event& event) {
        if (!fault.devices.contains(event.device)) {
            if (fault.devices.size() >= max_devices) fault.full = true;
            if (fault.full) return nullptr;
            fault.devices[event.device] = 0;
        }
        const StreamKey key = key_of(event);
        const auto found = fault.streams.find(key);
        if (found != fault.streams.end()) return &found->second;
        if (fault.streams.size() >= max_streams) {
            fault.full = true;
            return nullptr;
        }
        return &fault.streams[key];
    }

    static void launch(Fault& fault, const Event& event) {
        const uint64_t end_ns = saturating_end_ns(event);
        // The calls that this one stands for may have been of other functions, on other streams.
        if (event.weight != 1) fault.nameless_ns = std::max(fault.nameless_ns, end_ns);
        Stream* const stream = stream_of(fault, event);
        if (!stream || end_ns <= std::max(stream->synced_ns, fault.device_synced_ns(event.device))) return;
        if (stream->functions.size() >= max_functions && !stream->functions.contains(event.args[0])) {
            stream->nameless_ns = std::max(stream->nameless_ns, end_ns);
            return;
        }
        Launches& launches = stream->functions[event.args[0]];
        launches.count += event.weight;
        launches.latest_end_ns = std::max(launches.latest_end_ns, end_ns);
        launches.sequences.push_back(event.sequence);
        if (launches.sequences.size() > max_sequences) launches.sequences.pop_front();
    }

    static void give_nameless_work(Fault& fault, const Event& event) {
        if (Stream* const stream = stream_of(fault, event))
            stream->nameless_ns = std::max(stream->nameless_ns, saturating_end_ns(event));
    }

    /// What had been enqueued when it began is done. Calls may be shown in another order than they were made.
    static void synchronize(Fault& fault, const Event& event, const Op& op) {
        // What waits for an event says nothing of what came after the event.
        if (op.name.find("Event") != std::string_view::npos) return;
        const auto done = [&](Stream& stream) {
            std::erase_if(stream.functions,
                          [&](const auto& one) { return one.second.latest_end_ns <= event.start_ns; });
        };
        Stream* const stream = stream_of(fault, event);
        if (!stream) return;
        if (op.name.find("Stream") != std::string_view::npos) {
            stream->synced_ns = std::max(stream->synced_ns, event.start_ns);
            return done(*stream);
        }
        uint64_t& synced_ns = fault.devices[event.device];
        synced_ns = std::max(synced_ns, event.start_ns);
        for (auto& [key, one] : fault.streams)
            if (key.device == event.device) done(one);
    }

    static UnderWay under_way(const ProcessKey& process, const Fault& fault, const JudgementContext& context) {
        UnderWay all;
        const uint64_t known_from_ns = std::max(fault.from_ns, context.learnt_from(process));
        const bool from_start =
            context.knows_from_start(process) && started_ns(process, context.clock) >= known_from_ns;
        all.unknown = fault.full || context.lossy ||
                      context.lost_calls(known_from_ns, saturating_end_ns(fault.error),
                                         {OpClass::launch, OpClass::graph, OpClass::collective}) > 0;
        for (const auto& [device, synced_ns] : fault.devices) all.unknown |= synced_ns < fault.nameless_ns;
        for (const auto& [key, stream] : fault.streams) {
            const uint64_t synced_ns = std::max(stream.synced_ns, fault.device_synced_ns(key.device));
            all.unknown |= synced_ns < stream.nameless_ns;
            for (const auto& [function, launches] : stream.functions) {
                // Nothing says that what was launched before it was looked at is done.
                all.unknown |= !from_start && synced_ns < known_from_ns;
                Launches& sum = all.functions[function];
                sum.count += launches.count;
                sum.sequences.insert(sum.sequences.end(), launches.sequences.begin(), launches.sequences.end());
                all.launches += launches.count;
            }
        }
        return all;
    }

    void find(const ProcessKey& process, const Fault& fault, const JudgementContext& context,
              std::vector<Finding>& ret_findings) const {
        const Event& error = fault.error;
        const std::string name = error_name(error.op, error.return_code);
        const UnderWay all = under_way(process, fault, context);
        std::vector<std::pair<uint64_t, uint64_t>> suspects;  // sequence and function, the latest first
        for (const auto& [function, launches] : all.functions)
            for (const uint64_t sequence : launches.sequences) suspects.emplace_back(sequence, function);
        std::sort(suspects.begin(), suspects.end(), std::greater<>());
        std::vector<uint64_t> functions;
        for (const auto& [sequence, function] : suspects)
            if (std::find(functions.begin(), functions.end(), function) == functions.end())
                functions.push_back(function);

        Finding finding = make_finding("device-fault", process, name, context);
        finding.severity = Severity::high;
        // The code itself proves the fault; whose launch it was is known where only one function was under way.
        const bool proven = functions.size() == 1 && !all.unknown;
        finding.verdict = proven ? Verdict::proven : Verdict::partial;
        finding.explained_fraction =
            functions.empty() ? 0 : 1.0 / static_cast<double>(functions.size() + (all.unknown ? 1 : 0));
        // From then on the context does no work, whatever the program still calls.
        finding.lost_ns = saturating_subtract(fault.last_ns, error.start_ns);
        const bool newly = error.sequence >= context_.options.new_from_sequence;
        finding.newly_lost_ns = newly ? std::max<uint64_t>(finding.lost_ns, 1) : 0;
        finding.window_share = share_of(finding.lost_ns, context.time_of(finding.worst.event.process()));
        finding.worst = make_slow_call(error, call_time(error), find_op(error.op), {}, context_.clock);
        finding.worst.cause = name;
        for (const uint64_t function : functions) {
            if (finding.culprits.size() == max_culprits) break;
            finding.culprits.push_back({function_label(function), 0, 0, function});
        }
        finding.evidence.push_back(error.sequence);
        for (const auto& [sequence, function] : suspects)
            if (finding.evidence.size() < max_evidence) finding.evidence.push_back(sequence);
        write_text(finding, fault, all, name);
        ret_findings.push_back(std::move(finding));
    }

    static void write_text(Finding& finding, const Fault& fault, const UnderWay& all, const std::string& name) {
        const Event& error = fault.error;
        finding.summary = op_name(error.op) + " of thread " + std::to_string(error.tid) + " in " +
                          process_text(finding) + " returned " + name + "; ";
        finding.summary += all.functions.empty() ? "no launch under way was recorded"
                                                 : format_count(all.launches, "launch", "launches") + " of " +
                                                       format_count(all.functions.size(), "function", "functions") +
                                                       " may not have completed";
        if (all.unknown) finding.summary += ", and work that cannot be named may have been under way";
        const auto failures = fault.failures.find(error.return_code);
        const uint64_t alike = failures == fault.failures.end() ? 0 : failures->second;
        if (const uint64_t later = saturating_subtract(alike, error.depth == 0 ? error.weight : 0); later > 0)
            finding.summary += "; " + format_count(later, "later call", "later calls") + " failed with the same error";
        finding.fix =
            "Restart the process: its context accepts no more work. To find the launch, run it with "
            "CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer. The error is returned by whichever call comes next, "
            "not by the launch at fault; the functions named were under way.";
        finding.confirm = "Run explain again after the fix: no call of the program should return " + name + ".";
    }

    DetectorContext context_;
    std::map<ProcessKey, int32_t> reported_;
    ProcessTable<Fault> faults_;
};

}  // namespace

std::unique_ptr<Detector> make_device_fault(const DetectorContext& context) {
    return std::make_unique<DeviceFault>(context);
}

}  // namespace ingero
