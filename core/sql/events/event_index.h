// What the headers of a window's blocks say, read once a statement: which segments there are, to go through them in any
// order and to leave out those that cannot match.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/op.h"
#include "core/query/answers/stats.h"
#include "core/query/coverage.h"
#include "core/query/kernel_names.h"
#include "core/store/store.h"

namespace ingero {

class EventIndex {
  public:
    struct Boot {
        BootWindow window;
        std::string node;
    };
    /// An op that some block has, with its texts.
    struct OpEntry {
        OpId id = 0;
        std::string name;
        std::string source;
        const Op* known = nullptr;  ///< nullptr: not in the catalogue
        uint8_t source_number() const { return op_source(id); }
        uint8_t number() const { return static_cast<uint8_t>(id & 0xff); }
    };
    struct Block {
        std::string_view bytes;  ///< the snapshot's
        BlockHeader header;
        uint32_t boot = 0;    ///< of boots()
        bool inside = false;  ///< each row overlaps the window
        uint32_t first_segment = 0;
        uint32_t segments = 0;
    };
    struct Segment {
        uint32_t block = 0;
        uint16_t number = 0;  ///< in the block
        uint16_t op = 0;      ///< of ops()
        uint32_t rows = 0;
        bool errors = false;
        uint64_t min_ns = 0;
        uint64_t max_ns = 0;
    };
    struct ProcessEntry {
        Process process;
        int64_t cgroup_id = 0;  ///< 0: none
    };

    /// The rows of the filter's window, user and pid. `snapshot` must outlive the index. `fixed`: as boot_windows() has
    /// it. Errors: those of the store.
    static Result<EventIndex> read(const StoreSnapshot& snapshot, const Filter& filter,
                                   const std::optional<BootClock>& fixed = std::nullopt);

    const Filter& filter() const { return filter_; }
    const std::vector<Boot>& boots() const { return boots_; }
    const std::vector<OpEntry>& ops() const { return ops_; }  ///< ascending by id
    const std::vector<Block>& blocks() const { return blocks_; }
    const std::vector<Segment>& segments() const { return segments_; }  ///< a block's stand together, in its order
    uint64_t rows() const { return rows_; }
    bool has_one_node() const { return one_node_; }

    /// nullptr where the store has no row of it.
    const ProcessEntry* process(const ProcessKey& key) const;
    const std::map<ProcessKey, ProcessEntry>& processes() const { return processes_; }
    /// Whether the caller may see rows of the process, and asked for it.
    bool shows(const ProcessKey& key) const;

    /// The processes of all rows, ascending; nothing where there are more than `most`, or where more blocks have
    /// several than are decoded for it: who plans a statement has no deadline, and without them SQLite only sorts.
    /// Errors: corrupt.
    Result<std::optional<std::vector<uint32_t>>> pids(size_t most) const;
    static constexpr size_t most_decoded_blocks = 512;

    const std::string& kernel_name(const ProcessKey& process, uint64_t function) const;

  private:
    const StoreSnapshot* snapshot_ = nullptr;
    Filter filter_;
    std::vector<Boot> boots_;
    std::vector<OpEntry> ops_;
    std::vector<Block> blocks_;
    std::vector<Segment> segments_;
    std::map<ProcessKey, ProcessEntry> processes_;
    uint64_t rows_ = 0;
    bool one_node_ = true;
    // Read when first asked for.
    mutable std::optional<std::optional<std::vector<uint32_t>>> pids_;
    mutable std::optional<KernelNames> kernels_;
    mutable std::map<uint32_t, std::string> kernel_texts_;
};

/// What a control group's path is numbered by; 0 for no path.
int64_t cgroup_number(std::string_view path);

}  // namespace ingero
