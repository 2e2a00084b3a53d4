#include <algorithm>
#include <array>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/findings.h"
#include "core/diagnosis/live/live_memory.h"
#include "core/model/text/format.h"
#include "core/query/sampler.h"

namespace ingero {

namespace {

constexpr size_t max_processes = 1'024;
constexpr size_t max_sites = 1'024;  ///< a process
constexpr size_t max_culprits = 10;
/// Frees show how long an allocation of their place lives; so many show it well enough.
constexpr uint64_t enough_freed = 20;
/// Times the longest life seen: what is older is not coming back.
constexpr uint64_t overdue = 4;
constexpr uint64_t enough_overdue = 8;
/// A program that loads keeps all it allocates for a while; one that leaks does it all the time.
constexpr size_t slices = 8;
constexpr size_t slices_with_leaks = 6;

/// Where a program allocates: the stack where there are any, else the size.
struct Site {
    uint32_t stack = 0;
    OpId op = 0;
    uint64_t bytes = 0;  ///< 0 where the stack is known
    auto operator<=>(const Site&) const = default;
};

struct Freed {
    uint64_t count = 0;
    uint64_t longest_ns = 0;
};

struct Memory {
    LiveMemory live;
    std::map<Site, Freed> freed;
    uint64_t first_ns = UINT64_MAX;
    uint64_t last_ns = 0;
    Event latest;

    bool is_evidence() const { return false; }
    uint64_t worth() const { return live.bytes(); }
};

struct Leak {
    Site site;
    uint64_t count = 0;
    uint64_t bytes = 0;
    uint64_t freed = 0;
    uint64_t latest_ns = 0;  ///< when the latest was made
    std::array<uint64_t, slices> by_slice{};
    std::vector<uint64_t> sequences;
};

Site site_of(const Allocation& allocation) {
    return {allocation.stack, allocation.op, allocation.stack == 0 ? allocation.bytes : 0};
}

class GpuLeak final : public Detector {
  public:
    explicit GpuLeak(const DetectorContext& context)
        : context_(context), processes_(max_processes, context.processes) {}

    bool wants(const Op& op) const override { return is_device_memory(op) || frees_device_memory(op); }
    void before(const Event& event, const Op& op) override { see(event, op); }
    void see(const Event& event, const Op& op) override {
        if (event.depth != 0) return;
        Memory& memory =
            processes_.at(event.process(), event.start_ns, [this](const Memory& gone) { gone.live.release(taken_); });
        memory.first_ns = std::min(memory.first_ns, event.start_ns);
        memory.last_ns = std::max(memory.last_ns, saturating_end_ns(event));
        memory.latest = event;
        Allocation freed;
        if (!memory.live.take(event, op, taken_, freed)) return;
        const Site site = site_of(freed);
        if (memory.freed.size() >= max_sites && !memory.freed.contains(site)) return;
        Freed& lives = memory.freed[site];
        ++lives.count;
        lives.longest_ns = std::max(lives.longest_ns, saturating_subtract(event.start_ns, freed.at_ns));
    }

    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const override {
        for (const auto& [process, memory] : processes_)
            if (!memory.live.overflowed) find(process, memory, context, ret_findings);
    }

  private:
    /// Time goes on after the last call that concerns memory: what is kept is then what was loaded.
    uint64_t until_ns(const ProcessKey& process, const Memory& memory, const JudgementContext& context) const {
        return std::max(memory.last_ns, context.known_until_ns(process, context_.window));
    }

    static std::vector<Leak> leaks_of(const Memory& memory, uint64_t until_ns) {
        std::map<Site, Leak> leaks;
        const uint64_t length = std::max<uint64_t>(saturating_subtract(until_ns, memory.first_ns), 1);
        for (const auto& [address, allocation] : memory.live.live()) {
            const Site site = site_of(allocation);
            const auto lives = memory.freed.find(site);
            if (lives == memory.freed.end() || lives->second.count < enough_freed) continue;
            const uint64_t due_ns = saturating_multiply(std::max<uint64_t>(lives->second.longest_ns, 1), overdue);
            if (saturating_subtract(until_ns, allocation.at_ns) < due_ns) continue;
            Leak& leak = leaks[site];
            leak.site = site;
            leak.freed = lives->second.count;
            ++leak.count;
            leak.bytes = saturating_add(leak.bytes, allocation.bytes);
            leak.latest_ns = std::max(leak.latest_ns, allocation.at_ns);
            // Of the time in which one could have become overdue.
            const uint64_t possible = std::max<uint64_t>(saturating_subtract(length, due_ns), 1);
            const uint64_t age = saturating_subtract(allocation.at_ns, memory.first_ns);
            ++leak.by_slice[std::min<size_t>(slices - 1, static_cast<size_t>(age * slices / possible))];
            leak.sequences.push_back(allocation.sequence);
        }
        std::vector<Leak> proven;
        for (auto& [site, leak] : leaks) {
            const auto with =
                std::count_if(leak.by_slice.begin(), leak.by_slice.end(), [](uint64_t n) { return n > 0; });
            if (leak.count >= enough_overdue && static_cast<size_t>(with) >= slices_with_leaks)
                proven.push_back(std::move(leak));
        }
        std::sort(proven.begin(), proven.end(), [](const Leak& a, const Leak& b) { return a.bytes > b.bytes; });
        return proven;
    }

    void find(const ProcessKey& process, const Memory& memory, const JudgementContext& context,
              std::vector<Finding>& ret_findings) const {
        const uint64_t until = until_ns(process, memory, context);
        const std::vector<Leak> leaks = leaks_of(memory, until);
        if (leaks.empty()) return;
        // Frees of what is older, or that were lost: what seems to be kept may well be freed like that.
        uint64_t leaked = 0;
        for (const Leak& leak : leaks) leaked += leak.count;
        const uint64_t unseen =
            saturating_add(memory.live.unknown_frees, context.lost_calls(memory.first_ns, until, {OpClass::free}));
        if (unseen >= leaked - leaked / 2) return;
        Finding finding = make_finding("gpu-leak", process, "", context);
        uint64_t bytes = 0;
        for (const Leak& leak : leaks) {
            bytes = saturating_add(bytes, leak.bytes);
            finding.happened_realtime_ns =
                std::max(finding.happened_realtime_ns, context_.clock.to_realtime(leak.latest_ns));
            const std::string where =
                leak.site.stack ? ", stack " + std::to_string(leak.site.stack) : " of " + format_bytes(leak.site.bytes);
            if (finding.culprits.size() < max_culprits)
                finding.culprits.push_back({op_name(leak.site.op) + where + ": " + std::to_string(leak.count) +
                                                " kept, " + std::to_string(leak.freed) + " freed",
                                            process.pid, 0});
            for (const uint64_t sequence : leak.sequences) {
                if (finding.evidence.size() == max_evidence) break;
                finding.evidence.push_back(sequence);
            }
        }
        // No time is lost yet: how much memory and how fast is what matters.
        finding.severity = Severity::medium;
        finding.newly_lost_ns = memory.latest.sequence >= context_.options.new_from_sequence ? 1 : 0;
        const bool proven = !context.lossy && unseen == 0 && context.knows_from_start(process);
        finding.verdict = proven ? Verdict::proven : Verdict::partial;
        finding.explained_fraction = 1;
        finding.worst.event = {};
        finding.worst.event.tgid = process.pid;
        finding.worst.event.process_start_ns = process.start_ns;
        const std::string who = process_text(finding);
        const uint64_t length = std::max<uint64_t>(saturating_subtract(until, memory.first_ns), 1);
        const double an_hour = static_cast<double>(bytes) / static_cast<double>(length) * 3.6e12;
        finding.summary = who + " still holds " + std::to_string(leaked) + " allocations (" + format_bytes(bytes) +
                          "), each at least " + std::to_string(overdue) +
                          " times as long as any freed one from the same call site; at this rate " +
                          format_bytes(static_cast<uint64_t>(std::min(an_hour, 1e18))) + " an hour";
        if (!context.knows_from_start(process))
            finding.summary += "; the process began before the inspected time, so they may be intentional";
        finding.fix = "Free these allocations on every path, error paths too; 'ingeroctl stacks --op " +
                      op_name(leaks[0].site.op) + " --pid " + std::to_string(process.pid) +
                      "' shows the call sites. In Python, look for lists that tensors are added to.";
        finding.confirm =
            "Run explain again over a window of the same length: allocations of these call sites should all be freed "
            "within their usual time.";
        ret_findings.push_back(std::move(finding));
    }

    DetectorContext context_;
    ProcessTable<Memory> processes_;
    size_t taken_ = 0;  ///< allocations known, of all processes
};

}  // namespace

std::unique_ptr<Detector> make_gpu_leak(const DetectorContext& context) {
    return std::make_unique<GpuLeak>(context);
}

}  // namespace ingero
