// Names of system calls by number, for each way in which they are made.
#pragma once

#include <cstdint>
#include <string>

namespace ingero {

/// `abi` as enum ingero_footprint_abi. Empty where libseccomp knows none.
std::string syscall_name(uint32_t abi, uint32_t number);
/// "native", "32-bit", "x32".
std::string abi_name(uint32_t abi);

}  // namespace ingero
