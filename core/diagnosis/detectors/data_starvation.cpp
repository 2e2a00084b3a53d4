#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/diagnosis/assign.h"
#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/evidence/gap_causes.h"
#include "core/model/host_event.h"
#include "core/model/text/format.h"

namespace ingero {

namespace {

/// Of the time in which the process calls: a loader that keeps up is waited for now and then.
constexpr double waited_from = 0.05;
/// A host that works between steps is the rule; one that works longer than its device is what the device waits for.
constexpr double worked_from = 0.5;
constexpr uint64_t fewest_gaps = 3;
/// By how much what is lost may be more than the gaps show: as of cycles.
constexpr uint64_t error_divisor = 7;  // 14 %
/// To say that too little is known is worth it of a program that goes on like this.
constexpr uint64_t long_enough_ns = 5'000'000'000;

/// What the gaps of one process come down to.
struct Starved {
    explicit Starved(const GapAccount& account_) : account(account_) {}

    const GapAccount& account;
    uint64_t own_ns = 0;    ///< the enqueuing thread on the CPU, outside of calls
    uint64_t other_ns = 0;  ///< others it waited for, on the CPU
    uint64_t kept_ns = 0;   ///< these, kept off the CPU by others
    uint64_t quota_ns = 0;  ///< of it, mostly by their control group's quota
    uint64_t read_ns = 0;   ///< it or they, reading
    uint64_t unknown_ns = 0;
    uint64_t no_cpu_ns = 0;  ///< the enqueuing thread could run, and had none: that is others' doing
    uint64_t gaps = 0;       ///< with some of the above
    std::map<std::pair<std::string, uint32_t>, uint64_t> by_name;

    uint64_t waited_ns() const { return saturating_add(saturating_add(other_ns, kept_ns), read_ns); }
    double share(uint64_t ns) const { return share_of(ns, saturating_subtract(account.active_ns, no_cpu_ns)); }
};

enum class Role { own_work, others_work, others_wait, reading, unknown, none };

/// Own work is what the device waits for only where there is more of it than of the device's.
bool is_loss(Role role, bool works_long) {
    return role == Role::others_work || role == Role::others_wait || role == Role::reading ||
           (role == Role::own_work && works_long);
}

Role role_of(const AccountedGap& gap, const GapAccount& account, const SpentPart& part) {
    switch (part.spent) {
        case Spent::ran:
            return is_own(gap, account, part) ? Role::own_work : Role::others_work;
        case Spent::no_cpu:
            return is_own(gap, account, part) ? Role::none : Role::others_wait;
        case Spent::read:
            return Role::reading;
        case Spent::peer:  // a worker that fetches; where the process itself asks another, it is no data that it needs
            return part.process.pid == account.process.pid ? Role::none : Role::reading;
        case Spent::unknown:
            return Role::unknown;
        default:
            return Role::none;
    }
}

std::string comm_of(const SpentPart& part, const JudgementContext& context) {
    const std::string_view recorded = to_string_view(part.comm);
    if (!recorded.empty()) return std::string(recorded);
    const std::string name = context.processes ? context.processes->name(part.process) : std::string();
    return name.empty() ? "pid " + std::to_string(visible_pid(part.process.pid)) : name;
}

std::string source_of(const SpentPart& part) {
    if (!part.longest) return "disk";
    if (part.spent == Spent::peer) return peer_text(*part.longest);
    return std::string(to_string(part.longest->blocked_reason));
}

/// What kept the thread off the CPU in the longest of these waits: its cgroup's quota, else who ran. Empty: nobody to
/// name.
std::string instead_of(const SpentPart& part) {
    if (!part.longest) return {};
    const Event& wait = *part.longest;
    if (is_throttled(wait)) return " (its cgroup's quota)";
    const bool is_idle = wait.preemptor_ns == 0 || wait.preemptor_tgid == 0;
    if (is_idle || !suspect_exclusion(wait.preemptor_comm).empty()) return {};
    return " (" + std::string(to_string_view(wait.preemptor_comm)) + " ran)";
}

class DataStarvation final : public GapDetector {
  public:
    explicit DataStarvation(const DetectorContext& context) : GapDetector(context) {}

  private:
    void find_in(const GapAccount& account, const JudgementContext& context,
                 std::vector<Finding>& ret_findings) const override {
        if (account.active_ns == 0) return;
        const uint64_t proven_ns = saturating_subtract(account.drained_ns, account.unproven_ns);
        if (!account.waits_known || proven_ns < account.drained_ns / 2)
            return find_too_little(account, proven_ns, context, ret_findings);
        Starved starved(account);
        for (const AccountedGap& gap : account.gaps)
            if (!gap.is_checkpoint) add(starved, gap, context);
        const bool works_long = starved.share(saturating_add(starved.own_ns, starved.waited_ns())) >= worked_from;
        if (!works_long && starved.share(starved.waited_ns()) < waited_from) return;
        if (starved.gaps < fewest_gaps) return;
        report(starved, works_long, context, ret_findings);
    }

    static void add(Starved& starved, const AccountedGap& gap, const JudgementContext& context) {
        bool counts = false;
        for (const SpentPart& part : gap.parts) {
            const Role role = role_of(gap, starved.account, part);
            if (part.spent == Spent::no_cpu && role == Role::none)
                starved.no_cpu_ns = saturating_add(starved.no_cpu_ns, part.ns);
            if (role == Role::none || part.ns == 0) continue;
            if (role == Role::unknown) {
                starved.unknown_ns = saturating_add(starved.unknown_ns, part.ns);
                continue;
            }
            counts = true;
            uint64_t& sum = role == Role::own_work      ? starved.own_ns
                            : role == Role::others_work ? starved.other_ns
                            : role == Role::others_wait ? starved.kept_ns
                                                        : starved.read_ns;
            sum = saturating_add(sum, part.ns);
            if (role == Role::others_wait && part.longest && is_throttled(*part.longest))
                starved.quota_ns = saturating_add(starved.quota_ns, part.ns);
            std::string name = comm_of(part, context);
            if (role == Role::reading) name = source_of(part) + ", read by " + name;
            if (role == Role::others_wait) name += ", without a CPU" + instead_of(part);
            if (role == Role::own_work) name += ", on the CPU between its calls";
            uint64_t& ns = starved.by_name[{std::move(name), visible_pid(part.process.pid)}];
            ns = saturating_add(ns, part.ns);
        }
        starved.gaps += counts;
    }

    /// Those that a gap waited for may have been held up by something that is not recorded, such as a lock.
    void report(const Starved& starved, bool works_long, const JudgementContext& context,
                std::vector<Finding>& ret_findings) const {
        const GapAccount& account = starved.account;
        GapLoss loss(account, options_, clock_);
        uint64_t most_ns = 0;
        for (const AccountedGap& gap : account.gaps) {
            if (gap.is_checkpoint) continue;
            uint64_t ns = 0, uncounted_ns = 0;
            for (const SpentPart& part : gap.parts) {
                if (is_loss(role_of(gap, account, part), works_long))
                    ns = saturating_add(ns, part.ns);
                else if (!is_own(gap, account, part))
                    uncounted_ns = saturating_add(uncounted_ns, part.ns);
            }
            loss.add(gap, ns);
            if (ns != 0) most_ns = saturating_add(most_ns, saturating_add(ns, uncounted_ns));
        }
        auto found = loss.finding("data-starvation", 0, context);
        if (!found) return;
        Finding& finding = *found;
        loss.prove(finding, starved.unknown_ns, context);
        finding.lost_high_ns = std::min(saturating_add(most_ns, most_ns / error_divisor), account.active_ns);
        auto by_name = starved.by_name;
        if (!works_long)
            std::erase_if(by_name, [](const auto& one) { return one.first.first.ends_with("between its calls"); });
        finding.culprits = ranked_culprits(by_name);
        finding.rejected = other_time(account, [&](const AccountedGap& gap, const SpentPart& part) {
            return !gap.is_checkpoint && is_loss(role_of(gap, account, part), works_long);
        });
        write(finding, starved, works_long, loss.gaps());
        ret_findings.push_back(std::move(*found));
    }

    static void write(Finding& finding, const Starved& starved, bool works_long, uint64_t gaps) {
        const std::string who = process_text(finding);
        const uint64_t own_ns = works_long ? starved.own_ns : 0;
        finding.summary = "the device of " + who + " was idle between steps " + format_count(gaps, "time", "times");
        const bool waits_most = !finding.culprits.empty() && own_ns < starved.waited_ns();
        if (waits_most && !finding.culprits[0].name.ends_with("between its calls"))
            finding.summary += ", mostly waiting for " + finding.culprits[0].name;
        std::vector<std::string> parts;
        const auto add = [&](uint64_t ns, const std::string& what) {
            constexpr double worth_a_word = 0.01;
            const double share = share_of(ns, finding.lost_ns);
            if (share >= worth_a_word) parts.push_back(percent_text(share) + " " + what);
        };
        add(own_ns, "on the CPU");
        add(starved.other_ns, "waiting for other threads or processes to compute");
        add(starved.kept_ns, "waiting for others that had no CPU");
        add(starved.read_ns, "waiting for data to be read");
        for (size_t i = 0; i < parts.size(); ++i)
            finding.summary += (i == 0                  ? "; of the time lost, its thread spent "
                                : i + 1 == parts.size() ? " and "
                                                        : ", ") +
                               parts[i];
        finding.summary += loss_text(finding);
        if (own_ns >= starved.waited_ns()) {
            finding.fix =
                "Prepare batches in other processes while the device works (DataLoader: num_workers, prefetch_factor, "
                "pin_memory), or move the work to the device; ingeroctl stacks shows where the thread calls from.";
        } else if (starved.quota_ns > starved.waited_ns() / 2) {
            finding.fix =
                "Raise the CPU quota of the cgroup that the loader runs in (CPUQuota= of its unit, --cpus of its "
                "container, limits.cpu of its pod): more workers would share the same quota.";
        } else if (starved.kept_ns > starved.waited_ns() / 2) {
            finding.fix =
                "Give the loader more CPUs, or keep what runs instead off them (AllowedCPUs=, CPUWeight=, taskset).";
        } else if (starved.read_ns > starved.other_ns) {
            finding.fix =
                "Read ahead: more workers and a longer prefetch, larger files read in order, a copy on faster storage "
                "or "
                "in memory. iostat -x 1 shows whether the disk is at its limit.";
        } else {
            finding.fix =
                "Give the loader more workers, if there are CPUs for them, or less to compute for each batch: decode "
                "once and store the result, use a faster decoder, do it on the device.";
        }
        finding.confirm = "Run explain again over a window of the same length: the device of " + who +
                          " should wait for its next step for less than " + percent_text(waited_from) + " of the time.";
    }

    /// The device had nothing to do for most of the time; why, is not known.
    void find_too_little(const GapAccount& account, uint64_t proven_ns, const JudgementContext& context,
                         std::vector<Finding>& ret_findings) const {
        if (account.active_ns < long_enough_ns || share_of(account.drained_ns, account.active_ns) < worked_from) return;
        if (account.gaps.size() + account.unproven.size() < fewest_gaps) return;
        Finding finding = make_finding("data-starvation", account.process, std::to_string(account.device), context);
        GapLoss loss(account, options_, clock_);
        std::vector<AccountedGap> unproven;
        unproven.reserve(account.unproven.size());
        for (const DrainedGap& gap : account.unproven) unproven.push_back({&gap, {}, false});
        for (const auto* gaps : {&account.gaps, &std::as_const(unproven)})
            for (const AccountedGap& gap : *gaps) loss.add(gap, gap.gap->time.length_ns());
        loss.fill(finding, context);
        if (finding.window_share < options_.window_floor) return;
        finding.severity = Severity::low;
        finding.verdict = Verdict::insufficient_evidence;
        finding.explained_fraction = 0;
        const bool no_waits = !account.waits_known;
        const std::string missing = no_waits ? "what its threads waited for between calls was not recorded"
                                             : "calls were lost in " +
                                                   format_duration(saturating_subtract(account.drained_ns, proven_ns)) +
                                                   " of that time";
        finding.summary = "the device of " + process_text(finding) + " seems to have been idle for " +
                          format_duration(account.drained_ns) + "; whether it waited for data is not known: " + missing;
        finding.fix = no_waits ? "Record waits: set wait_floor in [capture], and see ingeroctl check."
                               : "See ingeroctl status for what is lost, and record with a lower load.";
        finding.confirm = "Run explain again over a window for which waits and all calls are recorded.";
        ret_findings.push_back(std::move(finding));
    }
};

}  // namespace

std::unique_ptr<Detector> make_data_starvation(const DetectorContext& context) {
    return std::make_unique<DataStarvation>(context);
}

}  // namespace ingero
