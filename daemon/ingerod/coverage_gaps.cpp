#include "daemon/ingerod/coverage_gaps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/model/time.h"
#include "core/wire/utf8.h"

namespace ingero {

namespace {

constexpr size_t max_subject_bytes = 256;
constexpr uint64_t second_ns = 1'000'000'000;

}  // namespace

bool CoverageGaps::may_tell(uint32_t uid, uint64_t now_ns) {
    return budgets_.try_emplace(uid, max_rows_a_uid, second_ns / rows_a_second).first->second.take(now_ns);
}

// The store knows a gap by its start, process and reason: of two libraries mapped at one instant one is told 1 ns late.
uint64_t CoverageGaps::free_from_ns(const GapId& id, uint64_t from_ns) const {
    for (auto gap = open_.lower_bound({id.process, id.reason, {}});
         gap != open_.end() && gap->first.process == id.process && gap->first.reason == id.reason;) {
        if (gap->second.row.from_ns == from_ns) {
            ++from_ns;
            gap = open_.lower_bound({id.process, id.reason, {}});
        } else {
            ++gap;
        }
    }
    return from_ns;
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
                  .subject = "more gaps of user " + std::to_string(uid) + " than are kept"};
    put_(summed.row);
}

void CoverageGaps::open(const GapId& id, uint32_t uid, uint64_t from_ns, const std::string& subject, bool of_root_too) {
    if (open_.contains(id)) return;
    Open gap;
    gap.row.process = id.process;
    gap.row.uid = uid;
    gap.row.from_ns = free_from_ns(id, from_ns);
    gap.row.reason = id.reason;
    gap.row.subject = to_valid_utf8(subject.substr(0, max_subject_bytes));
    gap.told = (uid == 0 && !of_root_too) || may_tell(uid, monotonic_now_ns());
    if (gap.told)
        put_(gap.row);
    else
        sum(uid, from_ns);
    open_.emplace(id, std::move(gap));
}

CoverageGaps::Gaps::iterator CoverageGaps::close(Gaps::iterator gap, uint64_t to_ns) {
    GapRow& row = gap->second.row;
    // One that closes as it opens still says that it was there: 0 would mean that it lasts.
    row.to_ns = std::max(to_ns, row.from_ns + 1);
    if (gap->second.told) {
        put_(std::move(row));
    } else if (const auto summed = summed_.find(row.uid); summed != summed_.end() && --summed->second.open == 0) {
        summed->second.row.to_ns = std::max(to_ns, summed->second.row.from_ns + 1);
        put_(std::move(summed->second.row));
        summed_.erase(summed);
    }
    return open_.erase(gap);
}

void CoverageGaps::close(const GapId& id, uint64_t to_ns) {
    if (const auto gap = open_.find(id); gap != open_.end()) close(gap, to_ns);
}

void CoverageGaps::end_process(const ProcessKey& process, uint64_t to_ns) {
    auto gap = open_.lower_bound({process, GapReason{}, {}});
    while (gap != open_.end() && gap->first.process == process) gap = close(gap, to_ns);
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
}

}  // namespace ingero
