// Names of the error codes that calls return.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/event.h"

namespace ingero {

/// What a return code of the op is called: "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"; of a process's end
/// "signal 9" or "exit status 1", of what else the kernel reported "ECONNRESET"; "error 123" where this version has no
/// name for it. Empty for success. Numbers as of CUDA 10.1; before, the runtime counted otherwise.
std::string error_name(OpId op, int32_t return_code);

}  // namespace ingero
