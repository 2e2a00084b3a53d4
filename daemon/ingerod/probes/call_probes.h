// The kernel side, loaded: probes on calls and the scheduler tracepoints that split their time. One object; libraries
// are attached to it as they are found. Attaching and detaching from one thread; draining from the ingest thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bpf/event.h"
#include "bpf/stack_event.h"
#include "core/model/result.h"
#include "daemon/ingerod/probes/attach/hot_sites.h"
#include "daemon/ingerod/probes/attach/targets.h"
#include "daemon/ingerod/probes/calibration.h"
#include "daemon/ingerod/probes/call_counters.h"
#include "daemon/ingerod/probes/capture_gate.h"
#include "daemon/ingerod/probes/host_watch.h"
#include "daemon/ingerod/probes/in_flight.h"
#include "daemon/ingerod/probes/kernel/kernel_features.h"
#include "daemon/ingerod/probes/kernel/real_files.h"

namespace ingero {

/// One attached library; detaches when destroyed.
class AttachedLibrary {
  public:
    virtual ~AttachedLibrary() = default;
    virtual size_t sites() const = 0;
    /// Null where it has none, or the kernel cannot attach for a single process.
    virtual std::shared_ptr<HotSites> hot() const { return nullptr; }
};

/// Maps and shared memory by which the kernel side walks stacks. They live as long as the probes.
struct StackMaps {
    int mapping_lists = -1;
    int exec_times = -1;
    int mappings = -1;
    int unwind_tables = -1;
    int uid_owners = -1;
    ingero_stack_control* control = nullptr;
};

class CallProbes {
  public:
    /// Loads the programs, makes a ring a CPU and attaches the scheduler tracepoints. Errors: denied (capabilities),
    /// internal (the verifier's last words), each with a hint.
    static Result<std::unique_ptr<CallProbes>> load(KernelFeatures& features);
    ~CallProbes();

    AttachMethod method() const;
    /// Threads under a seccomp filter are not traced, since this kernel might end them for it. Only a session can leave
    /// out the return of one call and probe that of another: by other methods nothing is attached at all.
    bool spares_filtered() const;
    /// Functions can be attached to for a single process (HotSites), without harm to others.
    bool can_attach_to_one() const { return method() == AttachMethod::uprobe_session && !spares_filtered(); }
    /// Attaches to the file behind `fd`, which stays the caller's. Errors: busy, internal, denied (see above).
    Result<std::unique_ptr<AttachedLibrary>> attach(int fd, std::span<const ProbeSite> sites);

    /// Ring reader, for one thread. `consume` hands each waiting record to the callback and returns their number.
    void set_record_callback(std::function<void(std::span<const std::byte>)> callback);
    size_t consume();
    /// Becomes readable when a record is written while the reader said it sleeps.
    int wake_fd() const;
    /// The reader is about to sleep: the next record wakes it. Consume once more after this, before sleeping.
    void announce_sleep();

    SymbolCounters counters() const;
    /// Names of functions for which the rings had no room, since load.
    uint64_t names_lost() const;
    /// All libraries are detached next, for good: calls under way then are in flight, and not lost.
    void begin_detaching();
    /// Calls that have not returned.
    const InFlightReader& in_flight() const;
    /// Waits between calls, and what else the kernel does to who calls.
    HostWatch& host();
    StackMaps stack_maps() const;
    /// What a call's stack adds to its cost, as measured of late; 0 where none are taken.
    uint32_t stack_cost_ns() const;
    /// When calls of what is attached to for slices only count. It lives as long as the probes.
    ingero_slice& slice();
    /// Which file the probes of a file lie in. What it gives may outlive the probes.
    RealFileOf real_files() const;
    /// Decides which processes are recorded: all, until its enforce() is called.
    CaptureGate& gate();

    /// Measures what a call costs, about 100 ms; before records are read. Errors: internal, denied.
    Result<CallCost> calibrate();
    /// What calls may cost their threads, in thousandths of the threads' time; 0: no limit. After calibrate().
    void set_overhead_budget(unsigned permille);
    /// Empty where it could not be measured.
    std::optional<CallCost> cost() const;

  private:
    struct Impl;
    explicit CallProbes(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
