// What ingero-relay sends, one MessagePack map a measurement. Its bytes are foreign: part of it is a driver's library.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/model/result.h"
#include "core/store/rows/history.h"
#include "core/wire/rpc.h"

namespace ingero {

/// Who measures, and how that goes.
struct RelaySource {
    std::string name;    ///< "gpus", "ports"
    std::string state;   ///< "off", "starting", "polling", "absent", "failed", "hung", "crashed", "refused"
    std::string reason;  ///< printable; empty where there is none
};

struct GpuProcess {
    uint32_t pid = 0;
    std::optional<uint64_t> memory_bytes;
};

/// A measurement of a GPU or a port, or something that happened to a GPU.
struct RelaySample {
    StateRow row;
    std::vector<GpuProcess> processes;  ///< of a GPU; in the row's texts too
};

/// The GPUs that there are: sent at the start, and when that changes.
struct RelayInventory {
    uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC
    std::set<std::string> uuids;
};

using RelayMessage = std::variant<RelaySource, RelaySample, RelayInventory>;

inline constexpr RpcLimits relay_limits{
    .message_bytes = 64 << 10, .depth = 4, .string_bytes = 512, .elements = 512, .keep_invalid_text = false};
inline constexpr size_t max_gpu_processes = 128;
inline constexpr size_t max_gpus = 64;

/// `now_ns` is CLOCK_MONOTONIC: no measurement lies after it, or more than a minute before. Errors: bad_request.
Result<RelayMessage> parse_relay_message(const nlohmann::json& message, uint64_t now_ns);

}  // namespace ingero
