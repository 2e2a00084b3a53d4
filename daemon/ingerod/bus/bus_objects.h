// The objects below the manager's: one a traced process, one an open incident. Loop thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/diagnosis/incidents/incidents.h"
#include "daemon/ingerod/bus/bus_backend.h"
#include "dbus/incident_adaptor.h"
#include "dbus/process_adaptor.h"
#include "dbus/sdbus.h"

namespace ingero {

class ProcessObject final
    : public sdbus::AdaptorInterfaces<io::ingero::Ingero1::Process_adaptor, sdbus::ManagedObject_adaptor> {
  public:
    using Data = PublicProcess;

    ProcessObject(sdbus::IConnection& bus, const std::string& path, Data data);
    ~ProcessObject();
    /// Properties that read differently now and say so.
    std::vector<bus::PropertyName> update(const Data& data);
    void emit_changed(const std::vector<bus::PropertyName>& properties);

  private:
    uint32_t Pid() override { return data_.key.pid; }
    uint64_t StartTime() override { return data_.key.start_ns; }
    std::string Comm() override;
    std::string Unit() override;
    std::string Container() override;
    std::string State() override;

    Data data_;
};

class IncidentObject final
    : public sdbus::AdaptorInterfaces<io::ingero::Ingero1::Incident_adaptor, sdbus::ManagedObject_adaptor> {
  public:
    using Data = Incident;

    IncidentObject(sdbus::IConnection& bus, const std::string& path, Data data);
    ~IncidentObject();
    std::vector<bus::PropertyName> update(const Data& data);
    void emit_changed(const std::vector<bus::PropertyName>&) {}  ///< IncidentUpdated reports it

  private:
    std::string Id() override;
    std::string Kind() override;
    std::string Severity() override;
    std::string Verdict() override;
    std::string Summary() override;
    uint64_t LostUSec() override { return data_.lost_ns / 1'000; }
    double Explained() override { return data_.explained_fraction; }
    uint64_t OpenedUSec() override { return data_.opened_realtime_ns / 1'000; }
    std::vector<sdbus::Struct<std::string, uint32_t, uint64_t>> Culprits() override;

    Data data_;
};

/// Objects of one kind, brought step by step to what there should be, so that thousands never come in one go.
template <class Object>
class ObjectSet {
  public:
    using Data = typename Object::Data;

    /// What there should be, by path. Those that are there already read so at once.
    void want(std::map<std::string, Data> wanted) {
        additions_.clear();
        removals_.clear();
        for (auto& [path, data] : wanted) {
            const auto found = objects_.find(path);
            if (found == objects_.end()) {
                additions_.emplace_back(path, std::move(data));
            } else if (auto properties = found->second->update(data); !properties.empty()) {
                auto& waiting = changes_[path];
                for (auto& one : properties)
                    if (std::find(waiting.begin(), waiting.end(), one) == waiting.end())
                        waiting.push_back(std::move(one));
            }
        }
        for (const auto& [path, object] : objects_)
            if (!wanted.contains(path)) removals_.push_back(path);
    }

    bool settled() const { return additions_.empty() && removals_.empty() && changes_.empty(); }

    /// One removal, addition or change, with its signal where `signals`. Call while not settled(). Throws sdbus::Error.
    void step(sdbus::IConnection& bus, bool signals) {
        if (!removals_.empty()) {
            const std::string path = std::move(removals_.front());
            removals_.pop_front();
            const auto object = objects_.extract(path);
            changes_.erase(path);
            if (signals && object) object.mapped()->emitInterfacesRemovedSignal();
        } else if (!additions_.empty()) {
            auto [path, data] = std::move(additions_.front());
            additions_.pop_front();
            const auto& object =
                objects_.insert_or_assign(path, std::make_unique<Object>(bus, path, std::move(data))).first->second;
            if (signals) object->emitInterfacesAddedSignal();
        } else if (!changes_.empty()) {
            const auto change = changes_.extract(changes_.begin());
            const auto object = objects_.find(change.key());
            if (signals && object != objects_.end()) object->second->emit_changed(change.mapped());
        }
    }

    size_t size() const { return objects_.size(); }
    void clear() { *this = {}; }

  private:
    std::map<std::string, std::unique_ptr<Object>> objects_;
    std::deque<std::pair<std::string, Data>> additions_;
    std::deque<std::string> removals_;
    std::map<std::string, std::vector<bus::PropertyName>> changes_;  ///< path to properties
};

}  // namespace ingero
