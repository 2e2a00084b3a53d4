#include "daemon/ingerod/manager.h"

#include <spdlog/spdlog.h>
#include <syslog.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/model/op.h"
#include "core/model/text/format.h"
#include "core/query/coverage.h"
#include "core/render/render.h"
#include "core/wire/utf8.h"
#include "daemon/ingerod/version.h"

namespace ingero {

using nlohmann::json;

namespace {

/// Libraries and missing probes named in an answer.
constexpr size_t max_listed = 256;
constexpr uint64_t loss_period_ns = 60'000'000'000;
constexpr uint64_t rate_period_us = 1'000'000;
constexpr uint64_t settle_us = 10'000;
/// Names of functions: so long at once, and at the end.
constexpr uint64_t name_turn_ns = 5'000'000;
constexpr uint64_t last_names_ns = 1'000'000'000;
constexpr uint64_t rescan_period_us = 1'000'000;
/// Who reads the journal, and who may reload.
constexpr Caller everything{.uid = 0, .pid = 0, .sees_all = true};

}  // namespace

Manager::~Manager() {
    *alive_ = false;
    // Probes first: what they have written is drained and committed, and only then is the session's end known.
    watch_.reset();
    spans_.reset();
    relay_.reset();
    slices_.reset();
    if (processes_) processes_->close_gaps();
    if (probes_) probes_->begin_detaching();
    if (libraries_) libraries_->stop();
    if (ingest_) {
        ingest_->stop_reading();
        read_names(monotonic_now_ns() + last_names_ns);
        for (size_t i = 0; i < unread_names_.size(); ++i) ingest_->lose_name();
    }
    libraries_.reset();
    stacks_.reset();
    ingest_.reset();
    live_trace_.reset();
    live_.reset();
    probes_.reset();
}

Result<std::unique_ptr<Manager>> Manager::start(EventLoop& loop, const Journal& journal, ManagerOptions options) {
    std::unique_ptr<Manager> manager(new Manager(loop, journal, std::move(options)));
    if (auto opened = manager->open(); !opened) return tl::unexpected(opened.error());
    return manager;
}

// However often records are lost: soon after the first, and not again for a while.
void Manager::read_names_later() {
    name_turn_ = loop_.defer([this] {
        read_names(monotonic_now_ns() + name_turn_ns);
        if (!unread_names_.empty()) read_names_later();
    });
}

void Manager::read_names(uint64_t until_ns) {
    while (!unread_names_.empty() && monotonic_now_ns() < until_ns) {
        auto [function, address] = std::move(unread_names_.front());
        unread_names_.pop_front();
        auto name = mapped_text_.read(function.process, address, INGERO_MAX_NAME - 1);
        if (!name) {
            ingest_->lose_name();
            continue;
        }
        function.name = std::move(*name);
        ingest_->put_function(std::move(function));
    }
    if (unread_names_.empty()) mapped_text_.forget_all();
}

void Manager::on_lost_mappings(uint64_t since_ns) {
    if (const auto more = lost_mappings_log_.take())
        spdlog::warn("the kernel dropped mmap records: scanning all processes again{}", *more);
    rescan_soon(since_ns);
}

void Manager::rescan_soon(uint64_t since_ns) {
    lost_since_ns_ = std::min(lost_since_ns_, since_ns);
    if (rescan_.active()) return;
    const uint64_t since_us = (monotonic_now_ns() - rescanned_ns_) / 1'000;
    rescan_ = loop_.add_timer(std::max(settle_us, rescan_period_us - std::min(since_us, rescan_period_us)),
                              [this] { rescan(); });
}

void Manager::rescan() {
    rescan_.reset();
    processes_->scan_in_turns(std::exchange(lost_since_ns_, UINT64_MAX));
    rescanned_ns_ = monotonic_now_ns();
}

void Manager::put_process(const Process& process) {
    probes_->host().begin();
    ingest_->put_process(process);
    live_->put_process(process);
    if (spans_) spans_->on_process(process);
    if (process.exited_ns != 0)
        stacks_->on_process_gone(process.key);
    else
        stacks_->add_process(process.key);
}

void Manager::measure_rates() {
    log_loss();
    // A disk that fills up, or has room again, is no change of a process or a library.
    if (state() != journaled_state_) changed();
    std::set<ProcessKey> traced;
    for (const auto& [pid, entry] : processes_->all())
        if (options_.config.wait_floor_ns != 0 && !entry.excluded) traced.insert(entry.process.key);
    host_state_->measure(traced, monotonic_now_ns());
    host_rows_->sweep();
    for (const ProcessKey& key : std::exchange(ranked_, {})) processes_->on_ranked(key);
    for (const ProcessActivity& activity : ingest_->activity()) {
        ProcessEntry* known = processes_->find(activity.key);
        if (!known) continue;
        known->calls_per_s = static_cast<double>(activity.calls - known->calls_before);
        known->calls_before = activity.calls;
    }
}

void Manager::log_loss() {
    const IngestFigures figures = ingest_->figures();
    const uint64_t lost = figures.lost + figures.commits.dropped, now = monotonic_now_ns();
    if (std::exchange(seen_lost_, lost) != lost) {
        changed();
        notices_.send({{"event", "events-lost"}, {"events_lost", lost}}, std::nullopt);
    }
    if (lost == logged_lost_ || now - loss_logged_ns_ < loss_period_ns) return;
    journal_.send(
        MessageKind::loss, LOG_WARNING,
        std::to_string(lost - logged_lost_) + " calls were not recorded, " + std::to_string(lost) + " since the start");
    logged_lost_ = lost;
    loss_logged_ns_ = now;
}

std::string Manager::state() const {
    if (!ingest_->figures().commits.store_error.empty() || !blind_.empty()) return "degraded";
    bool reading = false, attached = false;
    for (const auto& [id, library] : libraries_->all()) {
        if (library.degrades) return "degraded";
        reading |= library.state == LibraryState::reading;
        attached |= library.state == LibraryState::attached;
    }
    if (reading) return "starting";
    return attached && processes_->traced() != 0 ? "tracing" : "idle";
}

bool Manager::may_see(const Caller& caller, const LibraryKey& key, const LibraryEntry& entry) const {
    if (caller.sees_all || entry.is_system_wide()) return true;
    return std::any_of(processes_->all().begin(), processes_->all().end(), [&](const auto& process) {
        return process.second.process.uid == caller.uid && process.second.libraries.contains(key);
    });
}

// Do not reveal library paths in other users' home directories.
std::vector<std::string> Manager::missing_probes(const Caller& caller) const {
    std::set<std::string> missing;
    size_t others = 0;
    for (const auto& [id, library] : libraries_->all()) {
        if (!library.degrades || missing.size() == max_listed) continue;
        if (may_see(caller, id, library))
            missing.insert(to_valid_utf8(library.name() + ": " + library.reason));
        else
            ++others;
    }
    std::vector<std::string> result(missing.begin(), missing.end());
    if (others != 0) result.push_back(format_count(others, "library", "libraries") + " of other users");
    if (!blind_.empty()) result.push_back(blind_);
    for (const std::string& tracepoint : probes_->host().missing()) result.push_back(tracepoint);
    for (const std::string& set : disabled_sets_) result.push_back("probe set " + set + ": turned off");
    return result;
}

std::string Manager::status_line() const {
    const IngestFigures figures = ingest_->figures();
    return state() + ": " + std::to_string(processes_->traced()) + " processes, " + std::to_string(figures.recorded) +
           " calls recorded, " + std::to_string(figures.lost + figures.commits.dropped) + " lost";
}

// The store answers for the time from when all that was mapped at the start has its probes: what is mapped later is
// seen as it comes. A library that is tried again holds this up no longer.
void Manager::begin_coverage() {
    if (first_covered_ns_ || !scanned_) return;
    if (!libraries_->settled()) return;
    first_covered_ns_ = monotonic_now_ns();
    ingest_->set_covered_since(*first_covered_ns_);
}

// Calls report_change() once for all that changes in a turn of the loop: it goes through all processes.
void Manager::changed() {
    if (!change_.active())
        change_ = loop_.defer([this] {
            change_.reset();
            report_change();
        });
}

void Manager::report_change() {
    begin_coverage();
    if (processes_->all().empty()) {
        // What is counted until there is another is nobody's.
        if (rate_timer_.active()) host_state_->measure({}, monotonic_now_ns());
        rate_timer_.reset();
    } else if (!rate_timer_.active()) {
        rate_timer_ = loop_.add_periodic(
            rate_period_us, [this] { measure_rates(); }, 100'000);
    }
    // Told once, when it begins: the journal is for what somebody has to look at.
    const std::string now = state();
    if (now == "degraded" && journaled_state_ != now) {
        std::string why = ingest_->figures().commits.store_error;
        for (const std::string& missing : missing_probes(everything)) why += (why.empty() ? "" : "; ") + missing;
        journal_.send(MessageKind::degraded, LOG_WARNING, "degraded: " + escape_text(why));
    }
    journaled_state_ = now;
    if (on_change_) on_change_();
}

PublicFigures Manager::figures() const {
    const IngestFigures ingest = ingest_->figures();
    return {.version = version,
            .state = state(),
            .node = to_valid_utf8(node_),
            .uptime_ns = monotonic_now_ns() - started_.monotonic_ns,
            .events_recorded = ingest.recorded,
            .events_lost = ingest.lost + ingest.commits.dropped,
            .store_bytes = ingest.commits.store.bytes,
            .overhead_permille = ingest.overhead.permille};
}

std::vector<PublicProcess> Manager::public_processes() const {
    std::vector<PublicProcess> list;
    for (const auto& [pid, entry] : processes_->all()) {
        if (entry.excluded) continue;
        list.push_back({.key = entry.process.key,
                        .uid = entry.process.uid,
                        .comm = to_valid_utf8(entry.process.comm),
                        .unit = to_valid_utf8(entry.process.unit),
                        .container = to_valid_utf8(entry.process.facts.container),
                        .state = processes_->state_of(entry)});
    }
    return list;
}

// Everyone reads this, so it has system-wide libraries only. By base name: attached where all copies of the name are.
std::vector<ProbeSetState> Manager::probe_sets() const {
    std::map<std::pair<std::string, std::string_view>, bool> sets;
    for (const auto& [id, library] : libraries_->all()) {
        if (!library.is_system_wide()) continue;
        const std::string name = to_valid_utf8(library.name());
        for (const auto& [set, functions] : library.sets) {
            if (sets.size() >= max_listed && !sets.contains({name, set})) continue;
            const bool attached = library.state == LibraryState::attached && !disabled_sets_.contains(set);
            const auto [known, added] = sets.try_emplace({name, set}, attached);
            if (!added) known->second = known->second && attached;
        }
    }
    std::vector<ProbeSetState> list;
    for (const auto& [key, attached] : sets) list.push_back({key.first, std::string(key.second), attached});
    return list;
}

// A library's probes are one link, and the file is not held open, which would keep a container's mount busy: so all are
// let go and found anew.
Result<void> Manager::set_probe(const std::string& set, bool on) {
    const auto known = all_probe_sets();
    if (std::find(known.begin(), known.end(), set) == known.end()) {
        std::string names;
        for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name);
        return fail(ErrorCode::bad_request, "no such probe set", "known sets: " + names);
    }
    if (on ? disabled_sets_.erase(set) == 0 : !disabled_sets_.insert(set).second) return {};
    spdlog::warn("probe set {} was turned {}", set, on ? "on" : "off");
    processes_->probe_set_turned(set, static_cast<size_t>(std::find(known.begin(), known.end(), set) - known.begin()),
                                 on);
    slices_->begin_anew();
    processes_->look_again();
    changed();
    return {};
}

Result<json> Manager::reload() {
    if (options_.notify_reload) options_.notify_reload(true);
    auto result = take_up_config();
    if (options_.notify_reload) options_.notify_reload(false);
    return result;
}

Result<json> Manager::take_up_config() {
    const auto loaded = options_.load_config();
    if (!loaded) {
        journal_.send(MessageKind::reloaded, LOG_ERR,
                      "the configuration was not reloaded: " + escape_text(loaded.error().message));
        return tl::unexpected(loaded.error());
    }
    json changed = json::array(), needs_restart = json::array();
    std::string text;
    for (const std::string& key : changed_keys(options_.config, *loaded)) {
        changed.push_back(key);
        if (!applies_on_reload(key)) needs_restart.push_back(key);
        text += (text.empty() ? "" : ", ") + key + (applies_on_reload(key) ? "" : " (needs a restart)");
    }
    owners_ = UidOwners::read();
    store_owners_->store(std::make_shared<const UidOwners>(owners_));
    Config& config = options_.config;
    config.overhead_budget_permille = loaded->overhead_budget_permille;
    probes_->set_overhead_budget(config.overhead_budget_permille);
    config.slices = loaded->slices;
    slices_->set_budget(config.slices ? config.overhead_budget_permille : 0);
    config.wait_floor_ns = loaded->wait_floor_ns;
    probes_->host().set_floor(config.wait_floor_ns);
    if (processes_->traced() != 0) probes_->host().begin();
    config.in_flight_floor_ns = loaded->in_flight_floor_ns;
    live_trace_->set_in_flight_floor(config.in_flight_floor_ns);
    config.spans = loaded->spans;
    spans_->set_quota(config.spans);
    config.stragglers = loaded->stragglers;
    live_->set_straggler_options(config.stragglers);
    config.worker_count = loaded->worker_count;
    config.worker_memory_bytes = loaded->worker_memory_bytes;
    config.worker_deadline = loaded->worker_deadline;
    config.native_stacks = loaded->native_stacks;
    stacks_->enable(config.native_stacks);
    config.gpu_poll_ns = loaded->gpu_poll_ns;
    relay_->set_interval(config.gpu_poll_ns);
    config.trusted_fuse = loaded->trusted_fuse;
    proc_.trust_fuse(config.trusted_fuse);
    config.facts = loaded->facts;
    processes_->set_facts(config.facts);
    config.capture_include = loaded->capture_include;
    config.capture_exclude = loaded->capture_exclude;
    if (auto policy = CapturePolicy::parse(config.capture_include, config.capture_exclude))
        processes_->set_policy(std::move(*policy));
    workers_->reconfigure(config.worker_count, config.worker_memory_bytes, config.worker_deadline);
    file_workers_->reconfigure(1, config.worker_memory_bytes, config.worker_deadline);
    journal_.send(MessageKind::reloaded, LOG_NOTICE,
                  "configuration reloaded, changed: " + (text.empty() ? "nothing" : text));
    const uint64_t now = ClockTriple::now().realtime_ns;
    Coverage coverage;
    coverage.complete = true;
    json answer = answer_head("reload", {.node = node_, .missing_probes = missing_probes(everything), .comms = {}},
                              {now, now}, coverage);
    answer["changed"] = std::move(changed);
    answer["needs_restart"] = std::move(needs_restart);
    return answer;
}

}  // namespace ingero
