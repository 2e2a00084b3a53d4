#include "daemon/ingerod/check/daemon_check.h"

#include <utility>

#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

using State = CheckResult::State;

CheckResult check_daemon(const DaemonFacts& facts) {
    const std::string name = "daemon";
    std::string detail = "ingerod " + facts.version + ", " + facts.state + ", attaches by " + facts.attach_method;
    if (!facts.store_error.empty())
        return {name, State::fail, detail + "; the store accepts no events: " + facts.store_error,
                "free space on the store's disk, or choose another with [store] path; journalctl -u ingerod -p err has "
                "more"};
    if (!facts.missing_probes.empty()) {
        constexpr size_t most_named = 8;
        detail += "; not traced: ";
        for (size_t i = 0; i < facts.missing_probes.size() && i < most_named; ++i)
            detail += (i == 0 ? "" : "; ") + facts.missing_probes[i];
        if (facts.missing_probes.size() > most_named)
            detail += " and " + std::to_string(facts.missing_probes.size() - most_named) + " more";
        return {name, State::note, detail,
                "see the lines of the libraries; a probe set that was turned off is turned on again by SetProbe of "
                "io.ingero.Ingero1(5); where a tracepoint is missing, only its events are not recorded, which another "
                "kernel may do"};
    }
    return {name, State::pass, detail, ""};
}

}  // namespace

json add_daemon_checks(json answer, const DaemonFacts& facts) {
    answer["node"] = to_valid_utf8(facts.node);
    answer["missing_probes"] = json::array();
    for (const std::string& probe : facts.missing_probes) answer["missing_probes"].push_back(to_valid_utf8(probe));
    CheckResults results = {check_daemon(facts)};
    for (const MappedLibrary& library : facts.libraries) results.push_back(check_mapped_library(library));
    add_checks(answer, results);
    note_absent_libraries(answer);
    return answer;
}

}  // namespace ingero
