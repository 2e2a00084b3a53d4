// Rows of what happens to processes beside their calls, for the store: whose a socket is, who ended the wait of
// another, programs that begin and end. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "bpf/event.h"
#include "core/model/process/process.h"
#include "core/model/time.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/ingest/ingest.h"
#include "daemon/ingerod/targets/processes.h"

namespace ingero {

class HostRows {
  public:
    struct Store {
        std::function<void(Process)> put_process;
        std::function<void(Event)> put_event;
    };
    /// `proc` and `processes` must outlive it. `now_ns` stands in for CLOCK_MONOTONIC in tests.
    HostRows(const ProcFs& proc, const Processes& processes, Store store,
             std::function<uint64_t()> now_ns = monotonic_now_ns)
        : proc_(proc), processes_(processes), store_(std::move(store)), now_ns_(std::move(now_ns)) {}

    /// It calls nothing, so nothing else shows who it is.
    void on_bystander(const WaitRow& row);
    /// They ran while a traced thread had to wait.
    void on_preemptors(const std::vector<uint32_t>& pids);
    /// Stored where a traced process has the socket open; what is of others is none of this host's rows.
    void on_socket(const SocketRow& row);
    /// Of a process that calls: it begins another program, or ends.
    void on_change(const ingero_process_record& change);
    /// Now and then: looks which bystanders have ended, at so many of them a time.
    void sweep();

  private:
    using Owners = std::map<uint64_t, ProcessKey>;  ///< of sockets, by inode

    const ProcessKey* owner_of(uint64_t inode);
    const ProcessKey* known_owner_of(uint64_t inode) const;
    /// Which sockets the traced processes have open; those of many, in several calls.
    void look_at_sockets();

    const ProcFs& proc_;
    const Processes& processes_;
    Store store_;
    std::function<uint64_t()> now_ns_;
    /// As one that calls or did, or that [capture] leaves out.
    bool is_known(const ProcessKey& key) const;
    void end(Process process);
    void add_bystander(Process process);

    std::map<ProcessKey, Process> bystanders_;  ///< that live, as far as is known
    ProcessKey swept_;                          ///< the last one looked at
    Owners owners_;                             ///< as of the latest pass over all traced processes
    Owners found_;                              ///< in the pass that is under way
    uint32_t looked_pid_ = 0;                   ///< where that pass stopped
    uint64_t next_look_ns_ = 0;                 ///< not before
};

}  // namespace ingero
