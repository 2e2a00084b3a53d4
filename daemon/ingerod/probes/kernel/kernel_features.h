// What the running kernel lets us do, found by trying, never by version number. Tests can deny a feature, so that every
// fallback runs on every machine.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/result.h"

namespace ingero {

enum class Feature {
    btf,                    ///< /sys/kernel/btf/vmlinux
    bpf,                    ///< programs and maps may be loaded
    uprobe_session,         ///< one link, entry and return (kernel 6.13)
    uprobe_multi,           ///< many places a link (kernel 6.6)
    perf_uprobe,            ///< perf_event_open on the uprobe PMU, for who runs this
    session_takes_context,  ///< bpf_session_is_return has a parameter (kernel 7.0)
    return_passes_filters,  ///< no seccomp filter meets the return from a probed call: see probed_return.h
    host_tracepoints,       ///< of memory, disks, interrupts and sockets; each may be missing: see host_watch.h
};

std::string_view to_string(Feature feature);
Result<Feature> feature_from_string(std::string_view name);

/// How a service is let open perf uprobes that may not without CAP_SYS_ADMIN: a hint.
inline constexpr const char* perf_uprobe_hint =
    "kernels before 6.6 have perf uprobes alone, and most require CAP_SYS_ADMIN for them: give ingerod.service the "
    "drop-in /usr/share/doc/ingero/examples/cap-sys-admin.conf, or use a kernel from 6.6 on. In a container, allow "
    "perf_event_open(2) in the system call filter";

enum class AttachMethod { none, uprobe_session, uprobe_multi, perf_uprobe };
std::string_view to_string(AttachMethod method);

class KernelFeatures {
  public:
    explicit KernelFeatures(std::set<Feature> denied = {});

    /// Tried once, then remembered.
    bool has(Feature feature);
    /// Why a feature is missing, in the kernel's words; empty where it is there or was not tried.
    std::string why_not(Feature feature) const;
    /// The best way to attach that this kernel offers.
    AttachMethod attach_method();
    /// Where that is none.
    Error why_no_attach_method();

  private:
    bool probe(Feature feature, std::string& reason);

    std::set<Feature> denied_;
    std::map<Feature, bool> known_;
    std::map<Feature, std::string> reasons_;
};

}  // namespace ingero
