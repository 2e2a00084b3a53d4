// Rows of what happens to processes beside their calls, for the store: whose a socket is, who ended the wait of
// another, programs that begin and end. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "bpf/event.h"
#include "core/model/process/process.h"
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
    /// `proc` and `processes` must outlive it.
    HostRows(const ProcFs& proc, const Processes& processes, Store store)
        : proc_(proc), processes_(processes), store_(std::move(store)) {}

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
    const ProcessKey* owner_of(uint64_t inode);

    const ProcFs& proc_;
    const Processes& processes_;
    Store store_;
    /// As one that calls or did, or that [capture] leaves out.
    bool is_known(const ProcessKey& key) const;
    void end(Process process);
    void add_bystander(Process process);

    std::map<ProcessKey, Process> bystanders_;  ///< that live, as far as is known
    ProcessKey swept_;                          ///< the last one looked at
    std::map<uint64_t, ProcessKey> owners_;     ///< of sockets, by inode, as of the latest look
    uint64_t looked_ns_ = 0;
};

}  // namespace ingero
