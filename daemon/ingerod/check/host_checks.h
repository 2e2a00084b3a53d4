// The checks of the kernel and of what surrounds the daemon: each reads a file or tries a system call.
#pragma once

#include <string>

#include "daemon/ingerod/check/check.h"

namespace ingero {

/// Release, features, the way to attach, capabilities, lockdown and mmap records.
CheckResults check_kernel(KernelFeatures& features);
/// Clock source, store directory and control socket.
CheckResults check_surroundings(const Config& config, const std::string& socket);

/// Without CAP_SYS_PTRACE nothing is known of what processes of other users have mapped.
bool may_look_at_other_users();

/// The parts of the above that depend on what the host says, for tests. `clock_source` as in sysfs.
CheckResult check_clock_source(const std::string& clock_source);
/// `text` as in /sys/kernel/security/lockdown: "[none] integrity confidentiality"; empty where there is no such file.
CheckResult check_lockdown(const std::string& text);
CheckResult check_store(const std::string& path);
CheckResult check_control_socket(const std::string& path);

}  // namespace ingero
