// Rows to fill a store with: those of a recorded SQLite trace over and over, or a made-up workload of the same kind.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/model/event.h"
#include "core/model/result.h"

namespace ingero::bench {

struct RowSource {
    std::string description;  ///< of what the rows are, for the output
    std::vector<Event> rows;  ///< one round, ascending by end, without sequences
    uint64_t round_ns = 0;    ///< between the starts of two rounds
};

/// Errors: not_found, corrupt.
Result<RowSource> rows_of_trace(const std::string& path);
/// Single calls of a process that decodes, at the mix of a vLLM server.
RowSource made_up_rows();

/// Gives rows one after the other, numbered, for as long as they are asked for. Same seed, same rows.
class RowStream {
  public:
    explicit RowStream(const RowSource& source) : source_(source) {}
    /// Replaces what `events` holds by the next `count` rows, each round ascending by end.
    void next(size_t count, std::vector<Event>& events);
    static constexpr uint64_t first_start_ns = 1'000'000'000'000;

  private:
    const RowSource& source_;
    uint64_t given_ = 0;
};

}  // namespace ingero::bench
