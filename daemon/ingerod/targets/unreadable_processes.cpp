#include "daemon/ingerod/targets/unreadable_processes.h"

#include <utility>

#include "core/model/time.h"
#include "daemon/ingerod/limits/shortage.h"

namespace ingero {

namespace {

constexpr uint64_t look_again_us = 1'000'000;
/// Of the loop, before others have theirs, and when it goes on.
constexpr uint64_t turn_ns = 5'000'000;
constexpr uint64_t next_turn_us = 20'000;

/// When the process began cannot be read either.
GapId gap_of(uint32_t pid) {
    return {{pid, 0}, GapReason::refused, FileId{}};
}

}  // namespace

UnreadableProcesses::UnreadableProcesses(EventLoop& loop, const ProcFs& proc, const UidOwners& owners,
                                         CoverageGaps& gaps, Callbacks callbacks)
    : loop_(loop), proc_(proc), owners_(owners), gaps_(gaps), callbacks_(std::move(callbacks)) {}

void UnreadableProcesses::add(uint32_t pid, uint64_t since_ns) {
    if (const auto known = processes_.find(pid); known != processes_.end()) {
        known->second.is_still = true;
        return;
    }
    const auto uid = proc_.user_of(pid);
    if (!uid && can_open_files()) return;
    const uint32_t owner = owners_.owner_of(uid.value_or(0));
    if (!shares_.may_take(owner, 1)) return;
    shares_.take(owner, 1);
    processes_.emplace(pid, One{owner, since_ns});
    gaps_.open(gap_of(pid), uid.value_or(0), since_ns,
               "ingerod cannot read its mappings in time: this process, or another of its user, delays that");
    if (processes_.size() == 1) timer_ = loop_.add_timer(look_again_us, [this] { look_again(); });
}

void UnreadableProcesses::set_spared(const ProcessKey& key, uint64_t time_ns) {
    const auto known = processes_.find(key.pid);
    if (known == processes_.end()) return;
    known->second.spared = key;
    known->second.spared_ns = time_ns;
}

void UnreadableProcesses::forget_spared(uint32_t pid, uint64_t until_ns) {
    const auto known = processes_.find(pid);
    if (known != processes_.end() && known->second.spared_ns <= until_ns) known->second.spared.reset();
}

// From where the last turn ended. What is held up still costs no time to be asked about.
void UnreadableProcesses::look_again() {
    const uint64_t until_ns = monotonic_now_ns() + turn_ns;
    size_t left = processes_.size();
    for (; left != 0 && monotonic_now_ns() < until_ns && can_open_files(); --left) {
        auto one = processes_.lower_bound(next_);
        if (one == processes_.end()) one = processes_.begin();
        const uint32_t pid = one->first;
        next_ = pid + 1;
        one->second.is_still = false;
        if (proc_.user_of(pid)) {
            callbacks_.look(pid, one->second.since_ns);
            if (const auto spared = one->second.spared) callbacks_.on_spared(*spared, one->second.spared_ns);
        }
        if (one->second.is_still) continue;
        gaps_.close(gap_of(pid), monotonic_now_ns());
        shares_.give_back(one->second.owner, 1);
        processes_.erase(one);
    }
    if (!processes_.empty())
        timer_ = loop_.add_timer(left != 0 ? next_turn_us : look_again_us, [this] { look_again(); });
}

}  // namespace ingero
