#include "daemon/ingerod/bus/manager_object.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/render/render.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr uint64_t ns_per_us = 1'000;
constexpr uint32_t not_measured = UINT32_MAX;
constexpr std::chrono::milliseconds figures_age{50};
/// The bus carries 32 MiB a message; what is longer belongs into a file.
constexpr size_t most_text_bytes = 16 << 20;
constexpr size_t most_processes = 4'096;
constexpr const char* query_action = "io.ingero.ingero1.query";
constexpr const char* manage_action = "io.ingero.ingero1.manage";

Error denied(const std::string& why, const char* action) {
    const bool query = action == query_action;
    return {ErrorCode::denied, why,
            std::string(query ? "join group ingero, or be" : "be root, or") + " authorised for " + action};
}

struct WindowQuery {
    json params = json::object();
    bool all = false;
};

template <class T>
Result<T> option(const std::string& key, const sdbus::Variant& value) {
    if (value.containsValueOfType<T>()) return value.get<T>();
    return fail(ErrorCode::bad_request, "option has the wrong type: " + key);
}

Result<WindowQuery> window_query_of(uint64_t from_usec, uint64_t to_usec, const VariantMap& options) {
    WindowQuery query;
    if (from_usec != 0 || to_usec != 0) {
        if (from_usec >= to_usec) return fail(ErrorCode::bad_request, "the window is empty: from is not before to");
        if (to_usec > INT64_MAX / ns_per_us) return fail(ErrorCode::bad_request, "the window's end is out of range");
        query.params["from_ns"] = from_usec * ns_per_us;
        query.params["to_ns"] = to_usec * ns_per_us;
    }
    for (const auto& [key, value] : options) {
        if (key == "all") {
            const auto all = option<bool>(key, value);
            if (!all) return tl::unexpected(all.error());
            query.all = *all;
        } else if (key == "pid") {
            const auto pid = option<uint32_t>(key, value);
            if (!pid) return tl::unexpected(pid.error());
            if (*pid == 0 || *pid > INT32_MAX) return fail(ErrorCode::bad_request, "pid is out of range");
            query.params["pid"] = *pid;
        } else {
            return fail(ErrorCode::bad_request, "unknown option: " + escape_text(key.substr(0, 64)));
        }
    }
    return query;
}

/// Nothing of ours may throw through libsystemd.
template <class Body>
decltype(auto) guarded(Body&& body) {
    try {
        return body();
    } catch (const sdbus::Error&) {
        throw;
    } catch (const std::exception& error) {
        throw to_bus_error({ErrorCode::internal, error.what(), ""});
    }
}

}  // namespace

ManagerObject::ManagerObject(sdbus::IConnection& bus, BusBackend& backend, std::optional<gid_t> privileged_group)
    : AdaptorInterfaces(bus, sdbus::ObjectPath(bus_path)), backend_(backend), callers_(bus, privileged_group) {
    registerAdaptor();
    look_for_changes();
    changed_.clear();
}

ManagerObject::~ManagerObject() {
    unregisterAdaptor();
}

template <class... Values, class Next>
void ManagerObject::begin(sdbus::Result<Values...>&& result, Next next) {
    guarded([&] {
        const sdbus::Message& message = bus::current_message(getObject());
        const auto call = std::make_shared<PendingAnswer<Values...>>(message.getSender(), allows_interaction(message),
                                                                     std::move(result));
        if (const auto added = calls_.add(call); !added) return call->refuse(added.error());
        callers_.identify(call->sender, [this, weak = std::weak_ptr(call), next](Result<Identity> who) {
            const auto call = weak.lock();
            if (!call) return;
            if (!who) return refuse(*call, who.error());
            if (const auto room = calls_.identified(*call, *who); !room) return refuse(*call, room.error());
            answer_with(*call, [&] { next(call, who->caller); });
        });
    });
}

template <class Body>
void ManagerObject::answer_with(PendingCall& call, Body&& body) {
    try {
        body();
    } catch (const std::exception& error) {
        refuse(call, {ErrorCode::internal, error.what(), ""});
    }
}

void ManagerObject::refuse(PendingCall& call, const Error& error) {
    calls_.remove(call);
    call.refuse(error);
}

template <class Answer, class... Values>
void ManagerObject::give(Answer& call, const Values&... values) {
    calls_.remove(call);
    call.answer(values...);
}

void ManagerObject::authorise(const std::shared_ptr<PendingCall>& call, const char* action,
                              std::function<void()> next) {
    // polkit takes uid 0 of any container for root: it is not asked about those.
    if (!call->who.at_home)
        return refuse(*call, denied("the calling process runs in other namespaces than ingerod", action));
    callers_.authorise(call->sender, action, call->interactive,
                       [this, weak = std::weak_ptr(call), action, next = std::move(next)](Result<void> authorised) {
                           const auto call = weak.lock();
                           if (!call) return;
                           if (!authorised) return refuse(*call, denied(authorised.error().message, action));
                           answer_with(*call, next);
                       });
}

void ManagerObject::authorise_change(const std::shared_ptr<PendingCall>& call, std::function<void()> next) {
    const uint32_t uid = call->who.caller.uid;
    if (call->who.at_home && (uid == 0 || uid == geteuid())) return next();
    authorise(call, manage_action, std::move(next));
}

void ManagerObject::GetStatus(sdbus::Result<VariantMap>&& result) {
    begin(std::move(result),
          [this](const auto& call, const Caller& caller) { give(*call, to_variant_map(backend_.status(caller))); });
}

std::vector<sdbus::Struct<uint32_t, uint64_t, sdbus::ObjectPath>> ManagerObject::ListProcesses() {
    return guarded([&] {
        std::vector<sdbus::Struct<uint32_t, uint64_t, sdbus::ObjectPath>> list;
        for (const PublicProcess& process : backend_.public_processes()) {
            if (list.size() == most_processes) break;
            list.emplace_back(process.key.pid, process.key.start_ns, process_path(process.key));
        }
        return list;
    });
}

std::vector<sdbus::Struct<std::string, std::string, std::string, uint64_t, sdbus::ObjectPath>>
ManagerObject::ListIncidents() {
    return guarded([&] {
        std::vector<sdbus::Struct<std::string, std::string, std::string, uint64_t, sdbus::ObjectPath>> list;
        for (const Incident& incident : backend_.open_incidents())
            list.emplace_back(bus_text(incident.id), bus_text(incident.kind), std::string(to_string(incident.severity)),
                              incident.opened_realtime_ns / ns_per_us, incident_path(incident.id));
        return list;
    });
}

void ManagerObject::GetProcess(sdbus::Result<VariantMap>&& result, sdbus::ObjectPath process) {
    begin(std::move(result), [this, process](const auto& call, const Caller& caller) {
        const auto key = process_of_path(process);
        const auto processes = backend_.public_processes();
        const auto found = std::find_if(processes.begin(), processes.end(),
                                        [&](const PublicProcess& one) { return key && one.key == *key; });
        if (found == processes.end())
            return refuse(*call, {ErrorCode::not_found, "no such process is traced", "ListProcesses lists them"});
        if (caller.sees_all || found->uid == caller.uid) return give_process(call, *key, caller);
        const Caller authorised{caller.uid, caller.pid, true};
        authorise(call, query_action, [this, call = std::weak_ptr(call), key = *key, authorised] {
            if (const auto held = call.lock()) give_process(held, key, authorised);
        });
    });
}

void ManagerObject::give_process(const std::shared_ptr<PendingAnswer<VariantMap>>& call, const ProcessKey& key,
                                 const Caller& caller) {
    const json answer = backend_.processes(caller);
    for (const json& process : answer.at("processes")) {
        if (process.at("pid") != key.pid) continue;
        json details = json::object();
        for (const char* name : {"rank", "local_rank", "world_size", "devices", "calls_per_s", "gpu_memory_bytes",
                                 "command", "pod_uid", "pod_name", "pod_namespace", "slurm_job", "slurm_step",
                                 "ecs_task", "scope", "cpus_allowed", "mems_allowed", "cuda_visible_devices", "slices"})
            if (process.contains(name)) details[name] = process[name];
        VariantMap map = to_variant_map(details);
        for (const char* name : {"rank", "local_rank", "world_size"})
            if (details.contains(name) && details[name].is_number_unsigned())
                map[name] = sdbus::Variant(details[name].get<uint32_t>());
        return give(*call, map);
    }
    refuse(*call, {ErrorCode::not_found, "no such process is traced any more", ""});
}

void ManagerObject::ask(const std::shared_ptr<PendingAnswer<std::string>>& call, const Caller& caller,
                        const std::string& method, const json& params) {
    const auto on_answer = [this, weak = std::weak_ptr(call)](Result<json> answer) {
        const auto call = weak.lock();
        if (!call) return;
        if (!answer) return refuse(*call, answer.error());
        answer_with(*call, [&] {
            const std::string text = to_bus_json(*answer);
            if (text.size() > most_text_bytes)
                return refuse(*call,
                              {ErrorCode::limit, "the answer is too long for the bus", "ask for a shorter window"});
            give(*call, text);
        });
    };
    backend_.query(caller, method, params, on_answer);
}

void ManagerObject::window_query(sdbus::Result<std::string>&& result, uint64_t from_usec, uint64_t to_usec,
                                 const VariantMap& options, const std::string& method) {
    auto query = guarded([&] { return window_query_of(from_usec, to_usec, options); });
    if (!query) return result.returnError(to_bus_error(query.error()));
    begin(std::move(result), [this, query = std::move(*query), method](const auto& call, const Caller& caller) {
        if (!query.all || caller.sees_all) return ask(call, caller, method, query.params);
        const Caller authorised{caller.uid, caller.pid, true};
        authorise(call, query_action, [this, call = std::weak_ptr(call), authorised, method, params = query.params] {
            if (const auto held = call.lock()) ask(held, authorised, method, params);
        });
    });
}

void ManagerObject::Explain(sdbus::Result<std::string>&& result, uint64_t from_usec, uint64_t to_usec,
                            VariantMap options) {
    window_query(std::move(result), from_usec, to_usec, options, "explain");
}

void ManagerObject::GetRequests(sdbus::Result<std::string>&& result, uint64_t from_usec, uint64_t to_usec,
                                VariantMap options) {
    window_query(std::move(result), from_usec, to_usec, options, "requests");
}

Result<json> ManagerObject::dump(const std::string& what, const Caller& caller) {
    if (what == "status") return backend_.status(caller);
    if (what == "processes") return backend_.processes(caller);
    if (what != "incidents" && what != "probes")
        return fail(ErrorCode::bad_request, "cannot dump: " + escape_text(what.substr(0, 64)),
                    "name status, processes, incidents or probes");
    const json status = backend_.status(caller);
    json answer = {{"schema", "ingero/" + what + "/1"}};
    for (const char* name : {"node", "window", "coverage", "missing_probes"})
        answer[name] = status.contains(name) ? status[name] : json();
    json list = json::array();
    if (what == "incidents") {
        std::set<ProcessKey> own;
        for (const PublicProcess& process : backend_.public_processes())
            if (process.uid == caller.uid) own.insert(process.key);
        for (const Incident& incident : backend_.open_incidents())
            if (caller.sees_all || own.contains(incident.process)) list.push_back(incident_json(incident));
    } else {
        for (const ProbeSetState& probe : backend_.probe_sets())
            list.push_back({{"library", probe.library}, {"set", probe.set}, {"attached", probe.attached}});
    }
    answer[what] = std::move(list);
    return answer;
}

void ManagerObject::DumpByFileDescriptor(sdbus::Result<sdbus::UnixFd>&& result, std::string what) {
    begin(std::move(result), [this, what](const auto& call, const Caller& caller) {
        const auto answer = dump(what, caller);
        if (!answer) return refuse(*call, answer.error());
        const std::string text = to_bus_json(*answer) + "\n";
        if (!caller.sees_all && !dumps_.take(caller.uid, text.size(), monotonic_now_ns()))
            return refuse(*call,
                          {ErrorCode::limit, "this user has requested too many dumps", "use ingeroctl, or try later"});
        const auto file = sealed_file(text);
        if (!file) return refuse(*call, file.error());
        give(*call, *file);
    });
}

void ManagerObject::SetProbe(sdbus::Result<>&& result, std::string set, bool on) {
    begin(std::move(result), [this, set, on](const auto& call, const Caller&) {
        authorise_change(call, [this, weak = std::weak_ptr(call), set, on] {
            const auto held = weak.lock();
            if (!held) return;
            if (const auto done = backend_.set_probe(set, on); !done) return refuse(*held, done.error());
            give(*held);
        });
    });
}

void ManagerObject::Reload(sdbus::Result<>&& result) {
    begin(std::move(result), [this](const auto& call, const Caller&) {
        authorise_change(call, [this, weak = std::weak_ptr(call)] {
            const auto held = weak.lock();
            if (!held) return;
            if (const auto done = backend_.reload(); !done) return refuse(*held, done.error());
            give(*held);
        });
    });
}

const PublicFigures& ManagerObject::figures() {
    return guarded([&]() -> const PublicFigures& {
        const auto now = std::chrono::steady_clock::now();
        if (now < figures_due_) return figures_;
        figures_due_ = now + figures_age;
        figures_ = backend_.figures();
        return figures_;
    });
}

std::string ManagerObject::Version() {
    return bus_text(figures().version);
}

std::string ManagerObject::State() {
    return bus_text(figures().state);
}

std::string ManagerObject::Node() {
    return bus_text(figures().node);
}

uint64_t ManagerObject::UptimeUSec() {
    return figures().uptime_ns / ns_per_us;
}

uint64_t ManagerObject::EventsRecorded() {
    return figures().events_recorded;
}

uint64_t ManagerObject::EventsLost() {
    return figures().events_lost;
}

uint32_t ManagerObject::OverheadPermille() {
    const auto permille = figures().overhead_permille;
    constexpr double most = not_measured - 1;
    return permille ? static_cast<uint32_t>(std::lround(std::clamp(*permille, 0.0, most))) : not_measured;
}

uint64_t ManagerObject::StoreBytes() {
    return figures().store_bytes;
}

std::vector<ManagerObject::Probe> ManagerObject::Probes() {
    return guarded([&] {
        std::vector<Probe> probes;
        for (const ProbeSetState& probe : backend_.probe_sets())
            probes.emplace_back(bus_text(probe.library), bus_text(probe.set), probe.attached);
        return probes;
    });
}

}  // namespace ingero
