#include "communicator.h"

using namespace ingero::standin;

ncclComm::ncclComm(Meeting* meeting, uint64_t name, uint32_t rank, uint32_t ranks)
    : meeting(meeting), name(name), rank(rank), ranks(ranks), sent_(ranks), received_(ranks) {}

ncclComm::~ncclComm() {
    {
        const std::lock_guard guard(lock_);
        ending_ = true;
    }
    changed_.notify_all();
    if (worker_.joinable()) worker_.join();
}

bool ncclComm::wait_for_all() {
    return wait_for(meeting->joined, ranks, stop);
}

uint32_t ncclComm::count(Operation& operation) {
    switch (operation.kind) {
        case Operation::send:
            operation.number = ++sent_[operation.peer];
            return ++messages_;
        case Operation::receive:
            operation.number = ++received_[operation.peer];
            return ++messages_;
        case Operation::collective:
            break;
    }
    return operation.number = ++collectives_;
}

void ncclComm::put(std::vector<Operation> operations, Stream* stream) {
    const uint64_t on_stream = stream->external().begin();
    const uint64_t on_device = Devices::instance().external(stream->device()).begin();
    const std::lock_guard guard(lock_);
    jobs_.push_back({std::move(operations), stream, on_stream, on_device});
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
    changed_.notify_all();
}

void ncclComm::arrive(const Operation& operation) {
    switch (operation.kind) {
        case Operation::collective:
            return tell(meeting->progress[rank], operation.number);
        case Operation::send:
            return tell(meeting->sent[rank][operation.peer], operation.number);
        case Operation::receive:
            return tell(meeting->received[operation.peer][rank], operation.number);
    }
}

void ncclComm::wait_for_others(const Operation& operation) {
    switch (operation.kind) {
        case Operation::collective:
            for (uint32_t other = 0; other < ranks; ++other)
                if (!wait_for(meeting->progress[other], operation.number, stop)) return;
            return;
        case Operation::send:
            wait_for(meeting->received[rank][operation.peer], operation.number, stop);
            return;
        case Operation::receive:
            wait_for(meeting->sent[operation.peer][rank], operation.number, stop);
            return;
    }
}

void ncclComm::work() {
    std::unique_lock guard(lock_);
    for (;;) {
        changed_.wait(guard, [this] { return ending_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        const Job job = std::move(jobs_.front());
        jobs_.pop_front();
        guard.unlock();
        for (const Operation& operation : job.operations) arrive(operation);
        for (const Operation& operation : job.operations) wait_for_others(operation);
        job.stream->external().end(job.on_stream);
        Devices::instance().external(job.stream->device()).end(job.on_device);
        guard.lock();
    }
}
