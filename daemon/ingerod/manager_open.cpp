// How the manager makes its rooms: each once all that it stands on is there. Nothing is called back meanwhile: the loop
// does not turn yet, and the ingest begins to read last.
#include <spdlog/spdlog.h>
#include <sys/utsname.h>
#include <systemd/sd-id128.h>

#include <filesystem>

#include "core/model/text/format.h"
#include "daemon/ingerod/check/host_checks.h"
#include "daemon/ingerod/manager.h"
#include "daemon/ingerod/version.h"

namespace ingero {

namespace {

/// Of a file that takes long to read, while other users' wait.
constexpr std::chrono::milliseconds file_turn{2'000};

std::string kernel_release() {
    utsname names{};
    return uname(&names) == 0 ? names.release : "";
}

std::string id_text(int (*get)(sd_id128_t*)) {
    sd_id128_t id;
    char text[SD_ID128_STRING_MAX];
    return get(&id) >= 0 ? sd_id128_to_string(id, text) : "";
}

void warn_of_size(const StoreFigures& store) {
    if (store.bytes <= store.cap_bytes) return;
    spdlog::warn(
        "the event store's file is larger than [store] max_size ({} of {}), since a lower max_size does not make it "
        "smaller; to free the space, put a copy by 'ingeroctl db compact' in its place: ingerod(8), The disk fills",
        format_bytes(store.bytes), format_bytes(store.cap_bytes));
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

Result<void> Manager::open() {
    if (!may_look_at_other_users())
        blind_ = "all processes of other users: ingerod cannot inspect them without CAP_SYS_PTRACE";
    if (auto more = go_on(); !more) return more;
    auto store = open_store();
    if (!store) return tl::unexpected(store.error());
    if (auto more = go_on(); !more) return more;
    if (auto loaded = load_probes(); !loaded) return loaded;
    if (auto more = go_on(); !more) return more;
    const Session session = make_session();
    if (auto begun = (*store)->begin_session(session); !begun) return tl::unexpected(begun.error());
    const StoreFigures stored = (*store)->figures();
    make_workers();
    make_live(session.boot_id);
    make_ingest(std::move(*store));
    make_stacks(stored);
    if (auto started = start_mmap_watch(); !started) return started;
    make_libraries();
    if (auto made = make_processes(); !made) return made;
    make_host();
    if (auto opened = open_spans(); !opened) return opened;
    relay_ = std::make_unique<RelayServer>(loop_, options_.config.gpu_poll_ns, [this](StateRow row) {
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

/// The loop, which hears of signals, does not turn yet: these are the steps that may take seconds or minutes.
Result<void> Manager::go_on() const {
    if (options_.must_stop && options_.must_stop()) return fail(ErrorCode::busy, "stopped while starting");
    return {};
}

Result<std::unique_ptr<StoreWriter>> Manager::open_store() {
    const Config& config = options_.config;
    StoreOptions limits;
    limits.max_size_bytes = config.store_max_size_bytes;
    limits.max_age_ns = config.store_max_age_ns;
    limits.max_rollup_age_ns = config.store_rollup_age_ns;
    limits.progress = options_.on_store_pages;
    store_owners_->store(std::make_shared<const UidOwners>(owners_));
    limits.owner_of = [owners = store_owners_](uint32_t uid) { return owners->load()->owner_of(uid); };
    auto store = StoreWriter::open(config.store_path, limits);
    if (store) warn_of_size((*store)->figures());
    return store;
}

Result<void> Manager::load_probes() {
    auto probes = CallProbes::load(features_);
    if (!probes) return tl::unexpected(probes.error());
    probes_ = std::move(*probes);
    if (probes_->spares_filtered())
        spdlog::warn("{}: no {} is traced, since this kernel could kill it. See return-probes of 'ingerod --check'",
                     features_.why_not(Feature::return_passes_filters),
                     probes_->method() == AttachMethod::uprobe_session ? "program with a seccomp filter (containers)"
                                                                       : "program");
    if (const auto cost = probes_->calibrate(); !cost)
        spdlog::warn("cannot measure what a call costs, so the overhead is not bounded: {}", cost.error().message);
    else
        spdlog::debug(
            "cost of a call: {:.0f} ns recorded, {:.0f} ns not recorded ({} calls, {} of them not recorded); "
            "with other work in the caches: {:.0f} and {:.0f} ns, entry {:.0f} ns instead of {:.0f} ns",
            cost->alone.call_ns(), cost->alone.unkept_ns, cost->calls, cost->unkept_calls, cost->amid_work.call_ns(),
            cost->amid_work.unkept_ns, cost->amid_work.entry_ns, cost->alone.entry_ns);
    probes_->set_overhead_budget(options_.config.overhead_budget_permille);
    probes_->host().set_floor(options_.config.wait_floor_ns);
    return {};
}

Session Manager::make_session() const {
    Session session;
    session.id = id_text([](sd_id128_t* id) { return sd_id128_randomize(id); });
    session.boot_id = id_text(sd_id128_get_boot);
    session.machine_id = id_text(sd_id128_get_machine);
    session.node = node_;
    session.version = version;
    session.kernel = kernel_release();
    session.attach_method = to_string(probes_->method());
    session.clock = session.latest_clock = started_;
    return session;
}

void Manager::make_workers() {
    WorkerOptions workers = worker_options();
    workers_ = std::make_unique<WorkerPool>(loop_, workers);
    workers.count = 1;
    workers.turn = file_turn;
    // What a file's bytes may have made of a worker reads no event, and no file that others wrote.
    workers.store_directory.clear();
    workers.store_is_checked = false;
    workers.one_owner_each = true;
    file_workers_ = std::make_unique<WorkerPool>(loop_, workers);
}

void Manager::make_live(const std::string& boot_id) {
    live_ = std::make_unique<LiveDiagnosis>(loop_, boot_id, options_.config.stragglers,
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
        options_.config.in_flight_floor_ns);
}

void Manager::make_ingest(std::unique_ptr<StoreWriter> store) {
    ingest_ = std::make_unique<Ingest>(
        loop_, *probes_, std::move(store),
        Ingest::Callbacks{.on_new_process =
                              [this](ProcessKey key) {
                                  processes_->on_call(key);
                                  if (slices_ && !processes_->find(key)) slices_->note_unknown(key);
                              },
                          .on_process_change =
                              [this](const auto& change) {
                                  if (options_.config.wait_floor_ns != 0) host_rows_->on_change(change);
                                  processes_->on_change(change);
                              },
                          .on_bystander = [this](const WaitRow& row) { host_rows_->on_bystander(row); },
                          .on_preemptors = [this](const auto& pids) { host_rows_->on_preemptors(pids); },
                          .on_socket = [this](const SocketRow& row) { host_rows_->on_socket(row); },
                          .on_storm =
                              [this](const auto& report) {
                                  if (slices_) slices_->add(report);
                              },
                          .on_stack =
                              [this](const auto& stack) {
                                  if (stacks_) stacks_->on_stack(stack);
                              },
                          .on_unread_name =
                              [this](FunctionRow function, uint64_t address) {
                                  unread_names_.emplace_back(std::move(function), address);
                                  if (unread_names_.size() == 1) read_names_later();
                              },
                          .on_events = [this](const auto& events, const auto& losses) { live_->add(events, losses); },
                          .on_call = [this](const Event& call) { live_trace_->offer(call); },
                          .on_drained = [this] { live_trace_->flush(); },
                          .on_communicator =
                              [this](const auto& row) {
                                  live_->put_communicator(
                                      row, [this](const CommunicatorRow& now) { ingest_->put_communicator(now); });
                              },
                          .on_ranked = [this](ProcessKey key) { ranked_.insert(key); },
                          .hide_names = other_names_.hides_any() ? std::function<void(Event&)>([this](Event& event) {
                              other_names_.hide(event);
                          })
                                                                 : nullptr,
                          .owner_of = owner_of()});
}

void Manager::make_stacks(const StoreFigures& stored) {
    stacks_ = std::make_unique<NativeStacks>(
        loop_, probes_->stack_maps(), *file_workers_, proc_, owners_,
        NativeStacks::Store{.put_stack = [this](StackRow row) { ingest_->put_stack(std::move(row)); },
                            .put_file = [this](FileRow row) { ingest_->put_file(std::move(row)); },
                            .put_symbol = [this](SymbolRow row) { ingest_->put_symbol(std::move(row)); },
                            .last_stack = stored.last_stack,
                            .last_file = stored.last_file},
        options_.config.native_stacks);
}

Result<void> Manager::start_mmap_watch() {
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
                          .on_lost = [this](uint64_t since_ns) { on_lost_mappings(since_ns); },
                          .on_new_cpus =
                              [this](uint64_t since_ns) {
                                  spdlog::info("CPUs came online: scanning all processes again");
                                  rescan_soon(since_ns);
                              }});
    if (!watch) return tl::unexpected(watch.error());
    watch_ = std::move(*watch);
    return {};
}

void Manager::make_libraries() {
    libraries_ = std::make_unique<Libraries>(
        loop_, proc_,
        Libraries::Attacher{[this](int fd, auto sites) { return probes_->attach(fd, sites); },
                            std::string(to_string(probes_->method())), probes_->real_files()},
        *file_workers_, owners_,
        Libraries::Callbacks{.on_change = [this] { changed(); },
                             .on_settled = [this](const auto& key) { processes_->on_settled(key); },
                             .on_let_go = [this](const auto& key) { processes_->on_let_go(key); },
                             .on_missed = [this](const auto& key) { processes_->on_missed(key); },
                             .put_state = [this](StateRow row) { ingest_->put_state(std::move(row)); },
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
}

Result<void> Manager::make_processes() {
    auto policy = CapturePolicy::parse(options_.config.capture_include, options_.config.capture_exclude);
    if (!policy) return tl::unexpected(policy.error());
    processes_ = std::make_unique<Processes>(
        loop_, proc_, *libraries_, probes_->gate(), owners_, ProcessLimits::of_descriptors(),
        Processes::Callbacks{
            .on_change = [this] { changed(); },
            .put_process = [this](const Process& process) { put_process(process); },
            .rank_of = [this](const ProcessKey& key, uint64_t since_ns) { return live_->rank_of(key, since_ns); },
            .on_not_traced =
                [this](const ProcessKey& key) {
                    ingest_->forget(key);
                    if (slices_) slices_->on_end(key);
                    stacks_->on_process_gone(key);
                },
            .put_gap = [this](GapRow gap) { ingest_->put_gap(std::move(gap)); },
            .look_at_program = [this](uint32_t pid, const Mapping& mapping,
                                      uint64_t time_ns) { programs_->look(pid, mapping, time_ns); },
            .on_exec =
                [this](const ProcessKey& key) {
                    stacks_->on_exec(key);
                    if (slices_) slices_->on_exec(key);
                },
            .on_evicted =
                [this](const ProcessKey& key) {
                    if (spans_) spans_->forget(key);
                    if (slices_) slices_->note_unknown(key);
                },
            .on_interrupted =
                [this](std::optional<ProcessKey> key, const Window& time) {
                    live_->interrupt_communicators(
                        key, time, [this](const CommunicatorRow& row) { ingest_->put_communicator(row); });
                }});
    processes_->set_facts(options_.config.facts);
    processes_->set_policy(std::move(*policy));
    slices_ = std::make_unique<Slices>(
        loop_, *processes_, *libraries_, probes_->slice(),
        Slices::Host{
            .can_attach_to_one = probes_->can_attach_to_one(), .began_ns = started_.boottime_ns, .callers = [this] {
                std::vector<ProcessKey> callers;
                for (const ProcessActivity& one : ingest_->activity()) callers.push_back(one.key);
                return callers;
            }});
    slices_->set_budget(options_.config.slices ? options_.config.overhead_budget_permille : 0);
    return {};
}

void Manager::make_host() {
    host_rows_ =
        std::make_unique<HostRows>(proc_, *processes_,
                                   HostRows::Store{.put_process =
                                                       [this](Process process) {
                                                           if (!other_names_.shows(process.comm)) return;
                                                           live_->put_bystander(process);
                                                           ingest_->put_process(std::move(process));
                                                       },
                                                   .put_event = [this](Event event) { ingest_->put_event(event); }});
    host_state_ = std::make_unique<HostState>([this](StateRow row) { ingest_->put_state(std::move(row)); });
    footprints_ = std::make_unique<Footprints>(
        loop_, proc_,
        Footprints::Host{.node = node_,
                         .excluded = [this](const Process& process) { return processes_->excluded_by(process); },
                         .owner_of = owner_of()});
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
        options_.config.spans);
    spans_->set_hash(std::move(*hash));
    return {};
}

}  // namespace ingero
