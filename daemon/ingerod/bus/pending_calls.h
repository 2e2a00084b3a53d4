// Method calls that are answered later, bounded: whoever calls the bus without end gets an error and costs no memory.
// Loop thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/result.h"
#include "daemon/ingerod/bus/bus_value.h"
#include "daemon/ingerod/control/peer.h"
#include "dbus/sdbus.h"

namespace ingero {

class PendingCall {
  public:
    PendingCall(std::string sender_name, bool may_ask) : sender(std::move(sender_name)), interactive(may_ask) {}
    virtual ~PendingCall() = default;
    virtual void refuse(const Error& error) = 0;

    const std::string sender;  ///< unique name
    const bool interactive;    ///< its user may be asked for a password
    Identity who;              ///< nobody, until it is known
    bool known = false;
};

template <class... Values>
class PendingAnswer : public PendingCall {
  public:
    PendingAnswer(std::string sender_name, bool may_ask, sdbus::Result<Values...>&& result)
        : PendingCall(std::move(sender_name), may_ask), result_(std::move(result)) {}
    void answer(const Values&... values) {
        try {
            result_.returnResults(values...);
        } catch (const sdbus::Error& error) {
            refuse({ErrorCode::internal, error.getMessage(), ""});
        }
    }
    void refuse(const Error& error) override {
        try {
            result_.returnError(to_bus_error(error));
        } catch (const sdbus::Error&) {  // the connection is gone, and the caller with it
        }
    }

  private:
    sdbus::Result<Values...> result_;
};

struct PendingLimits {
    size_t all = 64;
    size_t of_sender = 8;
    /// Of callers who do not see every process: an operator always gets in.
    size_t of_strangers = 48;
    size_t of_stranger_uid = 16;
};

/// Owns the calls. Whoever answers one holds it weakly: they end with the connection, and with them what refers to it.
class PendingCalls {
  public:
    explicit PendingCalls(PendingLimits limits = {}) : limits_(limits) {}

    Result<void> add(const std::shared_ptr<PendingCall>& call) {
        if (calls_.size() >= limits_.all) return fail(ErrorCode::busy, "too many calls wait for answers", "try again");
        if (count([&](const PendingCall& held) { return held.sender == call->sender; }) >= limits_.of_sender)
            return fail(ErrorCode::limit, "too many calls of this connection wait for answers",
                        "wait for an answer before the next call");
        calls_.push_back(call);
        return {};
    }

    /// Once it is known who calls: whether there is room for more of theirs.
    Result<void> identified(PendingCall& call, const Identity& who) {
        call.who = who;
        call.known = true;
        if (who.caller.sees_all) return {};
        const auto stranger = [](const PendingCall& held) { return held.known && !held.who.caller.sees_all; };
        if (count(stranger) > limits_.of_strangers)
            return fail(ErrorCode::busy, "too many calls wait for answers", "try again");
        const auto same = [&](const PendingCall& held) {
            return stranger(held) && held.who.caller.uid == who.caller.uid;
        };
        if (count(same) > limits_.of_stranger_uid)
            return fail(ErrorCode::limit, "too many calls of this user wait for answers", "try again");
        return {};
    }

    void remove(const PendingCall& call) {
        std::erase_if(calls_, [&](const auto& held) { return held.get() == &call; });
    }
    void clear() { calls_.clear(); }

  private:
    template <class Matches>
    size_t count(Matches&& matches) const {
        return static_cast<size_t>(
            std::count_if(calls_.begin(), calls_.end(), [&](const auto& held) { return matches(*held); }));
    }

    const PendingLimits limits_;
    std::vector<std::shared_ptr<PendingCall>> calls_;
};

}  // namespace ingero
