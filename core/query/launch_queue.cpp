#include "core/query/launch_queue.h"

#include <algorithm>

#include "core/model/call_time.h"
#include "core/model/op.h"

namespace ingero {

namespace {

enum class Role : uint8_t { none, launch, stream_sync, device_sync };

/// An event's synchronisation drains an unknown part of an unknown stream: counting it as device-wide errs towards
/// calling less time device wait. The same goes for frees, which do wait for the whole device.
Role role_of(OpId id) {
    const Op* op = find_op(id);
    if (!op) return Role::none;
    if (op->op_class == OpClass::launch) return Role::launch;
    if (!op->waits_for_device) return Role::none;
    const bool one_stream = op->op_class == OpClass::copy || id == op::cudaStreamSync || id == op::cuStreamSynchronize;
    return one_stream ? Role::stream_sync : Role::device_sync;
}

/// Blocks hold runs of one op.
class Roles {
  public:
    Role operator()(OpId id) {
        if (id != last_) role_ = role_of(last_ = id);
        return role_;
    }

  private:
    OpId last_ = 0;
    Role role_ = Role::none;
};

}  // namespace

bool LaunchQueues::matters(OpId op) {
    return role_of(op) != Role::none;
}

void LaunchQueues::order_by_start(std::span<const QueueCall> calls) {
    order_.resize(calls.size());
    runs_.assign(1, 0);
    for (uint32_t i = 0; i < calls.size(); ++i) {
        if (i != 0 && calls[i].start_ns < calls[i - 1].start_ns) runs_.push_back(i);
        order_[i] = i;
    }
    runs_.push_back(static_cast<uint32_t>(calls.size()));
    // The store keeps a block's rows in order of start within each op: merging the few runs is a fifth of sorting.
    const auto earlier = [&](uint32_t a, uint32_t b) { return calls[a].start_ns < calls[b].start_ns; };
    while (runs_.size() > 2) {
        size_t out = 1;
        for (size_t run = 0; run + 2 < runs_.size(); run += 2) {
            std::inplace_merge(order_.begin() + runs_[run], order_.begin() + runs_[run + 1],
                               order_.begin() + runs_[run + 2], earlier);
            runs_[out++] = runs_[run + 2];
        }
        if (runs_.size() % 2 == 0) runs_[out++] = runs_.back();
        runs_.resize(out);
    }
}

LaunchQueues::Stream* LaunchQueues::stream_of(const ProcessKey& process, uint64_t stream) {
    const StreamKey key{process, stream};
    if (last_stream_ == KeyIndex<StreamKey>::none || !(key == last_key_)) {
        last_stream_ = streams_.find_or_add(key);
        if (last_stream_ == KeyIndex<StreamKey>::none) return nullptr;
        last_key_ = key;
    }
    if (last_stream_ == stream_states_.size()) {
        const uint32_t owner = processes_.find_or_add({process});
        if (owner == epochs_.size()) epochs_.push_back(0);
        stream_states_.push_back({0, epochs_[owner], owner});
    }
    Stream& state = stream_states_[last_stream_];
    if (state.epoch != epochs_[state.owner]) {
        state.epoch = epochs_[state.owner];
        state.launches = 0;
    }
    return &state;
}

void LaunchQueues::synchronised(const ProcessKey& process) {
    const uint32_t owner = processes_.find({process});
    if (owner != KeyIndex<OwnerKey>::none) ++epochs_[owner];
}

const std::vector<uint8_t>& LaunchQueues::observe(std::span<const Event> block) {
    calls_.clear();
    rows_.clear();
    Roles roles;
    for (uint32_t row = 0; row < block.size(); ++row) {
        const Event& event = block[row];
        if (roles(event.op) == Role::none) continue;
        calls_.push_back({event.start_ns, event.stream, event.process(), event.weight, event.op, event.depth});
        rows_.push_back(row);
    }
    observe(calls_);
    full_rows_.assign(block.size(), 0);
    for (size_t i = 0; i < rows_.size(); ++i) full_rows_[rows_[i]] = full_[i];
    return full_rows_;
}

const std::vector<uint8_t>& LaunchQueues::observe(std::span<const QueueCall> calls) {
    full_.assign(calls.size(), 0);
    order_by_start(calls);
    Roles roles;
    for (const uint32_t i : order_) {
        const QueueCall& call = calls[i];
        const Role role = roles(call.op);
        const bool outermost = call.depth == 0;
        if (role == Role::device_sync) {
            if (outermost) synchronised(call.process);
            continue;
        }
        if (role == Role::none || call.stream == unknown_stream) continue;
        Stream* stream = stream_of(call.process, call.stream);
        if (!stream) continue;
        if (role == Role::launch) {
            full_[i] = stream->launches >= full_at;
            // A driver launch inside a runtime launch is the same launch.
            if (outermost) stream->launches = saturating_add(stream->launches, call.weight);
        } else if (outermost) {
            stream->launches = 0;
        }
    }
    return full_;
}

}  // namespace ingero
