// The exported functions. As in the real library ncclBcast calls ncclBroadcast, and within a group nothing is put on a
// stream, and no handle given out, before the outermost group ends.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "../engine/call.h"
#include "../engine/handles.h"
#include "communicator.h"

namespace ingero::standin {
namespace {

struct PendingInit {
    ncclComm_t* out;
    ncclComm* made;
};
struct PendingWork {
    ncclComm* communicator;
    Stream* stream;
    ncclComm::Operation operation;
};
struct GroupState {
    uint32_t depth = 0;
    std::vector<PendingInit> inits;
    std::vector<PendingWork> work;
};
thread_local GroupState group;

uint64_t mix(uint64_t value) {
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdULL;
    value ^= value >> 33;
    return value;
}

uint64_t name_of(const ncclUniqueId& id) {
    uint64_t name = 0;
    std::memcpy(&name, id.internal, sizeof name);
    return name;
}

uint64_t new_name() {
    static std::atomic<uint32_t> made{0};
    return mix(now_ns() ^ uint64_t(getpid()) << 40 ^ uint64_t(made.fetch_add(1)) << 56) | 1;
}

// Where the log has a communicator: its handle, what all its ranks have in common, and the rank.
int say_made(Call& call, const ncclComm* made, uint64_t handle) {
    call.say(handle, made->name, uint64_t(made->rank) << 32 | made->ranks);
    return nccl_success;
}

int give_out(Call& call, ncclComm_t* out, ncclComm* made) {
    if (group.depth != 0) {
        group.inits.push_back({out, made});
        return say_made(call, made, 0);
    }
    made->wait_for_all();
    *out = made;
    return say_made(call, made, from_pointer(made));
}

int init_rank(Call& call, ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank) {
    if (out == nullptr || ranks < 1 || ranks > int(most_ranks) || rank < 0 || rank >= ranks)
        return nccl_invalid_argument;
    Meeting* meeting = join_meeting(name_of(id), uint32_t(ranks));
    if (meeting == nullptr) return nccl_system_error;
    return give_out(call, out, new ncclComm(meeting, name_of(id), uint32_t(rank), uint32_t(ranks)));
}

int init_all(Call& call, ncclComm_t* out, int count) {
    if (out == nullptr || count < 1 || count > int(most_ranks)) return nccl_invalid_argument;
    const uint64_t name = new_name();
    for (int rank = 0; rank < count; ++rank) {
        Meeting* meeting = join_meeting(name, uint32_t(count));
        if (meeting == nullptr) return nccl_system_error;
        out[rank] = new ncclComm(meeting, name, uint32_t(rank), uint32_t(count));
    }
    call.say(from_pointer(out[0]), name, uint64_t(count));
    return nccl_success;
}

int split(Call& call, ncclComm* parent, int color, int key, ncclComm_t* out) {
    if (parent == nullptr || out == nullptr || color < -1) return nccl_invalid_argument;
    const uint32_t number = ++parent->splits;
    auto& choices = parent->meeting->choices[number % parent->meeting->choices.size()];
    choices[parent->rank].color = color;
    choices[parent->rank].key = key;
    tell(parent->meeting->splits[parent->rank], number);
    std::vector<std::pair<int, uint32_t>> members;  // key and rank in the parent
    for (uint32_t other = 0; other < parent->ranks; ++other) {
        wait_for(parent->meeting->splits[other], number, parent->stop);
        if (choices[other].color == color) members.emplace_back(choices[other].key.load(), other);
    }
    *out = nullptr;
    if (color < 0) {
        call.say(0, 0, 0);
        return nccl_success;
    }
    std::sort(members.begin(), members.end());
    const auto own =
        std::find_if(members.begin(), members.end(), [&](auto& one) { return one.second == parent->rank; });
    const uint64_t name = mix(parent->name ^ uint64_t(number) << 32 ^ uint32_t(color)) | 1;
    Meeting* meeting = join_meeting(name, uint32_t(members.size()));
    if (meeting == nullptr) return nccl_system_error;
    return give_out(call, out, new ncclComm(meeting, name, uint32_t(own - members.begin()), uint32_t(members.size())));
}

int end(ncclComm* communicator, bool abort) {
    if (communicator == nullptr) return nccl_invalid_argument;
    if (abort) communicator->abort();
    delete communicator;
    return nccl_success;
}

struct Work {
    ncclComm::Operation::Kind kind;
    uint64_t count;
    int datatype;
    int reduction;  ///< below 0: none
    int peer;       ///< or root; below 0: none
    ncclComm* communicator;
    CUstream stream;
};

// In the log's third word: sequence << 32 | (peer + 1) << 12 | depth of groups << 8 | reduction << 4 | datatype, 15
// being none of the latter two.
uint64_t word_of(const Work& work, uint32_t sequence) {
    return uint64_t(sequence) << 32 | uint64_t(uint32_t(work.peer + 1)) << 12 | uint64_t(group.depth) << 8 |
           uint64_t(work.reduction < 0 ? 15 : work.reduction) << 4 |
           uint64_t(work.datatype >= 0 && work.datatype < datatypes ? work.datatype : 15);
}

Arguments told_work(const Work& work) {
    const bool known = work.datatype >= 0 && work.datatype < datatypes;
    return told(work.count, from_pointer(work.communicator), word_of(work, 0))
        .on(work.stream)
        .sized(known ? work.count * datatype_bytes[work.datatype] : 0);
}

int enqueue(Call& call, const Work& work) {
    ncclComm* communicator = work.communicator;
    if (communicator == nullptr || work.datatype < 0 || work.datatype >= datatypes) return nccl_invalid_argument;
    if (work.peer >= int(communicator->ranks)) return nccl_invalid_argument;
    Stream* stream = Devices::instance().find_stream(from_pointer(work.stream), false);
    if (stream == nullptr) return nccl_invalid_argument;
    ncclComm::Operation operation{work.kind, 0, uint32_t(work.peer)};
    const uint32_t sequence = communicator->count(operation);
    call.say(work.count, from_pointer(communicator), word_of(work, sequence));
    if (group.depth != 0)
        group.work.push_back({communicator, stream, operation});
    else
        communicator->put({operation}, stream);
    return nccl_success;
}

int end_group(Call& call) {
    call.say(0, 0, group.depth);
    if (group.depth == 0) return nccl_invalid_usage;
    if (--group.depth != 0) return nccl_success;
    for (const PendingInit& init : std::exchange(group.inits, {})) {
        init.made->wait_for_all();
        *init.out = init.made;
    }
    std::vector<PendingWork> work = std::exchange(group.work, {});
    for (size_t i = 0; i < work.size(); ++i) {
        if (work[i].communicator == nullptr) continue;
        std::vector<ncclComm::Operation> together;
        ncclComm* const communicator = work[i].communicator;
        for (size_t j = i; j < work.size(); ++j)
            if (work[j].communicator == communicator) {
                together.push_back(work[j].operation);
                work[j].communicator = nullptr;
            }
        communicator->put(std::move(together), work[i].stream);
    }
    return nccl_success;
}

constexpr auto collective = ncclComm::Operation::collective;

}  // namespace
}  // namespace ingero::standin

using namespace ingero::standin;

// NAME with `work`, a Work of its parameters.
#define STANDIN_COLLECTIVE(name, parameters, ...)                              \
    STANDIN_EXPORT int name parameters {                                       \
        Call call(Fn::name);                                                   \
        const Work work __VA_ARGS__;                                           \
        if (call.is_logged()) call.tell(told_work(work));                      \
        call.begin(Fn::name);                                                  \
        return call.leave(call.failed() ? call.error() : enqueue(call, work)); \
    }

STANDIN_FUNCTION(ncclGetUniqueId, (ncclUniqueId * id), told(), [&] {
    if (id == nullptr) return int(nccl_invalid_argument);
    // All of it differs, so that who reads a part of it, or from elsewhere, is found out.
    for (size_t i = 0; i < sizeof id->internal; i += 8) {
        const uint64_t word = new_name();
        std::memcpy(id->internal + i, &word, sizeof word);
    }
    return int(nccl_success);
}())
STANDIN_FUNCTION(ncclCommInitRank, (ncclComm_t * out, int ranks, ncclUniqueId id, int rank),
                 told(0, 0, uint64_t(uint32_t(rank)) << 32 | uint32_t(ranks)), init_rank(call, out, ranks, id, rank))
STANDIN_FUNCTION(ncclCommInitRankConfig,
                 (ncclComm_t * out, int ranks, ncclUniqueId id, int rank, [[maybe_unused]] ncclConfig_t* config),
                 told(0, 0, uint64_t(uint32_t(rank)) << 32 | uint32_t(ranks)), init_rank(call, out, ranks, id, rank))
STANDIN_FUNCTION(ncclCommInitAll, (ncclComm_t * out, int count, [[maybe_unused]] const int* devices),
                 told(0, 0, uint64_t(uint32_t(count))), init_all(call, out, count))
STANDIN_FUNCTION(ncclCommSplit,
                 (ncclComm_t parent, int color, int key, ncclComm_t* out, [[maybe_unused]] ncclConfig_t* config),
                 told(0, 0, uint64_t(uint32_t(color)) << 32 | uint32_t(key)), split(call, parent, color, key, out))
STANDIN_FUNCTION(ncclCommFinalize, (ncclComm_t communicator), told(communicator),
                 communicator == nullptr ? nccl_invalid_argument : nccl_success)
STANDIN_FUNCTION(ncclCommDestroy, (ncclComm_t communicator), told(communicator), end(communicator, false))
STANDIN_FUNCTION(ncclCommAbort, (ncclComm_t communicator), told(communicator), end(communicator, true))
STANDIN_FUNCTION(ncclGroupStart, (), told(0, 0, uint64_t(group.depth)), [&] {
    call.say(0, 0, ++group.depth);
    return int(nccl_success);
}())
STANDIN_FUNCTION(ncclGroupEnd, (), told(), end_group(call))

STANDIN_COLLECTIVE(ncclAllReduce,
                   (const void*, void*, size_t count, int datatype, int reduction, ncclComm_t communicator,
                    CUstream stream),
                   {collective, count, datatype, reduction, -1, communicator, stream})
STANDIN_COLLECTIVE(ncclAllGather,
                   (const void*, void*, size_t count, int datatype, ncclComm_t communicator, CUstream stream),
                   {collective, count, datatype, -1, -1, communicator, stream})
STANDIN_COLLECTIVE(ncclReduceScatter,
                   (const void*, void*, size_t count, int datatype, int reduction, ncclComm_t communicator,
                    CUstream stream),
                   {collective, count, datatype, reduction, -1, communicator, stream})
STANDIN_COLLECTIVE(ncclBroadcast,
                   (const void*, void*, size_t count, int datatype, int root, ncclComm_t communicator, CUstream stream),
                   {collective, count, datatype, -1, root, communicator, stream})
STANDIN_COLLECTIVE(ncclReduce,
                   (const void*, void*, size_t count, int datatype, int reduction, int root, ncclComm_t communicator,
                    CUstream stream),
                   {collective, count, datatype, reduction, root, communicator, stream})
STANDIN_COLLECTIVE(ncclSend,
                   (const void*, size_t count, int datatype, int peer, ncclComm_t communicator, CUstream stream),
                   {ncclComm::Operation::send, count, datatype, -1, peer, communicator, stream})
STANDIN_COLLECTIVE(ncclRecv, (void*, size_t count, int datatype, int peer, ncclComm_t communicator, CUstream stream),
                   {ncclComm::Operation::receive, count, datatype, -1, peer, communicator, stream})

STANDIN_EXPORT int ncclBcast(void* buffer, size_t count, int datatype, int root, ncclComm_t communicator,
                             CUstream stream) {
    Call call(Fn::ncclBcast);
    const Work work{collective, count, datatype, -1, root, communicator, stream};
    if (call.is_logged()) call.tell(told_work(work));
    call.begin(Fn::ncclBcast);
    if (call.failed()) return call.leave(call.error());
    const int result = ncclBroadcast(buffer, buffer, count, datatype, root, communicator, stream);
    if (result == nccl_success) call.say(count, from_pointer(communicator), word_of(work, communicator->collectives()));
    return call.leave(result);
}
