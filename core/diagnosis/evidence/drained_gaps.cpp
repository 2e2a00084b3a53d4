#include "core/diagnosis/evidence/drained_gaps.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/model/call_time.h"

namespace ingero {

namespace {

constexpr size_t max_gaps = 65'536;
constexpr size_t max_streams = 65'536;  ///< of all
constexpr size_t max_devices = 2'048;   ///< of all processes
constexpr size_t max_threads = 1'024;   ///< that call while a device has nothing to do; the same of one process
constexpr size_t max_all_threads = 65'536;
constexpr uint64_t copied_to_host = 2;
constexpr uint32_t gaps_between_launches = 8;

bool begins_capture(const Op& op) {
    return op.id == op::cudaStreamBeginCapture || op.id == op::cuStreamBeginCapture;
}

bool ends_capture(const Op& op) {
    return op.id == op::cudaStreamEndCapture || op.id == op::cuStreamEndCapture;
}

/// Others take time of the thread's, or say nothing.
bool matters(const Op& op) {
    return enqueues(op) || op.op_class == OpClass::sync || op.op_class == OpClass::alloc ||
           op.op_class == OpClass::free || op.op_class == OpClass::graph;
}

}  // namespace

void StepTimes::add(uint64_t end_ns, uint64_t busy_ns, uint64_t call) {
    constexpr size_t max_parts = 512;
    if (!window_.contains(end_ns)) return;
    if (parts_.empty()) from_ns_ = end_ns;
    while (saturating_subtract(end_ns, from_ns_) / part_ns_ >= max_parts) {
        part_ns_ *= 2;
        for (size_t number = 0; number < parts_.size(); ++number) {
            const Part part = std::exchange(parts_[number], {});
            Part& sum = parts_[number / 2];
            sum.busy_ns = saturating_add(sum.busy_ns, part.busy_ns);
            sum.steps += part.steps;
            sum.newest_call = std::max(sum.newest_call, part.newest_call);
        }
        parts_.resize((parts_.size() + 1) / 2);
    }
    const size_t number = saturating_subtract(end_ns, from_ns_) / part_ns_;
    if (number >= parts_.size()) parts_.resize(number + 1);
    Part& part = parts_[number];
    part.busy_ns = saturating_add(part.busy_ns, busy_ns);
    ++part.steps;
    part.newest_call = std::max(part.newest_call, call);
}

bool DrainedGaps::earlier(const Row& a, const Row& b) {
    return std::tie(a.end_ns, a.sequence) < std::tie(b.end_ns, b.sequence);
}

void DrainedGaps::take(std::span<const Event> block, EventFilter& filter, DeviceWork& work) {
    rows_.clear();
    runs_.assign(1, 0);
    OpId last = 0;
    bool wanted = false;
    for (const Event& event : block) {
        if (event.op != last) {
            const Op* op = ops_(last = event.op);
            wanted = op && matters(*op);
        }
        if (!wanted || event.depth != 0 || !filter.matches(event)) continue;
        const Row row{saturating_end_ns(event), event.sequence, &event};
        if (!rows_.empty() && earlier(row, rows_.back())) runs_.push_back(rows_.size());
        rows_.push_back(row);
    }
    runs_.push_back(rows_.size());
    // A block's rows are in order of start within each op: mostly few runs to merge.
    const auto at = [this](size_t row) { return rows_.begin() + static_cast<std::ptrdiff_t>(row); };
    while (runs_.size() > 2) {
        size_t out = 1;
        for (size_t run = 0; run + 2 < runs_.size(); run += 2) {
            std::inplace_merge(at(runs_[run]), at(runs_[run + 1]), at(runs_[run + 2]), earlier);
            runs_[out++] = runs_[run + 2];
        }
        if (runs_.size() % 2 == 0) runs_[out++] = runs_.back();
        runs_.resize(out);
    }
    work.begin_block();
    for (const Row& row : rows_) {
        const Event& event = *row.event;
        const Op& op = *ops_(event.op);
        Devices& devices = devices_of(event);
        if (is_captured(devices, event, op)) continue;
        if (enqueues(op)) work.enqueued(event.process(), event.tid, event.start_ns);
        if (op.waits_for_device) work.waited(event.process(), event.tid, row.end_ns);
        take(devices, event, op);
        if (enqueues(op) || op.op_class == OpClass::sync) note_use(devices, event);
    }
}

DrainedGaps::Devices& DrainedGaps::devices_of(const Event& event) {
    if (last_devices_ && last_process_ == event.process()) return *last_devices_;
    last_device_ = nullptr;
    last_devices_ = &processes_.at(event.process(), event.start_ns, [this](const Devices& gone) { drop(gone); });
    last_process_ = event.process();
    return *last_devices_;
}

DrainedGaps::Device* DrainedGaps::device_of(Devices& devices, const Event& event) {
    if (last_device_ && last_ordinal_ == event.device) return last_device_;
    last_device_ = nullptr;
    if (devices_ >= max_devices && !devices.by_ordinal.contains(event.device)) return nullptr;
    last_ordinal_ = event.device;
    const auto [device, added] = devices.by_ordinal.try_emplace(event.device);
    if (added) {
        ++devices_;
        device->second.observed.steps = StepTimes(window_);
    }
    return last_device_ = &device->second;
}

DrainedGaps::Thread* DrainedGaps::thread_of(Devices& devices, uint32_t tid) {
    if (const auto known = devices.threads.find(tid); known != devices.threads.end()) return &known->second;
    // Most of so many have ended; one that goes on is known again with its next call.
    if (devices.threads.size() >= max_threads || threads_ >= max_all_threads) {
        threads_ -= devices.threads.size();
        devices.threads.clear();
        devices.captures = 0;
    }
    if (threads_ >= max_all_threads) return nullptr;
    ++threads_;
    return &devices.threads[tid];
}

/// Nothing is enqueued before the graph is launched. A call that waits is never captured.
bool DrainedGaps::is_captured(const Devices& devices, const Event& event, const Op& op) {
    if (devices.captures == 0 || !enqueues(op) || op.waits_for_device) return false;
    const auto thread = devices.threads.find(event.tid);
    if (thread == devices.threads.end() || !thread->second.captures) return false;
    const uint64_t captured = thread->second.captured_stream;
    return captured == unknown_stream || event.stream == unknown_stream || event.stream == captured;
}

void DrainedGaps::begin_capture(Devices& devices, Device& device, const Event& event) {
    if (device.drained_ns != 0) {
        // The device waited until now; what follows is not waiting, but making a graph.
        end_gap(devices, device, event, event.start_ns);
        device.drained_ns = std::max(device.drained_ns, std::min(saturating_end_ns(event), window_.to_ns));
    }
    Thread* const thread = thread_of(devices, event.tid);
    if (!thread) return;
    devices.captures += !thread->captures;
    thread->captures = true;
    thread->captured_stream = event.stream;
}

void DrainedGaps::end_capture(Devices& devices, Device& device, const Event& event) {
    if (devices.captures == 0) return;
    const auto thread = devices.threads.find(event.tid);
    if (thread == devices.threads.end() || !thread->second.captures) return;
    --devices.captures;
    thread->second.captures = false;
    thread->second.captured_ns = saturating_end_ns(event);
    device.in_calls.erase(event.tid);
}

/// Where a process has one device, there is nothing to tell apart.
void DrainedGaps::note_use(Devices& devices, const Event& event) {
    if (devices.by_ordinal.size() < 2 || event.device == INGERO_DEVICE_UNKNOWN) return;
    Thread* const thread = thread_of(devices, event.tid);
    if (!thread) return;
    if (thread->ordinal != event.device) {
        thread->ordinal = event.device;
        thread->elsewhere_ns = thread->used_ns;
    }
    thread->used_ns = saturating_end_ns(event);
}

/// Until when the thread that calls used another device or made a graph: a gap that it ends begins no earlier.
uint64_t DrainedGaps::occupied_until_ns(const Devices& devices, const Event& event) {
    const auto found = devices.threads.find(event.tid);
    if (found == devices.threads.end()) return 0;
    const Thread& thread = found->second;
    if (thread.captures) return UINT64_MAX;
    if (event.device == INGERO_DEVICE_UNKNOWN) return thread.captured_ns;
    return std::max(thread.captured_ns, thread.ordinal == event.device ? thread.elsewhere_ns : thread.used_ns);
}

void DrainedGaps::take(Devices& devices, const Event& event, const Op& op) {
    Device* const device = device_of(devices, event);
    if (!device) return;
    DrainedDevice& observed = device->observed;
    if (begins_capture(op) && event.return_code == 0) return begin_capture(devices, *device, event);
    if (ends_capture(op)) return end_capture(devices, *device, event);
    if (!enqueues(op) && op.op_class != OpClass::sync) {
        if (device->drained_ns != 0 && (device->in_calls.size() < max_threads || device->in_calls.contains(event.tid)))
            add_in_call(*device, event);
        return;
    }
    // No synchronisation succeeds during a capture: the row of its end was lost.
    if (op.op_class == OpClass::sync && event.return_code == 0) end_capture(devices, *device, event);
    const uint64_t end_ns = std::min(saturating_end_ns(event), window_.to_ns);
    const uint64_t start_ns = std::max(event.start_ns, window_.from_ns);
    observed.from_ns = observed.to_ns == 0 ? start_ns : std::min(observed.from_ns, start_ns);
    observed.to_ns = std::max(observed.to_ns, end_ns);
    observed.calls_ns = saturating_add(observed.calls_ns, saturating_multiply(event.duration_ns, event.times()));
    if (enqueues(op)) enqueue(devices, *device, event, op);
    if (!op.waits_for_device || event.return_code != 0) return;
    if (op.id == op::cudaEventSynchronize || op.id == op::cuEventSynchronize) return;  // of which stream, is not known
    if (op.op_class == OpClass::sync && device->drained_ns != 0) {
        // Nothing is known to be enqueued, and yet the program waits: what was before is one gap, what follows another.
        end_gap(devices, *device, event, event.start_ns);
        device->drained_ns = std::max(device->drained_ns, end_ns);
        return;
    }
    const bool one_stream =
        op.op_class == OpClass::copy || op.id == op::cudaStreamSync || op.id == op::cuStreamSynchronize;
    synchronised(*device, event, !one_stream || event.stream == unknown_stream);
}

void DrainedGaps::add_in_call(Device& device, const Event& event) {
    const uint64_t end_ns = std::min(saturating_end_ns(event), window_.to_ns);
    uint64_t& ns = device.in_calls[event.tid];
    ns = saturating_add(ns, std::min(event.duration_ns, saturating_subtract(end_ns, device.drained_ns)));
}

/// A call that lasts, as one that copies from pageable memory, is known when it ends: what others took for gaps
/// meanwhile was none.
void DrainedGaps::cut_gaps(const Devices& devices, Device& device, const Event& event) {
    auto& gaps = device.observed.gaps;
    while (!gaps.empty() && gaps.back().time.to_ns > event.start_ns) {
        DrainedGap& gap = gaps.back();
        const Window time{std::max(gap.time.from_ns, occupied_until_ns(devices, event)), event.start_ns};
        device.observed.drained_ns =
            saturating_subtract(device.observed.drained_ns, gap.time.length_ns() - time.length_ns());
        if (time.length_ns() == 0) {
            gaps.pop_back();
            --gaps_;
            continue;
        }
        gap.time = time;
        gap.in_calls_ns = 0;
        gap.tid = event.tid;
        gap.op = event.op;
        gap.call = event.sequence;
    }
}

void DrainedGaps::enqueue(const Devices& devices, Device& device, const Event& event, const Op& op) {
    cut_gaps(devices, device, event);
    device.observed.enqueues = saturating_add(device.observed.enqueues, event.weight);
    ++device.observed.enqueue_rows;
    device.in_slices |= event.time_weight != 0;
    if (device.drained_ns != 0) {
        end_gap(devices, device, event, event.start_ns);
        device.busy_from_ns = std::max(event.start_ns, device.drained_ns);
        device.drained_ns = 0;
    }
    if (op.op_class == OpClass::copy && event.args[1] == copied_to_host)
        device.bytes_back = saturating_add(device.bytes_back, saturating_multiply(event.args[0], event.weight));
    if (op.op_class != OpClass::copy) device.gaps_since_launch = 0;
    if (!device.last || device.last_stream != event.stream) {
        if (streams_ >= max_streams && !device.streams.contains(event.stream)) {
            device.overflowed = true;  // from here on it is not known what is enqueued
            return;
        }
        const auto [stream, added] = device.streams.try_emplace(event.stream);
        streams_ += added;
        device.last = &stream->second;
        device.last_stream = event.stream;
    }
    device.busy += !device.last->busy;
    device.last->busy = true;
    // A launch may wait for room in a full queue: its work is there at its end at the latest.
    const uint64_t enqueued_ns = op.waits_for_device ? event.start_ns : saturating_end_ns(event);
    device.last->enqueued_ns = std::max(device.last->enqueued_ns, enqueued_ns);
}

/// What was enqueued after the call began, by another thread, it did not wait for.
void DrainedGaps::synchronised(Device& device, const Event& event, bool all) {
    const auto finish = [&](Stream& stream) {
        if (!stream.busy || stream.enqueued_ns > event.start_ns) return;
        stream.busy = false;
        --device.busy;
    };
    if (all) {
        for (auto& [handle, stream] : device.streams) finish(stream);
    } else {
        // Old traces do not say on which stream a call put its work: they know of one, which is waited for.
        for (const uint64_t handle : {event.stream, unknown_stream})
            if (const auto stream = device.streams.find(handle); stream != device.streams.end()) finish(stream->second);
    }
    if (device.busy != 0 || device.overflowed || (device.streams.empty() && !all)) return;
    device.drained_ns = std::max<uint64_t>(saturating_end_ns(event), 1);
    if (const uint64_t from_ns = std::exchange(device.busy_from_ns, 0); from_ns != 0)
        device.observed.steps.add(device.drained_ns, saturating_subtract(device.drained_ns, from_ns), event.sequence);
    device.in_calls.clear();
}

void DrainedGaps::end_gap(const Devices& devices, Device& device, const Event& event, uint64_t at_ns) {
    DrainedGap gap;
    gap.time = {std::max({device.drained_ns, window_.from_ns, occupied_until_ns(devices, event)}),
                std::min(at_ns, window_.to_ns)};
    if (gap.time.length_ns() == 0) return device.in_calls.clear();
    const auto in_calls = device.in_calls.find(event.tid);
    if (in_calls != device.in_calls.end()) gap.in_calls_ns = std::min(in_calls->second, gap.time.length_ns());
    gap.tid = event.tid;
    gap.op = event.op;
    gap.call = event.sequence;
    gap.after_launch = device.gaps_since_launch < gaps_between_launches;
    if (gap.after_launch) ++device.gaps_since_launch;
    gap.bytes_back = device.bytes_back;
    device.bytes_back = 0;
    device.in_calls.clear();
    device.observed.drained_ns = saturating_add(device.observed.drained_ns, gap.time.length_ns());
    if (gap.time.length_ns() < shortest_ns_) return;
    device.observed.gaps.push_back(gap);
    if (++gaps_ > max_gaps) drop_short();
}

void DrainedGaps::drop(const Devices& gone) {
    for (const auto& [ordinal, device] : gone.by_ordinal) {
        gaps_ -= device.observed.gaps.size();
        streams_ -= device.streams.size();
        --devices_;
    }
    threads_ -= gone.threads.size();
}

void DrainedGaps::drop_short() {
    while (gaps_ > max_gaps / 2) {
        shortest_ns_ *= 2;
        for (auto& [process, devices] : processes_)
            for (auto& [ordinal, device] : devices.by_ordinal)
                gaps_ -= std::erase_if(device.observed.gaps,
                                       [&](const DrainedGap& gap) { return gap.time.length_ns() < shortest_ns_; });
    }
}

}  // namespace ingero
