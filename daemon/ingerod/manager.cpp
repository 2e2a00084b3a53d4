#include "daemon/ingerod/manager.h"

#include <spdlog/spdlog.h>
#include <sys/utsname.h>
#include <syslog.h>
#include <systemd/sd-id128.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "core/model/op.h"
#include "core/query/coverage.h"
#include "core/render/render.h"
#include "core/wire/utf8.h"
#include "daemon/ingerod/check/host_checks.h"
#include "daemon/ingerod/version.h"

namespace ingero {

using nlohmann::json;

namespace {

/// Libraries and missing probes named in an answer.
constexpr size_t max_listed = 256;
constexpr uint64_t loss_period_ns = 60'000'000'000;
constexpr uint64_t rate_period_us = 1'000'000;
constexpr uint64_t settle_us = 10'000;
/// Of a file that takes long to read, while other users' wait.
constexpr std::chrono::milliseconds file_turn{2'000};
/// Names of functions: so long at once, and at the end.
constexpr uint64_t name_turn_ns = 5'000'000;
constexpr uint64_t last_names_ns = 1'000'000'000;
constexpr uint64_t rescan_period_us = 1'000'000;
/// Who reads the journal, and who may reload.
constexpr Caller everything{.uid = 0, .pid = 0, .sees_all = true};

std::string kernel_release() {
    utsname names{};
    return uname(&names) == 0 ? names.release : "";
}

std::string id_text(int (*get)(sd_id128_t*)) {
    sd_id128_t id;
    char text[SD_ID128_STRING_MAX];
    return get(&id) >= 0 ? sd_id128_to_string(id, text) : "";
}

}  // namespace

Manager::Manager(EventLoop& loop, const Journal& journal, ManagerOptions options)
    : loop_(loop),
      journal_(journal),
      options_(std::move(options)),
      node_(options_.config.node),
      other_names_(options_.config.named_others),
      owners_(UidOwners::read()),
      started_(ClockTriple::now()),
      features_(options_.denied_features),
      check_runner_(loop, options_.check_command),
      incidents_(id_text(sd_id128_get_boot), {.quiet_to_close_ns = options_.config.close_after_ns}) {
    proc_.trust_fuse(options_.config.trusted_fuse);
}

Manager::~Manager() {
    *alive_ = false;
    // Probes first: what they have written is drained and committed, and only then is the session's end known.
    watch_.reset();
    spans_.reset();
    relay_.reset();
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

Result<void> Manager::open() {
    const Config& config = options_.config;
    if (!may_look_at_other_users())
        blind_ = "all processes of other users: ingerod cannot inspect them without CAP_SYS_PTRACE";
    StoreOptions limits;
    limits.max_size_bytes = config.store_max_size_bytes;
    limits.max_age_ns = config.store_max_age_ns;
    limits.max_rollup_age_ns = config.store_rollup_age_ns;
    store_owners_->store(std::make_shared<const UidOwners>(owners_));
    limits.owner_of = [owners = store_owners_](uint32_t uid) { return owners->load()->owner_of(uid); };
    auto store = StoreWriter::open(config.store_path, limits);
    if (!store) return tl::unexpected(store.error());
    auto probes = CallProbes::load(features_);
    if (!probes) return tl::unexpected(probes.error());
    probes_ = std::move(*probes);
    if (probes_->spares_filtered())
        spdlog::warn("{}: {} is traced, since tracing might kill it. See return-probes of `ingerod --check`",
                     features_.why_not(Feature::return_passes_filters),
                     probes_->method() == AttachMethod::uprobe_session ? "no program under a filter" : "no program");
    if (const auto cost = probes_->calibrate(); !cost)
        spdlog::warn("cannot measure what a call costs, so the overhead is not bounded: {}", cost.error().message);
    else
        spdlog::debug("a recorded call costs {} ns, one without a record {} ns; of {} calls {} left none",
                      cost->call_ns, cost->unkept_ns, cost->calls, cost->unkept_calls);
    probes_->set_overhead_budget(config.overhead_budget_permille);
    probes_->host().set_floor(config.wait_floor_ns);

    Session session;
    session.id = id_text([](sd_id128_t* id) { return sd_id128_randomize(id); });
    session.boot_id = id_text(sd_id128_get_boot);
    session.machine_id = id_text(sd_id128_get_machine);
    session.node = node_;
    session.version = version;
    session.kernel = kernel_release();
    session.attach_method = to_string(probes_->method());
    session.clock = session.latest_clock = started_;
    if (auto begun = (*store)->begin_session(session); !begun) return tl::unexpected(begun.error());

    WorkerOptions workers = worker_options();
    workers_ = std::make_unique<WorkerPool>(loop_, workers);
    workers.count = 1;
    workers.turn = file_turn;
    // What a file's bytes may have made of a worker reads no event, and no file that others wrote.
    workers.store_directory.clear();
    workers.one_owner_each = true;
    file_workers_ = std::make_unique<WorkerPool>(loop_, workers);

    const StoreFigures stored = (*store)->figures();
    live_ = std::make_unique<LiveDiagnosis>(loop_, session.boot_id, config.stragglers,
                                            [this](const DiagnosisPass& pass) { on_pass(pass); });
    live_trace_ = std::make_unique<LiveTrace>(
        loop_,
        LiveTrace::Host{
            .find_process = [this](const ProcessKey& key) -> const Process* {
                const ProcessEntry* entry = processes_->find(key);
                return entry && !entry->excluded ? &entry->process : nullptr;
            },
            .in_flight = [this](uint64_t floor, const auto& visit) { return probes_->in_flight().read(floor, visit); },
            .names = [this](auto handles, auto done) { name_functions(std::move(handles), std::move(done)); },
            .owner_of = owner_of()},
        config.in_flight_floor_ns);
    ingest_ = std::make_unique<Ingest>(
        loop_, *probes_, std::move(*store),
        Ingest::Callbacks{.on_new_process = [this](ProcessKey key) { processes_->on_call(key); },
                          .on_process_change =
                              [this](const auto& change) {
                                  if (options_.config.wait_floor_ns != 0) host_rows_->on_change(change);
                                  processes_->on_change(change);
                              },
                          .on_bystander = [this](const WaitRow& row) { host_rows_->on_bystander(row); },
                          .on_preemptors = [this](const auto& pids) { host_rows_->on_preemptors(pids); },
                          .on_socket = [this](const SocketRow& row) { host_rows_->on_socket(row); },
                          .on_stack =
                              [this](const auto& stack) {
                                  if (stacks_) stacks_->on_stack(stack);
                              },
                          .on_unread_name =
                              [this](FunctionRow function, uint64_t address) {
                                  unread_names_.emplace_back(std::move(function), address);
                                  if (unread_names_.size() == 1) read_names_later();
                              },
                          .on_events = [this](const auto& events, uint64_t lost) { live_->add(events, lost); },
                          .on_call = [this](const Event& call) { live_trace_->offer(call); },
                          .on_drained = [this] { live_trace_->flush(); },
                          .on_communicator = [this](const auto& row) { live_->put_communicator(row); },
                          .hide_names = other_names_.hides_any() ? std::function<void(Event&)>([this](Event& event) {
                              other_names_.hide(event);
                          })
                                                                 : nullptr,
                          .owner_of = owner_of()});

    stacks_ = std::make_unique<NativeStacks>(
        loop_, probes_->stack_maps(), *file_workers_, proc_, owners_,
        NativeStacks::Store{.put_stack = [this](StackRow row) { ingest_->put_stack(std::move(row)); },
                            .put_file = [this](FileRow row) { ingest_->put_file(std::move(row)); },
                            .put_symbol = [this](SymbolRow row) { ingest_->put_symbol(std::move(row)); },
                            .last_stack = stored.last_stack,
                            .last_file = stored.last_file},
        config.native_stacks);

    auto watch =
        MmapWatch::start(loop_, [](std::string_view path) { return library_of_path(path).has_value(); }, may_be_program,
                         {.on_mapping = [this](uint32_t pid, const Mapping& mapping,
                                               uint64_t time_ns) { processes_->on_mapping(pid, mapping, time_ns); },
                          .on_executable =
                              [this](uint32_t pid) {
                                  stacks_->on_executable_mapping(pid);
                                  mapped_text_.forget(pid);
                              },
                          .on_program = [this](uint32_t pid, const Mapping& mapping,
                                               uint64_t time_ns) { programs_->look(pid, mapping, time_ns); },
                          .on_lost = [this] { rescan_soon(); }});
    if (!watch) return tl::unexpected(watch.error());
    watch_ = std::move(*watch);
    libraries_ = std::make_unique<Libraries>(
        loop_, proc_,
        Libraries::Attacher{[this](int fd, auto sites) { return probes_->attach(fd, sites); },
                            std::string(to_string(probes_->method()))},
        *file_workers_, owners_,
        Libraries::Callbacks{.on_change = [this] { changed(); },
                             .on_settled = [this](const auto& key) { processes_->on_settled(key); },
                             .on_let_go = [this](const auto& key) { processes_->on_let_go(key); },
                             .off = [this](std::string_view set) { return disabled_sets_.contains(set); },
                             .in_use = [this](const auto& key) { return processes_->has_library(key); },
                             .uids = [this](const auto& key) { return processes_->uids_of(key); }});
    programs_ = std::make_unique<Programs>(
        proc_, *file_workers_,
        Programs::Callbacks{.on_found = [this](uint32_t pid, const Mapping& mapping,
                                               uint64_t time_ns) { processes_->on_program(pid, mapping, time_ns); },
                            .on_unexamined =
                                [this](uint32_t pid, const Mapping& mapping, uint64_t time_ns, const std::string& why) {
                                    processes_->on_unexamined(pid, mapping, time_ns, why);
                                }});
    auto policy = CapturePolicy::parse(config.capture_include, config.capture_exclude);
    if (!policy) return tl::unexpected(policy.error());
    processes_ = std::make_unique<Processes>(
        loop_, proc_, *libraries_, probes_->gate(), owners_, ProcessLimits::of_descriptors(),
        Processes::Callbacks{.on_change = [this] { changed(); },
                             .put_process = [this](const Process& process) { put_process(process); },
                             .on_not_traced =
                                 [this](const ProcessKey& key) {
                                     ingest_->forget(key);
                                     stacks_->on_process_gone(key);
                                 },
                             .put_gap = [this](GapRow gap) { ingest_->put_gap(std::move(gap)); },
                             .look_at_program = [this](uint32_t pid, const Mapping& mapping,
                                                       uint64_t time_ns) { programs_->look(pid, mapping, time_ns); },
                             .on_exec = [this](const ProcessKey& key) { stacks_->on_exec(key); },
                             .on_evicted =
                                 [this](const ProcessKey& key) {
                                     if (spans_) spans_->forget(key);
                                 }});
    host_rows_ =
        std::make_unique<HostRows>(proc_, *processes_,
                                   HostRows::Store{.put_process =
                                                       [this](Process process) {
                                                           if (!other_names_.shows(process.comm)) return;
                                                           live_->put_process(process);
                                                           ingest_->put_process(std::move(process));
                                                       },
                                                   .put_event = [this](Event event) { ingest_->put_event(event); }});
    host_state_ = std::make_unique<HostState>([this](StateRow row) { ingest_->put_state(std::move(row)); });
    processes_->set_facts(config.facts);
    processes_->set_policy(std::move(*policy));
    footprints_ = std::make_unique<Footprints>(
        loop_, proc_,
        Footprints::Host{.node = node_,
                         .excluded = [this](const Process& process) { return processes_->excluded_by(process); },
                         .owner_of = owner_of()});
    if (auto opened = open_spans(); !opened) return opened;
    relay_ = std::make_unique<RelayServer>(loop_, config.gpu_poll_ns, [this](StateRow row) {
        live_->add_state(row);
        ingest_->put_state(std::move(row));
    });
    ingest_->start();
    processes_->scan(started_.monotonic_ns);
    scanned_ = true;
    begin_coverage();
    if (!blind_.empty()) spdlog::warn("not traced: {}", blind_);
    return {};
}

Result<std::optional<SpanHash>> Manager::span_hash() const {
    if (!options_.config.hash_span_ids) return std::optional<SpanHash>();
    const auto directory = std::filesystem::path(options_.config.store_path).parent_path();
    auto hash = SpanHash::open(directory / "span-ids.key");
    if (!hash) return tl::unexpected(hash.error());
    return std::optional(std::move(*hash));
}

Result<void> Manager::open_spans() {
    auto hash = span_hash();
    if (!hash) return tl::unexpected(hash.error());
    spans_ = std::make_unique<SpanServer>(
        loop_, proc_,
        SpanServer::Host{.store =
                             [this](auto rows, auto done) {
                                 live_->add_spans(rows);
                                 ingest_->put_spans(std::move(rows), std::move(done));
                             },
                         .oldest_ns =
                             [this] {
                                 const StoreFigures store = ingest_->figures().commits.store;
                                 const uint64_t oldest = store.oldest_realtime_ns;
                                 // Of this run, and nothing has gone: there just was no call before.
                                 const bool is_first =
                                     oldest > started_.realtime_ns && store.events_dropped_for_space == 0;
                                 // One before this boot: then all of it is kept.
                                 return oldest == 0 || is_first ? 0 : ClockTriple::now().to_monotonic(oldest);
                             },
                         .waiting_bytes = std::min<uint64_t>(32 << 20, options_.config.store_max_size_bytes / 64),
                         .owner_of = owner_of()},
        options_.config.span_quota());
    spans_->set_hash(std::move(*hash));
    return {};
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

void Manager::rescan_soon() {
    if (const auto more = lost_mappings_log_.take())
        spdlog::warn("the kernel dropped mmap records: scanning all processes again{}", *more);
    if (rescan_.active()) return;
    const uint64_t since_us = (monotonic_now_ns() - rescanned_ns_) / 1'000;
    rescan_ = loop_.add_timer(std::max(settle_us, rescan_period_us - std::min(since_us, rescan_period_us)),
                              [this] { rescan(); });
}

void Manager::rescan() {
    rescan_.reset();
    processes_->scan_in_turns(started_.monotonic_ns);
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
    tell_loss();
    // A disk that fills up, or has room again, is no change of a process or a library.
    if (state() != journaled_state_) changed();
    std::set<ProcessKey> traced;
    for (const auto& [pid, entry] : processes_->all())
        if (options_.config.wait_floor_ns != 0 && !entry.excluded) traced.insert(entry.process.key);
    host_state_->measure(traced, monotonic_now_ns());
    host_rows_->sweep();
    for (const ProcessActivity& activity : ingest_->activity()) {
        ProcessEntry* known = processes_->find(activity.key);
        if (!known) continue;
        known->calls_per_s = static_cast<double>(activity.calls - known->calls_before);
        known->calls_before = activity.calls;
    }
}

void Manager::tell_loss() {
    const IngestFigures figures = ingest_->figures();
    const uint64_t lost = figures.lost + figures.commits.dropped, now = monotonic_now_ns();
    if (std::exchange(seen_lost_, lost) != lost) {
        changed();
        notices_.send({{"event", "events-lost"}, {"events_lost", lost}}, std::nullopt);
    }
    if (lost == told_lost_ || now - loss_told_ns_ < loss_period_ns) return;
    journal_.send(
        MessageKind::loss, LOG_WARNING,
        std::to_string(lost - told_lost_) + " calls were not recorded, " + std::to_string(lost) + " since the start");
    told_lost_ = lost;
    loss_told_ns_ = now;
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
    if (others != 0) result.push_back("files of other users: " + std::to_string(others));
    if (!blind_.empty()) result.push_back(blind_);
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

// Once for all that changes in a turn of the loop: what is told then goes through all processes.
void Manager::changed() {
    if (!change_.active())
        change_ = loop_.defer([this] {
            change_.reset();
            tell_change();
        });
}

void Manager::tell_change() {
    begin_coverage();
    if (processes_->all().empty())
        rate_timer_.reset();
    else if (!rate_timer_.active())
        rate_timer_ = loop_.add_periodic(
            rate_period_us, [this] { measure_rates(); }, 100'000);
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
            .store_bytes = ingest.commits.store.bytes};
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
    config.wait_floor_ns = loaded->wait_floor_ns;
    probes_->host().set_floor(config.wait_floor_ns);
    if (processes_->traced() != 0) probes_->host().begin();
    config.in_flight_floor_ns = loaded->in_flight_floor_ns;
    live_trace_->set_in_flight_floor(config.in_flight_floor_ns);
    config.span_rate = loaded->span_rate;
    spans_->set_quota(config.span_quota());
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
