#include "daemon/ingerod/probes/call_probes.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "calls_bpf.skel.h"
#include "calls_context_bpf.skel.h"
#include "core/model/call_time.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/limits/shortage.h"
#include "daemon/ingerod/probes/as_read.h"
#include "daemon/ingerod/probes/attach/attached_links.h"
#include "daemon/ingerod/probes/kernel/bpf_syscall.h"
#include "daemon/ingerod/probes/kernel/libbpf_log.h"
#include "daemon/ingerod/probes/kernel/syscall_table.h"

namespace ingero {

namespace {

struct ObjectDeleter {
    void operator()(bpf_object* object) const { bpf_object__close(object); }
};
struct RingDeleter {
    void operator()(ring_buffer* rings) const { ring_buffer__free(rings); }
};

constexpr uint64_t total_ring_bytes = 32ULL << 20;
constexpr uint64_t min_ring_bytes = 256ULL << 10;
constexpr uint64_t max_ring_bytes = 4ULL << 20;
constexpr unsigned work_rounds = 3;
constexpr uint64_t least_timed_entries = 100;  ///< a round of which each entry is timed

// A storm of 100,000 records a second on one CPU fills 4 MiB in 0.4 s, 200 times what the reader sleeps.
uint32_t ring_bytes(int cpus) {
    return static_cast<uint32_t>(
        std::clamp(std::bit_floor(total_ring_bytes / static_cast<uint64_t>(cpus)), min_ring_bytes, max_ring_bytes));
}

Error load_error(int error_number) {
    const LibbpfWords& words = libbpf_words();
    const std::string what = errno_message("cannot load the BPF programs", error_number);
    // It answers with the errno of a missing capability, and is not about one.
    if (!words.verifier.empty())
        return {ErrorCode::internal, what + ": the kernel's verifier refused " + words.verifier,
                "this is a defect of ingerod on this kernel: report it, with the output of 'uname -r' and the log of "
                "--log-level=debug"};
    const bool denied = error_number == EPERM || error_number == EACCES;
    return {denied ? ErrorCode::denied : ErrorCode::internal,
            what + (words.last.empty() ? "" : " (" + words.last + ")"),
            denied ? "run as root, or grant CAP_BPF and CAP_PERFMON (systemd: AmbientCapabilities=)"
                   : "see `ingerod --check` for what this kernel lacks"};
}

/// Of the counters' row for the function that is calibrated with: it is no target.
uint32_t calibrated_index() {
    return static_cast<uint32_t>(all_targets().size());
}

}  // namespace

struct CallProbes::Impl {
    AttachMethod method = AttachMethod::none;
    bool spares_filtered = false;
    std::unique_ptr<bpf_object, ObjectDeleter> object;
    std::vector<std::unique_ptr<bpf_link, LinkDeleter>> tracepoints;
    std::vector<UniqueFd> ring_fds;
    std::unique_ptr<ring_buffer, RingDeleter> rings;
    std::function<void(std::span<const std::byte>)> on_record;
    void* bss = MAP_FAILED;
    size_t bss_bytes = 0;
    uint32_t* reader_sleeps = nullptr;
    uint64_t* names_lost = nullptr;
    uint32_t* detaching = nullptr;
    ingero_stack_control* stack_control = nullptr;
    ingero_overhead_budget* budget = nullptr;
    ingero_slice* slice = nullptr;
    uint64_t* relinked_ns = nullptr;
    std::optional<CallCost> cost;
    std::unique_ptr<AttachedLibrary> calibrated;
    std::thread detacher;  ///< of what was calibrated: 50 ms that nobody has to wait for
    int counters_fd = -1;
    std::optional<CaptureGate> gate;
    std::optional<InFlightReader> in_flight;
    std::optional<HostWatch> host;
    int cpus = 0;

    int program_fd(const char* name) const {
        return bpf_program__fd(bpf_object__find_program_by_name(object.get(), name));
    }
    bpf_map* map(const char* name) const { return bpf_object__find_map_by_name(object.get(), name); }

    Result<void> open(bool session_takes_context);
    Result<void> load(bool has_host_tracepoints);
    Result<void> fill_thin_slots(uint8_t* slots, uint8_t* symbols);
    ingero_call_counters counters_of(uint32_t index) const {
        return read_counters(counters_fd, static_cast<size_t>(cpus), index);
    }
    Result<void> make_rings();
    Result<void> attach_tracepoints();
    Result<void> map_shared_words();
    ~Impl() {
        if (detacher.joinable()) detacher.join();
        if (bss != MAP_FAILED) munmap(bss, bss_bytes);
    }
    /// Calls of before may return unseen.
    void note_detached() const { __atomic_store_n(relinked_ns, monotonic_now_ns(), __ATOMIC_RELEASE); }
    void fill_syscall_table();
    size_t consume_records();
    Result<UniqueFd> link(const char* program, UprobeLinkKind kind, int fd, std::span<const ProbeSite> sites,
                          uint32_t pid) const;
    Result<std::unique_ptr<AttachedLibrary>> attach_sessions(int fd, std::span<const ProbeSite> sites);
    CallPrice time_loops(uint32_t untraced_ns);
    CallPrice time_amid_work(const CallPrice& alone, uint64_t untraced_longer_ns);
    void set_price(const CallCost& measured);
};

Result<void> CallProbes::Impl::open(bool session_takes_context) {
    size_t size = 0;
    const void* bytes = session_takes_context ? calls_context_bpf__elf_bytes(&size) : calls_bpf__elf_bytes(&size);
    LIBBPF_OPTS(bpf_object_open_opts, options);
    options.object_name = "ingero_calls";
    object.reset(bpf_object__open_mem(bytes, size, &options));
    if (!object) return tl::unexpected<Error>(load_error(errno));
    return {};
}

void CallProbes::Impl::fill_syscall_table() {
    bpf_map* rodata = map(".rodata");
    std::vector<uint8_t> table(bpf_map__value_size(rodata));
    for (const SyscallClass& row : syscall_table)
        if (static_cast<size_t>(row.number) < table.size()) table[static_cast<size_t>(row.number)] = row.kind;
    bpf_map__set_initial_value(rodata, table.data(), table.size());
}

Result<void> CallProbes::Impl::load(bool has_host_tracepoints) {
    const bool session = method == AttachMethod::uprobe_session;
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, object.get()) {
        const std::string_view name = bpf_program__name(program);
        if (name == "call_session") {
            bpf_program__set_autoload(program, session);
            bpf_program__set_expected_attach_type(program, static_cast<bpf_attach_type>(attach_type_uprobe_session));
        } else if (name == "call_entry" || name == "call_return") {
            bpf_program__set_autoload(program, !session);
            if (method == AttachMethod::uprobe_multi)
                bpf_program__set_expected_attach_type(program, static_cast<bpf_attach_type>(attach_type_uprobe_multi));
        }
    }
    bpf_program__set_autoload(bpf_object__find_program_by_name(object.get(), "find_real_file"),
                              libbpf_probe_bpf_helper(BPF_PROG_TYPE_RAW_TRACEPOINT, BPF_FUNC_find_vma, nullptr) == 1);
    bpf_map__set_max_entries(map("rings"), static_cast<uint32_t>(cpus));
    bpf_map__set_max_entries(map("cpus"), static_cast<uint32_t>(cpus));
    bpf_map__set_max_entries(map("call_counters"), calibrated_index() + 1);
    bpf_map* each = nullptr;
    bpf_object__for_each_map(each, object.get()) {
        // Each CPU keeps so many entries free for itself, and where none are left for others (before Linux 6.17) these
        // evict what they made last.
        constexpr uint32_t kept_free = 128;
        if (bpf_map__type(each) == BPF_MAP_TYPE_LRU_HASH)
            bpf_map__set_max_entries(each, bpf_map__max_entries(each) + kept_free * static_cast<uint32_t>(cpus));
    }
    fill_syscall_table();
    HostWatch::prepare(object.get(), has_host_tracepoints);
    listen_to_libbpf();
    const int error = bpf_object__load(object.get());
    if (error != 0) return tl::unexpected<Error>(load_error(-error));
    return run_program_once(program_fd("find_pid_namespace"));
}

Result<void> CallProbes::Impl::make_rings() {
    auto callback = [](void* context, void* data, size_t size) {
        static_cast<Impl*>(context)->on_record({static_cast<const std::byte*>(data), size});
        return 0;
    };
    for (uint32_t cpu = 0; cpu < static_cast<uint32_t>(cpus); ++cpu) {
        UniqueFd ring(bpf_map_create(BPF_MAP_TYPE_RINGBUF, "ingero_ring", 0, 0, ring_bytes(cpus), nullptr));
        if (!ring) return tl::unexpected<Error>(load_error(errno));
        const int fd = ring.get();
        if (bpf_map_update_elem(bpf_map__fd(map("rings")), &cpu, &fd, BPF_ANY) != 0)
            return tl::unexpected<Error>(load_error(errno));
        if (!rings)
            rings.reset(ring_buffer__new(fd, callback, this, nullptr));
        else if (ring_buffer__add(rings.get(), fd, callback, this) != 0)
            return tl::unexpected<Error>(load_error(errno));
        if (!rings) return tl::unexpected<Error>(load_error(errno));
        ring_fds.push_back(std::move(ring));
    }
    return {};
}

Result<void> CallProbes::Impl::attach_tracepoints() {
    for (const char* name : {"on_switch", "on_waking", "on_migrate", "on_exit", "on_exec", "on_fork"}) {
        listen_to_libbpf();
        bpf_link* link = bpf_program__attach(bpf_object__find_program_by_name(object.get(), name));
        if (!link) return tl::unexpected<Error>(load_error(errno));
        tracepoints.emplace_back(link);
    }
    return {};
}

namespace {

// Where a variable lies in .bss, by the object's BTF.
Result<size_t> offset_in_bss(const bpf_object* object, const char* variable) {
    const btf* types = bpf_object__btf(object);
    const int section = types ? btf__find_by_name_kind(types, ".bss", BTF_KIND_DATASEC) : -1;
    if (section < 0) return fail(ErrorCode::internal, "the BPF object has no .bss");
    const btf_type* type = btf__type_by_id(types, static_cast<uint32_t>(section));
    const btf_var_secinfo* entries = btf_var_secinfos(type);
    for (int i = 0; i < btf_vlen(type); ++i) {
        const btf_type* var = btf__type_by_id(types, entries[i].type);
        if (strcmp(btf__name_by_offset(types, var->name_off), variable) == 0) return entries[i].offset;
    }
    return fail(ErrorCode::internal, std::string("the BPF object has no variable ") + variable);
}

}  // namespace

Result<void> CallProbes::Impl::map_shared_words() {
    bpf_map* map = this->map(".bss");
    bss_bytes = bpf_map__value_size(map);
    bss = mmap(nullptr, bss_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    if (bss == MAP_FAILED) return tl::unexpected<Error>(load_error(errno));
    uint32_t* spare = nullptr;
    uint64_t *policy = nullptr, *floor = nullptr, *wait_floor = nullptr, *waits_lost = nullptr;
    uint8_t *slots = nullptr, *symbols = nullptr;
    Result<void> found;
    const auto find = [&]<class T>(const char* variable, T*& ret_word) {
        if (!found) return;
        const auto offset = offset_in_bss(object.get(), variable);
        if (offset)
            ret_word = reinterpret_cast<T*>(static_cast<char*>(bss) + *offset);
        else
            found = tl::unexpected(offset.error());
    };
    find("reader_sleeps", reader_sleeps);
    find("names_lost", names_lost);
    find("detaching", detaching);
    find("spare_filtered", spare);
    find("stack_control", stack_control);
    find("capture_policy", policy);
    find("in_flight_floor_ns", floor);
    find("wait_floor_ns", wait_floor);
    find("waits_lost", waits_lost);
    find("overhead_budget", budget);
    find("slice", slice);
    find("relinked_ns", relinked_ns);
    find("thin_slots", slots);
    find("thin_symbols", symbols);
    if (!found) return found;
    *spare = spares_filtered;
    gate.emplace(bpf_map__fd(this->map("decisions")), bpf_map__fd(this->map("undecided")), policy);
    auto reader = InFlightReader::open(bpf_object__find_program_by_name(object.get(), "list_in_flight"), floor);
    if (!reader) return tl::unexpected(reader.error());
    in_flight.emplace(std::move(*reader));
    auto watch = HostWatch::open(object.get(), wait_floor, waits_lost);
    if (!watch) return tl::unexpected(watch.error());
    host.emplace(std::move(*watch));
    return fill_thin_slots(slots, symbols);
}

Result<void> CallProbes::Impl::fill_thin_slots(uint8_t* slots, uint8_t* symbols) {
    const std::vector<OpId>& by_slot = ops_by_thin_slot();
    const size_t last = by_slot.size();
    if (last >= INGERO_THIN_SLOTS) return fail(ErrorCode::internal, "more ops may be thinned than there are slots");
    if (calibrated_index() >= INGERO_MAX_SYMBOLS)
        return fail(ErrorCode::internal, "more functions may be probed than there are counters");
    for (size_t i = 0; i < all_targets().size(); ++i) {
        const auto slot = std::find(by_slot.begin() + 1, by_slot.end(), all_targets()[i].op) - by_slot.begin();
        if (static_cast<size_t>(slot) == last) continue;
        slots[i] = static_cast<uint8_t>(slot);
        symbols[slot] = static_cast<uint8_t>(i);
    }
    slots[calibrated_index()] = static_cast<uint8_t>(last);
    symbols[last] = static_cast<uint8_t>(calibrated_index());
    return {};
}

Result<std::unique_ptr<CallProbes>> CallProbes::load(KernelFeatures& features) {
    listen_to_libbpf();
    auto impl = std::make_unique<Impl>();
    impl->method = features.attach_method();
    if (impl->method == AttachMethod::none) return tl::unexpected(features.why_no_attach_method());
    impl->spares_filtered = !features.has(Feature::return_passes_filters);
    impl->cpus = libbpf_num_possible_cpus();
    if (impl->cpus < 1 || impl->cpus > INGERO_MAX_CPUS)
        return fail(ErrorCode::internal, "unsupported number of CPUs: " + std::to_string(impl->cpus));
    if (auto opened = impl->open(features.has(Feature::session_takes_context)); !opened)
        return tl::unexpected(opened.error());
    if (auto loaded = impl->load(features.has(Feature::host_tracepoints)); !loaded)
        return tl::unexpected(loaded.error());
    if (auto made = impl->make_rings(); !made) return tl::unexpected(made.error());
    if (auto mapped = impl->map_shared_words(); !mapped) return tl::unexpected(mapped.error());
    impl->counters_fd = bpf_map__fd(impl->map("call_counters"));
    if (auto attached = impl->attach_tracepoints(); !attached) return tl::unexpected(attached.error());
    return std::unique_ptr<CallProbes>(new CallProbes(std::move(impl)));
}

CallProbes::CallProbes(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CallProbes::~CallProbes() = default;

AttachMethod CallProbes::method() const {
    return impl_->method;
}

RealFileOf CallProbes::real_files() const {
    return real_file_of(impl_->program_fd("find_real_file"));
}

bool CallProbes::spares_filtered() const {
    return impl_->spares_filtered;
}

namespace {

Error attach_error(const ProbeSite& site, int error) {
    return {is_shortage(error) ? ErrorCode::busy : ErrorCode::internal,
            errno_message("cannot attach to " + site.symbol, error), ""};
}

}  // namespace

Result<std::unique_ptr<AttachedLibrary>> CallProbes::attach(int fd, std::span<const ProbeSite> sites) {
    if (impl_->spares_filtered && impl_->method != AttachMethod::uprobe_session)
        return fail(ErrorCode::denied,
                    "this kernel may kill programs under a seccomp filter, as in containers, when they return from a "
                    "probed call",
                    "update the kernel: 6.14 has the fix, and so have the stable kernels of 2025");
    auto attached = std::make_unique<AttachedLinks>();
    attached->site_count = sites.size();
    attached->on_detached = [impl = impl_.get()] { impl->note_detached(); };
    if (impl_->method == AttachMethod::perf_uprobe) {
        const std::string path = "/proc/self/fd/" + std::to_string(fd);
        for (const ProbeSite& site : sites) {
            for (const bool at_return : {true, false}) {  // the return first: an entry never waits for its probe
                LIBBPF_OPTS(bpf_uprobe_opts, options);
                options.retprobe = at_return;
                options.bpf_cookie = site.cookie;
                bpf_program* program =
                    bpf_object__find_program_by_name(impl_->object.get(), at_return ? "call_return" : "call_entry");
                bpf_link* link = bpf_program__attach_uprobe_opts(program, -1, path.c_str(), site.file_offset, &options);
                if (!link) return tl::unexpected(attach_error(site, errno));
                (at_return ? attached->return_links : attached->links).emplace_back(link);
            }
        }
        return attached;
    }
    if (impl_->method == AttachMethod::uprobe_session) return impl_->attach_sessions(fd, sites);
    for (const bool at_return : {true, false}) {
        auto link = at_return ? impl_->link("call_return", UprobeLinkKind::function_return, fd, sites, 0)
                              : impl_->link("call_entry", UprobeLinkKind::entry, fd, sites, 0);
        if (!link) return tl::unexpected(link.error());
        attached->fds.push_back(std::move(*link));
    }
    return attached;
}

Result<UniqueFd> CallProbes::Impl::link(const char* program, UprobeLinkKind kind, int fd,
                                        std::span<const ProbeSite> sites, uint32_t pid) const {
    std::vector<uint64_t> offsets, cookies;
    for (const ProbeSite& site : sites) {
        offsets.push_back(site.file_offset);
        cookies.push_back(site.cookie);
    }
    return link_uprobes(program_fd(program), kind, "/proc/self/fd/" + std::to_string(fd), offsets, cookies, pid);
}

Result<std::unique_ptr<AttachedLibrary>> CallProbes::Impl::attach_sessions(int fd, std::span<const ProbeSite> sites) {
    auto attached = std::make_unique<AttachedLinks>();
    attached->site_count = sites.size();
    attached->spares_filtered = spares_filtered;
    attached->on_detached = [this] { note_detached(); };
    std::vector<ProbeSite> hot, others;
    for (const ProbeSite& site : sites) (is_hot(site.op) ? hot : others).push_back(site);
    const auto link_sessions = [this](int file, std::span<const ProbeSite> some, uint32_t pid) {
        return link("call_session", UprobeLinkKind::session, file, some, pid);
    };
    if (!others.empty()) {
        auto link = link_sessions(fd, others, 0);
        if (!link) return tl::unexpected(link.error());
        attached->fds.push_back(std::move(*link));
    }
    if (hot.empty()) return attached;
    UniqueFd file(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!file) return tl::unexpected(attach_error(hot.front(), errno));
    struct stat first {};
    if (fstat(file.get(), &first) != 0) return tl::unexpected(attach_error(hot.front(), errno));
    attached->hot_sites = std::make_shared<HotSites>(
        HotSites::Host{
            .link = link_sessions,
            .is_unchanged = [first](int now,
                                    std::span<const ProbeSite> some) { return has_same_content(now, first, some); },
            .on_detached = [this] { note_detached(); }},
        std::move(file), std::move(hot));
    if (auto linked = attached->hot_sites->attach_to_all(); !linked) return tl::unexpected(linked.error());
    return attached;
}

namespace {

template <class T>
T quantile_of(std::vector<T> all, size_t part, size_t of) {
    if (all.empty()) return {};
    const auto place = all.begin() + static_cast<std::ptrdiff_t>(all.size() * part / of);
    std::nth_element(all.begin(), place, all.end());
    return *place;
}

}  // namespace

/// In a loop: ns of a recorded call, and of one that is not, the function's own among them.
CallPrice CallProbes::Impl::time_loops(uint32_t untraced_ns) {
    ingero_call_counters last{};
    std::vector<double> entries;
    const auto note_entries = [&] {
        const ingero_call_counters now = counters_of(calibrated_index());
        const uint64_t timed = now.timed - last.timed;
        if (timed >= least_timed_entries)
            entries.push_back(static_cast<double>(now.timed_ns - last.timed_ns) / static_cast<double>(timed));
        last = now;
    };
    // In the third way each entry is timed, which would make the others dearer.
    const auto times = time_calibrated_calls(3, [&](size_t way) {
        note_entries();
        consume_records();
        budget->keep_one_in = way == 0 ? 1 : UINT8_MAX;
        budget->time_all = way == 2;
    });
    note_entries();
    const uint32_t call_ns = times[0] - std::min(times[0], untraced_ns),
                   unkept_ns = std::min(times[1] - std::min(times[1], untraced_ns), call_ns);
    return {.unkept_ns = static_cast<double>(unkept_ns),
            .record_ns = static_cast<double>(call_ns - unkept_ns),
            .entry_ns = quantile_of(entries, 1, 4)};
}

/// The same amid work, which alone makes a call take `untraced_longer_ns` longer.
CallPrice CallProbes::Impl::time_amid_work(const CallPrice& alone, uint64_t untraced_longer_ns) {
    std::vector<uint64_t> kept_longer, unkept_longer, entries;
    budget->time_all = 1;
    for (unsigned round = 0; round < work_rounds; ++round) {
        for (const bool kept : {true, false}) {
            consume_records();
            budget->keep_one_in = kept ? 1 : UINT8_MAX;
            const SingleCalls in_loop = time_single_calls(0, {});
            const SingleCalls amid_work =
                time_single_calls(calibrated_work_bytes, [this] { return counters_of(calibrated_index()).timed_ns; });
            const uint64_t longer_ns = saturating_subtract(amid_work.call_ns, in_loop.call_ns);
            (kept ? kept_longer : unkept_longer).push_back(saturating_subtract(longer_ns, untraced_longer_ns));
            entries.push_back(amid_work.entry_ns);
        }
    }
    const double call_ns = alone.call_ns() + static_cast<double>(quantile_of(kept_longer, 1, 2)),
                 unkept_ns = alone.unkept_ns + static_cast<double>(quantile_of(unkept_longer, 1, 2));
    return {.unkept_ns = unkept_ns,
            .record_ns = std::max(call_ns - unkept_ns, 0.0),
            .entry_ns = static_cast<double>(quantile_of(entries, 1, 2))};
}

void CallProbes::Impl::set_price(const CallCost& measured) {
    const auto more = [](double amid_work, double alone) { return std::lround(std::max(amid_work - alone, 0.0)); };
    budget->unkept_ns = static_cast<uint32_t>(std::lround(measured.alone.unkept_ns));
    budget->record_ns = static_cast<uint32_t>(std::lround(measured.alone.record_ns));
    budget->entry_ns = static_cast<uint32_t>(std::lround(measured.alone.entry_ns));
    if (!measured.knows_work()) return;
    budget->unkept_more_ns = static_cast<uint32_t>(more(measured.amid_work.unkept_ns, measured.alone.unkept_ns));
    budget->record_more_ns = static_cast<uint32_t>(more(measured.amid_work.record_ns, measured.alone.record_ns));
    budget->entry_way_ns = static_cast<uint32_t>(more(measured.amid_work.entry_ns, measured.alone.entry_ns));
}

Result<CallCost> CallProbes::calibrate() {
    const auto function = find_calibrated_function();
    if (!function) return tl::unexpected(function.error());
    const ProbeSite site{.file_offset = function->file_offset,
                         .cookie = uint64_t{calibrated_index()} << 16,
                         .symbol = "the calibrated function",
                         .emulated = true};
    const uint32_t untraced_ns = time_calibrated_calls(1, [](size_t) {}).front();
    const uint64_t untraced_longer_ns =
        saturating_subtract(time_single_calls(calibrated_work_bytes, {}).call_ns, time_single_calls(0, {}).call_ns);
    auto attached = attach(function->file.get(), {&site, 1});
    if (!attached) return tl::unexpected(attached.error());
    impl_->calibrated = std::move(*attached);
    const auto kept_callback = std::exchange(impl_->on_record, [](std::span<const std::byte>) {});
    CallCost cost;
    cost.alone = impl_->time_loops(untraced_ns);
    cost.amid_work = impl_->time_amid_work(cost.alone, untraced_longer_ns);
    impl_->budget->time_all = 0;
    impl_->budget->keep_one_in = 0;
    const ingero_call_counters counted = impl_->counters_of(calibrated_index());
    cost.calls = counted.entries;
    cost.unkept_calls = counted.thinned;
    impl_->consume_records();
    impl_->on_record = kept_callback;
    impl_->detacher = std::thread([this] { impl_->calibrated.reset(); });
    const uint32_t self = static_cast<uint32_t>(getpid());
    bpf_map_delete_elem(bpf_map__fd(impl_->map("processes")), &self);
    if (cost.calls == 0)
        return fail(ErrorCode::denied,
                    "ingerod itself runs under a seccomp filter, so its own test calls are not traced either");
    impl_->cost = cost;
    impl_->set_price(cost);
    return cost;
}

void CallProbes::set_overhead_budget(unsigned permille) {
    // Without a cost there is nothing to weigh.
    std::atomic_ref<uint32_t>(impl_->budget->permille).store(impl_->cost ? permille : 0, std::memory_order_relaxed);
}

ingero_slice& CallProbes::slice() {
    return *impl_->slice;
}

std::optional<CallCost> CallProbes::cost() const {
    return impl_->cost;
}

void CallProbes::set_record_callback(std::function<void(std::span<const std::byte>)> callback) {
    impl_->on_record = std::move(callback);
}

size_t CallProbes::consume() {
    return impl_->consume_records();
}

size_t CallProbes::Impl::consume_records() {
    const int count = ring_buffer__consume(rings.get());
    return count > 0 ? static_cast<size_t>(count) : 0;
}

int CallProbes::wake_fd() const {
    return ring_buffer__epoll_fd(impl_->rings.get());
}

void CallProbes::announce_sleep() {
    // Sequentially consistent: the flag is out before the rings are looked at once more.
    std::atomic_ref<uint32_t>(*impl_->reader_sleeps).store(1, std::memory_order_seq_cst);
}

StackMaps CallProbes::stack_maps() const {
    return {.mapping_lists = bpf_map__fd(impl_->map("mapping_lists")),
            .exec_times = bpf_map__fd(impl_->map("exec_times")),
            .mappings = bpf_map__fd(impl_->map("mappings")),
            .unwind_tables = bpf_map__fd(impl_->map("unwind_tables")),
            .uid_owners = bpf_map__fd(impl_->map("uid_owners")),
            .control = impl_->stack_control};
}

uint32_t CallProbes::stack_cost_ns() const {
    ingero_stack_control& control = *impl_->stack_control;
    if (std::atomic_ref<uint32_t>(control.enabled).load(std::memory_order_relaxed) == 0) return 0;
    return std::atomic_ref<uint32_t>(control.walk_ns).load(std::memory_order_relaxed);
}

SymbolCounters CallProbes::counters() const {
    return read_counters(impl_->counters_fd, static_cast<size_t>(impl_->cpus));
}

uint64_t CallProbes::names_lost() const {
    return std::atomic_ref<uint64_t>(*impl_->names_lost).load(std::memory_order_relaxed);
}

void CallProbes::begin_detaching() {
    std::atomic_ref<uint32_t>(*impl_->detaching).store(1, std::memory_order_seq_cst);
}

HostWatch& CallProbes::host() {
    return *impl_->host;
}

const InFlightReader& CallProbes::in_flight() const {
    return *impl_->in_flight;
}

CaptureGate& CallProbes::gate() {
    return *impl_->gate;
}

}  // namespace ingero
