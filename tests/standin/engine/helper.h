// A thread of the engine's that lets go of what a caller waits for: it holds a mutex for a time, or writes a byte when
// a time is over. One a process, started when it is first needed. Any thread may call.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace ingero::standin {

class Helper {
  public:
    Helper();

    /// Writes one byte to the descriptor `ns` from now and closes it.
    void write_later(int descriptor, uint64_t ns);

    /// Returns when the helper has held a mutex for `ns` and the caller has got it. Callers take turns.
    void wait_for_mutex(uint64_t ns);

  private:
    struct Task {
        uint64_t due_ns;
        int descriptor;
    };

    void run();
    void finish_due();
    uint64_t next_due() const;

    std::mutex callers_;
    std::mutex contended_;
    std::mutex lock_;  ///< of all below
    std::condition_variable changed_;
    std::condition_variable held_;
    std::vector<Task> tasks_;
    uint64_t hold_ns_ = 0;  ///< asked for and not yet begun
    uint64_t hold_until_ns_ = 0;
    bool holding_ = false;
    std::thread thread_;  ///< the object is never destroyed, so it is never joined: it ends with the process
};

Helper& helper();

/// In a forked child, whose copy of the helper has no thread: the next use makes another.
void replace_helper();

}  // namespace ingero::standin
