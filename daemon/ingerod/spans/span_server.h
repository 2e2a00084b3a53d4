// The span socket: programs report requests, steps and labels (docs/spans.md). Loop thread only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/model/process/process.h"
#include "core/model/unique_fd.h"
#include "core/spans/span.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/limits/uid_owners.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/spans/span_hash.h"
#include "daemon/ingerod/spans/span_limits.h"

namespace ingero {

/// Sums since start, but for connections and waiting.
struct SpanFigures {
    size_t connections = 0;
    uint64_t accepted = 0;  ///< taken; those that a full disk then had no room for count as store_full too
    std::array<uint64_t, span_refusal_count> refused{};
    size_t waiting = 0;  ///< taken and not stored yet
};

class SpanServer {
  public:
    struct Host {
        /// Stores the rows; `done` is called on the loop once they survive a crash (true) or are given up (false).
        std::function<void(std::vector<SpanRow>, std::function<void(bool)> done)> store;
        /// CLOCK_MONOTONIC of the oldest event kept; 0: none.
        std::function<uint64_t()> oldest_ns;
        /// That may wait for a commit, so that one is never too large for the store.
        size_t waiting_bytes = 32 << 20;
        OwnerOf owner_of = {};
    };

    /// Loop and `proc` must outlive it; the host may call `done` after it is gone.
    SpanServer(EventLoop& loop, const ProcFs& proc, Host host, const SpanQuota& quota = {});
    ~SpanServer();
    SpanServer(const SpanServer&) = delete;
    SpanServer& operator=(const SpanServer&) = delete;

    /// What clients of a socket mostly speak, and are answered in before they have spoken.
    enum class Form { messagepack, lines };
    /// Serves one more listening socket; `path` is removed in the end where it is given.
    void listen(UniqueFd socket, Form form, std::string path = {});
    void set_quota(const SpanQuota& quota);
    /// Ids of requests are kept as hashes from now on, or as they are.
    void set_hash(std::optional<SpanHash> hash);
    /// What a request of that id is kept under, where ids are kept as hashes.
    std::optional<std::string> hash_of(std::string_view id) const;
    /// A process is traced, or is gone: it works for those of its ancestors that send spans.
    void on_process(const Process& process);
    /// It lives, but is traced no more.
    void forget(const ProcessKey& process);
    SpanFigures figures() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
