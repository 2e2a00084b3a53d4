#include "daemon/ingerod/targets/coverage_gaps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/model/time.h"
#include "core/wire/utf8.h"

namespace ingero {

namespace {

constexpr size_t max_subject_bytes = 256;

}  // namespace

// The store identifies a gap by start, process and reason: of two libraries mapped at one instant one is put 1 ns late.
uint64_t CoverageGaps::free_from_ns(const GapId& id, uint64_t from_ns) const {
    std::vector<uint64_t> taken;
    for (auto gap = open_.lower_bound({id.process, id.reason, {}});
         gap != open_.end() && gap->first.process == id.process && gap->first.reason == id.reason; ++gap)
        taken.push_back(gap->second.row.from_ns);
    std::sort(taken.begin(), taken.end());
    for (auto at = std::lower_bound(taken.begin(), taken.end(), from_ns); at != taken.end() && *at == from_ns; ++at)
        ++from_ns;
    return from_ns;
}

// Gaps of all processes are as few as their reasons.
bool CoverageGaps::has_most(const ProcessKey& process) const {
    if (process.pid == 0) return false;
    size_t open = 0;
    for (auto gap = open_.lower_bound({process, GapReason{}, {}}); gap != open_.end() && gap->first.process == process;
         ++gap)
        if (++open == max_open_a_process) return true;
    return false;
}

// A program can map any number of files that are named like libraries.
void CoverageGaps::count(const GapId& id, uint32_t uid, uint64_t from_ns, bool of_root_too) {
    const auto [known, first] = rest_.try_emplace(id.process);
    Rest& rest = known->second;
    ++rest.count;
    GapRow& row = rest.gap.row;
    if (first)
        row = {.process = id.process, .uid = uid, .from_ns = from_ns, .reason = GapReason::too_many, .subject = {}};
    row.subject = "further gaps of this process, counted but not listed: " + std::to_string(rest.count);
    if (first) return store_or_sum(rest.gap, of_root_too);
    // The number that is stored while they last is half of the true one at least.
    if (rest.gap.stored && (rest.count & (rest.count - 1)) == 0) put_(row);
}

void CoverageGaps::sum(uint32_t uid, uint64_t from_ns) {
    const auto [known, first] = summed_.try_emplace(uid);
    Summed& summed = known->second;
    if (summed.open++ != 0) return;
    summed.row = {.process = {},
                  .uid = uid,
                  .from_ns = from_ns,
                  .to_ns = 0,
                  .reason = GapReason::too_many,
                  .subject = "user " + std::to_string(uid) + " has more gaps than are kept"};
    put_(summed.row);
}

void CoverageGaps::store_or_sum(Open& gap, bool of_root_too) {
    const uint32_t uid = gap.row.uid;
    gap.stored = (uid == 0 && !of_root_too) || rates_.take(owners_ ? owners_->owner_of(uid) : uid, monotonic_now_ns());
    if (gap.stored)
        put_(gap.row);
    else
        sum(uid, gap.row.from_ns);
}

void CoverageGaps::open(const GapId& id, uint32_t uid, uint64_t from_ns, const std::string& subject, bool of_root_too) {
    if (open_.contains(id)) return;
    if (has_most(id.process)) return count(id, uid, from_ns, of_root_too);
    Open gap;
    gap.row.process = id.process;
    gap.row.uid = uid;
    gap.row.from_ns = free_from_ns(id, from_ns);
    gap.row.reason = id.reason;
    gap.row.subject = to_valid_utf8(subject.substr(0, max_subject_bytes));
    store_or_sum(gap, of_root_too);
    open_.emplace(id, std::move(gap));
}

void CoverageGaps::end(Open& gap, uint64_t to_ns) {
    GapRow& row = gap.row;
    // One that closes as it opens still says that it was there: 0 would mean that it lasts.
    row.to_ns = std::max(to_ns, row.from_ns + 1);
    if (gap.stored) {
        put_(std::move(row));
    } else if (const auto summed = summed_.find(row.uid); summed != summed_.end() && --summed->second.open == 0) {
        summed->second.row.to_ns = std::max(to_ns, summed->second.row.from_ns + 1);
        put_(std::move(summed->second.row));
        summed_.erase(summed);
    }
}

CoverageGaps::Gaps::iterator CoverageGaps::close(Gaps::iterator gap, uint64_t to_ns) {
    end(gap->second, to_ns);
    return open_.erase(gap);
}

void CoverageGaps::end_rest(std::map<ProcessKey, Rest>::iterator rest, uint64_t to_ns) {
    end(rest->second.gap, to_ns);
    rest_.erase(rest);
}

void CoverageGaps::close(const GapId& id, uint64_t to_ns) {
    if (const auto gap = open_.find(id); gap != open_.end()) close(gap, to_ns);
}

void CoverageGaps::end_process(const ProcessKey& process, uint64_t to_ns) {
    auto gap = open_.lower_bound({process, GapReason{}, {}});
    while (gap != open_.end() && gap->first.process == process) gap = close(gap, to_ns);
    if (const auto rest = rest_.find(process); rest != rest_.end()) end_rest(rest, to_ns);
}

void CoverageGaps::close_file(FileId file, GapReason reason, uint64_t to_ns,
                              const std::function<void(const ProcessKey&, uint32_t)>& then) {
    std::vector<std::pair<ProcessKey, uint32_t>> closed;
    for (auto gap = open_.begin(); gap != open_.end();) {
        if (gap->first.file != file || gap->first.reason != reason) {
            ++gap;
            continue;
        }
        closed.emplace_back(gap->first.process, gap->second.row.uid);
        gap = close(gap, to_ns);
    }
    if (!then) return;
    for (const auto& [process, uid] : closed) then(process, uid);
}

void CoverageGaps::close_all(uint64_t to_ns) {
    for (auto gap = open_.begin(); gap != open_.end();) gap = close(gap, to_ns);
    while (!rest_.empty()) end_rest(rest_.begin(), to_ns);
}

}  // namespace ingero
