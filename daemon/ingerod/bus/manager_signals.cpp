// What the manager's object says unasked.

#include <algorithm>

#include "core/render/render.h"
#include "daemon/ingerod/bus/manager_object.h"

namespace ingero {

namespace {

constexpr uint64_t ns_per_us = 1'000;

void emit_incident(io::ingero::Ingero1_adaptor& bus, IncidentChange::What what, const Incident& incident) {
    const std::string id = bus_text(incident.id), severity(to_string(incident.severity));
    const uint64_t lost_us = incident.lost_ns / ns_per_us;
    switch (what) {
        case IncidentChange::What::opened:
            return bus.emitIncidentOpened(id, bus_text(incident.kind), severity, bus_text(incident.summary),
                                          sdbus::ObjectPath(incident_path(incident.id)));
        case IncidentChange::What::updated:
            return bus.emitIncidentUpdated(id, severity, lost_us, incident.explained_fraction);
        case IncidentChange::What::closed:
            return bus.emitIncidentClosed(id, severity, lost_us, incident.closed_realtime_ns / ns_per_us);
    }
}

void emit_straggler(io::ingero::Ingero1_adaptor& bus, const Notice& notice, const Straggler& straggler) {
    const std::string id = bus_text(straggler.id);
    if (notice.what == Notice::What::closed)
        return bus.emitStragglerResolved(id, notice.resolved_realtime_ns / ns_per_us);
    bus.emitStragglerDetected(id, bus_text(straggler.scope), bus_text(straggler.subject),
                              straggler.lateness_ns / ns_per_us, straggler.threshold_ns / ns_per_us,
                              straggler.since_realtime_ns / ns_per_us, to_variant_map(straggler.details));
}

}  // namespace

void ManagerObject::emit(const Notice& notice) {
    if (const auto* incident = std::get_if<Incident>(&notice.about))
        emit_incident(*this, notice.what, *incident);
    else
        emit_straggler(*this, notice, std::get<Straggler>(notice.about));
}

bool ManagerObject::look_for_changes() {
    figures_due_ = {};
    const auto note = [&](const char* property) {
        if (std::find(changed_.begin(), changed_.end(), property) == changed_.end()) changed_.emplace_back(property);
    };
    if (std::string state = State(); state != sent_state_) {
        sent_state_ = std::move(state);
        note("State");
    }
    if (auto probes = Probes(); probes != sent_probes_) {
        sent_probes_ = std::move(probes);
        note("Probes");
    }
    return !changed_.empty();
}

void ManagerObject::emit_changes() {
    getObject().emitPropertiesChangedSignal(io::ingero::Ingero1_adaptor::INTERFACE_NAME, changed_);
    changed_.clear();
}

}  // namespace ingero
