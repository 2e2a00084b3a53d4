// sdbus-c++ as this project uses it: what its versions 1 (Debian 12) and 2 (Debian 13) write differently has one name
// here. For the rest code is written so that both take it: variants and object paths are made by name, never implied.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace ingero::bus {

#if INGERO_SDBUS_MAJOR >= 2

using ErrorName = sdbus::Error::Name;
using PropertyName = sdbus::PropertyName;
using ServiceName = sdbus::ServiceName;
/// What a reply's handler gets first: nothing where the call succeeded.
using ReplyError = std::optional<sdbus::Error>;

/// The message whose handler runs now, of an object or a proxy.
template <class Owner>
sdbus::Message current_message(const Owner& owner) {
    return owner.getCurrentlyProcessedMessage();
}

/// Handles one message. False: none waited.
inline bool process_one(sdbus::IConnection& bus) {
    return bus.processPendingEvent();
}

/// When to process at the latest, in microseconds of CLOCK_MONOTONIC; the largest number: never.
inline uint64_t due_us(const sdbus::IConnection::PollData& poll_data) {
    constexpr auto never = std::chrono::microseconds::max();
    if (poll_data.timeout == never || poll_data.timeout.count() < 0) return std::numeric_limits<uint64_t>::max();
    return static_cast<uint64_t>(poll_data.timeout.count());
}

/// To be called once all handlers of signals are set.
inline void finish(sdbus::IProxy&) {}

#else

using ErrorName = std::string;
using PropertyName = std::string;
using ServiceName = std::string;
using ReplyError = const sdbus::Error*;

template <class Owner>
const sdbus::Message& current_message(const Owner& owner) {
    return *owner.getCurrentlyProcessedMessage();
}

inline bool process_one(sdbus::IConnection& bus) {
    return bus.processPendingRequest();
}

inline uint64_t due_us(const sdbus::IConnection::PollData& poll_data) {
    return poll_data.timeout_usec;
}

inline void finish(sdbus::IProxy& proxy) {
    proxy.finishRegistration();
}

#endif

}  // namespace ingero::bus
