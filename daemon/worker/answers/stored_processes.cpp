#include "daemon/worker/answers/stored_processes.h"

#include <algorithm>
#include <optional>

namespace ingero {

using nlohmann::json;

namespace {

/// From CLOCK_BOOTTIME to CLOCK_REALTIME. A process row does not say which boot it is of: nothing where that matters.
std::optional<uint64_t> clock_difference(const std::vector<Session>& sessions) {
    std::optional<uint64_t> difference;
    std::optional<uint32_t> boot;
    for (const Session& session : sessions) {
        const uint64_t its_own = session.latest_clock.realtime_ns - session.latest_clock.boottime_ns;
        if (difference && boot != session.boot_index && *difference != its_own) return std::nullopt;
        difference = its_own;
        boot = session.boot_index;
    }
    return difference;
}

}  // namespace

Result<json> stored_processes(const StoreSnapshot& snapshot, const AnswerContext& context) {
    auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());
    std::sort(processes->begin(), processes->end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    const Window whole = whole_trace(snapshot);
    auto covered = coverage(snapshot, whole);
    if (!covered) return tl::unexpected(covered.error());
    const auto difference = clock_difference(snapshot.sessions());
    json list = json::array();
    for (const Process& process : *processes) {
        if (visible_pid(process.key.pid) == 0) continue;
        json one = process_json(process);
        if (difference) one["start_time_ns"] = process.key.start_ns + *difference;
        one["state"] = process.exited_ns != 0 ? "exited" : "recorded";
        list.push_back(std::move(one));
    }
    json answer = answer_head("processes", context, whole, *covered);
    answer["processes"] = std::move(list);
    return answer;
}

}  // namespace ingero
