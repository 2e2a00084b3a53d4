// Marks the launches that may have found the device's queue full. Such a launch spins until the device has taken
// another: its time on the CPU is then waiting, not work.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model/event.h"
#include "core/query/key_index.h"

namespace ingero {

/// What of a call decides about queues.
struct QueueCall {
    uint64_t start_ns = 0;
    uint64_t stream = 0;
    ProcessKey process;
    uint32_t weight = 1;
    OpId op = 0;
    uint8_t depth = 0;
};

class LaunchQueues {
  public:
    /// The driver's queue takes about 1,024 launches a stream; the count is a lower bound of what is queued only if
    /// nothing was lost, and an upper one since the device drains it: half is where a full queue becomes possible.
    static constexpr uint64_t full_at = 512;

    LaunchQueues() : streams_(max_streams), processes_(max_streams) {}

    /// For each row of the block whether it is a launch that `full_at` launches on its stream precede, with no
    /// synchronisation of it in between. Blocks in order of start; rows of a block in any order. The answer lives until
    /// the next call.
    const std::vector<uint8_t>& observe(std::span<const Event> block);
    /// The same for those of a block's calls whose op matters.
    const std::vector<uint8_t>& observe(std::span<const QueueCall> calls);
    /// Whether calls of this op launch or synchronise.
    static bool matters(OpId op);

  private:
    static constexpr size_t max_streams = 65'536;

    struct StreamKey {
        ProcessKey process;
        uint64_t stream = 0;
        bool operator==(const StreamKey&) const = default;
        uint64_t hash() const { return hash_words(process.start_ns, process.pid, stream); }
    };
    struct OwnerKey {
        ProcessKey process;
        bool operator==(const OwnerKey&) const = default;
        uint64_t hash() const { return hash_words(process.start_ns, process.pid); }
    };
    struct Stream {
        uint64_t launches = 0;  ///< since the last synchronisation
        uint32_t epoch = 0;     ///< of the owner's, when it was last counted
        uint32_t owner = 0;
    };

    void order_by_start(std::span<const QueueCall> calls);
    Stream* stream_of(const ProcessKey& process, uint64_t stream);
    void synchronised(const ProcessKey& process);

    KeyIndex<StreamKey> streams_;
    std::vector<Stream> stream_states_;
    KeyIndex<OwnerKey> processes_;
    std::vector<uint32_t> epochs_;  ///< a process: counts its device-wide synchronisations
    StreamKey last_key_;
    uint32_t last_stream_ = KeyIndex<StreamKey>::none;
    std::vector<uint32_t> order_;
    std::vector<uint32_t> runs_;
    std::vector<uint8_t> full_;
    std::vector<QueueCall> calls_;
    std::vector<uint32_t> rows_;
    std::vector<uint8_t> full_rows_;
};

}  // namespace ingero
