// A rank's communicator. What is put on a stream returns at once; a thread of the communicator's own does it in order:
// comes to the meeting, waits for the ranks it needs, and then lets go of the stream.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "../engine/device.h"
#include "abi.h"
#include "meeting.h"

struct ncclComm {
    using Stream = ingero::standin::Stream;

    struct Operation {
        enum Kind : uint8_t { collective, send, receive } kind;
        uint32_t number;  ///< of this kind, for messages with this peer
        uint32_t peer;
    };

    ncclComm(ingero::standin::Meeting* meeting, uint64_t name, uint32_t rank, uint32_t ranks);
    ~ncclComm();  ///< waits for what was put on streams, unless abort() was called

    /// Waits until all ranks have joined.
    bool wait_for_all();
    /// Counts it, and gives its number among the communicator's collectives or messages, from 1.
    uint32_t count(Operation& operation);
    /// All at once, after what was put before.
    void put(std::vector<Operation> operations, Stream* stream);
    void abort() { stop = true; }
    uint32_t collectives() const { return collectives_; }

    ingero::standin::Meeting* const meeting;
    const uint64_t name;  ///< the same for all ranks
    const uint32_t rank, ranks;
    uint32_t splits = 0;
    std::atomic<bool> stop{false};

  private:
    struct Job {
        std::vector<Operation> operations;
        Stream* stream;
        uint64_t on_stream, on_device;  ///< numbers of ExternalWork
    };
    void work();
    void arrive(const Operation& operation);
    void wait_for_others(const Operation& operation);

    uint32_t collectives_ = 0, messages_ = 0;
    std::vector<uint32_t> sent_, received_;  ///< by peer
    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    bool ending_ = false;
    std::thread worker_;  ///< from the first job on
};
