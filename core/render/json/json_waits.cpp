#include "core/model/host_event.h"
#include "core/model/text/syscall_names.h"
#include "core/render/incidents.h"
#include "core/render/json/values.h"
#include "core/render/render.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

json preemptor(const Event& wait) {
    if (wait.preemptor_ns == 0 || wait.preemptor_tgid == 0) return nullptr;
    return {{"pid", visible_pid(wait.preemptor_tgid)},
            {"comm", to_valid_utf8(to_string_view(wait.preemptor_comm))},
            {"ns", wait.preemptor_ns}};
}

json to_json(const WaitLink& link) {
    json result = {{"did", std::string(to_string(link.kind))},
                   {"pid", visible_pid(link.process.pid)},
                   {"tid", link.tid},
                   {"comm", text_or_null(link.comm)},
                   {"from_ns", link.from_ns},
                   {"duration_ns", link.duration_ns}};
    const bool slept = link.kind == LinkKind::slept && link.wait;
    result["blocked_on"] = slept ? json(std::string(to_string(link.wait->blocked_reason))) : json(nullptr);
    result["syscall"] = slept && link.wait->blocked_syscall != Event().blocked_syscall
                            ? text_or_null(syscall_name(link.wait->blocked_syscall))
                            : json(nullptr);
    result["detail"] = slept ? text_or_null(wait_detail_text(*link.wait)) : json(nullptr);
    result["ended_by"] = slept ? json(std::string(to_string(link.wait->waker_kind))) : json(nullptr);
    result["preemptor"] = link.wait ? preemptor(*link.wait) : json(nullptr);
    result["throttled"] = link.wait && is_throttled(*link.wait);
    return result;
}

}  // namespace

json chains_json(const std::vector<WaitChain>& all) {
    json chains = json::array();
    for (const WaitChain& chain : all) {
        json links = json::array();
        for (const WaitLink& link : chain.links) links.push_back(to_json(link));
        const Event& wait = *chain.links.front().wait;
        chains.push_back({{"depth", wait.depth},
                          {"duration_ns", wait.duration_ns},
                          {"blocked_ns", wait.blocked_ns},
                          {"runnable_ns", wait.runnable_ns},
                          {"waits", chain.waits},
                          {"total_ns", chain.total_ns},
                          {"calls", chain.calls ? json(*chain.calls) : json()},
                          {"links", std::move(links)}});
    }
    return chains;
}

json to_json(const WaitsAnswer& answer, const AnswerContext& context) {
    json result = answer_head("waits", context, answer.window, answer.coverage);
    result["by"] = answer.by_thread ? "thread" : "wait";
    result["waits"] = answer.waits;
    result["kinds"] = answer.by_thread ? json(answer.kinds) : json();
    result["chains"] = chains_json(answer.chains);
    return result;
}

}  // namespace ingero
