// /io/ingero/Ingero1: the manager's methods and properties. Who may what is decided here, call by call. Loop thread
// only.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/ingerod/bus/bus_backend.h"
#include "daemon/ingerod/bus/bus_caller.h"
#include "daemon/ingerod/bus/bus_value.h"
#include "daemon/ingerod/bus/dump_budget.h"
#include "daemon/ingerod/bus/pending_calls.h"
#include "daemon/ingerod/bus/signal_queue.h"
#include "dbus/manager_adaptor.h"
#include "dbus/sdbus.h"

namespace ingero {

class ManagerObject final : public sdbus::AdaptorInterfaces<io::ingero::Ingero1_adaptor, sdbus::ObjectManager_adaptor> {
  public:
    /// Calls that are not answered when it ends are never answered. The connection must outlive it.
    ManagerObject(sdbus::IConnection& bus, BusBackend& backend, std::optional<gid_t> privileged_group);
    ~ManagerObject();

    void emit(const Notice& notice);
    /// Whether State or Probes differ from what subscribers were last sent; emit_changes() signals that.
    bool look_for_changes();
    void emit_changes();

  private:
    using Probe = sdbus::Struct<std::string, std::string, bool>;

    void GetStatus(sdbus::Result<VariantMap>&& result) override;
    std::vector<sdbus::Struct<uint32_t, uint64_t, sdbus::ObjectPath>> ListProcesses() override;
    void GetProcess(sdbus::Result<VariantMap>&& result, sdbus::ObjectPath process) override;
    std::vector<sdbus::Struct<std::string, std::string, std::string, uint64_t, sdbus::ObjectPath>> ListIncidents()
        override;
    void Explain(sdbus::Result<std::string>&& result, uint64_t from_usec, uint64_t to_usec,
                 VariantMap options) override;
    void GetRequests(sdbus::Result<std::string>&& result, uint64_t from_usec, uint64_t to_usec,
                     VariantMap options) override;
    void DumpByFileDescriptor(sdbus::Result<sdbus::UnixFd>&& result, std::string what) override;
    void SetProbe(sdbus::Result<>&& result, std::string set, bool on) override;
    void Reload(sdbus::Result<>&& result) override;

    std::string Version() override;
    std::string State() override;
    std::string Node() override;
    uint64_t UptimeUSec() override;
    uint64_t EventsRecorded() override;
    uint64_t EventsLost() override;
    uint32_t OverheadPermille() override;
    uint64_t StoreBytes() override;
    std::vector<Probe> Probes() override;

    /// Takes the call in, finds out who calls and goes on with `next(answer, who)`.
    template <class... Values, class Next>
    void begin(sdbus::Result<Values...>&& result, Next next);
    /// Goes on with `next()` where polkit lets the caller; else the call is refused.
    void authorise(const std::shared_ptr<PendingCall>& call, const char* action, std::function<void()> next);
    /// The same, but at once for root and the daemon's own user.
    void authorise_change(const std::shared_ptr<PendingCall>& call, std::function<void()> next);
    void refuse(PendingCall& call, const Error& error);
    /// What `body` throws is the call's answer.
    template <class Body>
    void answer_with(PendingCall& call, Body&& body);
    template <class Answer, class... Values>
    void give(Answer& call, const Values&... values);
    void ask(const std::shared_ptr<PendingAnswer<std::string>>& call, const Caller& caller, const std::string& method,
             const nlohmann::json& params);
    void window_query(sdbus::Result<std::string>&& result, uint64_t from_usec, uint64_t to_usec,
                      const VariantMap& options, const std::string& method);
    Result<nlohmann::json> dump(const std::string& what, const Caller& caller);
    void give_process(const std::shared_ptr<PendingAnswer<VariantMap>>& call, const ProcessKey& key,
                      const Caller& caller);
    const PublicFigures& figures();

    BusBackend& backend_;
    DumpBudget dumps_;
    BusCaller callers_;
    PendingCalls calls_;
    PublicFigures figures_;  ///< of a moment ago: GetAll reads all properties one by one
    std::chrono::steady_clock::time_point figures_due_{};
    std::string sent_state_;
    std::vector<Probe> sent_probes_;
    std::vector<bus::PropertyName> changed_;  ///< properties that are still to be signalled
};

}  // namespace ingero
