#include "daemon/ingerod/check/host_checks.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/capability.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/model/result.h"
#include "core/render/table.h"
#include "daemon/ingerod/discovery/mmap_watch.h"

namespace ingero {

namespace {

using State = CheckResult::State;

constexpr const char* run_with_rights =
    "run it as root, or ask the daemon: it has the rights that ingerod.service grants (AmbientCapabilities=). In a "
    "container, allow bpf(2) and perf_event_open(2) in the system call filter";

// CAP_BPF and later are newer than some libcap headers; their numbers are fixed (linux/capability.h).
constexpr cap_value_t cap_perfmon = 38;
constexpr cap_value_t cap_bpf = 39;
constexpr cap_value_t cap_checkpoint_restore = 40;

bool has_capability(cap_value_t capability) {
    cap_t capabilities = cap_get_proc();
    cap_flag_value_t value = CAP_CLEAR;
    if (capabilities) cap_get_flag(capabilities, capability, CAP_EFFECTIVE, &value);
    cap_free(capabilities);
    return value == CAP_SET;
}

/// The first line of a small file of the kernel's; empty where it cannot be read.
std::string first_line(const char* path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

CheckResult check_release() {
    utsname names{};
    if (uname(&names) != 0) return {"kernel", State::note, errno_message("uname", errno), "report this"};
    return {"kernel", State::pass, std::string(names.sysname) + " " + names.release + ", " + names.machine, ""};
}

CheckResult check_capabilities() {
    const std::pair<cap_value_t, const char*> wanted[] = {
        {cap_bpf, "CAP_BPF"},
        {cap_perfmon, "CAP_PERFMON"},
        {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
        {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
        {cap_checkpoint_restore, "CAP_CHECKPOINT_RESTORE"},
    };
    std::string held, missing;
    for (const auto& [capability, name] : wanted) {
        std::string& list = has_capability(capability) ? held : missing;
        list += (list.empty() ? "" : ", ") + std::string(name);
    }
    if (missing.empty()) return {"capabilities", State::pass, held, ""};
    return {"capabilities", State::fail, "missing: " + missing + (held.empty() ? "" : "; held: " + held),
            run_with_rights};
}

CheckResult check_feature(KernelFeatures& features, Feature feature, State missing, const char* fix) {
    std::string name(to_string(feature));
    if (features.has(feature)) return {std::move(name), State::pass, "available", ""};
    return {std::move(name), missing, features.why_not(feature), fix};
}

/// A kind of link that can only be tried where programs can be loaded.
CheckResult check_link_feature(KernelFeatures& features, Feature feature, const char* fix) {
    if (features.has(feature) || features.has(Feature::bpf)) return check_feature(features, feature, State::note, fix);
    return {std::string(to_string(feature)), State::note, "not tried, since no program can be loaded",
            "see bpf; then check again"};
}

CheckResult check_session_form(KernelFeatures& features) {
    const bool has = features.has(Feature::session_takes_context);
    return {std::string(to_string(Feature::session_takes_context)), State::pass,
            has ? "using the programs for kernel 7.0 and later" : "using the programs for kernels before 7.0 (normal)",
            ""};
}

CheckResult check_perf_uprobe(KernelFeatures& features) {
    const bool has_better = features.has(Feature::uprobe_session) || features.has(Feature::uprobe_multi);
    if (has_better && !features.has(Feature::perf_uprobe))
        return {std::string(to_string(Feature::perf_uprobe)), State::pass, "not needed", ""};
    return check_feature(features, Feature::perf_uprobe, State::note,
                         "needed only where neither uprobe-session nor uprobe-multi is available: a kernel with "
                         "CONFIG_UPROBE_EVENTS=y has it, for a process with CAP_SYS_ADMIN");
}

/// The package's service has no CAP_SYS_ADMIN, whatever who asks has.
bool may_open_perf_uprobes_as_the_service() {
    using Capabilities = std::unique_ptr<std::remove_pointer_t<cap_t>, decltype(&cap_free)>;
    const Capabilities held(cap_get_proc(), cap_free), fewer(cap_get_proc(), cap_free);
    const cap_value_t admin = CAP_SYS_ADMIN;
    if (!held || !fewer || cap_set_flag(fewer.get(), CAP_EFFECTIVE, 1, &admin, CAP_CLEAR) != 0 ||
        cap_set_proc(fewer.get()) != 0)
        return true;  // not known
    const bool may = KernelFeatures().has(Feature::perf_uprobe);
    cap_set_proc(held.get());
    return may;
}

CheckResult check_attach(KernelFeatures& features) {
    const AttachMethod method = features.attach_method();
    if (method == AttachMethod::perf_uprobe && !may_open_perf_uprobes_as_the_service())
        return {"attach", State::note, std::string(to_string(method)) + ", but not for a service without CAP_SYS_ADMIN",
                perf_uprobe_hint};
    if (method != AttachMethod::none) return {"attach", State::pass, std::string(to_string(method)), ""};
    const Error why = features.why_no_attach_method();
    return {"attach", State::fail, why.message, why.hint};
}

// What discovery stands on, tried as discovery does it.
CheckResult check_mmap_records() {
    EventLoop loop;
    const auto none = [](std::string_view) { return false; };
    const auto watch = MmapWatch::start(loop, none, none, {});
    const std::string paranoid = first_line("/proc/sys/kernel/perf_event_paranoid");
    const std::string setting = paranoid.empty() ? "" : " (kernel.perf_event_paranoid is " + paranoid + ")";
    if (watch) return {"mmap-records", State::pass, "the kernel reports libraries as programs load them" + setting, ""};
    return {"mmap-records", State::fail, watch.error().message + setting,
            has_capability(cap_perfmon)
                ? "allow perf_event_open(2) in the system call filter of the container or service, and raise "
                  "LimitMEMLOCK= where memory is refused"
                : "grant CAP_PERFMON, to which the setting does not apply: run it as root, or ask the daemon"};
}

bool is_remote(decltype(std::declval<struct statfs>().f_type) type) {
    constexpr uint32_t cifs = 0xff534d42, smb2 = 0xfe534d42, ceph = 0x00c36400, lustre = 0x0bd00bd0, gpfs = 0x47504653,
                       plan9 = 0x01021997;
    const auto known = static_cast<uint32_t>(type);
    for (const uint32_t one : {uint32_t{NFS_SUPER_MAGIC}, cifs, smb2, ceph, lustre, gpfs, plan9})
        if (known == one) return true;
    return false;
}

std::string file_system_name(uint32_t type) {
    constexpr std::pair<uint32_t, const char*> names[] = {
        {EXT4_SUPER_MAGIC, "ext4"}, {XFS_SUPER_MAGIC, "xfs"},   {BTRFS_SUPER_MAGIC, "btrfs"},
        {0x2fc12fc1, "zfs"},        {F2FS_SUPER_MAGIC, "f2fs"}, {OVERLAYFS_SUPER_MAGIC, "overlay"},
        {TMPFS_MAGIC, "tmpfs"},     {RAMFS_MAGIC, "ramfs"},     {NFS_SUPER_MAGIC, "nfs"},
        {FUSE_SUPER_MAGIC, "fuse"},
    };
    for (const auto& [known, name] : names)
        if (known == type) return name;
    char text[32];
    snprintf(text, sizeof(text), "file system type 0x%x", type);
    return text;
}

}  // namespace

bool may_look_at_other_users() {
    return has_capability(CAP_SYS_PTRACE);
}

CheckResults check_kernel(KernelFeatures& features) {
    return {check_release(),
            check_feature(features, Feature::btf, State::fail,
                          "use a kernel built with CONFIG_DEBUG_INFO_BTF=y; every current distribution's is"),
            check_feature(features, Feature::bpf, State::fail, run_with_rights),
            check_link_feature(features, Feature::uprobe_session,
                               "nothing to do: it works without. From kernel 6.13 on a traced call costs less"),
            check_link_feature(features, Feature::uprobe_multi,
                               "nothing to do: it works without. From kernel 6.6 on attaching is faster"),
            check_perf_uprobe(features),
            check_session_form(features),
            check_attach(features),
            check_capabilities(),
            check_lockdown(first_line("/sys/kernel/security/lockdown")),
            check_mmap_records()};
}

CheckResult check_lockdown(const std::string& text) {
    if (text.empty()) return {"lockdown", State::pass, "none", ""};
    const size_t open = text.find('['), close = text.find(']');
    const std::string mode = open == std::string::npos || close == std::string::npos || close < open
                                 ? text
                                 : text.substr(open + 1, close - open - 1);
    if (mode == "none" || mode == "integrity") return {"lockdown", State::pass, mode, ""};
    return {"lockdown", State::fail, mode + ": the kernel keeps its memory from BPF programs",
            "boot with lockdown=integrity instead, which is enough for tracing"};
}

CheckResult check_clock_source(const std::string& clock_source) {
    if (clock_source.empty())
        return {"clock", State::note, "the clock source cannot be read",
                "mount sysfs at /sys: it shows whether reading the time is cheap"};
    for (const char* slow : {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"})
        if (clock_source == slow)
            return {"clock", State::note, clock_source + ": each reading of the time is slow",
                    "boot with clocksource=tsc tsc=reliable where the machine's TSC can be trusted; on a virtual "
                    "machine, choose its paravirtual clock. Traced calls cost less then"};
    return {"clock", State::pass, clock_source, ""};
}

CheckResult check_store(const std::string& path) {
    std::filesystem::path at = path;
    std::error_code error;
    while (!at.empty() && at != at.root_path() && !std::filesystem::exists(at, error)) at = at.parent_path();
    if (at.empty()) at = ".";
    struct statfs facts {};
    if (faccessat(AT_FDCWD, at.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
        return {"store", State::fail, errno_message(at.string(), errno),
                "run it as the user that the daemon runs as, or choose another directory with [store] path or "
                "--directory"};
    if (statfs(at.c_str(), &facts) != 0)
        return {"store", State::fail, errno_message(at.string(), errno),
                "choose another directory with [store] path or --directory"};
    const std::string name = file_system_name(static_cast<uint32_t>(facts.f_type));
    const uint64_t free_bytes = static_cast<uint64_t>(facts.f_bavail) * static_cast<uint64_t>(facts.f_bsize);
    const std::string detail = path + ", " + name + ", " + format_bytes(free_bytes) + " free";
    if (is_remote(facts.f_type))
        return {"store", State::fail,
                detail + ": the daemon and its workers cannot share a mapping on a network file system",
                "choose a directory on a local disk with [store] path"};
    constexpr uint64_t little_bytes = 256ULL << 20;
    if (free_bytes < little_bytes)
        return {"store", State::note, detail,
                "free some space, or choose a directory on another disk with [store] path: events for which there is "
                "no room are lost"};
    if (name == "tmpfs" || name == "ramfs")
        return {"store", State::note, detail + ": a reboot deletes it",
                "choose a directory on a disk with [store] path, unless that is what is wanted"};
    return {"store", State::pass, detail, ""};
}

CheckResult check_control_socket(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path))
        return {"control-socket", State::fail, path + ": longer than a socket's path may be",
                "choose a shorter one with --socket or --directory"};
    memcpy(address.sun_path, path.data(), path.size());
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return {"control-socket", State::fail, errno_message("socket", errno), "allow AF_UNIX sockets"};
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
        return {"control-socket", State::pass, path + ": it accepts connections", ""};
    const int why = errno;
    if (why == EAGAIN)
        return {"control-socket", State::note, path + ": its queue of connections is full",
                "see whether the daemon hangs: systemctl status ingerod"};
    if (why == EACCES || why == EPERM)
        return {"control-socket", State::fail, errno_message(path, why),
                "give the socket mode 0666 and its directory 0755, as ingerod-control.socket and systemd-tmpfiles make "
                "them: systemctl restart ingerod-control.socket"};
    return {"control-socket", State::note, errno_message("no ingerod at " + path, why),
            "start it with: systemctl enable --now ingerod; or name another socket with --socket"};
}

CheckResults check_surroundings(const Config& config, const std::string& socket) {
    return {check_clock_source(first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
            check_store(config.store_path), check_control_socket(socket)};
}

}  // namespace ingero
