#include "core/model/collective.h"

#include <array>

#include "core/model/op.h"

namespace ingero {

namespace {

struct Datatype {
    std::string_view name;
    uint8_t bytes;
};

constexpr std::array<Datatype, 12> datatypes = {{{"int8", 1},
                                                 {"uint8", 1},
                                                 {"int32", 4},
                                                 {"uint32", 4},
                                                 {"int64", 8},
                                                 {"uint64", 8},
                                                 {"float16", 2},
                                                 {"float32", 4},
                                                 {"float64", 8},
                                                 {"bfloat16", 2},
                                                 {"float8e4m3", 1},
                                                 {"float8e5m2", 1}}};
constexpr std::array<std::string_view, 6> reductions = {"sum", "prod", "max", "min", "avg", "own"};

}  // namespace

bool is_message(OpId op) {
    return op == op::ncclSend || op == op::ncclRecv;
}

bool is_broadcast(OpId op) {
    return op == op::ncclBroadcast || op == op::ncclBcast;
}

std::optional<Collective> collective_of(const Event& event) {
    const Op* op = find_op(event.op);
    if (!op || op->op_class != OpClass::collective) return std::nullopt;
    const uint64_t packed = event.args[2];
    Collective collective;
    collective.communicator = event.args[1];
    collective.bytes = event.args[0];
    collective.sequence = static_cast<uint32_t>(packed >> INGERO_COLLECTIVE_SEQUENCE_SHIFT);
    collective.datatype = packed >> INGERO_COLLECTIVE_DATATYPE_SHIFT & 0xf;
    collective.reduction = packed >> INGERO_COLLECTIVE_REDUCTION_SHIFT & 7;
    collective.group_depth = packed >> INGERO_COLLECTIVE_GROUP_SHIFT & 7;
    collective.nested = (packed >> INGERO_COLLECTIVE_NESTED_SHIFT & 1) != 0;
    if (const uint32_t peer = packed >> INGERO_COLLECTIVE_PEER_SHIFT & 0x1f'ffff; peer != 0)
        (is_message(event.op) ? collective.peer : collective.root) = peer - 1;
    if (collective.datatype < datatypes.size())
        collective.count = collective.bytes / datatypes[collective.datatype].bytes;
    return collective;
}

std::string_view datatype_name(uint8_t datatype) {
    return datatype < datatypes.size() ? datatypes[datatype].name : std::string_view();
}

std::string_view reduction_name(uint8_t reduction) {
    return reduction < reductions.size() ? reductions[reduction] : std::string_view();
}

}  // namespace ingero
