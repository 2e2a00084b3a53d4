// The kernel side's table of which processes are recorded (bpf/capture.h). Loop thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/model/event.h"

namespace ingero {

/// A process that called before anything was decided of it.
struct UndecidedProcess {
    ProcessKey key;
    uint64_t time_ns = 0;   ///< CLOCK_MONOTONIC, of its first call
    bool recorded = false;  ///< by its parent's decision: nothing is missing of it
};

class CaptureGate {
  public:
    /// The maps "decisions" and "undecided", and the word "capture_policy": they stay the caller's.
    CaptureGate(int decisions_fd, int undecided_fd, uint64_t* policy)
        : decisions_fd_(decisions_fd), undecided_fd_(undecided_fd), policy_(policy) {}

    /// A new policy: decisions from now on are made by it. It holds from enforce() on; decisions made between the two
    /// hold at once, and those of before hold until then.
    void begin_policy() { ++generation_; }
    void enforce();
    /// Every process is recorded.
    void capture_all();
    /// False where the kernel has no room for it: the process then counts as undecided.
    bool decide(const ProcessKey& process, bool captured);
    /// Threads keep the decision on their process. After one that takes a process out they all look again: that costs
    /// each one look-up.
    void drop_kept_decisions();
    /// Those that called and are not recorded, or by their parent's decision only; returns each once.
    std::vector<UndecidedProcess> take_undecided();

  private:
    void publish();

    int decisions_fd_;
    int undecided_fd_;
    uint64_t* policy_;
    uint32_t generation_ = 0;
    uint32_t enforced_ = 0;  ///< the generation; 0: every process is recorded
    uint32_t dropped_ = 0;
};

}  // namespace ingero
