#include "daemon/ingerod/targets/late_looks.h"

#include <algorithm>
#include <utility>

#include "core/model/time.h"

namespace ingero {

namespace {

constexpr uint64_t period_us = 20'000;
/// Of the loop, before others have theirs.
constexpr uint64_t turn_ns = 5'000'000;
/// Of one user.
constexpr size_t max_waiting = 65'536;

}  // namespace

LateLooks::LateLooks(EventLoop& loop, uint64_t burst, uint64_t period_ns, Look look)
    : loop_(loop), look_(std::move(look)), rates_(burst, period_ns) {}

bool LateLooks::may_look(uint32_t owner) {
    return owner == 0 || rates_.take(owner, monotonic_now_ns());
}

bool LateLooks::add(uint32_t owner, const ProcessKey& key, uint64_t since_ns) {
    auto& waiting = waiting_[owner];
    if (waiting.size() >= max_waiting && !waiting.contains(key)) return false;
    uint64_t& earliest_ns = waiting[key];
    if (since_ns != 0) earliest_ns = earliest_ns == 0 ? since_ns : std::min(earliest_ns, since_ns);
    if (!timer_.active())
        timer_ = loop_.add_periodic(
            period_us, [this] { look_at_some(); }, period_us / 4);
    return true;
}

bool LateLooks::forget(const ProcessKey& key) {
    for (auto user = waiting_.begin(); user != waiting_.end(); ++user) {
        if (user->second.erase(key) == 0) continue;
        if (user->second.empty()) waiting_.erase(user);
        return true;
    }
    return false;
}

// One of each user in turn. To look at one may change who is left.
void LateLooks::look_at_some() {
    const uint64_t until_ns = monotonic_now_ns() + turn_ns;
    for (size_t users = waiting_.size(); users != 0 && !waiting_.empty() && monotonic_now_ns() < until_ns; --users) {
        auto user = waiting_.lower_bound(next_);
        if (user == waiting_.end()) user = waiting_.begin();
        next_ = user->first + 1;
        if (!may_look(user->first)) continue;
        const auto [key, since_ns] = *user->second.begin();
        user->second.erase(user->second.begin());
        if (user->second.empty()) waiting_.erase(user);
        look_(key, since_ns);
    }
    if (waiting_.empty()) timer_.reset();
}

uint64_t LateLooks::since(const ProcessKey& key, uint64_t since_ns) const {
    for (const auto& [owner, processes] : waiting_)
        if (const auto waits = processes.find(key); waits != processes.end() && waits->second != 0)
            since_ns = std::min(since_ns, waits->second);
    return since_ns;
}

size_t LateLooks::size() const {
    size_t count = 0;
    for (const auto& [owner, processes] : waiting_) count += processes.size();
    return count;
}

}  // namespace ingero
