#include "core/model/op.h"

#include <algorithm>
#include <array>

namespace ingero {

namespace {

constexpr bool waits_for_device = true, returns = false, thinned = true, exact = false;

constexpr std::array ops = std::to_array<Op>({
#define INGERO_OP(name, source, number, op_class, waits, is_thinned, direction) \
    {op::name, #name, OpClass::op_class, waits, is_thinned, CopyDirection::direction},
#include "core/model/ops.def"
});

/// Where an op is among them, from 1, by its id: looked up for every row that is read.
constexpr size_t sources_with_ops = 10;
constexpr auto places = [] {
    std::array<uint8_t, sources_with_ops * 256> table{};
    static_assert(ops.size() < 255);
    for (size_t i = 0; i < ops.size(); ++i) table[ops[i].id] = static_cast<uint8_t>(i + 1);
    return table;
}();

static_assert(std::is_sorted(ops.begin(), ops.end(), [](const Op& a, const Op& b) { return a.id < b.id; }));

struct KernelOp {
    OpId id;
    std::string_view name;
};

constexpr std::array kernel_ops = std::to_array<KernelOp>({
#define INGERO_KERNEL_OP(name, source, number) {op::name, #name},
#include "core/model/ops.def"
});

}  // namespace

bool is_driver_op(OpId op) {
    constexpr uint8_t first_driver_graph = 200;
    return op_source(op) == source_driver || (op_source(op) == source_graph && (op & 0xff) >= first_driver_graph);
}

bool enqueues(const Op& op) {
    return op.op_class == OpClass::launch || op.op_class == OpClass::copy || op.op_class == OpClass::collective ||
           op.id == op::cudaGraphLaunch || op.id == op::cuGraphLaunch;
}

std::span<const Op> all_ops() {
    return ops;
}

const Op* find_op(OpId id) {
    const size_t place = id < places.size() ? places[id] : 0;
    return place != 0 ? &ops[place - 1] : nullptr;
}

std::string op_name(OpId id) {
    if (const Op* op = find_op(id)) return std::string(op->name);
    for (const KernelOp& op : kernel_ops)
        if (op.id == id) return std::string(op.name);
    return "op-" + std::to_string(op_source(id)) + "-" + std::to_string(id & 0xff);
}

std::optional<OpId> op_of_name(std::string_view name) {
    for (const Op& op : ops)
        if (op.name == name) return op.id;
    for (const KernelOp& op : kernel_ops)
        if (op.name == name) return op.id;
    return std::nullopt;
}

std::string_view source_name(uint8_t source) {
    switch (source) {
        case source_cuda:
            return "CUDA";
        case source_nvidia:
            return "NVIDIA";
        case source_host:
            return "HOST";
        case source_driver:
            return "DRIVER";
        case source_io:
            return "IO";
        case source_tcp:
            return "TCP";
        case source_net:
            return "NET";
        case source_graph:
            return "GRAPH";
        case source_nccl:
            return "NCCL";
        default:
            return "unknown";
    }
}

}  // namespace ingero
