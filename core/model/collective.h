// What a stored call of an NCCL collective says, unpacked; bpf/event.h has the packing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/model/event.h"

namespace ingero {

struct Collective {
    uint64_t communicator = 0;      ///< CommunicatorRow::id within the process; 0: not known
    uint64_t bytes = 0;             ///< count × size: of this rank's part where NCCL counts by rank
    uint32_t sequence = 0;          ///< see is_numbered()
    uint8_t datatype = 0;           ///< ncclDataType_t; INGERO_DATATYPE_UNKNOWN
    uint8_t reduction = 0;          ///< ncclRedOp_t; INGERO_REDUCTION_OWN, INGERO_REDUCTION_NONE
    uint8_t group_depth = 0;        ///< of ncclGroupStart around it, held at 7
    bool nested = false;            ///< made by another call of NCCL, which is what counts
    std::optional<uint32_t> peer;   ///< of a send or receive
    std::optional<uint32_t> root;   ///< of a broadcast or reduction to one
    std::optional<uint64_t> count;  ///< elements; nothing where the datatype is not known

    /// Among the communicator's collectives, or its sends and receives, from 1. Not so where it failed or is nested.
    bool is_numbered() const { return sequence != 0; }
};

/// A send or receive, between two ranks; the other collectives are of all.
bool is_message(OpId op);
/// Under either of its names.
bool is_broadcast(OpId op);
/// Nothing where the call is no collective.
std::optional<Collective> collective_of(const Event& event);

/// "float32", "bfloat16" and so on; empty where it is not known.
std::string_view datatype_name(uint8_t datatype);
/// "sum", "avg" and so on, "own" for one that the program made; empty for none.
std::string_view reduction_name(uint8_t reduction);

}  // namespace ingero
