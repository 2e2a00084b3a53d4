#include "core/diagnosis/evidence/device_work.h"

#include <algorithm>

#include "core/model/call_time.h"

namespace ingero {

namespace {

constexpr size_t max_threads = 4'096;
constexpr size_t max_waits = 131'072;

}  // namespace

DeviceWork::DeviceWork() : index_(max_threads) {}

void DeviceWork::learn_wait(const ProcessKey& process, uint32_t tid, const Window& call) {
    if (waits_kept_ == max_waits) {
        has_all_waits_ = false;
        return;
    }
    Waits& waits = waits_[process];
    waits.all.push_back({call, tid});
    waits.longest_ns = std::max(waits.longest_ns, call.length_ns());
    ++waits_kept_;
}

void DeviceWork::finish_learning() {
    for (auto& [process, waits] : waits_)
        std::sort(waits.all.begin(), waits.all.end(),
                  [](const Wait& a, const Wait& b) { return a.time.to_ns < b.time.to_ns; });
}

DeviceWork::Thread* DeviceWork::thread_of(const ProcessKey& process, uint32_t tid) {
    const ThreadKey key{process, tid};
    if (last_number_ == KeyIndex<ThreadKey>::none || !(key == last_)) {
        last_number_ = index_.find_or_add(key);
        if (last_number_ == KeyIndex<ThreadKey>::none) return nullptr;
        last_ = key;
        if (last_number_ == threads_.size()) threads_.emplace_back();
    }
    return &threads_[last_number_];
}

void DeviceWork::change(Thread& thread, const Change& change) const {
    if (thread.block != block_ && !thread.changes.empty())
        thread.changes.erase(thread.changes.begin(), thread.changes.end() - 1);
    thread.block = block_;
    if (thread.changes.empty() || thread.changes.back().has_work != change.has_work) thread.changes.push_back(change);
}

void DeviceWork::enqueued(const ProcessKey& process, uint32_t tid, uint64_t at_ns) {
    Thread* const thread = thread_of(process, tid);
    if (thread && !thread->changes.empty()) change(*thread, {at_ns, true});
}

void DeviceWork::waited(const ProcessKey& process, uint32_t tid, uint64_t until_ns) {
    if (Thread* const thread = thread_of(process, tid)) change(*thread, {until_ns, false});
}

bool DeviceWork::is_known(const ProcessKey& process, uint32_t tid) const {
    return index_.find({process, tid}) != KeyIndex<ThreadKey>::none;
}

bool DeviceWork::has_work(const ProcessKey& process, uint32_t tid, uint64_t at_ns) const {
    const uint32_t number = index_.find({process, tid});
    if (number == KeyIndex<ThreadKey>::none) return false;
    const auto& changes = threads_[number].changes;
    const auto next = std::upper_bound(changes.begin(), changes.end(), at_ns,
                                       [](uint64_t ns, const Change& change) { return ns < change.at_ns; });
    return next != changes.begin() && (next - 1)->has_work;
}

bool DeviceWork::another_waits(const ProcessKey& process, uint32_t tid, const Window& time) const {
    if (!has_all_waits_) return true;
    const auto found = waits_.find(process);
    if (found == waits_.end()) return false;
    const Waits& waits = found->second;
    uint64_t overlap_ns = 0;
    for (auto wait = std::upper_bound(waits.all.begin(), waits.all.end(), time.from_ns,
                                      [](uint64_t ns, const Wait&one) { return ns < one.time.to_ns; });
         wait != waits.all.end() && saturating_subtract(wait->time.to_ns, waits.longest_ns) < time.to_ns; ++wait) {
        if (wait->tid == tid) continue;
        overlap_ns +=
            saturating_subtract(std::min(wait->time.to_ns, time.to_ns), std::max(wait->time.from_ns, time.from_ns));
    }
    return overlap_ns >= time.length_ns() / 2;
}

}  // namespace ingero
