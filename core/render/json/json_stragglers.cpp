#include <algorithm>
#include <cstdio>
#include <vector>

#include "core/render/json/values.h"
#include "core/render/stragglers.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t max_communicators = 256;
constexpr size_t max_members = 1'024;  ///< listed of one communicator
constexpr size_t max_waits = 256;
constexpr size_t max_episodes = 1'000;

template <class T>
json or_null(const std::optional<T>& value) {
    return value ? json(*value) : json(nullptr);
}

std::string hex(uint64_t hash) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    return text;
}

json to_json(const MeanwhilePart& part) {
    return {{"kind", part.kind},
            {"name", text_or_null(part.name)},
            {"pid", part.pid == 0 ? json(nullptr) : json(part.pid)},
            {"ns", part.ns},
            {"text", to_valid_utf8(meanwhile_text(part))}};
}

json to_json(const StragglerEpisode& episode, const ClockTriple& clock, const AnswerContext& context) {
    json meanwhile = json::array();
    for (const MeanwhilePart& part : episode.meanwhile) meanwhile.push_back(to_json(part));
    json conditions = json::array();
    for (const RankCondition& one : episode.conditions)
        conditions.push_back({{"kind", one.kind}, {"text", to_valid_utf8(one.text)}, {"fix", one.fix}});
    const MeanwhilePart* cause = episode.cause();
    return {{"id", episode.id},
            {"incident", text_or_null(episode.incident)},
            {"communicator", hex(episode.hash)},
            {"scope", "local"},
            {"rank", or_null(episode.rank)},
            {"pid", pid_or_null(episode.process.pid)},
            {"comm", comm_of(episode.process, context)},
            {"severity", std::string(to_string(episode.severity()))},
            {"since_ns", clock.to_realtime(episode.since_ns)},
            {"detected_ns", clock.to_realtime(episode.detected_ns)},
            {"resolved_ns", episode.resolved_ns == 0 ? json(nullptr) : json(clock.to_realtime(episode.resolved_ns))},
            {"lateness_ns", episode.lateness_ns},
            {"threshold_ns", episode.threshold_ns},
            {"late", episode.late},
            {"of_ranges", episode.of_ranges},
            {"late_ranges", episode.late_ranges},
            {"lost_ns", episode.lost_ns},
            {"worst_ns", episode.worst_ns},
            {"cause", cause ? to_json(*cause) : json(nullptr)},
            {"meanwhile", std::move(meanwhile)},
            {"conditions", std::move(conditions)}};
}

json waits_of(const CommunicatorTotals& totals) {
    struct Wait {
        const RankTotals* who;
        const RankTotals* whom;
        uint64_t ns, times;
    };
    std::vector<Wait> waits;
    for (const auto& [key, one] : totals.members) {
        for (const auto& [whom, sum] : one.waited_for) {
            const auto late = totals.members.find(whom);
            if (late != totals.members.end()) waits.push_back({&one, &late->second, sum.first, sum.second});
        }
    }
    std::stable_sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) { return a.ns > b.ns; });
    if (waits.size() > max_waits) waits.resize(max_waits);
    json list = json::array();
    for (const Wait& wait : waits)
        list.push_back({{"rank", or_null(wait.who->rank)},
                        {"pid", pid_or_null(wait.who->process.pid)},
                        {"for_rank", or_null(wait.whom->rank)},
                        {"for_pid", pid_or_null(wait.whom->process.pid)},
                        {"ns", wait.ns},
                        {"times", wait.times}});
    return list;
}

json to_json(uint64_t hash, const CommunicatorTotals& totals, const AnswerContext& context) {
    std::vector<const RankTotals*> members;
    for (const auto& [key, one] : totals.members) members.push_back(&one);
    std::stable_sort(members.begin(), members.end(),
                     [](const RankTotals* a, const RankTotals* b) { return a->rank < b->rank; });
    if (members.size() > max_members) members.resize(max_members);
    json ranks = json::array();
    for (const RankTotals* one : members)
        ranks.push_back({{"rank", or_null(one->rank)},
                         {"pid", pid_or_null(one->process.pid)},
                         {"comm", comm_of(one->process, context)},
                         {"ranges", one->ranges},
                         {"late", one->came_last},
                         {"late_ns", one->late_ns},
                         {"waited_ns", one->waited_ns}});
    return {{"id", hex(hash)},           {"size", or_null(totals.ranks)},
            {"ranges", totals.ranges},   {"step_ns", totals.step_ns == 0 ? json(nullptr) : json(totals.step_ns)},
            {"ranks", std::move(ranks)}, {"waits", waits_of(totals)}};
}

}  // namespace

json straggler_options_json(const StragglerOptions& options) {
    return {{"floor_ns", options.floor_ns},
            {"step_percent", options.step_percent},
            {"late_percent", options.late_percent},
            {"ranges", options.ranges}};
}

Result<StragglerOptions> straggler_options(const json& given) {
    StragglerOptions options;
    if (given.is_null()) return options;
    const auto take = [&](const char* name, uint64_t most, auto& member) {
        const auto found = given.find(name);
        if (found == given.end()) return true;
        if (!found->is_number_unsigned() || found->get<uint64_t>() > most) return false;
        member = found->get<std::remove_reference_t<decltype(member)>>();
        return true;
    };
    if (!given.is_object() || !take("floor_ns", 3'600'000'000'000, options.floor_ns) ||
        !take("step_percent", 100, options.step_percent) || !take("late_percent", 100, options.late_percent) ||
        !take("ranges", 1'000, options.ranges))
        return fail(ErrorCode::bad_request, "parameter options is not valid for stragglers");
    return options;
}

json to_json(const StragglersAnswer& answer, const AnswerContext& context) {
    json result = answer_head("stragglers", context, answer.window, answer.coverage);
    json stragglers = json::array(), communicators = json::array();
    for (const StragglersAnswer::Boot& boot : answer.boots) {
        for (const StragglerEpisode& episode : boot.episodes)
            if (stragglers.size() < max_episodes) stragglers.push_back(to_json(episode, boot.clock, context));
        for (const auto& [hash, totals] : boot.communicators)
            if (communicators.size() < max_communicators) communicators.push_back(to_json(hash, totals, context));
    }
    result["options"] = straggler_options_json(answer.options);
    result["stragglers"] = std::move(stragglers);
    result["communicators"] = std::move(communicators);
    return result;
}

}  // namespace ingero
