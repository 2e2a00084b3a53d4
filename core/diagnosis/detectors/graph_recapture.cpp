#include <algorithm>
#include <array>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/findings.h"
#include "core/model/text/format.h"

namespace ingero {

namespace {

constexpr size_t max_processes = 4'096;
constexpr size_t max_threads = 1'024;   ///< that capture, a process
constexpr size_t max_captures = 1'024;  ///< under way, a process
/// Captures after a replay, from which on it is a habit.
constexpr uint64_t habit = 8;
/// A program that makes a graph for each of some shapes as they first come makes them for a while: one with the habit
/// does it all the time.
constexpr size_t slices = 8;
constexpr size_t slices_with_some = 6;
constexpr size_t max_times = 512;  ///< kept, a process
/// Replays that make a capture worth its cost.
constexpr uint64_t worth_replays = 20;

struct Graphs {
    uint64_t replays = 0;  ///< launches of graphs, also of before the window
    uint64_t replays_in_window = 0;
    uint64_t captures = 0;        ///< of the window, after a replay
    uint64_t instantiations = 0;  ///< the same
    uint64_t lost_ns = 0;         ///< by capturing and instantiating
    uint64_t newly_lost_ns = 0;
    uint64_t busiest_ns = 0;
    std::map<uint32_t, uint64_t> by_thread;
    std::map<uint64_t, uint64_t> begun;  ///< by stream: when the capture under way began
    Event worst;
    uint64_t worst_ns = 0;
    Evidence evidence;
    uint64_t first_replay_ns = 0;
    std::vector<uint64_t> times;  ///< of captures and instantiations; every 2nd, 4th and so on where there are many
    uint64_t times_every = 1;
    uint64_t times_seen = 0;

    bool is_evidence() const { return lost_ns > 0; }
    uint64_t worth() const { return lost_ns != 0 ? lost_ns : replays; }

    void add_time(uint64_t ns) {
        if (times_seen++ % times_every != 0) return;
        if (times.size() == max_times) {
            for (size_t i = 0; i < max_times / 2; ++i) times[i] = times[2 * i];
            times.resize(max_times / 2);
            times_every *= 2;
        }
        times.push_back(ns);
    }
    /// Of the equal slices of a time, those with some.
    size_t slices_within(const Window& time) const {
        std::array<bool, slices> with{};
        const uint64_t length = std::max<uint64_t>(time.length_ns() / slices, 1);
        for (const uint64_t at : times)
            with[std::min<size_t>(slices - 1, saturating_subtract(at, time.from_ns) / length)] = true;
        return static_cast<size_t>(std::count(with.begin(), with.end(), true));
    }
};

class GraphRecapture final : public Detector {
  public:
    explicit GraphRecapture(const DetectorContext& context)
        : context_(context), processes_(max_processes, context.processes) {}

    bool wants(const Op& op) const override { return op.op_class == OpClass::graph; }
    void before(const Event& event, const Op& op) override { take(event, op, false); }
    void see(const Event& event, const Op& op) override { take(event, op, true); }

    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const override {
        for (const auto& [process, graphs] : processes_) find(process, graphs, context, ret_findings);
    }

  private:
    void take(const Event& event, const Op& op, bool in_window) {
        if (event.depth != 0) return;  // the runtime's call has the driver's inside
        Graphs& graphs = processes_.at(event.process(), event.start_ns);
        const std::string_view name = op.name;
        const auto is = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
        if (is("GraphLaunch")) {
            if (graphs.replays == 0) graphs.first_replay_ns = event.start_ns;
            graphs.replays += event.weight;
            graphs.replays_in_window += in_window ? event.weight : 0;
        } else if (is("BeginCapture")) {
            if (event.return_code == 0 && (graphs.begun.size() < max_captures || graphs.begun.contains(event.stream)))
                graphs.begun[event.stream] = event.start_ns;
        } else if (is("EndCapture")) {
            const auto begun = graphs.begun.find(event.stream);
            // A capture that was not seen to begin has lost at least the call that ends it.
            const uint64_t from = begun == graphs.begun.end() ? event.start_ns : begun->second;
            if (begun != graphs.begun.end()) graphs.begun.erase(begun);
            if (in_window) lose(graphs, event, saturating_subtract(saturating_end_ns(event), from), graphs.captures);
        } else if (is("Instantiate") && in_window) {
            lose(graphs, event, event.duration_ns, graphs.instantiations);
        }
    }

    /// Before the first replay a program makes its graphs ready: that is what capturing is for.
    void lose(Graphs& graphs, const Event& event, uint64_t ns, uint64_t& counter) const {
        if (graphs.replays == 0) return;
        ++counter;
        graphs.add_time(event.start_ns);
        graphs.lost_ns = saturating_add(graphs.lost_ns, ns);
        if (event.sequence >= context_.options.new_from_sequence)
            graphs.newly_lost_ns = saturating_add(graphs.newly_lost_ns, ns);
        if (graphs.by_thread.size() >= max_threads && !graphs.by_thread.contains(event.tid)) return;
        uint64_t& thread = graphs.by_thread[event.tid];
        thread = saturating_add(thread, ns);
        graphs.busiest_ns = std::max(graphs.busiest_ns, thread);
        if (ns > graphs.worst_ns) {
            graphs.worst_ns = ns;
            graphs.worst = event;
        }
        graphs.evidence.add(ns, event.sequence);
    }

    void find(const ProcessKey& process, const Graphs& graphs, const JudgementContext& context,
              std::vector<Finding>& ret_findings) const {
        const uint64_t made = std::max(graphs.captures, graphs.instantiations);
        const double share = share_of(graphs.busiest_ns, context.time_of(process));
        if (made < habit || share < context_.options.window_floor) return;
        if (graphs.replays_in_window >= made * worth_replays) return;
        const Window time{std::max(graphs.first_replay_ns, context_.window.from_ns),
                          context.known_until_ns(process, context_.window)};
        if (graphs.slices_within(time) < slices_with_some) return;
        Finding finding = make_finding("graph-recapture", process, "", context);
        finding.lost_ns = graphs.lost_ns;
        finding.newly_lost_ns = graphs.newly_lost_ns;
        finding.window_share = share;
        finding.severity = severity_of(share);
        // All of it is measured: the calls themselves, and what lies between the two that frame a capture.
        finding.explained_fraction = 1;
        finding.verdict = verdict_of(1, context.lossy);
        finding.culprits = {{"capturing and instantiating graphs", 0, graphs.lost_ns}};
        finding.worst =
            make_slow_call(graphs.worst, call_time(graphs.worst), find_op(graphs.worst.op), {}, context_.clock);
        finding.worst.cause = finding.kind;
        finding.evidence = graphs.evidence.sequences();
        const std::string who = process_text(finding);
        finding.summary = who + " captured " + format_count(graphs.captures) + " and instantiated " +
                          format_count(graphs.instantiations, "graph", "graphs") + " for " +
                          format_count(graphs.replays_in_window, "replay", "replays") + loss_text(finding);
        finding.fix =
            "Keep the graphs: pad shapes to a few sizes and keep an executable graph for each, or update one in place "
            "(cudaGraphExecUpdate) where only parameters change.";
        finding.confirm = "Run explain again over a window of the same length: " + who +
                          " should replay each graph it makes at least " + std::to_string(worth_replays) + " times.";
        ret_findings.push_back(std::move(finding));
    }

    DetectorContext context_;
    ProcessTable<Graphs> processes_;
};

}  // namespace

std::unique_ptr<Detector> make_graph_recapture(const DetectorContext& context) {
    return std::make_unique<GraphRecapture>(context);
}

}  // namespace ingero
