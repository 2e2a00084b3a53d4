// The catalogue of traced operations: ids that published traces use, names, and what class of call each is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/model/event.h"

namespace ingero {

enum class OpClass : uint8_t { launch, alloc, free, copy, sync, graph, name, device, collective, communicator, other };

/// Of a copy, with the numbers of cudaMemcpyKind.
enum class CopyDirection : uint8_t { as_called = 0, to_device = 1, to_host = 2, on_device = 3, by_address = 4 };

/// core/model/ops.def says what each means.
struct Op {
    OpId id;
    std::string_view name;
    OpClass op_class;
    bool waits_for_device;
    bool may_be_thinned;
    CopyDirection direction;
};

inline constexpr uint8_t source_cuda = 1;
inline constexpr uint8_t source_nvidia = 2;
inline constexpr uint8_t source_host = 3;
inline constexpr uint8_t source_driver = 4;
inline constexpr uint8_t source_io = 5;
inline constexpr uint8_t source_tcp = 6;
inline constexpr uint8_t source_net = 7;
inline constexpr uint8_t source_graph = 8;
inline constexpr uint8_t source_nccl = 9;

constexpr OpId make_op(uint8_t source, uint8_t number) {
    return static_cast<OpId>(source << 8 | number);
}
constexpr uint8_t op_source(OpId op) {
    return static_cast<uint8_t>(op >> 8);
}

/// Their ids, by name: op::cudaMalloc.
namespace op {
#define INGERO_OP(name, source, number, op_class, waits, thinned, direction) \
    inline constexpr OpId name = make_op(source_##source, number);
#define INGERO_KERNEL_OP(name, source, number) inline constexpr OpId name = make_op(source_##source, number);
#include "core/model/ops.def"
}  // namespace op

/// A program's call into a library, not what the kernel reported about a task or a device: imported traces have both.
constexpr bool is_call(OpId op) {
    const uint8_t source = op_source(op);
    return source != source_nvidia && source != source_host && source != source_io && source != source_tcp &&
           source != source_net;
}

/// Its return code is a CUresult, and not a cudaError_t.
bool is_driver_op(OpId op);
/// Its calls give a device work.
bool enqueues(const Op& op);

/// All ops that can be traced, ascending by id.
std::span<const Op> all_ops();
/// nullptr where the id is not among them.
const Op* find_op(OpId id);
/// The op's name, of what the kernel does (host_event.h) and imported traces have too; "op-SOURCE-NUMBER" for an id
/// this version does not know.
std::string op_name(OpId id);
/// The inverse; nothing where no op is called that.
std::optional<OpId> op_of_name(std::string_view name);
/// "CUDA", "DRIVER" and so on; "unknown" otherwise.
std::string_view source_name(uint8_t source);

}  // namespace ingero
