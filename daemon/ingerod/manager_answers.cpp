// What the daemon answers itself, and what it hands over to workers.
#include <algorithm>
#include <fstream>
#include <string>

#include "core/model/op.h"
#include "core/query/coverage.h"
#include "core/render/render.h"
#include "core/render/stragglers.h"
#include "core/wire/utf8.h"
#include "daemon/ingerod/check/daemon_check.h"
#include "daemon/ingerod/manager.h"
#include "daemon/ingerod/probes/probe_figures.h"
#include "daemon/ingerod/version.h"

namespace ingero {

using nlohmann::json;

namespace {

/// Libraries named in an answer.
constexpr size_t max_listed = 256;
/// How long what asks the store waits for what was recorded last: a recording wants all of it, and what is shown live
/// is not to be late for a name.
constexpr uint64_t answer_wait_us = 1'000'000;
constexpr uint64_t recording_wait_us = 5'000'000;
constexpr uint64_t names_wait_us = 250'000;
constexpr std::chrono::hours snapshot_deadline{2};
constexpr uint64_t snapshot_watch_us = 500'000;

/// RssAnon of the process itself.
uint64_t anonymous_memory_bytes() {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line))
        if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) << 10;
    return 0;
}

/// A budget of 0 is none, a cost that was not measured is absent.
json overhead_answer(unsigned budget_permille, const OverheadFigures& figures) {
    json thinned = json::array();
    for (const auto& one : figures.thinned) thinned.push_back({{"op", op_name(one.op)}, {"weight", one.weight}});
    return {{"budget_permille", budget_permille != 0 ? json(budget_permille) : json()},
            {"measured_permille", figures.permille ? json(*figures.permille) : json()},
            {"thinned", std::move(thinned)}};
}

json slices_json(const std::optional<Slices::Stage>& stage) {
    if (!stage) return nullptr;
    json ops = json::array();
    for (const OpId op : stage->ops) ops.push_back(op_name(op));
    return {{"ops", std::move(ops)},
            {"share", stage->share > 0 ? json(stage->share) : json()},
            {"count_error", stage->count_error ? json(*stage->count_error) : json()},
            {"reason", stage->why_not.empty() ? json() : json(stage->why_not)}};
}

json spans_answer(const SpanFigures& figures, uint64_t dropped) {
    json refused = json::object();
    for (size_t i = 0; i < figures.refused.size(); ++i)
        if (figures.refused[i] != 0) refused[std::string(to_string(static_cast<SpanRefusal>(i)))] = figures.refused[i];
    return {{"connections", figures.connections},
            {"accepted", figures.accepted},
            {"waiting", figures.waiting},
            {"dropped", dropped},
            {"refused", std::move(refused)}};
}

/// Hides the figures of what the programs of all users do, for those who do not see them. Losses stay: they say how far
/// answers can be trusted.
void leave_out_activity(json& status) {
    for (const char* name : {"recorded", "committed", "waits", "sampled_out", "split_uncertain"})
        status["events"][name] = nullptr;
    for (const char* name : {"connections", "accepted", "waiting", "dropped", "refused"})
        status["spans"][name] = nullptr;
    status["overhead"]["thinned"] = nullptr;
    status["traces"] = nullptr;
}

}  // namespace

json Manager::status(const Caller& caller) {
    const IngestFigures figures = ingest_->figures();
    const ClockTriple now = ClockTriple::now();
    Coverage coverage;
    coverage.lost = figures.lost + figures.commits.dropped;
    if (caller.sees_all) coverage.sampled_out = figures.thinned;
    coverage.complete = coverage.lost == 0 && coverage.sampled_out == 0;
    json answer = answer_head("status", {.node = node_, .missing_probes = missing_probes(caller), .comms = {}},
                              {started_.realtime_ns, now.realtime_ns}, coverage);
    answer["state"] = state();
    answer["version"] = version;
    answer["uptime_ns"] = now.monotonic_ns - started_.monotonic_ns;
    answer["events"] = {{"recorded", figures.recorded},    {"committed", figures.commits.committed_sequence},
                        {"waits", figures.waits},          {"lost", coverage.lost},
                        {"sampled_out", figures.thinned},  {"split_uncertain", figures.uncertain},
                        {"stacks_lost", stacks_->lost()},  {"stacks_lost_ring", stacks_->lost_in_ring()},
                        {"names_lost", figures.names_lost}};
    answer["overhead"] = overhead_answer(options_.config.overhead_budget_permille, figures.overhead);
    answer["overhead"]["in_slices"] =
        std::count_if(processes_->all().begin(), processes_->all().end(), [&](const auto& entry) {
            const Process& process = entry.second.process;
            if (!caller.sees_all && process.uid != caller.uid) return false;
            const auto stage = slices_->stage_of(process.key);
            return stage && !stage->ops.empty();
        });
    answer["store"] = {
        {"bytes", figures.commits.store.bytes},
        {"cap_bytes", figures.commits.store.cap_bytes},
        {"oldest_ns",
         figures.commits.store.oldest_realtime_ns ? json(figures.commits.store.oldest_realtime_ns) : json()}};
    answer["memory_bytes"] = anonymous_memory_bytes();
    answer["processes"] = processes_->traced();
    answer["sockets"] = sockets_;
    answer["traces"] = live_trace_->subscribers();
    answer["spans"] = spans_answer(spans_->figures(), figures.commits.store.spans_dropped_for_space);
    answer["relay"] = relay_->status();
    answer["relay"]["dropped"] = figures.commits.store.states_dropped_for_space;
    answer["incidents_open"] = incidents_.open().size();
    if (caller.sees_all) return answer;
    leave_out_activity(answer);
    const auto own = [&](uint32_t uid) { return uid == caller.uid; };
    answer["processes"] = std::count_if(processes_->all().begin(), processes_->all().end(), [&](const auto& entry) {
        return !entry.second.excluded && own(entry.second.process.uid);
    });
    answer["incidents_open"] = std::count_if(incident_processes_.begin(), incident_processes_.end(),
                                             [&](const auto& incident) { return own(incident.second.uid); });
    return answer;
}

json Manager::processes(const Caller& caller) {
    const ClockTriple now = ClockTriple::now();
    json list = json::array();
    for (const auto& [pid, entry] : processes_->all()) {
        if (entry.excluded || (!caller.sees_all && entry.process.uid != caller.uid)) continue;
        json one = process_json(entry.process);
        one["start_time_ns"] = entry.process.key.start_ns - now.boottime_ns + now.realtime_ns;
        one["calls_per_s"] = entry.calls_per_s;
        one["state"] = processes_->state_of(entry);
        one["slices"] = slices_json(slices_->stage_of(entry.process.key));
        if (const auto use = relay_->use_of(entry.process.key, now)) {
            one["devices"] = use->devices;
            if (use->memory_bytes) one["gpu_memory_bytes"] = *use->memory_bytes;
        }
        list.push_back(std::move(one));
    }
    Coverage coverage;
    const IngestFigures figures = ingest_->figures();
    coverage.lost = figures.lost + figures.commits.dropped;
    if (caller.sees_all) coverage.sampled_out = figures.thinned;
    coverage.complete = coverage.lost == 0 && figures.thinned == 0;
    json answer = answer_head("processes", {.node = node_, .missing_probes = missing_probes(caller), .comms = {}},
                              {started_.realtime_ns, now.realtime_ns}, coverage);
    answer["processes"] = std::move(list);
    return answer;
}

json Manager::probes(const Caller& caller) {
    const ClockTriple now = ClockTriple::now();
    const IngestFigures figures = ingest_->figures();
    Coverage coverage;
    coverage.lost = figures.lost + figures.commits.dropped;
    if (caller.sees_all) coverage.sampled_out = figures.thinned;
    coverage.complete = coverage.lost == 0 && figures.thinned == 0;
    json answer = answer_head("probes", {.node = node_, .missing_probes = missing_probes(caller), .comms = {}},
                              {started_.realtime_ns, now.realtime_ns}, coverage);
    answer["attach_method"] = to_string(probes_->method());
    answer.update(probe_figures(
        *libraries_, probes_->counters(), [this](std::string_view set) { return disabled_sets_.contains(set); },
        [&](const LibraryKey& key, const LibraryEntry& entry) { return may_see(caller, key, entry); },
        caller.sees_all));
    return answer;
}

std::vector<MappedLibrary> Manager::mapped_libraries(const Caller& caller) const {
    std::vector<MappedLibrary> list;
    for (const auto& [id, entry] : libraries_->all()) {
        const auto uses = [&, file = id](const auto& process) {
            return (caller.sees_all || process.second.process.uid == caller.uid) &&
                   process.second.libraries.contains(file);
        };
        const auto count = static_cast<size_t>(std::count_if(processes_->all().begin(), processes_->all().end(), uses));
        if (count == 0 || list.size() == max_listed) continue;
        list.push_back({.path = entry.path,
                        .processes = count,
                        .reading = entry.state == LibraryState::reading,
                        .reason = entry.reason,
                        .degrades = entry.degrades,
                        .symbols = entry.symbols,
                        .traced = entry.attached != nullptr});
    }
    return list;
}

void Manager::check(const Caller& caller, bool probe, std::function<void(Result<json>)> done) {
    // A stranger who asks again and again gets what was found a moment ago.
    const auto max_age = std::chrono::seconds(caller.sees_all ? 0 : 10);
    check_runner_.run(probe, max_age, [this, caller, done = std::move(done)](Result<json> answer) {
        if (!answer) return done(std::move(answer));
        done(add_daemon_checks(std::move(*answer), {.node = node_,
                                                    .version = version,
                                                    .state = state(),
                                                    .attach_method = std::string(to_string(probes_->method())),
                                                    .store_error = ingest_->figures().commits.store_error,
                                                    .missing_probes = missing_probes(caller),
                                                    .libraries = mapped_libraries(caller)}));
    });
}

/// What a worker is asked for this caller: with what only the daemon knows, once what is asked about is stored.
json Manager::worker_params(const Caller& caller, const std::string& method, json params) const {
    if (method == "stragglers") params["options"] = straggler_options_json(options_.config.stragglers);
    if (method == "stacks") params["stacks_lost"] = stacks_->lost();
    params["missing_probes"] = missing_probes(caller);
    params.erase("request_hash");
    if (const auto id = params.find("request"); method == "requests" && id != params.end() && id->is_string())
        if (auto hash = spans_->hash_of(id->get_ref<const std::string&>())) params["request_hash"] = std::move(*hash);
    params.erase("uid");
    if (!caller.sees_all) params["uid"] = caller.uid;
    return params;
}

/// A window up to now ends where the caller asked, not where the worker gets to look.
json Manager::with_window(const std::string& method, json params) {
    const bool has_window = params.contains("since_ns") || params.contains("from_ns");
    const bool windowless = !has_window && (method == "query" || (method == "incidents" && params.contains("id")));
    if (windowless && method == "incidents") params["whole_trace"] = true;
    if (windowless || params.contains("from_ns")) return params;
    const auto since = params.find("since_ns");
    const uint64_t length =
        since != params.end() && since->is_number_unsigned() ? since->get<uint64_t>() : default_window_ns;
    const uint64_t now = ClockTriple::now().realtime_ns;
    params["from_ns"] = now - std::min(now, length);
    params["to_ns"] = now;
    params.erase("since_ns");
    return params;
}

void Manager::when_stored(const std::string& method, const json& params, std::function<void()> then) {
    // The pages of an export are of one window, which has been committed since the first.
    if (params.contains("cursor") && !params["cursor"].is_null()) return then();
    if (method != "record") return after_commit(answer_wait_us, std::move(then));
    // What ends a recording takes along the names of what was called last.
    if (stacks_ && params.value("rest", false))
        return stacks_->when_named([this, then = std::move(then)] { after_commit(recording_wait_us, then); });
    after_commit(recording_wait_us, std::move(then));
}

void Manager::hand_over(const Caller& caller, const std::string& method, const json& params, HandedOver client) {
    when_stored(
        method, params,
        [this, caller, method, client = std::move(client), asked = with_window(method, params), alive = alive_] {
            if (!*alive) return client.done(fail(ErrorCode::busy, "ingerod is stopping"));
            if (client.connection() < 0) return;  // it has hung up meanwhile
            workers_->answer({owners_.owner_of(caller.uid), caller.sees_all}, method,
                             worker_params(caller, method, asked), client);
        });
}

void Manager::query(const Caller& caller, const std::string& method, const json& params,
                    std::function<void(Result<json>)> done) {
    when_stored(method, params,
                [this, caller, method, done = std::move(done), asked = with_window(method, params), alive = alive_] {
                    if (!*alive) return done(fail(ErrorCode::busy, "ingerod is stopping"));
                    workers_->request({owners_.owner_of(caller.uid), caller.sees_all}, method,
                                      worker_params(caller, method, asked), std::nullopt, done);
                });
}

WorkerOptions Manager::worker_options() const {
    const Config& config = options_.config;
    WorkerOptions workers;
    workers.program = options_.worker_program;
    workers.store_directory = config.store_path;
    workers.store_is_checked = true;  // as it was opened for writing
    workers.node = node_;
    workers.count = config.worker_count;
    workers.memory_bytes = config.worker_memory_bytes;
    workers.deadline = config.worker_deadline;
    return workers;
}

// A worker of its own: a copy may take minutes, and no query waits for it.
void Manager::snapshot(UniqueFd file, std::function<bool()> wanted, std::function<void(Result<json>)> done) {
    if (snapshot_workers_)
        return done(fail(ErrorCode::busy, "another copy of the store is being made", "wait until it is finished"));
    WorkerOptions workers = worker_options();
    workers.count = 1;
    workers.deadline = snapshot_deadline;
    snapshot_workers_ = std::make_unique<WorkerPool>(loop_, std::move(workers));
    snapshot_wanted_ = std::move(wanted);
    watch_snapshot();
    const uint64_t number = ++snapshots_;
    const auto kept = std::make_shared<UniqueFd>(std::move(file));
    after_commit(answer_wait_us, [this, number, kept, done = std::move(done), alive = alive_] {
        if (!*alive) return done(fail(ErrorCode::busy, "ingerod is stopping"));
        if (!snapshot_workers_ || snapshots_ != number) return;
        snapshot_workers_->request(no_user, "snapshot", json::object(), kept->get(), [this, done](Result<json> answer) {
            snapshot_watch_.reset();
            snapshot_workers_.reset();
            done(std::move(answer));
        });
    });
}

// Nobody waits for it any more: then the old pages it holds back are worth more.
void Manager::watch_snapshot() {
    snapshot_watch_ = loop_.add_timer(snapshot_watch_us, [this] {
        if (snapshot_wanted_()) return watch_snapshot();
        snapshot_workers_.reset();
    });
}

// What was recorded up to now is in the store before a worker looks; a stalled disk holds nobody back for long, and the
// answer's coverage then says what is not yet stored.
void Manager::after_commit(uint64_t most_us, std::function<void()> then) {
    // Behind a disk that stands still, nothing is kept of who has been answered.
    auto begin = [waiting = std::make_shared<std::function<void()>>(std::move(then))] {
        if (const auto once = std::exchange(*waiting, {})) once();
    };
    auto timer = std::make_shared<EventLoop::Source>(loop_.add_timer(most_us, begin));
    ingest_->commit_now([begin, timer] {
        begin();
        timer->reset();
    });
}

McpServer::Host Manager::mcp_host() {
    return {.worker_options = [this] { return worker_options(); },
            .status = [this](const Caller& caller) { return status(caller); },
            .processes = [this](const Caller& caller) { return processes(caller); },
            .check = [this](const Caller& caller, auto done) { check(caller, false, std::move(done)); },
            .commit =
                [this](const Caller& caller, auto done) {
                    after_commit(answer_wait_us, [this, caller, done = std::move(done), alive = alive_] {
                        if (*alive)
                            done({{"missing_probes", missing_probes(caller)},
                                  {"stacks_lost", stacks_->lost()},
                                  {"straggler_options", straggler_options_json(options_.config.stragglers)}});
                    });
                }};
}

Result<std::unique_ptr<LiveStream>> Manager::trace(const Caller& caller, const json& params,
                                                   std::function<void()> on_ready) {
    auto filter = parse_trace_filter(params);
    if (!filter) return tl::unexpected(filter.error());
    return live_trace_->subscribe(caller, std::move(*filter), std::move(on_ready));
}

// Names are a target's text, and are demangled: a worker's business.
void Manager::name_functions(std::vector<LiveTrace::Handle> handles, std::function<void(LiveTrace::Names)> done) {
    after_commit(names_wait_us, [this, handles = std::move(handles), done = std::move(done), alive = alive_] {
        if (!*alive) return;
        json wanted = json::array();
        for (const auto& [process, handle] : handles) wanted.push_back({process.pid, process.start_ns, handle});
        workers_->request(no_user, "names", {{"functions", std::move(wanted)}}, std::nullopt,
                          [handles, done](const Result<json>& answer) {
                              LiveTrace::Names names;
                              const json none = json::array();
                              const json& found = answer && answer->is_object() && answer->contains("names")
                                                      ? (*answer)["names"]
                                                      : none;
                              for (size_t i = 0; found.is_array() && i < std::min(found.size(), handles.size()); ++i)
                                  if (found[i].is_string()) names[handles[i]] = found[i].get<std::string>();
                              done(std::move(names));
                          });
    });
}

}  // namespace ingero
