// Names of the system calls that threads are found asleep in.
#pragma once

#include <cstdint>
#include <string>

namespace ingero {

/// By the number that this machine's architecture gives it; "syscall-123" where this version knows no name.
std::string syscall_name(uint16_t number);

}  // namespace ingero
