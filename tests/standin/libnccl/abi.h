// The types of NCCL's interface, with the layout of the real ones.
#pragma once

#include "../libcuda/abi.h"

typedef struct ncclComm* ncclComm_t;
struct ncclUniqueId {
    char internal[128];
};
struct ncclConfig_t;

namespace ingero::standin {

/// ncclResult_t.
enum NcclResult : int { nccl_success = 0, nccl_system_error = 2, nccl_invalid_argument = 4, nccl_invalid_usage = 5 };

/// Bytes by ncclDataType_t: integers of 8, 8, 32, 32, 64, 64 bits, floating point of 16, 32, 64, 16, 8, 8.
inline constexpr unsigned datatype_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
inline constexpr int datatypes = sizeof datatype_bytes / sizeof datatype_bytes[0];

}  // namespace ingero::standin
