// The workers: sandboxed processes that do everything which parses foreign bytes or can take long. Loop thread only.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/model/result.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/workers/handed_over.h"

namespace ingero {

/// For whom a worker works.
struct WorkerUser {
    uint32_t uid = 0;
    bool sees_all = false;  ///< as Caller has it
    auto operator<=>(const WorkerUser&) const = default;
};
/// The daemon itself.
inline constexpr WorkerUser no_user{.uid = 0, .sees_all = true};
/// For a file that a process of `uid` has mapped: root has all places.
constexpr WorkerUser file_user(uint32_t uid) {
    return {.uid = uid, .sees_all = uid == 0};
}

struct WorkerOptions {
    std::string program;          ///< path of ingero-worker
    std::string store_directory;  ///< opened read-only by the worker before it drops its rights; empty: none
    /// This process holds the store's lock and has checked all of its pages: the worker need not.
    bool store_is_checked = false;
    unsigned count = 2;
    uint64_t memory_bytes = 512ULL << 20;  ///< address space beyond the store's map
    std::chrono::milliseconds deadline{30'000};
    /// A job that has had a worker for so long gives it up when another user's waits; 0: it does not.
    std::chrono::milliseconds turn{0};
    /// A worker is passed files of one owner on one mount alone, and then replaced: what the bytes of one made of it
    /// reads no other's, and says nothing of them. For a pool of one worker.
    bool one_owner_each = false;
    std::string node;  ///< named in answers
};

class WorkerPool {
  public:
    using Done = std::function<void(Result<nlohmann::json>)>;

    WorkerPool(EventLoop& loop, WorkerOptions options);
    ~WorkerPool();

    /// Queues a request for a free worker. Users take turns. Of several workers one is kept for those who see all, and
    /// nobody has more than half of them while others wait. `fd`, if given, is passed along and stays the caller's (it
    /// is duplicated). `done` is called once, on the loop thread. A worker that dies fails only its request
    /// (`internal`), one that overruns the deadline or its turn is killed (`deadline`); either is replaced. More than
    /// 64 waiting, or more than `user`'s share of them: `busy`; one that waited for a worker as long as the deadline:
    /// `deadline`. Of a destroyed pool no `done` is called any more.
    void request(const WorkerUser& user, std::string method, nlohmann::json params, std::optional<int> fd, Done done);

    /// The same, but the worker writes its answer, a result or an error, to the client's connection, which it has to
    /// itself meanwhile. To be read the answer has the deadline's time once more; a client that hangs up frees the
    /// worker.
    void answer(const WorkerUser& user, std::string method, nlohmann::json params, HandedOver client);

    /// For requests from now on: workers are replaced as they become free.
    void reconfigure(unsigned count, uint64_t memory_bytes, std::chrono::milliseconds deadline);

    /// Pids of the living workers, for the status answer and for tests.
    std::vector<int> pids() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
