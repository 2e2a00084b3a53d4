#include "daemon/ingerod/probes/capture_gate.h"

#include <bpf/bpf.h>

#include <atomic>

#include "bpf/event.h"

namespace ingero {

void CaptureGate::enforce() {
    enforced_ = generation_;
    publish();
}

// What was decided stays in the table: no later policy takes a decision of an earlier one.
void CaptureGate::capture_all() {
    ++generation_;
    enforced_ = 0;
    publish();
}

// Behind what was decided: who reads the new word then finds the new decision.
void CaptureGate::drop_kept_decisions() {
    ++dropped_;
    publish();
}

void CaptureGate::publish() {
    const uint64_t word = enforced_ == 0 ? 0 : uint64_t{enforced_} << 32 | dropped_;
    std::atomic_ref<uint64_t>(*policy_).store(word, std::memory_order_seq_cst);
}

bool CaptureGate::decide(const ProcessKey& process, bool captured) {
    const ingero_decision decision{.process_start_ns = process.start_ns,
                                   .generation = generation_,
                                   .captured = captured,
                                   .inherited = 0,
                                   .reserved = {}};
    return bpf_map_update_elem(decisions_fd_, &process.pid, &decision, BPF_ANY) == 0;
}

std::vector<UndecidedProcess> CaptureGate::take_undecided() {
    std::vector<UndecidedProcess> result;
    uint32_t pid = 0;
    // Always the first: each is deleted before the next is asked for.
    for (size_t left = 4096; left != 0 && bpf_map_get_next_key(undecided_fd_, nullptr, &pid) == 0; --left) {
        ingero_undecided one{};
        if (bpf_map_lookup_elem(undecided_fd_, &pid, &one) == 0)
            result.push_back({{pid, one.process_start_ns}, one.time_ns, one.recorded != 0});
        if (bpf_map_delete_elem(undecided_fd_, &pid) != 0) break;
    }
    return result;
}

}  // namespace ingero
