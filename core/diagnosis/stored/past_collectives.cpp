#include "core/diagnosis/stored/past_collectives.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/diagnosis/evidence/expected.h"
#include "core/diagnosis/stored/recorded_blocks.h"
#include "core/model/collective.h"
#include "core/query/segment_columns.h"
#include "core/store/block/block_rows.h"

namespace ingero {

namespace {

/// Who waits in a hang has entered no other collective for so long, up to the end of the window.
constexpr uint64_t silent_ns = baseline_history_ns / 2;
/// Before the last collectives, since streams that wait for others do so again and again.
constexpr uint64_t links_ns = 60'000'000'000;
/// Rows of different CPUs are recorded no further apart.
constexpr uint64_t apart_ns = 10'000'000'000;
constexpr size_t blocks_between_looks = 32;
/// What rows to decode cost, in blocks of which only the pids are decoded.
constexpr size_t price_of_rows = 8;

struct Entered {
    uint32_t first = UINT32_MAX, last = 0;  ///< sequence numbers; none: last is 0
};

/// The ranks of this host with one hash.
struct Group {
    std::map<RankKey, Entered> ranks;
    uint64_t made_ns = UINT64_MAX;
    uint64_t first_ns = UINT64_MAX, latest_ns = 0;  ///< start and end of the collectives that were found
    size_t known_from = SIZE_MAX;                   ///< number of the block from which on it is known

    uint32_t lowest() const {
        uint32_t sequence = UINT32_MAX;
        for (const auto& [rank, entered] : ranks) sequence = std::min(sequence, entered.last);
        return sequence;
    }
    uint32_t highest() const {
        uint32_t sequence = 0;
        for (const auto& [rank, entered] : ranks) sequence = std::max(sequence, entered.last);
        return sequence;
    }
    /// What one has not entered, or what all entered last.
    uint32_t waited_for() const { return lowest() < highest() ? lowest() + 1 : highest(); }
    /// Of each rank it is known what it entered since.
    uint64_t known_since_ns() const { return lowest() == 0 ? made_ns : first_ns; }
    /// When those that wait entered what they wait for is known.
    bool is_known() const {
        const uint32_t sequence = waited_for();
        return lowest() != 0 && std::all_of(ranks.begin(), ranks.end(), [sequence](const auto& rank) {
                   return rank.second.last < sequence || rank.second.first <= sequence;
               });
    }
};

class PastReader {
  public:
    PastReader(const StoreSnapshot& snapshot, const BootWindow& boot, const Window& shown, uint64_t recorded_from_ns,
               const Communicators& communicators, const KnownProcesses& processes, size_t max_blocks)
        : snapshot_(snapshot),
          boot_(boot),
          shown_(shown),
          recorded_from_ns_(recorded_from_ns),
          communicators_(communicators),
          processes_(processes),
          budget_(max_blocks * price_of_rows) {}

    Result<std::optional<PastCollectives>> read() {
        if (recorded_from_ns_ == 0 || recorded_from_ns_ >= shown_.from_ns) return std::nullopt;
        if (auto grouped = group(); !grouped) return tl::unexpected(grouped.error());
        if (groups_.empty()) return std::nullopt;
        auto blocks = recorded_blocks(snapshot_, boot_.boot_index, {from_ns_, shown_.to_ns}, false);
        if (!blocks) return tl::unexpected(blocks.error());
        blocks_ = std::move(*blocks);
        if (auto seen = see_shown(); !seen) return tl::unexpected(seen.error());
        if (groups_.empty()) return std::nullopt;
        spent_ = 0;
        const auto from = go_back();
        if (!from) return tl::unexpected(from.error());
        if (*from == blocks_.size()) return std::nullopt;  // what detectors are shown is enough
        spent_ = 0;
        if (auto left_out = leave_out_gaps(); !left_out) return tl::unexpected(left_out.error());
        if (groups_.empty()) return std::nullopt;
        return go_forth(*from);
    }

  private:
    /// Ranks of one host by hash, of communicators of which one may wait.
    Result<void> group() {
        const auto boots = snapshot_.process_boots();
        if (!boots) return tl::unexpected(boots.error());
        for (const Communicator& one : communicators_.all()) {
            const ProcessKey& process = one.row.process;
            const auto boot = boots->find(process);
            if (one.row.hash == 0 || (boot != boots->end() && boot->second != boot_.boot_index)) continue;
            Group& group = groups_[one.row.hash];
            group.ranks[{process, one.row.id}];
            group.made_ns = std::min(group.made_ns, one.row.seen_ns);
        }
        for (const Communicator& one : communicators_.all())
            if (one.hash_at(boot_.monotonic.to_ns) != one.row.hash) groups_.erase(one.row.hash);
        keep_groups([this](const Group& group) { return group.ranks.size() > 1 && has_silent_rank(group); });
        from_ns_ = UINT64_MAX;
        for (const auto& [hash, group] : groups_) from_ns_ = std::min(from_ns_, group.made_ns);
        from_ns_ = std::max(from_ns_, recorded_from_ns_);
        if (from_ns_ >= shown_.from_ns) groups_.clear();
        return {};
    }

    template <class Wanted>
    void keep_groups(Wanted wanted) {
        std::erase_if(groups_, [&](const auto& one) { return !wanted(one.second); });
        pids_.clear();
        for (const auto& [hash, group] : groups_)
            for (const auto& [rank, entered] : group.ranks) pids_.insert(rank.first.pid);
    }

    bool has_silent_rank(const Group& group) const {
        return std::any_of(group.ranks.begin(), group.ranks.end(), [this](const auto& rank) {
            const ProcessKey& process = rank.first.first;
            return processes_.exited_ns(process) > boot_.monotonic.from_ns && !busy_.contains(process);
        });
    }

    /// What was entered in the time that detectors are shown, in groups of which one may wait.
    Result<void> see_shown() {
        const Window busy{saturating_subtract(boot_.monotonic.from_ns, silent_ns), shown_.to_ns};
        for (const RecordedBlock& block : blocks_) {
            if (block.recorded_ns < busy.from_ns) continue;
            const size_t known = busy_.size();
            if (auto seen = see_busy(block, busy); !seen) return seen;
            if (busy_.size() != known) keep_groups([this](const Group& group) { return has_silent_rank(group); });
            if (groups_.empty()) return {};
        }
        for (const RecordedBlock& block : blocks_) {
            if (block.recorded_ns < shown_.from_ns) continue;
            auto read = read_rows(block, is_collective);
            if (!read) return read;
            for (const Event& row : rows_)
                if (overlaps(row, shown_)) note(row);
        }
        return {};
    }

    /// Who entered a collective.
    Result<void> see_busy(const RecordedBlock& block, const Window& window) {
        return visit_segments(block, is_collective, [&](size_t segment) -> Result<void> {
            if (!lies_within(view_.header(), window)) {
                rows_.clear();
                if (auto decoded = decode_rows(view_, segment, wanted_, rows_); !decoded) return decoded;
                for (const Event& row : rows_)
                    if (overlaps(row, window)) busy_.insert(row.process());
                return {};
            }
            if (auto decoded = columns_.decode(ColumnId::process_start); !decoded) return decoded;
            const auto pids = columns_[ColumnId::tgid], starts = columns_[ColumnId::process_start];
            for (const uint16_t row : wanted_) busy_.insert({static_cast<uint32_t>(pids[row]), starts[row]});
            return {};
        });
    }

    /// The collective's group, as the deriver of waits counts it; nullptr where it has none.
    Group* group_of(const Event& row, const std::optional<Collective>& collective) {
        if (!collective || row.return_code != 0 || !collective->is_numbered() || is_message(row.op)) return nullptr;
        const Communicator* communicator = communicators_.find(row.process(), collective->communicator);
        const auto found = communicator ? groups_.find(communicator->hash_at(row.start_ns)) : groups_.end();
        return found == groups_.end() ? nullptr : &found->second;
    }

    void note(const Event& row) {
        const auto collective = collective_of(row);
        Group* const group = group_of(row, collective);
        if (!group || (group->known_from != SIZE_MAX && row.start_ns < group->first_ns)) return;
        Entered& entered = group->ranks[{row.process(), collective->communicator}];
        entered.first = std::min(entered.first, collective->sequence);
        entered.last = std::max(entered.last, collective->sequence);
        group->first_ns = std::min(group->first_ns, row.start_ns);
        group->latest_ns = std::max(group->latest_ns, saturating_end_ns(row));
    }

    /// To where each group is known, or began; groups that are not by then, within limits, are dropped. The number of
    /// the block to go on from.
    Result<size_t> go_back() {
        bool has_more = true;
        for (size_t number = blocks_.size();; --number) {
            bool all_known = true;
            for (auto& [hash, group] : groups_) {
                if (group.known_from != SIZE_MAX) continue;
                const bool began = number == 0 || blocks_[number - 1].recorded_ns < group.made_ns;
                if (began || (has_more && group.is_known())) group.known_from = number;
                all_known = all_known && group.known_from != SIZE_MAX;
            }
            if (all_known || spent_ >= budget_) break;
            const RecordedBlock& block = blocks_[number - 1];
            if (auto read = read_before(block, is_collective); !read) return tl::unexpected(read.error());
            for (const Event& row : rows_) note(row);
            has_more = !rows_.empty();
        }
        // Of a communicator that nobody has entered nobody waits for anything.
        keep_groups([](const Group& group) { return group.known_from != SIZE_MAX && group.highest() != 0; });
        return begin();
    }

    /// The block to go on from, for all groups that are left.
    size_t begin() const {
        size_t number = blocks_.size();
        for (const auto& [hash, group] : groups_) number = std::min(number, group.known_from);
        if (number == blocks_.size()) return number;
        const uint64_t links_from_ns = saturating_subtract(blocks_[number].recorded_ns, links_ns);
        while (number > 0 && blocks_[number - 1].recorded_ns > links_from_ns) --number;
        return number;
    }

    /// Of a time in which calls were not seen nothing is said.
    Result<void> leave_out_gaps() {
        const auto gaps = snapshot_.gaps(boot_.boot_index, {from_ns_, shown_.to_ns});
        if (!gaps) return tl::unexpected(gaps.error());
        keep_groups([&](const Group& group) {
            return std::none_of(gaps->begin(), gaps->end(), [&](const GapRow& gap) {
                if (says_nothing_of_ranks(gap)) return false;
                const bool is_over = gap.to_ns != 0 && gap.to_ns <= group.known_since_ns();
                return !is_over && concerns(gap, group);
            });
        });
        return {};
    }

    /// Neither collectives are missing nor, but for copies to the host, what waits for them.
    static bool says_nothing_of_ranks(const GapRow& gap) {
        constexpr std::array others = {"probe set launch", "probe set memory", "probe set copy", "probe set graph"};
        switch (gap.reason) {
            case GapReason::sliced:
                return true;
            case GapReason::turned_off:
                return std::find(others.begin(), others.end(), gap.subject) != others.end();
            case GapReason::late_attach:
                return gap.subject == "launches and copies";
            case GapReason::too_many:
                return gap.subject.ends_with(" were not kept");  // names, and waits of threads
            default:
                return false;
        }
    }

    bool concerns(const GapRow& gap, const Group& group) const {
        const bool of_one = gap.process.pid != 0;
        if (!of_one && is_of_anyone(gap)) return true;
        return std::any_of(group.ranks.begin(), group.ranks.end(), [&](const auto& rank) {
            const ProcessKey& key = rank.first.first;
            if (of_one) return key == gap.process;
            const Process* process = processes_.find(key);
            return !process || process->uid == gap.uid;
        });
    }

    Result<std::optional<PastCollectives>> go_forth(size_t number) {
        PastCollectives past{CollectiveFeed(communicators_), recorded_from_ns_, shown_.from_ns, std::set<uint64_t>()};
        for (const auto& [hash, group] : groups_) past.hashes->insert(hash);
        for (size_t count = 1; number < blocks_.size(); ++number, ++count) {
            if (spent_ >= budget_) return std::nullopt;
            auto read = read_before(blocks_[number], CollectiveWaitsDeriver::wants);
            if (!read) return tl::unexpected(read.error());
            for (const Event& row : rows_) {
                const auto collective = collective_of(row);
                if (collective && !group_of(row, collective)) continue;
                note(row);
                past.feed.take(row);
            }
            // From the time shown on, collectives are not in the feed.
            if (count % blocks_between_looks != 0 || blocks_[number].recorded_ns >= shown_.from_ns) continue;
            keep_waiting(past, blocks_[number].recorded_ns);
            if (groups_.empty()) return std::nullopt;
            number = std::max(number, saturating_subtract(begin(), 1));
        }
        for (const auto& [hash, group] : groups_) past.first_ns = std::min(past.first_ns, group.known_since_ns());
        return std::optional(std::move(past));
    }

    /// Drops the groups in which whoever waited has come back.
    void keep_waiting(PastCollectives& past, uint64_t until_ns) {
        past.feed.forget_past(saturating_subtract(until_ns, apart_ns));
        const std::vector<OpenCollectives> open = past.feed.settled().open();
        std::erase_if(groups_, [&](const auto& one) {
            if (saturating_add(one.second.latest_ns, 2 * apart_ns) > until_ns) return false;
            const uint32_t sequence = one.second.waited_for();
            // Who has left a broadcast may wait in a later collective for who has not entered the broadcast.
            const bool is_over = std::none_of(open.begin(), open.end(), [&](const OpenCollectives& waits) {
                return waits.hash == one.first && sequence <= waits.last_sequence;
            });
            if (is_over) past.hashes->erase(one.first);
            return is_over;
        });
        keep_groups([](const Group&) { return true; });
    }

    static bool is_collective(const Op& op) { return op.op_class == OpClass::collective; }

    /// The block's rows of those ops, of processes with the ranks' pids, to rows_.
    Result<void> read_rows(const RecordedBlock& block, bool (*wants)(const Op&)) {
        rows_.clear();
        return visit_segments(block, wants,
                              [this](size_t segment) { return decode_rows(view_, segment, wanted_, rows_); });
    }

    /// Those of before the time shown.
    Result<void> read_before(const RecordedBlock& block, bool (*wants)(const Op&)) {
        if (block.first_start_ns >= shown_.from_ns) {
            rows_.clear();
            return {};
        }
        auto read = read_rows(block, wants);
        std::erase_if(rows_,
                      [this](const Event& row) { return row.start_ns >= shown_.from_ns || overlaps(row, shown_); });
        return read;
    }

    /// With the numbers of those rows in wanted_, their pids in columns_.
    template <class Visit>
    Result<void> visit_segments(const RecordedBlock& block, bool (*wants)(const Op&), Visit visit) {
        if (auto opened = view_.open(block.bytes); !opened) return opened;
        const auto first_pid = pids_.lower_bound(view_.header().min_tgid);
        if (first_pid == pids_.end() || *first_pid > view_.header().max_tgid) return {};
        bool inspected = false, found = false;
        for (size_t segment = 0; segment < view_.ops().size(); ++segment) {
            const Op* const op = find_op(view_.ops()[segment].op);
            if (!op || !wants(*op)) continue;
            inspected = true;
            columns_.open(view_, segment);
            if (auto decoded = columns_.decode(ColumnId::tgid); !decoded) return decoded;
            wanted_.clear();
            const auto pids = columns_[ColumnId::tgid];
            for (size_t row = 0; row < pids.size(); ++row)
                if (pids_.contains(static_cast<uint32_t>(pids[row]))) wanted_.push_back(static_cast<uint16_t>(row));
            if (wanted_.empty()) continue;
            found = true;
            if (auto visited = visit(segment); !visited) return visited;
        }
        if (inspected) spent_ += found ? price_of_rows : 1;
        return {};
    }

    const StoreSnapshot& snapshot_;
    const BootWindow& boot_;
    const Window shown_;
    const uint64_t recorded_from_ns_;
    const Communicators& communicators_;
    const KnownProcesses& processes_;
    const size_t budget_;

    uint64_t from_ns_ = 0;              ///< the first that any group was made, as far as it was recorded
    std::map<uint64_t, Group> groups_;  ///< by hash
    std::set<uint32_t> pids_;           ///< of their ranks
    std::set<ProcessKey> busy_;         ///< entered a collective in the time shown
    std::vector<RecordedBlock> blocks_;
    size_t spent_ = 0;
    BlockView view_;
    SegmentColumns columns_;
    std::vector<uint16_t> wanted_;
    std::vector<Event> rows_;
};

}  // namespace

Result<std::optional<PastCollectives>> read_past_collectives(const StoreSnapshot& snapshot, const BootWindow& boot,
                                                             const Window& shown, uint64_t recorded_from_ns,
                                                             const Communicators& communicators,
                                                             const KnownProcesses& processes, size_t max_blocks) {
    return PastReader(snapshot, boot, shown, recorded_from_ns, communicators, processes, max_blocks).read();
}

}  // namespace ingero
