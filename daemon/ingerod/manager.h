// The daemon's heart: finds processes and libraries, has them traced, and answers for both. Loop thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "core/diagnosis/incidents/incidents.h"
#include "core/model/time.h"
#include "daemon/ingerod/bus/bus_backend.h"
#include "daemon/ingerod/check/check_runner.h"
#include "daemon/ingerod/check/library_check.h"
#include "daemon/ingerod/config/config.h"
#include "daemon/ingerod/discovery/mapped_text.h"
#include "daemon/ingerod/discovery/mmap_watch.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/footprint/footprints.h"
#include "daemon/ingerod/ingest/ingest.h"
#include "daemon/ingerod/live/host_rows.h"
#include "daemon/ingerod/live/host_state.h"
#include "daemon/ingerod/live/live_diagnosis.h"
#include "daemon/ingerod/live/live_notices.h"
#include "daemon/ingerod/live/live_trace.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/loop/journal.h"
#include "daemon/ingerod/loop/log_throttle.h"
#include "daemon/ingerod/mcp/mcp_server.h"
#include "daemon/ingerod/probes/call_probes.h"
#include "daemon/ingerod/relay/relay_server.h"
#include "daemon/ingerod/slices/slices.h"
#include "daemon/ingerod/spans/span_server.h"
#include "daemon/ingerod/stacks/native_stacks.h"
#include "daemon/ingerod/targets/libraries.h"
#include "daemon/ingerod/targets/other_names.h"
#include "daemon/ingerod/targets/processes.h"
#include "daemon/ingerod/targets/programs.h"
#include "daemon/ingerod/workers/worker_pool.h"

namespace ingero {

struct ManagerOptions {
    Config config;  ///< with a node name
    std::string worker_program;
    std::set<Feature> denied_features;
    std::vector<std::string> check_command;          ///< of CheckRunner
    std::function<Result<Config>()> load_config;     ///< for reload()
    std::function<void(bool begins)> notify_reload;  ///< before it, and when it is done
    PageProgress on_store_pages;                     ///< while the store is opened; where it says stop, start() fails
    std::function<bool()> must_stop;                 ///< asked between the steps of start(), which then fails
};

class Manager : public BusBackend {
  public:
    /// Loads the probes, opens the store and scans the host. Errors: those of CallProbes, StoreWriter, MmapWatch.
    /// Loop and journal must outlive it.
    static Result<std::unique_ptr<Manager>> start(EventLoop& loop, const Journal& journal, ManagerOptions options);
    ~Manager() override;

    /// One line for systemd's status and the log.
    std::string status_line() const;
    /// Called whenever status_line() may read differently.
    void on_change(std::function<void()> callback) { on_change_ = std::move(callback); }
    void on_incident(std::function<void(const IncidentChange&)> callback) { on_incident_ = std::move(callback); }
    /// Detected, and resolved: then the time as CLOCK_REALTIME.
    void on_straggler(std::function<void(const Straggler&)> detected,
                      std::function<void(const std::string& id, uint64_t at_realtime_ns)> resolved) {
        on_straggler_ = std::move(detected);
        on_straggler_resolved_ = std::move(resolved);
    }
    /// The threads it stands on are alive. For the watchdog.
    bool is_alive() { return ingest_->made_progress(); }
    /// One more socket where programs send spans; `path` is removed in the end where it is given.
    void listen_for_spans(UniqueFd socket, SpanServer::Form form, std::string path = {}) {
        spans_->listen(std::move(socket), form, std::move(path));
    }
    /// The socket of ingero-relay.
    void listen_for_relay(UniqueFd socket, std::string path = {}) {
        relay_->listen(std::move(socket), std::move(path));
    }
    /// What a session of an AI client is started with, and how it gets at what only the daemon knows.
    McpServer::Host mcp_host();
    /// As of the latest reload.
    OwnerOf owner_of() const {
        return [this](uint32_t uid) { return owners_.owner_of(uid); };
    }
    /// How many sockets are served, for the status answer.
    void set_sockets(size_t count) { sockets_ = count; }

    std::string node() const override { return node_; }
    nlohmann::json status(const Caller& caller) override;
    nlohmann::json processes(const Caller& caller) override;
    nlohmann::json probes(const Caller& caller) override;
    void hand_over(const Caller& caller, const std::string& method, const nlohmann::json& params,
                   HandedOver client) override;
    void query(const Caller& caller, const std::string& method, const nlohmann::json& params,
               std::function<void(Result<nlohmann::json>)> done) override;
    void check(const Caller& caller, bool probe, std::function<void(Result<nlohmann::json>)> done) override;
    Result<std::unique_ptr<LiveStream>> trace(const Caller& caller, const nlohmann::json& params,
                                              std::function<void()> on_ready) override;
    Result<std::unique_ptr<LiveStream>> monitor(const Caller& caller, std::function<void()> on_ready) override {
        return notices_.subscribe(caller, std::move(on_ready));
    }
    Result<std::unique_ptr<FootprintRecording>> footprint(const Caller& caller, uint32_t pid) override {
        return footprints_->begin(caller, pid);
    }
    void snapshot(UniqueFd file, std::function<bool()> wanted,
                  std::function<void(Result<nlohmann::json>)> done) override;
    Result<nlohmann::json> reload() override;

    PublicFigures figures() const override;
    std::vector<PublicProcess> public_processes() const override;
    std::vector<ProbeSetState> probe_sets() const override;
    std::vector<Incident> open_incidents() const override { return incidents_.open(); }
    Result<void> set_probe(const std::string& set, bool on) override;

  private:
    Manager(EventLoop& loop, const Journal& journal, ManagerOptions options);
    // manager_open.cpp
    Result<void> open();
    Result<void> go_on() const;
    Result<std::unique_ptr<StoreWriter>> open_store();
    Result<void> load_probes();
    Session make_session() const;
    void make_workers();
    void make_live(const std::string& boot_id);
    void make_ingest(std::unique_ptr<StoreWriter> store);
    void make_stacks(const StoreFigures& stored);
    Result<void> start_mmap_watch();
    void make_libraries();
    Result<void> make_processes();
    void make_host();
    Result<void> open_spans();
    Result<std::optional<SpanHash>> span_hash() const;
    // manager.cpp
    void put_process(const Process& process);
    // manager_incidents.cpp
    void on_pass(const DiagnosisPass& pass);
    void on_stragglers(const DiagnosisPass& pass);
    void report(const IncidentChange& change, const ClockTriple& now);
    /// Returns whose the process is.
    std::optional<Process> process_of(const ProcessKey& key) const;
    uint32_t store(const IncidentChange& change, const ClockTriple& now);
    void keep_detail(const IncidentRow& row);
    Result<nlohmann::json> take_up_config();
    void log_loss();
    void measure_rates();
    void on_lost_mappings(uint64_t since_ns);
    /// Some of what was mapped since then may be unknown.
    void rescan_soon(uint64_t since_ns);
    void read_names_later();
    void read_names(uint64_t until_ns);
    void rescan();
    /// Runs `then` once all that was recorded up to now is in the store, at the latest after `most_us`.
    void after_commit(uint64_t most_us, std::function<void()> then);
    void name_functions(std::vector<LiveTrace::Handle> handles, std::function<void(LiveTrace::Names)> done);
    nlohmann::json worker_params(const Caller& caller, const std::string& method, nlohmann::json params) const;
    static nlohmann::json with_window(const std::string& method, nlohmann::json params);
    /// Runs `then` once what such a request is about is in the store, as far as that is waited for.
    void when_stored(const std::string& method, const nlohmann::json& params, std::function<void()> then);
    std::vector<MappedLibrary> mapped_libraries(const Caller& caller) const;
    std::string state() const;
    /// Whether the caller may see the file: everybody sees system-wide ones, and what their own processes map.
    bool may_see(const Caller& caller, const LibraryKey& key, const LibraryEntry& entry) const;
    std::vector<std::string> missing_probes(const Caller& caller) const;
    WorkerOptions worker_options() const;
    void watch_snapshot();
    void begin_coverage();
    void changed();
    void report_change();

    EventLoop& loop_;
    const Journal& journal_;
    ManagerOptions options_;
    std::string node_;
    const OtherNames other_names_;
    UidOwners owners_;
    /// The same for the thread that writes the store.
    using SharedOwners = std::atomic<std::shared_ptr<const UidOwners>>;
    const std::shared_ptr<SharedOwners> store_owners_ = std::make_shared<SharedOwners>();
    ClockTriple started_;
    KernelFeatures features_;
    ProcFs proc_{"/proc", {}, owner_of()};
    MappedText mapped_text_{proc_, owner_of()};
    std::unique_ptr<CallProbes> probes_;
    std::unique_ptr<WorkerPool> workers_;           ///< for what clients ask
    std::unique_ptr<WorkerPool> file_workers_;      ///< for what attaching and stacks need: no query holds them up
    std::unique_ptr<WorkerPool> snapshot_workers_;  ///< one, while a copy of the store is made
    uint64_t snapshots_ = 0;                        ///< copies that were asked for
    std::function<bool()> snapshot_wanted_;
    EventLoop::Source snapshot_watch_;
    std::unique_ptr<NativeStacks> stacks_;
    std::deque<std::pair<FunctionRow, uint64_t>> unread_names_;  ///< and where they are
    EventLoop::Source name_turn_;
    std::unique_ptr<MmapWatch> watch_;
    std::unique_ptr<LiveDiagnosis> live_;
    std::unique_ptr<LiveTrace> live_trace_;
    LiveNotices notices_{owner_of()};
    std::unique_ptr<Footprints> footprints_;
    std::unique_ptr<Ingest> ingest_;
    CheckRunner check_runner_;
    std::unique_ptr<Libraries> libraries_;
    std::unique_ptr<Programs> programs_;
    std::unique_ptr<Processes> processes_;
    std::unique_ptr<Slices> slices_;
    std::unique_ptr<HostRows> host_rows_;
    std::unique_ptr<HostState> host_state_;
    std::unique_ptr<SpanServer> spans_;
    std::unique_ptr<RelayServer> relay_;
    IncidentTracker incidents_;
    std::set<std::string, std::less<>> disabled_sets_;
    std::string blind_;  ///< why it cannot look at processes of other users; empty where it can
    std::optional<uint64_t> first_covered_ns_;
    bool scanned_ = false;  ///< all processes there were at the start
    EventLoop::Source change_;
    EventLoop::Source rate_timer_;
    EventLoop::Source rescan_;
    uint64_t rescanned_ns_ = 0;
    uint64_t lost_since_ns_ = UINT64_MAX;  ///< of losses that no scan has begun for
    LogThrottle lost_mappings_log_;
    size_t sockets_ = 0;
    uint64_t seen_lost_ = 0;
    uint64_t logged_lost_ = 0;  ///< by the journal
    uint64_t loss_logged_ns_ = 0;
    std::string journaled_state_;
    std::function<void()> on_change_;
    std::function<void(const IncidentChange&)> on_incident_;
    std::function<void(const Straggler&)> on_straggler_;
    std::function<void(const std::string&, uint64_t)> on_straggler_resolved_;
    struct IncidentProcess {
        uint32_t uid = 0;
        std::string comm;
        IncidentRow row;        ///< the latest
        nlohmann::json detail;  ///< the rows around its worst call; null: not known yet
        uint64_t worst = 0;     ///< the call they are of
    };
    std::set<ProcessKey> ranked_;                                ///< they made communicators since the latest second
    std::map<std::string, IncidentProcess> incident_processes_;  ///< of open incidents, by id
    struct StragglerOwner {
        std::optional<uint32_t> uid;
        std::string comm;
    };
    std::map<std::string, StragglerOwner> straggler_owners_;      ///< of those that are not over, by id
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< answers that come too late see it false
};

}  // namespace ingero
