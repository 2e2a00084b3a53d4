#include "daemon/ingerod/targets/other_names.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "core/diagnosis/assign.h"

namespace ingero {

OtherNames::OtherNames(std::vector<std::string> shown)
    : shown_(std::move(shown)), shows_all_(std::find(shown_.begin(), shown_.end(), "*") != shown_.end()) {}

bool OtherNames::shows(std::string_view name) const {
    if (shows_all_ || !suspect_exclusion(to_comm(name)).empty()) return true;
    const std::string text(name);
    return std::any_of(shown_.begin(), shown_.end(),
                       [&](const std::string& pattern) { return fnmatch(pattern.c_str(), text.c_str(), 0) == 0; });
}

void OtherNames::hide(Event& event) const {
    if (shows_all_) return;
    hide(event.preemptor_comm, event.preemptor_tgid, event);
    hide(event.waker_comm, event.waker_tgid, event);
}

void OtherNames::hide(Comm& comm, uint32_t tgid, const Event& event) const {
    if (comm == Comm{} || tgid == event.tgid || shows(to_string_view(comm))) return;
    comm = to_comm(tgid == INGERO_PID_OUTSIDE ? "program" : "program-" + std::to_string(tgid));
}

}  // namespace ingero
