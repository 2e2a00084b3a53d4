#include "daemon/ingerod/probes/kernel/kernel_features.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <memory>
#include <utility>

#include "core/model/unique_fd.h"
#include "daemon/ingerod/probes/attach/probed_return.h"
#include "daemon/ingerod/probes/kernel/bpf_syscall.h"

namespace ingero {

namespace {

constexpr std::array<std::pair<Feature, std::string_view>, 8> names = {{
    {Feature::btf, "btf"},
    {Feature::bpf, "bpf"},
    {Feature::uprobe_session, "uprobe-session"},
    {Feature::uprobe_multi, "uprobe-multi"},
    {Feature::perf_uprobe, "perf-uprobe"},
    {Feature::session_takes_context, "session-takes-context"},
    {Feature::return_passes_filters, "return-passes-filters"},
    {Feature::host_tracepoints, "host-tracepoints"},
}};

// "return 0" of the type that uprobes run.
UniqueFd load_empty_program(uint32_t attach_type, uint32_t flags = 0) {
    const bpf_insn instructions[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
    LIBBPF_OPTS(bpf_prog_load_opts, options);
    options.expected_attach_type = static_cast<bpf_attach_type>(attach_type);
    options.prog_flags = flags;
    return UniqueFd(bpf_prog_load(BPF_PROG_TYPE_KPROBE, "ingero_probe", "GPL", instructions, 2, &options));
}

bool probe_link(uint32_t attach_type, UprobeLinkKind kind, std::string& reason) {
    const UniqueFd program = load_empty_program(attach_type);
    if (!program) {
        reason = errno_message("loading a program", errno);
        return false;
    }
    // Attaching to a directory: a kernel that knows the kind answers EBADF, another EINVAL.
    const int error = probe_uprobe_link(program.get(), kind);
    if (error != EBADF) reason = errno_message("creating a link", error);
    return error == EBADF;
}

/// As functions are attached to, but of no file: EINVAL says that it might have been one. Kernels differ in whether
/// CAP_PERFMON suffices.
bool probe_perf_uprobe(std::string& reason) {
    constexpr const char* type_file = "/sys/bus/event_source/devices/uprobe/type";
    perf_event_attr attributes{};
    errno = 0;
    if (!(std::ifstream(type_file) >> attributes.type)) {
        reason = errno_message(type_file, errno);
        return false;
    }
    attributes.size = sizeof(attributes);
    attributes.config1 = reinterpret_cast<uintptr_t>("");
    const UniqueFd opened(static_cast<int>(syscall(SYS_perf_event_open, &attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC)));
    if (opened || errno == EINVAL) return true;
    reason = errno_message("opening a perf uprobe", errno);
    return false;
}

bool session_takes_context() {
    btf* raw = btf__load_vmlinux_btf();
    if (!raw) return false;
    const std::unique_ptr<btf, decltype(&btf__free)> types(raw, btf__free);
    const int id = btf__find_by_name_kind(types.get(), "bpf_session_is_return", BTF_KIND_FUNC);
    if (id < 0) return false;
    const btf_type* function = btf__type_by_id(types.get(), static_cast<uint32_t>(id));
    const btf_type* prototype = function ? btf__type_by_id(types.get(), function->type) : nullptr;
    return prototype && btf_vlen(prototype) > 0;
}

}  // namespace

std::string_view to_string(Feature feature) {
    for (const auto& [known, name] : names)
        if (known == feature) return name;
    return "unknown";
}

Result<Feature> feature_from_string(std::string_view text) {
    for (const auto& [feature, name] : names)
        if (name == text) return feature;
    return fail(ErrorCode::bad_request, "unknown kernel feature: " + std::string(text));
}

std::string_view to_string(AttachMethod method) {
    switch (method) {
        case AttachMethod::none:
            return "none";
        case AttachMethod::uprobe_session:
            return "uprobe-session";
        case AttachMethod::uprobe_multi:
            return "uprobe-multi";
        case AttachMethod::perf_uprobe:
            return "perf-uprobe";
    }
    return "none";
}

KernelFeatures::KernelFeatures(std::set<Feature> denied) : denied_(std::move(denied)) {}

bool KernelFeatures::has(Feature feature) {
    if (const auto found = known_.find(feature); found != known_.end()) return found->second;
    std::string reason;
    const bool result = denied_.contains(feature) ? (reason = "denied by option", false) : probe(feature, reason);
    known_[feature] = result;
    reasons_[feature] = reason;
    return result;
}

std::string KernelFeatures::why_not(Feature feature) const {
    const auto found = reasons_.find(feature);
    return found == reasons_.end() ? std::string() : found->second;
}

bool KernelFeatures::probe(Feature feature, std::string& reason) {
    switch (feature) {
        case Feature::btf:
            if (access("/sys/kernel/btf/vmlinux", R_OK) == 0) return true;
            reason = errno_message("/sys/kernel/btf/vmlinux", errno);
            return false;
        case Feature::bpf: {
            const UniqueFd program = load_empty_program(0);
            if (!program) reason = errno_message("loading a program", errno);
            return static_cast<bool>(program);
        }
        case Feature::uprobe_session:
            return probe_link(attach_type_uprobe_session, UprobeLinkKind::session, reason);
        case Feature::uprobe_multi:
            return probe_link(attach_type_uprobe_multi, UprobeLinkKind::entry, reason);
        case Feature::perf_uprobe:
            return probe_perf_uprobe(reason);
        case Feature::session_takes_context:
            return session_takes_context();
        case Feature::return_passes_filters: {
            const ProbedReturn found = find_probed_return();
            if (found == ProbedReturn::without_call || found == ProbedReturn::passes_filters) return true;
            reason = found == ProbedReturn::meets_filters
                         ? "a seccomp filter sees the system call by which a probed call returns"
                         : "ingerod cannot determine whether a seccomp filter sees how a probed call returns";
            return false;
        }
        case Feature::host_tracepoints:
            return true;
    }
    return false;
}

AttachMethod KernelFeatures::attach_method() {
    if (!has(Feature::btf) || !has(Feature::bpf)) return AttachMethod::none;
    if (has(Feature::uprobe_session)) return AttachMethod::uprobe_session;
    if (has(Feature::uprobe_multi)) return AttachMethod::uprobe_multi;
    if (has(Feature::perf_uprobe)) return AttachMethod::perf_uprobe;
    return AttachMethod::none;
}

Error KernelFeatures::why_no_attach_method() {
    if (!has(Feature::btf))
        return {ErrorCode::internal, "no BTF: " + why_not(Feature::btf),
                "use a kernel built with CONFIG_DEBUG_INFO_BTF=y; every current distribution's is"};
    if (!has(Feature::bpf))
        return {ErrorCode::denied, "cannot load BPF programs: " + why_not(Feature::bpf),
                "run as root, or grant CAP_BPF and CAP_PERFMON (systemd: AmbientCapabilities=)"};
    has(Feature::perf_uprobe);  // tried, so that it is known why not
    return {ErrorCode::denied, "cannot attach probes: " + why_not(Feature::perf_uprobe), perf_uprobe_hint};
}

}  // namespace ingero
