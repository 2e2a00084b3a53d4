// Where the ranks of a communicator meet: a file that all of them map, in whichever processes they are. Each rank says
// how far it has come and waits for the others, asleep.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace ingero::standin {

inline constexpr uint32_t most_ranks = 64;

struct Meeting {
    std::atomic<uint32_t> joined;
    std::array<std::atomic<uint32_t>, most_ranks> progress;  ///< collectives that each rank has come to
    std::array<std::atomic<uint32_t>, most_ranks> splits;    ///< likewise
    struct Choice {
        std::atomic<int32_t> color, key;
    };
    /// Of the latest splits. A rank is at most one split ahead of the others.
    std::array<std::array<Choice, most_ranks>, 4> choices;
    std::array<std::array<std::atomic<uint32_t>, most_ranks>, most_ranks> sent, received;  ///< [from][to]
};

/// Maps the meeting of that name, making it where this rank is the first; null where that is not possible. The rank
/// that completes it removes the file.
Meeting* join_meeting(uint64_t name, uint32_t ranks);

/// Sleeps until the word has come to the value, or `stop` is set: then false.
bool wait_for(std::atomic<uint32_t>& word, uint32_t value, const std::atomic<bool>& stop);

void tell(std::atomic<uint32_t>& word, uint32_t value);

}  // namespace ingero::standin
