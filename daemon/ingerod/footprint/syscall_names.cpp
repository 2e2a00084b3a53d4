#include "daemon/ingerod/footprint/syscall_names.h"

#include <seccomp.h>

#include <cstdlib>
#include <memory>

#include "bpf/footprint.h"

namespace ingero {

std::string syscall_name(uint32_t abi, uint32_t number) {
    uint32_t architecture = seccomp_arch_native();
    if (abi == INGERO_FOOTPRINT_COMPAT)
        architecture = architecture == SCMP_ARCH_AARCH64 ? SCMP_ARCH_ARM : SCMP_ARCH_X86;
    if (abi == INGERO_FOOTPRINT_X32) architecture = SCMP_ARCH_X32;
    const int wanted = static_cast<int>(abi == INGERO_FOOTPRINT_X32 ? number | 0x40000000 : number);
    const std::unique_ptr<char, decltype(&std::free)> name(seccomp_syscall_resolve_num_arch(architecture, wanted),
                                                           &std::free);
    return name ? name.get() : "";
}

std::string abi_name(uint32_t abi) {
    if (abi == INGERO_FOOTPRINT_COMPAT) return "32-bit";
    return abi == INGERO_FOOTPRINT_X32 ? "x32" : "native";
}

}  // namespace ingero
