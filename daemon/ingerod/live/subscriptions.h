// How many may be sent what comes as it happens: traced calls, or notices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "core/model/result.h"
#include "daemon/ingerod/control/control_backend.h"
#include "daemon/ingerod/limits/uid_owners.h"

namespace ingero {

inline constexpr size_t max_subscribers = 16;
/// Of these at most so many of callers who do not see every process.
inline constexpr size_t max_unprivileged = 8;
inline constexpr size_t max_of_a_user = 4;

/// Whether there is room for one more beside `subscribers`, each of which has a caller(). `what` is their name. Errors:
/// busy.
template <class Subscribers>
Result<void> admit(const Subscribers& subscribers, const Caller& caller, const OwnerOf& owner_of,
                   const std::string& what) {
    if (subscribers.size() >= max_subscribers)
        return fail(ErrorCode::busy, "too many " + what + " are running", "end one of them");
    if (caller.sees_all) return {};
    const auto user = [&](uint32_t uid) { return owner_of ? owner_of(uid) : uid; };
    size_t unprivileged = 0, theirs = 0;
    for (const auto& one : subscribers) {
        if (one->caller().sees_all) continue;
        ++unprivileged;
        theirs += user(one->caller().uid) == user(caller.uid);
    }
    if (unprivileged >= max_unprivileged)
        return fail(ErrorCode::busy, "too many " + what + " are running", "end one of them");
    if (theirs >= max_of_a_user)
        return fail(ErrorCode::busy, "too many " + what + " of this user are running", "end one of them");
    return {};
}

}  // namespace ingero
