#include "daemon/ingerod/manager.h"

#include <errno.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <syslog.h>
#include <systemd/sd-id128.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "core/model/op.h"
#include "core/query/coverage.h"
#include "core/render/render.h"
#include "core/wire/utf8.h"
#include "daemon/ingerod/version.h"

namespace ingero {

using nlohmann::json;

namespace {

/// A host may have many copies of a library (one a container image); more from one user is an attack or a mistake.
constexpr unsigned max_libraries_a_uid = 64;
constexpr uint64_t refusal_period_ns = 60'000'000'000;
/// Libraries and missing probes named in an answer.
constexpr size_t max_listed = 256;
constexpr uint64_t loss_period_ns = 60'000'000'000;
constexpr uint64_t rate_period_us = 1'000'000;
constexpr uint64_t default_window_ns = 300'000'000'000;
constexpr uint64_t settle_us = 10'000;
constexpr uint64_t retry_us = 100'000;
constexpr unsigned max_attempts = 10;
constexpr uint64_t disuse_us = 600'000'000;
constexpr uint64_t commit_wait_us = 50'000;
constexpr uint64_t exit_record_us = 250'000;

std::string kernel_release() {
    utsname names{};
    return uname(&names) == 0 ? names.release : "";
}

std::string id_text(int (*get)(sd_id128_t*)) {
    sd_id128_t id;
    char text[SD_ID128_STRING_MAX];
    return get(&id) >= 0 ? sd_id128_to_string(id, text) : "";
}

/// RssAnon of the process itself.
uint64_t anonymous_memory_bytes() {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line))
        if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) << 10;
    return 0;
}

std::string base_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

/// A budget of 0 is none, a cost that was not measured is absent.
json overhead_answer(unsigned budget_permille, const OverheadFigures& figures) {
    json thinned = json::array();
    for (const auto& one : figures.thinned) thinned.push_back({{"op", op_name(one.op)}, {"weight", one.weight}});
    return {{"budget_permille", budget_permille != 0 ? json(budget_permille) : json()},
            {"measured_permille", figures.permille ? json(*figures.permille) : json()},
            {"thinned", std::move(thinned)}};
}

json null_if_empty(const std::string& text) {
    return text.empty() ? json(nullptr) : json(text);
}

}  // namespace

Manager::Manager(EventLoop& loop, const Journal& journal, ManagerOptions options)
    : loop_(loop),
      journal_(journal),
      options_(std::move(options)),
      node_(options_.config.node),
      started_(ClockTriple::now()),
      features_(options_.denied_features),
      incidents_(id_text(sd_id128_get_boot)) {}

Manager::~Manager() {
    *alive_ = false;
    // Probes first: what they have written is drained and committed, and only then is the session's end known.
    watch_.reset();
    libraries_.clear();
    stacks_.reset();
    ingest_.reset();
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
    auto store = StoreWriter::open(config.store_path, {.max_size_bytes = config.store_max_size_bytes});
    if (!store) return tl::unexpected(store.error());
    auto probes = CallProbes::load(features_);
    if (!probes) return tl::unexpected(probes.error());
    probes_ = std::move(*probes);
    if (const auto cost = probes_->calibrate(); !cost)
        spdlog::warn("cannot measure what a call costs, so the overhead is not bounded: {}", cost.error().message);
    else
        spdlog::debug("a recorded call costs {} ns, one without a record {} ns", cost->call_ns, cost->unkept_ns);
    probes_->set_overhead_budget(config.overhead_budget_permille);

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

    WorkerOptions workers;
    workers.program = options_.worker_program;
    workers.store_directory = config.store_path;
    workers.node = node_;
    workers.count = config.worker_count;
    workers.memory_bytes = config.worker_memory_bytes;
    workers.deadline = config.worker_deadline;
    workers_ = std::make_unique<WorkerPool>(loop_, workers);

    const StoreFigures stored = (*store)->figures();
    live_ = std::make_unique<LiveDiagnosis>(
        loop_, session.boot_id,
        [this](const std::vector<Finding>& findings, const ClockTriple& now) { on_pass(findings, now); });
    ingest_ = std::make_unique<Ingest>(
        loop_, *probes_, std::move(*store),
        Ingest::Callbacks{.on_new_process = [this](ProcessKey key) { on_new_process(key); },
                          .on_process_change = [this](const auto& change) { on_process_change(change); },
                          .on_stack =
                              [this](const auto& stack) {
                                  if (stacks_) stacks_->on_stack(stack);
                              },
                          .on_events = [this](const auto& events, uint64_t lost) { live_->add(events, lost); }});

    stacks_ = std::make_unique<NativeStacks>(
        loop_, *probes_, *workers_, proc_,
        NativeStacks::Store{.put_stack = [this](StackRow row) { ingest_->put_stack(std::move(row)); },
                            .put_file = [this](FileRow row) { ingest_->put_file(std::move(row)); },
                            .put_symbol = [this](SymbolRow row) { ingest_->put_symbol(std::move(row)); },
                            .last_stack = stored.last_stack,
                            .last_file = stored.last_file},
        config.native_stacks);

    auto watch =
        MmapWatch::start(loop_, [](std::string_view path) { return library_of_path(path).has_value(); },
                         {.on_mapping = [this](uint32_t pid, const Mapping& mapping) { on_mapping(pid, mapping); },
                          .on_executable = [this](uint32_t pid) { stacks_->on_executable_mapping(pid); },
                          .on_lost =
                              [this] {
                                  spdlog::warn("mmap records were dropped: scanning all processes again");
                                  rescan_ = loop_.add_timer(settle_us, [this] { scan(); });
                              }});
    if (!watch) return tl::unexpected(watch.error());
    watch_ = std::move(*watch);
    ingest_->start();
    scan();
    scanned_ = true;
    begin_coverage();
    return {};
}

void Manager::scan() {
    for (const uint32_t pid : proc_.pids()) scan_process(pid);
}

void Manager::scan_process(uint32_t pid) {
    for (const Mapping& mapping : proc_.executable_mappings(pid))
        if (library_of_path(mapping.path)) on_mapping(pid, mapping);
}

// A call was seen of a process that discovery may not know: a forked child maps a library without a record of it.
void Manager::on_new_process(const ProcessKey& key) {
    const ProcessEntry* process = observe_process(key.pid);
    if (!process || process->process.key != key) ingest_->forget(key);
}

void Manager::put_process(const Process& process) {
    ingest_->put_process(process);
    live_->put_process(process);
}

Manager::ProcessEntry* Manager::observe_process(uint32_t pid) {
    auto facts = proc_.read_process(pid);
    if (!facts) return nullptr;
    auto known = processes_.find(pid);
    if (known != processes_.end() && known->second.process.key == facts->key) return &known->second;
    if (known != processes_.end()) forget_process(pid, monotonic_now_ns(), 0);  // the pid is used again

    ProcessEntry entry;
    entry.process = std::move(*facts);
    entry.process.first_seen_ns = monotonic_now_ns();
    entry.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!entry.pidfd) return nullptr;
    entry.exit_source = loop_.add_io(entry.pidfd.get(), EPOLLIN, [this, pid](uint32_t) { on_pidfd(pid); });
    put_process(entry.process);
    stacks_->add_process(entry.process.key);
    if (!rate_timer_.active())
        rate_timer_ = loop_.add_periodic(
            rate_period_us, [this] { measure_rates(); }, 100'000);
    changed();
    return &processes_.emplace(pid, std::move(entry)).first->second;
}

// The kernel side reports the exit too, with its code: it is given a moment to be read.
void Manager::on_pidfd(uint32_t pid) {
    const auto known = processes_.find(pid);
    if (known == processes_.end()) return;
    const uint64_t now = monotonic_now_ns();
    known->second.exit_source = loop_.add_timer(
        exit_record_us, [this, pid, now] { forget_process(pid, now, 0); }, settle_us);
}

void Manager::forget_process(uint32_t pid, uint64_t exited_ns, int exit_code) {
    const auto known = processes_.find(pid);
    if (known == processes_.end()) return;
    Process process = known->second.process;
    process.exited_ns = exited_ns;
    process.exit_code = exit_code;
    ingest_->forget(process.key);
    stacks_->on_process_gone(process.key);
    put_process(process);
    for (const FileId& id : known->second.libraries) watch_for_disuse(id);
    processes_.erase(known);
    if (processes_.empty()) rate_timer_.reset();
    changed();
}

void Manager::on_process_change(const ingero_process_record& change) {
    const auto known = processes_.find(change.tgid);
    if (known == processes_.end()) return;
    // A record of an earlier process of this pid says nothing of this one; both starts are in the unit of /proc.
    constexpr uint64_t start_unit_ns = 10'000'000;
    if (change.process_start_ns / start_unit_ns * start_unit_ns != known->second.process.key.start_ns) return;
    if (change.change == INGERO_PROCESS_EXIT) {
        forget_process(change.tgid, change.time_ns, change.exit_code);
    } else if (change.change == INGERO_PROCESS_EXEC) {
        const auto facts = proc_.read_process(change.tgid);
        if (!facts || facts->key != known->second.process.key) return;
        known->second.process.comm = facts->comm;
        known->second.process.uid = facts->uid;
        for (const FileId& id : known->second.libraries) watch_for_disuse(id);
        known->second.libraries.clear();
        stacks_->add_process(known->second.process.key);
        scan_process(change.tgid);
        put_process(known->second.process);
    }
}

// Containers come and go, each with its own copy of a library: one that nobody maps any more is let go after a while.
void Manager::watch_for_disuse(FileId id) {
    const auto library = libraries_.find(id);
    if (library == libraries_.end() || library->second.disuse_timer.active()) return;
    library->second.disuse_timer = loop_.add_timer(
        disuse_us,
        [this, id] {
            const auto found = libraries_.find(id);
            if (found == libraries_.end()) return;
            found->second.disuse_timer.reset();
            if (found->second.state == LibraryState::reading || is_mapped(id)) return watch_for_disuse(id);
            spdlog::info("no process maps {} any more: detached", escape_text(found->second.path));
            attached_by_uid_[found->second.uid]--;
            libraries_.erase(found);
            changed();
        },
        settle_us);
}

// A forked child maps what its parent did without a record of it: so all are asked.
bool Manager::is_mapped(FileId id) const {
    for (const uint32_t pid : proc_.pids())
        for (const Mapping& mapping : proc_.executable_mappings(pid))
            if (mapping.file == id) return true;
    return false;
}

bool Manager::may_attach(uint32_t uid) {
    return uid == 0 || attached_by_uid_[uid] < max_libraries_a_uid;
}

void Manager::on_mapping(uint32_t pid, const Mapping& mapping) {
    if (pid == static_cast<uint32_t>(getpid())) return;
    const auto library = library_of_path(mapping.path);
    ProcessEntry* process = observe_process(pid);
    if (!library || !process) return;
    const auto known = libraries_.find(mapping.file);
    if (known != libraries_.end()) {
        process->libraries.insert(mapping.file);
        return;
    }
    if (!may_attach(process->process.uid)) {
        const uint64_t now = monotonic_now_ns();
        if (now - refusal_told_ns_ < refusal_period_ns) return;
        refusal_told_ns_ = now;
        spdlog::warn("user {} has more than {} copies of GPU libraries mapped: {} is not traced", process->process.uid,
                     max_libraries_a_uid, escape_text(mapping.path));
        return;
    }
    attached_by_uid_[process->process.uid]++;
    process->libraries.insert(mapping.file);
    read_library(pid, mapping, *library, process->process.uid);
}

void Manager::read_library(uint32_t pid, const Mapping& mapping, Library library, uint32_t uid) {
    const FileId id = mapping.file;
    auto fd = proc_.open_mapped_file(pid, mapping);
    if (!fd) {
        // Gone meanwhile is no failure: the next process that maps the file tries again.
        attached_by_uid_[uid]--;
        if (fd.error().code != ErrorCode::not_found)
            spdlog::warn("{} ({})", escape_text(fd.error().message), fd.error().hint);
        return;
    }
    LibraryEntry& entry = libraries_[id];
    entry.library = library;
    entry.path = mapping.path;
    entry.uid = uid;
    request_symbols(id, std::make_shared<UniqueFd>(std::move(*fd)));
}

void Manager::request_symbols(FileId id, std::shared_ptr<UniqueFd> held) {
    const auto found = libraries_.find(id);
    if (found == libraries_.end()) return;
    const json params = {{"wanted", symbol_names(found->second.library)}, {"static", false}};
    const int raw = held->get();
    workers_->request("symbols", params, raw, [this, id, held, alive = alive_](Result<json> answer) {
        if (!*alive) return;
        if (answer) return attach_library(id, *held, *answer);
        const ErrorCode code = answer.error().code;
        // The file itself is to blame, and so whoever mapped it: no matter for anybody else.
        if (code == ErrorCode::corrupt || code == ErrorCode::limit)
            library_failed(id, answer.error().message, false);
        else
            retry_library(id, held, answer.error());
    });
}

// The workers are busy, or one was killed: that says nothing of the library, so it is asked for again, ever later.
void Manager::retry_library(FileId id, std::shared_ptr<UniqueFd> fd, const Error& why) {
    const auto found = libraries_.find(id);
    if (found == libraries_.end() || found->second.state != LibraryState::reading) return;
    LibraryEntry& entry = found->second;
    if (++entry.attempts == 1) begin_coverage();
    if (entry.attempts >= max_attempts) return library_failed(id, why.message, true);
    entry.retry_timer = loop_.add_timer(
        retry_us << entry.attempts, [this, id, fd] { request_symbols(id, fd); }, settle_us);
}

void Manager::attach_library(FileId id, const UniqueFd& fd, const json& answer) {
    const auto found = libraries_.find(id);
    if (found == libraries_.end() || found->second.state != LibraryState::reading) return;
    LibraryEntry& entry = found->second;
    std::vector<FunctionSymbol> symbols;
    try {
        for (const json& one : answer.at("functions"))
            symbols.push_back({.name = one.at("name"),
                               .file_offset = one.at("offset"),
                               .size = one.at("size"),
                               .emulated = one.at("emulated")});
    } catch (const json::exception& problem) {
        return library_failed(id, std::string("a worker's answer about symbols makes no sense: ") + problem.what(),
                              true);
    }
    std::vector<ProbeSite> sites = probe_sites(entry.library, library_major(entry.path), symbols);
    if (sites.empty()) return library_failed(id, "it exports none of the wanted functions", false);
    for (const ProbeSite& site : sites) entry.sets.insert(probe_set_of(site.op));
    std::erase_if(sites, [this](const ProbeSite& site) { return disabled_sets_.contains(probe_set_of(site.op)); });
    if (!sites.empty()) {
        auto attached = probes_->attach(fd.get(), sites);
        if (!attached) return library_failed(id, attached.error().message, true);
        entry.attached = std::move(*attached);
    }
    entry.state = LibraryState::attached;
    size_t stepped = 0;
    for (const ProbeSite& site : sites) stepped += !site.emulated;
    spdlog::info("attached to {} functions of {} ({}{})", sites.size(), escape_text(entry.path),
                 to_string(probes_->method()),
                 stepped ? ", " + std::to_string(stepped) + " of them single-stepped" : std::string());
    changed();
}

void Manager::library_failed(FileId id, const std::string& reason, bool degrades) {
    const auto found = libraries_.find(id);
    // The answer to an earlier question, from before all libraries were let go and found anew.
    if (found == libraries_.end() || found->second.state != LibraryState::reading) return;
    found->second.state = LibraryState::failed;
    found->second.reason = reason;
    found->second.degrades = degrades;
    spdlog::error("cannot trace {}: {}", escape_text(found->second.path), escape_text(reason));
    changed();
}

void Manager::measure_rates() {
    tell_loss();
    // A disk that fills up, or has room again, is no change of a process or a library.
    if (state() != journaled_state_) changed();
    for (const ProcessActivity& activity : ingest_->activity()) {
        const auto known = processes_.find(activity.key.pid);
        if (known == processes_.end() || known->second.process.key != activity.key) continue;
        known->second.calls_per_s = static_cast<double>(activity.calls - known->second.calls_before);
        known->second.calls_before = activity.calls;
    }
}

void Manager::tell_loss() {
    const IngestFigures figures = ingest_->figures();
    const uint64_t lost = figures.lost + figures.dropped, now = monotonic_now_ns();
    if (std::exchange(seen_lost_, lost) != lost) changed();
    if (lost == told_lost_ || now - loss_told_ns_ < loss_period_ns) return;
    journal_.send(
        MessageKind::loss, LOG_WARNING,
        std::to_string(lost - told_lost_) + " calls were not recorded, " + std::to_string(lost) + " since the start");
    told_lost_ = lost;
    loss_told_ns_ = now;
}

std::string Manager::state() const {
    if (!ingest_->figures().store_error.empty()) return "degraded";
    bool reading = false, attached = false;
    for (const auto& [id, library] : libraries_) {
        if (library.degrades) return "degraded";
        reading |= library.state == LibraryState::reading;
        attached |= library.state == LibraryState::attached;
    }
    if (reading) return "starting";
    return attached && !processes_.empty() ? "tracing" : "idle";
}

// Everyone reads this: where in their home others keep a library is none of it.
std::vector<std::string> Manager::missing_probes() const {
    std::set<std::string> missing;
    for (const auto& [id, library] : libraries_)
        if (library.degrades && missing.size() < max_listed)
            missing.insert(to_valid_utf8(base_name(library.path) + ": " + library.reason));
    std::vector<std::string> result(missing.begin(), missing.end());
    for (const std::string& set : disabled_sets_) result.push_back("probe set " + set + ": turned off");
    return result;
}

std::string Manager::status_line() const {
    const IngestFigures figures = ingest_->figures();
    return state() + ": " + std::to_string(processes_.size()) + " processes, " + std::to_string(figures.recorded) +
           " calls recorded, " + std::to_string(figures.lost + figures.dropped) + " lost";
}

// The store answers for the time from when all that was mapped at the start has its probes: what is mapped later is
// seen as it comes. A library that is tried again holds this up no longer.
void Manager::begin_coverage() {
    if (first_covered_ns_ || !scanned_) return;
    for (const auto& [id, library] : libraries_)
        if (library.state == LibraryState::reading && library.attempts == 0) return;
    first_covered_ns_ = monotonic_now_ns();
    ingest_->set_covered_since(*first_covered_ns_);
}

void Manager::changed() {
    begin_coverage();
    // Told once, when it begins: the journal is for what somebody has to look at.
    const std::string now = state();
    if (now == "degraded" && journaled_state_ != now) {
        std::string why = ingest_->figures().store_error;
        for (const std::string& missing : missing_probes()) why += (why.empty() ? "" : "; ") + missing;
        journal_.send(MessageKind::degraded, LOG_WARNING, "degraded: " + escape_text(why));
    }
    journaled_state_ = now;
    if (on_change_) on_change_();
}

std::string Manager::state_of(const ProcessEntry& entry) const {
    std::string result = "tracing";
    for (const FileId& id : entry.libraries) {
        const auto library = libraries_.find(id);
        if (library == libraries_.end() || library->second.state == LibraryState::reading)
            result = "attaching";
        else if (library->second.state == LibraryState::failed)
            result = "failed";
    }
    return result;
}

void Manager::on_pass(const std::vector<Finding>& findings, const ClockTriple& now) {
    for (const IncidentChange& change : incidents_.observe(findings, now)) tell(change);
    live_->keep_awake(incidents_.waiting());
}

void Manager::tell(const IncidentChange& change) {
    const Incident& incident = change.incident;
    const std::vector<JournalField> fields = {{"INGERO_INCIDENT_ID", incident.id},
                                              {"INGERO_KIND", incident.kind},
                                              {"INGERO_PID", std::to_string(incident.process.pid)}};
    if (change.what == IncidentChange::What::opened)
        journal_.send(MessageKind::incident_opened, LOG_WARNING, escape_text(incident.summary), fields);
    if (change.what == IncidentChange::What::closed)
        journal_.send(MessageKind::incident_closed, LOG_NOTICE,
                      incident.kind + " of " + escape_text(incident.comm) + " (pid " +
                          std::to_string(incident.process.pid) + ") is over: " + format_duration(incident.lost_ns) +
                          " lost in all",
                      fields);
    if (on_incident_) on_incident_(change);
}

PublicFigures Manager::figures() const {
    const IngestFigures ingest = ingest_->figures();
    return {.version = version,
            .state = state(),
            .node = to_valid_utf8(node_),
            .uptime_ns = monotonic_now_ns() - started_.monotonic_ns,
            .events_recorded = ingest.recorded,
            .events_lost = ingest.lost + ingest.dropped,
            .store_bytes = ingest.store.bytes};
}

std::vector<PublicProcess> Manager::public_processes() const {
    std::vector<PublicProcess> list;
    for (const auto& [pid, entry] : processes_)
        list.push_back({.key = entry.process.key,
                        .uid = entry.process.uid,
                        .comm = to_valid_utf8(entry.process.comm),
                        .unit = to_valid_utf8(entry.process.unit),
                        .container = {},
                        .state = state_of(entry)});
    return list;
}

// By base name, as everyone reads it: attached where all copies of the name are.
std::vector<ProbeSetState> Manager::probe_sets() const {
    std::map<std::pair<std::string, std::string_view>, bool> sets;
    for (const auto& [id, library] : libraries_) {
        const std::string name = to_valid_utf8(base_name(library.path));
        for (const std::string_view set : library.sets) {
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
    spdlog::warn("probe set {} is turned {}", set, on ? "on" : "off");
    libraries_.clear();
    attached_by_uid_.clear();
    for (auto& [pid, process] : processes_) process.libraries.clear();
    scan();
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
                      "the configuration is not taken up: " + escape_text(loaded.error().message));
        return tl::unexpected(loaded.error());
    }
    json changed = json::array(), needs_restart = json::array();
    std::string text;
    for (const std::string& key : changed_keys(options_.config, *loaded)) {
        changed.push_back(key);
        if (!applies_on_reload(key)) needs_restart.push_back(key);
        text += (text.empty() ? "" : ", ") + key + (applies_on_reload(key) ? "" : " (needs a restart)");
    }
    Config& config = options_.config;
    config.overhead_budget_permille = loaded->overhead_budget_permille;
    probes_->set_overhead_budget(config.overhead_budget_permille);
    config.worker_count = loaded->worker_count;
    config.worker_memory_bytes = loaded->worker_memory_bytes;
    config.worker_deadline = loaded->worker_deadline;
    config.native_stacks = loaded->native_stacks;
    stacks_->enable(config.native_stacks);
    workers_->reconfigure(config.worker_count, config.worker_memory_bytes, config.worker_deadline);
    journal_.send(MessageKind::reloaded, LOG_NOTICE,
                  "configuration reloaded, changed: " + (text.empty() ? "nothing" : text));
    const uint64_t now = ClockTriple::now().realtime_ns;
    Coverage coverage;
    coverage.complete = true;
    json answer =
        answer_head("reload", {.node = node_, .missing_probes = missing_probes(), .comms = {}}, {now, now}, coverage);
    answer["changed"] = std::move(changed);
    answer["needs_restart"] = std::move(needs_restart);
    return answer;
}

json Manager::status() {
    const IngestFigures figures = ingest_->figures();
    const ClockTriple now = ClockTriple::now();
    Coverage coverage;
    coverage.lost = figures.lost + figures.dropped;
    coverage.sampled_out = figures.thinned;
    coverage.complete = coverage.lost == 0 && coverage.sampled_out == 0;
    json answer = answer_head("status", {.node = node_, .missing_probes = missing_probes(), .comms = {}},
                              {started_.realtime_ns, now.realtime_ns}, coverage);
    answer["state"] = state();
    answer["version"] = version;
    answer["uptime_ns"] = now.monotonic_ns - started_.monotonic_ns;
    answer["events"] = {{"recorded", figures.recorded},
                        {"committed", figures.committed_sequence},
                        {"lost", coverage.lost},
                        {"sampled_out", figures.thinned},
                        {"split_uncertain", figures.uncertain}};
    answer["overhead"] = overhead_answer(options_.config.overhead_budget_permille, figures.overhead);
    answer["store"] = {
        {"bytes", figures.store.bytes},
        {"cap_bytes", figures.store.cap_bytes},
        {"oldest_ns", figures.store.oldest_realtime_ns ? json(figures.store.oldest_realtime_ns) : json()}};
    answer["memory_bytes"] = anonymous_memory_bytes();
    answer["processes"] = processes_.size();
    answer["sockets"] = sockets_;
    answer["incidents_open"] = incidents_.open().size();
    return answer;
}

json Manager::processes(const Caller& caller) {
    const ClockTriple now = ClockTriple::now();
    json list = json::array();
    for (const auto& [pid, entry] : processes_) {
        if (!caller.sees_all && entry.process.uid != caller.uid) continue;
        list.push_back({{"pid", pid},
                        {"start_time_ns", entry.process.key.start_ns - now.boottime_ns + now.realtime_ns},
                        {"comm", to_valid_utf8(entry.process.comm)},
                        {"unit", null_if_empty(to_valid_utf8(entry.process.unit))},
                        {"container", nullptr},
                        {"cgroup", null_if_empty(to_valid_utf8(entry.process.cgroup))},
                        {"rank", nullptr},
                        {"world_size", nullptr},
                        {"devices", nullptr},
                        {"calls_per_s", entry.calls_per_s},
                        {"gpu_memory_bytes", nullptr},
                        {"state", state_of(entry)}});
    }
    Coverage coverage;
    const IngestFigures figures = ingest_->figures();
    coverage.lost = figures.lost + figures.dropped;
    coverage.sampled_out = figures.thinned;
    coverage.complete = coverage.lost == 0 && coverage.sampled_out == 0;
    json answer = answer_head("processes", {.node = node_, .missing_probes = missing_probes(), .comms = {}},
                              {started_.realtime_ns, now.realtime_ns}, coverage);
    answer["processes"] = std::move(list);
    return answer;
}

void Manager::query(const Caller& caller, const std::string& method, const json& params,
                    std::function<void(Result<json>)> done) {
    json request = params;
    request.erase("uid");
    if (!caller.sees_all) request["uid"] = caller.uid;
    // A window up to now ends where the caller asked, not where the worker gets to look.
    if (const auto since = request.find("since_ns"); !request.contains("from_ns")) {
        const uint64_t length =
            since != request.end() && since->is_number_unsigned() ? since->get<uint64_t>() : default_window_ns;
        const uint64_t now = ClockTriple::now().realtime_ns;
        request["from_ns"] = now - std::min(now, length);
        request["to_ns"] = now;
        request.erase("since_ns");
    }
    // What was recorded up to now is in the store before a worker looks; a stalled disk holds nobody back for long, and
    // the answer's coverage then says what is not yet stored.
    auto begin = [this, method, request = std::move(request), done = std::move(done), alive = alive_,
                  begun = std::make_shared<bool>(false)] {
        if (std::exchange(*begun, true)) return;
        if (!*alive) return done(fail(ErrorCode::busy, "ingerod is stopping"));
        workers_->request(method, request, std::nullopt, [this, done, alive](Result<json> answer) {
            if (answer && *alive && answer->is_object()) (*answer)["missing_probes"] = missing_probes();
            done(std::move(answer));
        });
    };
    auto timer = std::make_shared<EventLoop::Source>(loop_.add_timer(commit_wait_us, begin));
    ingest_->commit_now([begin, timer] {
        begin();
        timer->reset();
    });
}

}  // namespace ingero
