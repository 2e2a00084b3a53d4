#include <signal.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/evidence/collective_waits.h"
#include "core/diagnosis/evidence/wait_table.h"
#include "core/diagnosis/findings.h"
#include "core/model/collective.h"

namespace ingero {

namespace {

constexpr size_t max_culprits = 10;
/// So long a collective waits for nobody in a program that goes on; longer where its ranks have been further apart, but
/// not for one that has ended.
constexpr uint64_t stuck_from_ns = 10'000'000'000;
constexpr uint64_t apart_times = 20;
/// A rank that has not come may still come, as from a long checkpoint: it is reported late, with low severity.
constexpr uint64_t missing_from_ns = 30'000'000'000;
constexpr uint64_t missing_medium_from_ns = 120'000'000'000;
/// The same of one that goes on working: it evaluates, or saves a checkpoint, while the others wait for it.
constexpr uint64_t working_medium_from_ns = 300'000'000'000;
/// It does where it has done something in the last so many seconds.
constexpr uint64_t working_within_ns = 30'000'000'000;
constexpr size_t max_waits_looked_at = 65'536;

/// A rank on this host, and what it did last in the communicator.
struct Member {
    const Communicator* communicator = nullptr;
    uint32_t last_sequence = 0;
    uint64_t last_ns = 0;                    ///< when it entered that, or had the communicator
    uint32_t last_tid = 0;                   ///< of the thread that did; 0: none
    uint64_t until_ns = 0;                   ///< of its process or its communicator
    std::vector<OpenCollectives> open = {};  ///< nothing that waits for them has returned

    bool waits_in(uint32_t sequence) const {
        return std::any_of(open.begin(), open.end(), [sequence](const OpenCollectives& one) {
            return !one.event_waited && one.first_sequence <= sequence && sequence <= one.last_sequence;
        });
    }
    /// Where not all have entered it nobody is past it.
    bool may_wait_in(uint32_t sequence) const {
        return std::any_of(open.begin(), open.end(), [sequence](const OpenCollectives& one) {
            return one.first_sequence <= sequence && sequence <= one.last_sequence;
        });
    }
};

RankKey key_of(const Member& member) {
    return {member.communicator->row.process, member.communicator->row.id};
}

using OpenByRank = std::map<RankKey, std::vector<OpenCollectives>>;

/// A collective that not all have entered, or that they have entered in different ways.
struct Stuck {
    uint64_t hash = 0;
    uint32_t sequence = 0;
    EnqueueSkew entered;
    std::vector<Member> waiting, missing;
    std::vector<Member> past;    ///< entered it, and need not wait there for those that are missing
    uint64_t waited_ns = 0;      ///< by the one that did the longest
    uint64_t usual_ns = 0;       ///< so long its ranks may be apart, as far apart as they have been
    std::string mismatch;        ///< how the calls differ; empty where ranks are missing
    bool died_inside = false;    ///< those missing entered it, and their processes ended before they had waited for it
    bool failed_inside = false;  ///< of one of these it is known that it did not end as it should
};

std::string call_text(const EnqueueSkew::Enqueue& call) {
    return op_name(call.op) + " of " + std::to_string(call.bytes) + " bytes";
}

/// One collective under two names.
OpId one_name(OpId op) {
    return is_broadcast(op) ? op::ncclBroadcast : op;
}

/// A broadcast, or a reduction to one rank.
struct Rooted {
    bool is_broadcast = false;
    uint32_t root = 0;
};

/// Nothing where it has no root, or its ranks do not agree on one.
std::optional<Rooted> rooted(const EnqueueSkew& collective) {
    const auto& first = collective.ranks.front();
    const OpId op = one_name(first.op);
    if (!first.root || (op != op::ncclBroadcast && op != op::ncclReduce)) return std::nullopt;
    const bool agree = std::all_of(collective.ranks.begin(), collective.ranks.end(),
                                   [&](const auto& one) { return one_name(one.op) == op && one.root == first.root; });
    return agree ? std::optional(Rooted{op == op::ncclBroadcast, *first.root}) : std::nullopt;
}

class NcclHang final : public Detector {
  public:
    explicit NcclHang(const DetectorContext& context) : context_(context) {
        if (context.collectives)
            feed_.emplace(context.collectives->feed);
        else if (context.communicators)
            feed_.emplace(*context.communicators);
    }

    bool wants(const Op& op) const override { return feed_ && !feed_->empty() && CollectiveWaitsDeriver::wants(op); }
    void before(const Event& event, const Op& op) override { see(event, op); }
    void see(const Event& event, const Op& op) override {
        feed_->take(event);
        const bool is_work =
            op.op_class == OpClass::collective || op.op_class == OpClass::sync || op.op_class == OpClass::copy;
        if (!is_work || event.return_code != 0 || !feed_->has(event.process()) || !CollectiveWaitsDeriver::wants(event))
            return;
        uint64_t& last_ns = last_calls_[event.process()];
        last_ns = std::max(last_ns, saturating_end_ns(event));
    }

    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const override {
        if (!feed_ || feed_->empty()) return;
        const CollectiveWaitsDeriver& derived = feed_->derived();
        std::map<uint64_t, std::vector<Member>> communicators;
        for (const Communicator& one : context_.communicators->all())
            if (one.row.hash != 0) communicators[one.row.hash].push_back({&one, 0, 0});
        OpenByRank open;
        for (const OpenCollectives& one : derived.open()) open[{one.process, one.communicator}].push_back(one);
        std::vector<Stuck> all;
        for (auto& [hash, members] : communicators) {
            // Since their numbers are no longer the same, what one has not entered another may have.
            const bool is_interrupted = std::any_of(members.begin(), members.end(), [this](const Member& member) {
                return member.communicator->hash_at(context_.window.to_ns) == 0;
            });
            if (members.size() < 2 || is_interrupted) continue;
            auto stuck = look_at(hash, members, derived, open, context);
            if (stuck) all.push_back(std::move(*stuck));
        }
        for (const Stuck& stuck : all) report(stuck, all, context, ret_findings);
    }

  private:
    /// How the process of a rank ended.
    enum class End {
        none,     ///< it lives, or ended as it should, or was asked to end, as the others may have been
        unknown,  ///< it is not known how
        failed,   ///< by a signal, or with a code that says so
    };

    std::optional<Stuck> look_at(uint64_t hash, std::vector<Member>& members, const CollectiveWaitsDeriver& derived,
                                 const OpenByRank& open, const JudgementContext& context) const {
        const std::map<uint32_t, EnqueueSkew> entered = derived.entered(hash);
        if (entered.empty()) return std::nullopt;
        std::map<RankKey, std::tuple<uint32_t, uint64_t, uint32_t>> last;  ///< sequence, start, thread
        uint64_t apart_ns = 0;
        for (const auto& [sequence, skew] : entered) {
            Window time{UINT64_MAX, 0};
            for (const auto& one : skew.ranks) {
                last[{one.process, one.communicator}] = {sequence, one.start_ns, one.tid};
                time = {std::min(time.from_ns, one.start_ns), std::max(time.to_ns, one.start_ns)};
            }
            apart_ns = std::max(apart_ns, time.length_ns());
        }
        uint32_t lowest = UINT32_MAX, highest = 0;
        for (Member& member : members) {
            const ProcessKey& process = member.communicator->row.process;
            const auto known = last.find(key_of(member));
            // Of a rank that began before what is known, what it entered before that is not.
            if (known == last.end() && !knows_from_start(process, hash, context)) return std::nullopt;
            if (known != last.end())
                std::tie(member.last_sequence, member.last_ns, member.last_tid) = known->second;
            else
                member.last_ns = member.communicator->row.seen_ns;
            member.until_ns = std::min(context.known_until_ns(process, context_.window),
                                       derived.released_ns(process, member.communicator->row.id));
            const auto still_open = open.find(key_of(member));
            if (still_open != open.end()) member.open = still_open->second;
            lowest = std::min(lowest, member.last_sequence);
            highest = std::max(highest, member.last_sequence);
        }
        const bool missing = lowest < highest;
        for (uint32_t sequence = missing ? lowest + 1 : highest; sequence <= highest; ++sequence) {
            const auto found = entered.find(sequence);
            if (found == entered.end()) return std::nullopt;
            Stuck stuck;
            stuck.hash = hash;
            stuck.sequence = sequence;
            stuck.entered = found->second;
            if (missing) stuck.usual_ns = saturating_multiply(apart_ns, apart_times);
            if (!place(members, !missing, context, stuck)) return std::nullopt;
            // The others have left it, or will: if they wait, they do in a later one.
            if (stuck.waiting.empty() && missing) continue;
            return is_long(stuck, context) ? std::optional(std::move(stuck)) : std::nullopt;
        }
        return std::nullopt;
    }

    /// Who waits in the collective, and who is missing. False where one has left that nobody leaves before all have
    /// entered it: it was not recorded that they did.
    static bool place(const std::vector<Member>& members, bool all_entered, const JudgementContext& context,
                      Stuck& ret_stuck) {
        ret_stuck.died_inside = all_entered && !differs(ret_stuck);
        uint64_t latest_ns = 0;
        for (const Member& member : members) latest_ns = std::max(latest_ns, member.until_ns);
        std::vector<const Member*> entered;
        for (const Member& member : members) {
            const bool is_inside = ret_stuck.died_inside && member.waits_in(ret_stuck.sequence);
            const End end = is_inside ? end_of(member, context) : End::none;
            // Ranks that end one after the other, as at the end of a job, do not wait for each other.
            const bool left_others = saturating_subtract(latest_ns, member.until_ns) >= stuck_from_ns;
            const bool died = end == End::failed || (end == End::unknown && left_others);
            ret_stuck.failed_inside |= end == End::failed;
            if (member.last_sequence < ret_stuck.sequence || died)
                ret_stuck.missing.push_back(member);
            else
                entered.push_back(&member);
        }
        const std::optional<Rooted> kind = rooted(ret_stuck.entered);
        const auto is_root = [&](const Member& member) { return member.communicator->rank == kind->root; };
        const bool has_root = kind && std::none_of(ret_stuck.missing.begin(), ret_stuck.missing.end(), is_root);
        // What a root sends, or is sent, others may pass on without those that are missing.
        const bool may_leave = !all_entered && kind && has_root == kind->is_broadcast;
        for (const Member* member : entered) {
            // The root of a broadcast needs nobody else, and who sends to the root of a reduction needs only that one.
            const bool needs_nobody = has_root && is_root(*member) == kind->is_broadcast;
            // Where not all have entered it nobody is past it, unless some may be.
            const bool is_inside = all_entered || may_leave ? member->waits_in(ret_stuck.sequence)
                                                            : member->may_wait_in(ret_stuck.sequence);
            if (!is_inside && !needs_nobody && !may_leave) return false;
            (is_inside && !needs_nobody ? ret_stuck.waiting : ret_stuck.past).push_back(*member);
        }
        for (const Member& member : ret_stuck.waiting)
            ret_stuck.waited_ns = std::max(ret_stuck.waited_ns, waited_by(ret_stuck, member));
        return true;
    }

    static bool is_long(const Stuck& stuck, const JudgementContext& context) {
        if (stuck.waiting.empty() || (stuck.died_inside && stuck.missing.empty())) return false;
        if (waited_for_the_dead_ns(stuck, context) >= stuck_from_ns) return true;
        return stuck.waited_ns >= std::max(stuck_from_ns, std::min(stuck.usual_ns, missing_medium_from_ns));
    }

    bool knows_from_start(const ProcessKey& process, uint64_t hash, const JudgementContext& context) const {
        const PastCollectives* const past = context_.collectives;
        if (!past || !past->has(hash)) return context.knows_from_start(process);
        return past->from_ns != 0 && started_ns(process, context.clock) >= past->from_ns;
    }

    /// The longest wait of one rank since it entered and the last of those missing ended; 0 where one of them lives.
    static uint64_t waited_for_the_dead_ns(const Stuck& stuck, const JudgementContext& context) {
        uint64_t ended_ns = 0, longest_ns = 0;
        for (const Member& member : stuck.missing) ended_ns = std::max(ended_ns, exited_ns(member, context));
        for (const Member& member : stuck.waiting)
            longest_ns = std::max(longest_ns,
                                  saturating_subtract(member.until_ns, std::max(entered_ns(stuck, member), ended_ns)));
        return longest_ns;
    }

    /// UINT64_MAX: it lives, or nothing is known of it.
    static uint64_t exited_ns(const Member& member, const JudgementContext& context) {
        return context.processes ? context.processes->exited_ns(member.communicator->row.process) : UINT64_MAX;
    }

    static uint64_t entered_ns(const Stuck& stuck, const Member& member) {
        for (const auto& one : stuck.entered.ranks)
            if (RankKey(one.process, one.communicator) == key_of(member)) return one.start_ns;
        return UINT64_MAX;
    }

    static uint64_t waited_by(const Stuck& stuck, const Member& member) {
        uint64_t from_ns = entered_ns(stuck, member);
        // What it was busy with before the others died is no wait.
        for (const Member& died : stuck.missing)
            if (stuck.died_inside) from_ns = std::max(from_ns, died.until_ns);
        return saturating_subtract(member.until_ns, from_ns);
    }

    /// The one that has waited the longest of those that still do, or did so last.
    static const Member& longest_of(const Stuck& stuck) {
        const auto place = [&](const Member& member) {
            return std::pair(UINT64_MAX - member.until_ns, entered_ns(stuck, member));
        };
        return *std::min_element(stuck.waiting.begin(), stuck.waiting.end(),
                                 [&](const Member& a, const Member& b) { return place(a) < place(b); });
    }
    /// The one that entered first, which stays the same as ranks end one after another.
    static const Member& first_of(const Stuck& stuck) {
        return *std::min_element(stuck.waiting.begin(), stuck.waiting.end(), [&](const Member& a, const Member& b) {
            return entered_ns(stuck, a) < entered_ns(stuck, b);
        });
    }

    static End end_of(const Member& member, const JudgementContext& context) {
        const Process* process =
            context.processes ? context.processes->find(member.communicator->row.process) : nullptr;
        if (!process || process->exited_ns == 0 || process->exit_code == 0) return End::none;
        if (process->exit_code == exit_status_unknown) return End::unknown;
        const int signal = process->exit_code & 0x7f;
        return signal == SIGTERM || signal == SIGINT ? End::none : End::failed;
    }

    /// All entered it, but not the same.
    static bool differs(Stuck& stuck) {
        const auto& first = stuck.entered.ranks.front();
        for (const auto& one : stuck.entered.ranks) {
            const bool bytes = one.bytes != first.bytes && one.bytes != 0 && first.bytes != 0;
            if (!bytes && one_name(one.op) == one_name(first.op)) continue;
            stuck.mismatch = call_text(first) + " in pid " + std::to_string(visible_pid(first.process.pid)) + " and " +
                             call_text(one) + " in pid " + std::to_string(visible_pid(one.process.pid));
            return true;
        }
        return false;
    }

    /// It can not come: it has ended, or waits itself for a rank that waits here.
    static bool never_comes(const Stuck& stuck, const Member& member, const std::vector<Stuck>& all,
                            const JudgementContext& context, std::string& ret_why) {
        const ProcessKey& process = member.communicator->row.process;
        const uint64_t ended_ns = exited_ns(member, context);
        uint64_t latest_ns = 0;
        for (const Member& one : stuck.waiting) latest_ns = std::max(latest_ns, one.until_ns);
        // A job that is ended while one rank waits for another ends them one after the other.
        if (saturating_subtract(latest_ns, ended_ns) >= stuck_from_ns) {
            ret_why = "its process has ended";
            return true;
        }
        if (member.until_ns < std::min(latest_ns, context.recorded_until_ns) && ended_ns == UINT64_MAX) {
            ret_why = "it has released the communicator";
            return true;
        }
        for (const Stuck& other : all) {
            if (other.hash == stuck.hash || !is_the_rank(other, other.waiting, process) ||
                !is_the_rank(stuck, stuck.missing, process))
                continue;
            for (const Member& one : stuck.waiting) {
                const ProcessKey& waiting = one.communicator->row.process;
                if (!is_the_rank(other, other.missing, waiting) || !is_the_rank(stuck, stuck.waiting, waiting))
                    continue;
                ret_why = "it waits in another communicator for a rank that waits here";
                return true;
            }
        }
        return false;
    }

    /// The process is among those, and has no other rank there: which of its ranks is which in another communicator is
    /// not known.
    static bool is_the_rank(const Stuck& stuck, const std::vector<Member>& some, const ProcessKey& process) {
        const auto is_its = [&](const Member& one) { return one.communicator->row.process == process; };
        const auto ranks = std::count_if(stuck.waiting.begin(), stuck.waiting.end(), is_its) +
                           std::count_if(stuck.missing.begin(), stuck.missing.end(), is_its) +
                           std::count_if(stuck.past.begin(), stuck.past.end(), is_its);
        return ranks == 1 && std::any_of(some.begin(), some.end(), is_its);
    }

    /// Of a broadcast it is the root alone that has not come: the others may wait there for something to do.
    static bool waits_for_root(const Stuck& stuck) {
        const std::optional<Rooted> kind = rooted(stuck.entered);
        return kind && kind->is_broadcast && stuck.missing.size() == 1 &&
               stuck.missing[0].communicator->rank == kind->root;
    }

    /// Where the one that is missing waits itself; nullptr where it does not, or that is not known.
    static const Stuck* waits_in_another(const Stuck& stuck, const std::vector<Stuck>& all) {
        const ProcessKey& process = stuck.missing[0].communicator->row.process;
        for (const Stuck& other : all)
            if (other.hash != stuck.hash && is_the_rank(other, other.waiting, process) &&
                is_the_rank(stuck, stuck.missing, process))
                return &other;
        return nullptr;
    }

    /// All that are missing do something else meanwhile: they make calls that wait for their devices, or collectives of
    /// other communicators, or wait for a disk.
    bool goes_on_working(const Stuck& stuck, const JudgementContext& context) const {
        uint64_t until_ns = 0;
        for (const Member& one : stuck.waiting) until_ns = std::max(until_ns, one.until_ns);
        const Window time{saturating_subtract(until_ns, working_within_ns), until_ns};
        return std::all_of(stuck.missing.begin(), stuck.missing.end(), [&](const Member& member) {
            const ProcessKey& process = member.communicator->row.process;
            // What another of its ranks does says nothing of this one.
            if (!is_the_rank(stuck, stuck.missing, process)) return false;
            const auto last = last_calls_.find(process);
            if (last != last_calls_.end() && last->second > std::max(time.from_ns, member.last_ns)) return true;
            return has_used_disk(process, process.pid, time, context) ||
                   has_used_disk(process, member.last_tid, time, context);
        });
    }
    static bool has_used_disk(const ProcessKey& process, uint32_t tid, const Window& time,
                              const JudgementContext& context) {
        if (!context.waits || tid == 0) return false;
        const auto waits = context.waits->waits_of(process, tid, time, max_waits_looked_at);
        return std::any_of(waits.begin(), waits.end(), [](const Event& wait) {
            return wait.blocked_reason == BlockedReason::disk || wait.blocked_reason == BlockedReason::network_fs;
        });
    }

    /// Calls of these classes that were lost since the missing ranks did what is the last that is known of them.
    static uint64_t lost_calls(const Stuck& stuck, const JudgementContext& context,
                               std::initializer_list<OpClass> classes) {
        uint64_t from_ns = stuck.entered.ranks.front().start_ns;
        for (const Member& member : stuck.missing) from_ns = std::min(from_ns, member.last_ns);
        return context.lost_calls(from_ns, context.recorded_until_ns, classes);
    }

    static std::string rank_text(const Member& member, const JudgementContext& context) {
        const ProcessKey& process = member.communicator->row.process;
        const std::string name = context.processes ? context.processes->name(process) : std::string();
        const std::string pid = "pid " + std::to_string(visible_pid(process.pid));
        return (member.communicator->rank ? "rank " + std::to_string(*member.communicator->rank) : "a rank") + " (" +
               (name.empty() ? pid : name + ", " + pid) + ")";
    }

    void report(const Stuck& stuck, const std::vector<Stuck>& all, const JudgementContext& context,
                std::vector<Finding>& ret_findings) const {
        const Member& longest = longest_of(stuck);
        if (longest.until_ns <= context_.window.from_ns) return;
        const uint64_t waited_ns = waited_by(stuck, longest);
        // One hang is one finding, and one incident, whoever of its ranks still waits.
        const Member& first = first_of(stuck);
        Finding finding =
            make_finding("nccl-hang", first.communicator->row.process, std::to_string(stuck.hash), context);
        for (const auto* members : {&stuck.waiting, &stuck.missing})
            for (const Member& member : *members) finding.ranks.push_back(member.communicator->row.process);
        const bool mismatch = !stuck.mismatch.empty();
        bool proven = true;
        std::string missing, why;
        for (const Member& member : stuck.missing) {
            const std::string text = rank_text(member, context);
            if (finding.culprits.size() < max_culprits) {
                missing += (missing.empty() ? "" : ", ") + text;
                finding.culprits.push_back({text, visible_pid(member.communicator->row.process.pid), waited_ns, 0});
            }
            proven = never_comes(stuck, member, all, context, why) && proven;
        }
        // Whether the device had done with it before is not seen, nor whether the others only come back late.
        proven = proven && !stuck.died_inside;
        if (!proven && !stuck.died_inside && stuck.waited_ns < missing_from_ns) return;
        const Stuck* const waits = stuck.missing.size() == 1 ? waits_in_another(stuck, all) : nullptr;
        const bool works = !proven && !waits && !stuck.died_inside && goes_on_working(stuck, context);
        if (mismatch) finding.culprits = {{stuck.mismatch, 0, waited_ns, 0}};
        const uint64_t lost = lost_calls(stuck, context, {OpClass::collective, OpClass::communicator});
        const bool known = !context.lossy && lost == 0 && lost_calls(stuck, context, {OpClass::sync}) == 0;
        finding.verdict = proven && known ? Verdict::proven : Verdict::partial;
        finding.explained_fraction = finding.verdict == Verdict::proven ? 1 : 0.5;
        // One that lives may have come. That calls which wait were lost does not show it: those of ranks that are
        // killed as they hang are.
        const bool may_have_come = lost != 0 && !proven && !stuck.died_inside;
        if (may_have_come) {
            finding.verdict = Verdict::insufficient_evidence;
            finding.explained_fraction = 0;
        } else if (proven)
            finding.severity = Severity::high;
        else if (stuck.failed_inside ||
                 (stuck.waited_ns >=
                      std::max(works ? working_medium_from_ns : missing_medium_from_ns, stuck.usual_ns) &&
                  !waits_for_root(stuck) && !waits))
            finding.severity = Severity::medium;
        finding.lost_ns = waited_ns;
        const bool lasts = longest.until_ns >= std::min(context_.window.to_ns, context.recorded_until_ns);
        finding.newly_lost_ns = lasts ? waited_ns : 0;
        finding.happened_realtime_ns =
            context_.clock.to_realtime(lasts ? longest.until_ns : entered_ns(stuck, longest));
        finding.window_share = share_of(waited_ns, context.time_of(longest.communicator->row.process));
        for (const auto& one : stuck.entered.ranks) {
            if (RankKey(one.process, one.communicator) == key_of(first)) show(finding, one, waited_ns);
            if (finding.evidence.size() < max_evidence) finding.evidence.push_back(one.call);
        }
        const std::string here = rank_text(longest, context);
        const size_t inside = stuck.waiting.size() + (stuck.died_inside ? 0 : stuck.past.size());
        const size_t all_ranks = stuck.waiting.size() + stuck.past.size() + stuck.missing.size();
        finding.summary = here + " has waited " + format_duration(waited_ns) + " in collective " +
                          std::to_string(stuck.sequence) + " (" + op_name(finding.worst.event.op) + "), " +
                          std::to_string(inside) + " of " + std::to_string(all_ranks) +
                          (stuck.died_inside ? " ranks of this host wait in it; " : " ranks of this host entered; ");
        if (mismatch)
            finding.summary += "they entered different collectives: " + stuck.mismatch;
        else
            finding.summary += missing + (stuck.missing.size() == 1 ? " has" : " have") + " not" +
                               (stuck.died_inside ? " been recorded leaving it" : "") + (why.empty() ? "" : ": " + why);
        if (stuck.died_inside && !stuck.failed_inside && !why.empty()) finding.summary += ", and it is not known how";
        if (!proven && waits_for_root(stuck))
            finding.summary += ", the root of this broadcast: the others may wait there for work";
        if (works && !waits_for_root(stuck))
            finding.summary += std::string(", but ") +
                               (stuck.missing.size() == 1 ? "its process goes" : "their processes go") +
                               " on with other work, as for a checkpoint or an evaluation";
        if (!proven && waits)
            finding.summary +=
                ", which waits itself in collective " + std::to_string(waits->sequence) + " of another communicator";
        if (may_have_come)
            finding.summary +=
                "; insufficient evidence: " + std::to_string(lost) +
                (lost == 1 ? " call that could show it was lost" : " calls that could show it were lost");
        finding.fix = mismatch
                          ? "Make all ranks call the same collectives in the same order, with the same sizes."
                          : "Find out why " + missing +
                                " does not enter the collective: check its log, 'ingeroctl explain --pid PID' and "
                                "'ingeroctl stacks --pid PID'. The usual reason is a branch that only some ranks take, "
                                "or an error on one rank.";
        finding.confirm = "Run explain again after the change: every collective should be entered by all ranks.";
        ret_findings.push_back(std::move(finding));
    }

    void show(Finding& finding, const EnqueueSkew::Enqueue& call, uint64_t waited_ns) const {
        Event& event = finding.worst.event;
        event.sequence = call.call;
        event.op = call.op;
        event.tid = call.tid;
        event.start_ns = call.start_ns;
        finding.worst.start_realtime_ns = context_.clock.to_realtime(call.start_ns);
        finding.worst.excess_ns = waited_ns;
        finding.worst.cause = finding.kind;
    }

    DetectorContext context_;
    mutable std::optional<CollectiveFeed> feed_;  ///< puts calls in order when it is asked
    /// When each process with communicators last came back from a call that waits for its device or enters a
    /// collective.
    std::map<ProcessKey, uint64_t> last_calls_;
};

}  // namespace

std::unique_ptr<Detector> make_nccl_hang(const DetectorContext& context) {
    return std::make_unique<NcclHang>(context);
}

}  // namespace ingero
