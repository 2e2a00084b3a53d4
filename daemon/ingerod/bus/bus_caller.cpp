#include "daemon/ingerod/bus/bus_caller.h"

#include <systemd/sd-bus.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "daemon/ingerod/bus/bus_value.h"

namespace ingero {

namespace {

constexpr std::chrono::seconds answer_time{10};
/// Somebody types a password.
constexpr std::chrono::seconds typing_time{120};

template <class T>
std::optional<T> value_of(const VariantMap& map, const char* key) {
    const auto found = map.find(key);
    if (found == map.end() || !found->second.containsValueOfType<T>()) return std::nullopt;
    return found->second.get<T>();
}

Result<Identity> identity_of(const VariantMap& map, std::optional<gid_t> privileged_group) {
    const auto uid = value_of<uint32_t>(map, "UnixUserID");
    if (!uid) return fail(ErrorCode::denied, "the bus does not report the user of the calling process");
    ProcessCredentials credentials{*uid, value_of<uint32_t>(map, "ProcessID").value_or(0), {}};
    if (const auto groups = value_of<std::vector<uint32_t>>(map, "UnixGroupIDs"))
        credentials.groups.assign(groups->begin(), groups->end());
    // Newer buses pin the process for us.
    const auto pidfd = value_of<sdbus::UnixFd>(map, "ProcessFD");
    return identify_process(credentials, pidfd ? pidfd->get() : -1, privileged_group);
}

/// How sdbus-c++ keeps its sd_bus_message; it has no accessor of its own.
struct RawMessage : sdbus::Message {
    static sd_bus_message* of(const sdbus::Message& message) {
        return static_cast<sd_bus_message*>(message.*(&RawMessage::msg_));
    }
};

}  // namespace

BusCaller::BusCaller(sdbus::IConnection& bus, std::optional<gid_t> privileged_group)
    : privileged_group_(privileged_group),
      bus_(sdbus::createProxy(bus, bus::ServiceName("org.freedesktop.DBus"),
                              sdbus::ObjectPath("/org/freedesktop/DBus"))),
      polkit_(sdbus::createProxy(bus, bus::ServiceName("org.freedesktop.PolicyKit1"),
                                 sdbus::ObjectPath("/org/freedesktop/PolicyKit1/Authority"))) {}

void BusCaller::identify(const std::string& sender, std::function<void(Result<Identity>)> done) {
    auto on_answer = [group = privileged_group_, done = std::move(done)](bus::ReplyError error,
                                                                         const VariantMap& credentials) {
        if (error) return done(fail(ErrorCode::denied, "the bus does not identify the caller: " + error->getMessage()));
        done(identity_of(credentials, group));
    };
    bus_->callMethodAsync("GetConnectionCredentials")
        .onInterface("org.freedesktop.DBus")
        .withTimeout(answer_time)
        .withArguments(sender)
        .uponReplyInvoke(std::move(on_answer));
}

void BusCaller::authorise(const std::string& sender, const std::string& action, bool interactive,
                          std::function<void(Result<void>)> done) {
    using Subject = sdbus::Struct<std::string, VariantMap>;
    using Verdict = sdbus::Struct<bool, bool, std::map<std::string, std::string>>;
    const Subject subject("system-bus-name", VariantMap{{"name", sdbus::Variant(sender)}});
    auto on_answer = [action, done = std::move(done)](bus::ReplyError error, const Verdict& verdict) {
        if (error)
            return done(fail(ErrorCode::denied, "polkit does not answer about " + action + ": " + error->getMessage()));
        if (!verdict.get<0>()) return done(fail(ErrorCode::denied, "polkit has not authorised " + action));
        done({});
    };
    polkit_->callMethodAsync("CheckAuthorization")
        .onInterface("org.freedesktop.PolicyKit1.Authority")
        .withTimeout(interactive ? typing_time : answer_time)
        .withArguments(subject, action, std::map<std::string, std::string>{}, uint32_t{interactive}, std::string())
        .uponReplyInvoke(std::move(on_answer));
}

bool allows_interaction(const sdbus::Message& message) {
    return sd_bus_message_get_allow_interactive_authorization(RawMessage::of(message)) > 0;
}

}  // namespace ingero
