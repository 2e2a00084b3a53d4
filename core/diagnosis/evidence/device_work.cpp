#include "core/diagnosis/evidence/device_work.h"

#include <algorithm>

#include "core/model/call_time.h"

namespace ingero {

namespace {

constexpr size_t max_threads = 4'096;
constexpr size_t max_processes = 256;
constexpr size_t max_waits = 2'048;  ///< of a process
/// Shorter waits for a device are no reason why another thread sleeps for long.
constexpr uint64_t short_wait_ns = 1'000'000;

}  // namespace

DeviceWork::DeviceWork() : index_(max_threads) {}

void DeviceWork::learn_wait(const ProcessKey& process, uint32_t tid, const Window& call) {
    if (call.length_ns() < short_wait_ns) return;
    const auto found = waits_.find(process);
    if (found == waits_.end() && waits_.size() == max_processes) return;
    Waits& waits = found == waits_.end() ? waits_[process] : found->second;
    waits.has_all = waits.kept < max_waits;
    if (!waits.has_all) return;
    ++waits.kept;
    waits.by_thread[tid].push_back(call);
}

void DeviceWork::finish_learning() {
    for (auto& [process, waits] : waits_)
        for (auto& [tid, times] : waits.by_thread)
            std::sort(times.begin(), times.end(), [](const Window& a, const Window& b) { return a.to_ns < b.to_ns; });
}

void DeviceWork::begin_block() {
    // What they took is given back.
    for (const uint32_t number : changed_) threads_[number].changes = std::vector(1, threads_[number].changes.back());
    changed_.clear();
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

void DeviceWork::change(Thread& thread, const Change& change) {
    if (!thread.changes.empty() && thread.changes.back().has_work == change.has_work) return;
    // Calls of one thread overlap in traces that were made up or imported.
    const uint64_t before_ns = thread.changes.empty() ? 0 : thread.changes.back().at_ns;
    thread.changes.push_back({std::max(change.at_ns, before_ns), change.has_work});
    if (thread.changes.size() == 2) changed_.push_back(last_number_);
}

void DeviceWork::enqueued(const ProcessKey& process, uint32_t tid, uint64_t at_ns) {
    Thread* const thread = thread_of(process, tid);
    if (thread && !thread->changes.empty()) change(*thread, {at_ns, true});
}

void DeviceWork::waited(const ProcessKey& process, uint32_t tid, uint64_t until_ns) {
    if (Thread* const thread = thread_of(process, tid)) change(*thread, {until_ns, false});
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
    const auto found = waits_.find(process);
    if (found == waits_.end()) return waits_.size() == max_processes;
    if (!found->second.has_all) return true;
    return std::any_of(found->second.by_thread.begin(), found->second.by_thread.end(), [&](const auto& thread) {
        if (thread.first == tid) return false;
        const std::vector<Window>& times = thread.second;
        uint64_t overlap_ns = 0;
        for (auto wait = std::upper_bound(times.begin(), times.end(), time.from_ns,
                                          [](uint64_t ns, const Window&one) { return ns < one.to_ns; });
             wait != times.end() && wait->from_ns < time.to_ns; ++wait)
            overlap_ns += saturating_subtract(std::min(wait->to_ns, time.to_ns), std::max(wait->from_ns, time.from_ns));
        return overlap_ns >= time.length_ns() / 2;
    });
}

}  // namespace ingero
