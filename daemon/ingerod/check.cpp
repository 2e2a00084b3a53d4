#include "daemon/ingerod/check.h"

#include <sys/capability.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "core/model/result.h"

namespace ingero {

namespace {

using State = CheckResult::State;

bool has_capability(cap_value_t capability) {
    cap_t capabilities = cap_get_proc();
    cap_flag_value_t value = CAP_CLEAR;
    if (capabilities) cap_get_flag(capabilities, capability, CAP_EFFECTIVE, &value);
    cap_free(capabilities);
    return value == CAP_SET;
}

CheckResult check_capabilities() {
    // CAP_BPF and later are newer than some libcap headers; their numbers are fixed.
    const std::pair<cap_value_t, const char*> wanted[] = {{39, "CAP_BPF"},
                                                          {38, "CAP_PERFMON"},
                                                          {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
                                                          {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
                                                          {40, "CAP_CHECKPOINT_RESTORE"}};
    std::string missing;
    for (const auto& [capability, name] : wanted)
        if (!has_capability(capability)) missing += (missing.empty() ? "" : ", ") + std::string(name);
    if (missing.empty()) return {"capabilities", State::pass, "all that tracing needs", ""};
    return {"capabilities", State::fail, "missing: " + missing,
            "run as root, or start ingerod.service, which grants them"};
}

CheckResult check_feature(KernelFeatures& features, Feature feature, State missing, const char* fix) {
    const std::string name(to_string(feature));
    if (features.has(feature)) return {name, State::pass, "available", ""};
    return {name, missing, features.why_not(feature), fix};
}

CheckResult check_attach(KernelFeatures& features) {
    const AttachMethod method = features.attach_method();
    if (method == AttachMethod::none) return {"attach", State::fail, "no way to attach probes", "see the checks above"};
    if (method == AttachMethod::perf_uprobe && !has_capability(CAP_SYS_ADMIN))
        return {"attach", State::note, "perf-uprobe",
                "recent kernels want CAP_SYS_ADMIN for it: run as root, or give ingerod.service the drop-in "
                "examples/cap-sys-admin.conf of the documentation; from 6.6 on, uprobe-multi does without"};
    return {"attach", State::pass, std::string(to_string(method)), ""};
}

CheckResult check_store(const Config& config) {
    std::filesystem::path at = config.store_path;
    std::error_code error;
    while (!at.empty() && at != at.root_path() && !std::filesystem::exists(at, error)) at = at.parent_path();
    if (access(at.c_str(), W_OK | X_OK) == 0) return {"store", State::pass, config.store_path, ""};
    return {"store", State::fail, errno_message(at.string(), errno), "choose another with [store] path or --directory"};
}

}  // namespace

std::vector<CheckResult> check_host(KernelFeatures& features, const Config& config) {
    return {check_capabilities(),
            check_feature(features, Feature::btf, State::fail, "use a kernel built with CONFIG_DEBUG_INFO_BTF=y"),
            check_feature(features, Feature::bpf, State::fail, "run as root, or give CAP_BPF and CAP_PERFMON"),
            check_feature(features, Feature::uprobe_session, State::note, "from kernel 6.13 on calls cost less"),
            check_feature(features, Feature::uprobe_multi, State::note, "from kernel 6.6 on attaching is faster"),
            check_feature(features, Feature::perf_uprobe, State::note, "CONFIG_UPROBE_EVENTS=y"),
            check_attach(features),
            check_store(config)};
}

bool print_checks(const std::vector<CheckResult>& results) {
    bool ready = true;
    for (const CheckResult& one : results) {
        const char* state = one.state == State::pass ? "pass" : one.state == State::note ? "note" : "FAIL";
        std::printf("%-4s  %-16s %s\n", state, one.name.c_str(), one.detail.c_str());
        if (!one.fix.empty()) std::printf("      %-16s hint: %s\n", "", one.fix.c_str());
        ready &= one.state != State::fail;
    }
    std::printf("%s\n", ready ? "ready" : "not ready");
    return ready;
}

}  // namespace ingero
