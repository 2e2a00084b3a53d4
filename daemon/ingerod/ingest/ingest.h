// From the rings to the store. Two threads of its own: the ingest thread drains the rings into batches and the figures
// of the live processes, the store thread commits batches, so that a slow disk never holds back draining.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/model/event.h"
#include "core/model/process/process.h"
#include "core/model/stack.h"
#include "core/store/store.h"
#include "daemon/ingerod/ingest/commit_queue.h"
#include "daemon/ingerod/ingest/overhead.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/probes/call_probes.h"
#include "daemon/ingerod/slices/stage_control.h"

namespace ingero {

/// Sums since start.
struct IngestFigures {
    uint64_t recorded = 0;    ///< events read from the rings
    uint64_t lost = 0;        ///< in the kernel: ring full, frames left behind, too deep
    uint64_t uncertain = 0;   ///< events whose time split is marked uncertain
    uint64_t thinned = 0;     ///< calls that other records stand for
    uint64_t waits = 0;       ///< rows of what the kernel did, beside those of calls
    uint64_t names_lost = 0;  ///< of functions: no room in the ring, or too many of one user
    OverheadFigures overhead;
    CommitFigures commits;
};

/// What the kernel did to a thread that is watched, and whose that is.
struct WaitRow {
    Event event;
    uint32_t uid = 0;
    uint8_t level = 0;  ///< 0: it calls; else how many wake-ups away it is from one that does
    Comm comm{};
};

/// Something of a socket; whose it is, is to be found by the socket's inode.
struct SocketRow {
    Event event;
    uint64_t inode = 0;
    uint32_t uid = 0;
};

struct ProcessActivity {
    ProcessKey key;
    uint64_t calls = 0;
    uint64_t latest_ns = 0;  ///< CLOCK_MONOTONIC end of the latest call
};

class Ingest {
  public:
    /// `on_new_process` and `on_process_change` run on the loop thread, `on_events` on the ingest thread: each batch as
    /// it is handed on to the store, and how many calls were lost meanwhile.
    struct Callbacks {
        std::function<void(ProcessKey)> on_new_process;
        std::function<void(const ingero_process_record&)> on_process_change;
        /// A process that calls nothing, but ended the wait of one that does; on the loop thread, once in a while.
        std::function<void(const WaitRow&)> on_bystander;
        /// Processes that were seen to run while a thread waited for its CPU; on the loop thread, each once in a while.
        std::function<void(const std::vector<uint32_t>& pids)> on_preemptors;
        std::function<void(const SocketRow&)> on_socket;           ///< on the loop thread
        std::function<void(const StormReport&)> on_storm = {};     ///< on the loop thread
        std::function<void(const ingero_stack_record&)> on_stack;  ///< a new stack; on the loop thread
        /// A function whose name is still to be read, at this address of its process; on the loop thread.
        std::function<void(FunctionRow, uint64_t name_address)> on_unread_name = {};
        std::function<void(const std::vector<Event>&, const std::vector<LossRow>&)> on_events;
        std::function<void(const Event&)> on_call;  ///< on the ingest thread, as it is read; may be left out
        std::function<void()> on_drained;           ///< on the ingest thread, after the calls of a turn
        /// On the ingest thread, of each communicator that is to be stored, which it does by put_communicator(); may be
        /// left out: then it is stored as it is.
        std::function<void(const CommunicatorRow&)> on_communicator = {};
        /// The process made a communicator; on the loop thread, after on_new_process(). May be left out.
        std::function<void(ProcessKey)> on_ranked = {};
        /// On the ingest thread, of each event before anybody gets it; may be left out.
        std::function<void(Event&)> hide_names = {};
        /// Whose share the names of a uid's processes are, on the thread of put_process(); may be left out.
        std::function<uint32_t(uint32_t uid)> owner_of = {};
    };

    Ingest(EventLoop& loop, CallProbes& probes, std::unique_ptr<StoreWriter> store, Callbacks callbacks);
    /// Drains, commits, ends the session and joins.
    ~Ingest();

    void start();
    /// Drains for the last time, and runs on this thread, the loop's, what is to be done about it, so that rows put
    /// then are stored too. The probes must be detached.
    void stop_reading();
    /// A new or changed process row, for the next commit. Any thread.
    void put_process(Process process);
    /// For the next commit; any thread. A row may take another's place, see GapRow.
    void put_gap(GapRow gap);
    /// For the next commit; any thread.
    void put_stack(StackRow stack);
    void put_file(FileRow file);
    void put_symbol(SymbolRow symbol);
    void put_function(FunctionRow function);
    /// A name that could not be read.
    void lose_name();
    void put_state(StateRow state);
    void put_incident(IncidentRow incident);
    /// Any thread.
    void put_communicator(CommunicatorRow communicator);
    /// A row that no ring brings; its sequence is given here.
    void put_event(Event event);
    /// Commits the rows soon, by themselves where no calls are; `done` runs on the loop thread, with whether they are
    /// stored.
    void put_spans(std::vector<SpanRow> spans, std::function<void(bool stored)> done);
    /// The first probe is attached: coverage begins.
    void set_covered_since(uint64_t monotonic_ns);
    /// Commits what has been recorded up to now, with what is put for it on the loop thread; `done` runs there, also
    /// when the commit failed.
    void commit_now(std::function<void()> done);

    /// The ingest thread has drained the rings since the last call, or sleeps because they are empty: it is alive. For
    /// the watchdog.
    bool made_progress();

    IngestFigures figures() const;
    std::vector<ProcessActivity> activity() const;
    /// The process is gone: its activity is dropped.
    void forget(const ProcessKey& key);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// A row from a record's bytes; false for a record that is none or is too short.
/// `ret_name_address`: where the name is to be read, for it was not there yet; 0 where the row has it.
bool decode_function(std::span<const std::byte> record, FunctionRow& row, uint64_t& ret_name_address);
bool decode_communicator(std::span<const std::byte> record, CommunicatorRow& row);
bool decode_wait(std::span<const std::byte> record, WaitRow& row);
bool decode_socket(std::span<const std::byte> record, SocketRow& row);
bool decode_storm(std::span<const std::byte> record, StormReport& report);

/// A row from a record's bytes; sequence is left 0. False for a record that is no call or is too short.
bool decode_call(std::span<const std::byte> record, Event& event);

}  // namespace ingero
