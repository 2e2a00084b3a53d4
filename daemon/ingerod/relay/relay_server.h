// The socket of ingero-relay, which measures GPUs and ports: what a driver that can hang says comes to ingerod as rows.
// Loop thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/event.h"
#include "core/model/time.h"
#include "core/model/unique_fd.h"
#include "core/store/rows/history.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/relay/relay_message.h"

namespace ingero {

class RelayServer {
  public:
    /// `store` takes a row. The loop must outlive it. `interval_ns` is how often the relay is to measure; 0: not. `now`
    /// is CLOCK_MONOTONIC.
    RelayServer(EventLoop& loop, uint64_t interval_ns, std::function<void(StateRow)> store,
                std::function<uint64_t()> now = monotonic_now_ns);
    ~RelayServer();
    RelayServer(const RelayServer&) = delete;
    RelayServer& operator=(const RelayServer&) = delete;

    /// Serves a listening socket; `path` is removed in the end where it is given.
    void listen(UniqueFd socket, std::string path = {});
    void set_interval(uint64_t interval_ns);

    /// Of `relay` in docs/schemas/status.schema.json.
    nlohmann::json status() const;

    struct ProcessUse {
        std::vector<uint32_t> devices;         ///< numbers of GPUs, ascending
        std::optional<uint64_t> memory_bytes;  ///< on all of them
    };
    /// What GPUs said a moment ago of a process; nothing where none has it, or since it began. `clock` is of now.
    std::optional<ProcessUse> use_of(const ProcessKey& key, const ClockTriple& clock) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
