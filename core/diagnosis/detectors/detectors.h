// The detectors of the catalogue, each in a file of its own. catalogue.cpp says what each proves, needs and cannot see.
#pragma once

#include <memory>

#include "core/diagnosis/detector.h"

namespace ingero {

/// "nccl-hang": a collective that some ranks have entered and that cannot end.
std::unique_ptr<Detector> make_nccl_hang(const DetectorContext& context);
/// "data-starvation": devices that wait for their next step's input.
std::unique_ptr<Detector> make_data_starvation(const DetectorContext& context);
/// "idle-in-tool-call": devices that wait while the program waits for another's answer.
std::unique_ptr<Detector> make_idle_in_tool_call(const DetectorContext& context);
/// "network-retransmit": devices that wait while what the program sent is sent again. What calls lose to that is the
/// Ledger's.
std::unique_ptr<Detector> make_network_retransmit(const DetectorContext& context);
/// "own-io-wait": devices that wait while the program waits for what it writes. What calls lose to a disk, and reading
/// while the device works, is the Ledger's.
std::unique_ptr<Detector> make_own_io_wait(const DetectorContext& context);
/// "gpu-oom": allocations that failed for want of device memory.
std::unique_ptr<Detector> make_gpu_oom(const DetectorContext& context);
/// "graph-recapture": graphs captured and instantiated again and again.
std::unique_ptr<Detector> make_graph_recapture(const DetectorContext& context);
/// "gpu-leak": allocations of device memory that outlive all others of their place.
std::unique_ptr<Detector> make_gpu_leak(const DetectorContext& context);
/// "device-fault": the first error of a context that ends all work on it.
std::unique_ptr<Detector> make_device_fault(const DetectorContext& context);
/// "throttling": steps that are slow while the GPU holds its clocks down.
std::unique_ptr<Detector> make_throttling(const DetectorContext& context);
/// "cold-start": what first uses of functions cost.
std::unique_ptr<Detector> make_cold_start(const DetectorContext& context);
/// "collective-wait" and "straggler": ranks that wait for one that comes late, and the one that keeps doing so.
std::unique_ptr<Detector> make_late_ranks(const DetectorContext& context);
/// "checkpoint-stall": steps that wait for a checkpoint to be written.
std::unique_ptr<Detector> make_checkpoint_stall(const DetectorContext& context);
/// "slow-request": requests that took longer than their like for stalls inside of them.
std::unique_ptr<Detector> make_slow_request(const DetectorContext& context);

}  // namespace ingero
