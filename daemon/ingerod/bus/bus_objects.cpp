#include "daemon/ingerod/bus/bus_objects.h"

#include "core/render/render.h"
#include "daemon/ingerod/bus/bus_value.h"

namespace ingero {

ProcessObject::ProcessObject(sdbus::IConnection& bus, const std::string& path, Data data)
    : AdaptorInterfaces(bus, sdbus::ObjectPath(path)), data_(std::move(data)) {
    registerAdaptor();
}

ProcessObject::~ProcessObject() {
    unregisterAdaptor();
}

std::vector<bus::PropertyName> ProcessObject::update(const Data& data) {
    std::vector<bus::PropertyName> changed;
    if (data.comm != data_.comm) changed.emplace_back("Comm");
    if (data.unit != data_.unit) changed.emplace_back("Unit");
    if (data.container != data_.container) changed.emplace_back("Container");
    if (data.state != data_.state) changed.emplace_back("State");
    data_ = data;
    return changed;
}

void ProcessObject::emit_changed(const std::vector<bus::PropertyName>& properties) {
    getObject().emitPropertiesChangedSignal(io::ingero::Ingero1::Process_adaptor::INTERFACE_NAME, properties);
}

std::string ProcessObject::Comm() {
    return bus_text(data_.comm);
}

std::string ProcessObject::Unit() {
    return bus_text(data_.unit);
}

std::string ProcessObject::Container() {
    return bus_text(data_.container);
}

std::string ProcessObject::State() {
    return bus_text(data_.state);
}

IncidentObject::IncidentObject(sdbus::IConnection& bus, const std::string& path, Data data)
    : AdaptorInterfaces(bus, sdbus::ObjectPath(path)), data_(std::move(data)) {
    registerAdaptor();
}

IncidentObject::~IncidentObject() {
    unregisterAdaptor();
}

std::vector<bus::PropertyName> IncidentObject::update(const Data& data) {
    data_ = data;
    return {};
}

std::string IncidentObject::Id() {
    return bus_text(data_.id);
}

std::string IncidentObject::Kind() {
    return bus_text(data_.kind);
}

std::string IncidentObject::Severity() {
    return std::string(to_string(data_.severity));
}

std::string IncidentObject::Verdict() {
    return std::string(to_string(data_.verdict));
}

std::string IncidentObject::Summary() {
    return bus_text(data_.summary);
}

std::vector<sdbus::Struct<std::string, uint32_t, uint64_t>> IncidentObject::Culprits() {
    std::vector<sdbus::Struct<std::string, uint32_t, uint64_t>> culprits;
    for (const Culprit& culprit : data_.culprits)
        culprits.emplace_back(bus_text(culprit.name), culprit.pid, culprit.ns / 1'000);
    return culprits;
}

}  // namespace ingero
