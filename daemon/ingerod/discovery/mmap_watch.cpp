#include "daemon/ingerod/discovery/mmap_watch.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/model/call_time.h"
#include "core/model/time.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/discovery/cpu_list.h"
#include "daemon/ingerod/discovery/mapping_filter.h"
#include "daemon/ingerod/discovery/proc_file.h"

namespace ingero {

namespace {

/// More in one turn, and the rings rest for a while.
constexpr size_t calm_records = 128;
constexpr uint64_t pause_us = 2'000;
constexpr uint64_t due_period_us = 20'000;
/// Less may be the time between the readings of two clocks.
constexpr uint64_t least_sleep_ns = 100'000'000;

/// In which the host was suspended since it started. The clocks are read one after the other: where it never was, the
/// second may be ahead.
uint64_t suspended_ns(const ClockTriple& now) {
    return saturating_subtract(now.boottime_ns, now.monotonic_ns);
}

// PERF_RECORD_MMAP2 up to the file name (include/uapi/linux/perf_event.h).
struct MmapRecord {
    perf_event_header header;
    uint32_t pid, tid;
    uint64_t address, length, page_offset;
    uint32_t device_major, device_minor;
    uint64_t inode, inode_generation;
    uint32_t protection, flags;
};

/// Behind all else, as sample_id_all has it; 0 where there is none.
uint64_t time_of(const std::vector<char>& record) {
    uint64_t time_ns = 0;
    if (record.size() >= sizeof(perf_event_header) + sizeof(time_ns))
        memcpy(&time_ns, record.data() + record.size() - sizeof(time_ns), sizeof(time_ns));
    return time_ns;
}

class MappedRing {
  public:
    /// Errors: not_found (the CPU is not online), denied, internal.
    static Result<MappedRing> open(int cpu) {
        perf_event_attr attr{};
        attr.size = sizeof(attr);
        attr.type = PERF_TYPE_SOFTWARE;
        attr.config = PERF_COUNT_SW_DUMMY;
        attr.mmap = 1;
        attr.mmap2 = 1;
        attr.exclude_kernel = 1;
        attr.sample_type = PERF_SAMPLE_TIME;
        attr.sample_id_all = 1;
        attr.use_clockid = 1;
        attr.clockid = CLOCK_MONOTONIC;
        attr.watermark = 1;
        attr.wakeup_watermark = 1;
        MappedRing ring;
        ring.fd_.reset(static_cast<int>(syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)));
        const int error = errno;
        if (!ring.fd_)
            return fail(error == ENODEV ? ErrorCode::not_found : ErrorCode::denied,
                        errno_message("perf_event_open", error));
        ring.page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        ring.size_ = mmap_ring_bytes(ring.page_);
        void* memory = mmap(nullptr, ring.page_ + ring.size_, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd_.get(), 0);
        if (memory == MAP_FAILED) return fail(ErrorCode::internal, errno_message("mapping a perf ring", errno));
        ring.memory_ = static_cast<char*>(memory);
        return ring;
    }
    MappedRing(MappedRing&& other) noexcept
        : fd_(std::move(other.fd_)),
          memory_(std::exchange(other.memory_, nullptr)),
          page_(other.page_),
          size_(other.size_) {}
    MappedRing& operator=(MappedRing&&) = delete;
    ~MappedRing() {
        if (memory_) munmap(memory_, page_ + size_);
    }
    int fd() const { return fd_.get(); }

    template <class F>
    void read(F&& visit) {
        auto* page = reinterpret_cast<perf_event_mmap_page*>(memory_);
        const char* data = memory_ + page_;
        const uint64_t head =
            std::atomic_ref<decltype(page->data_head)>(page->data_head).load(std::memory_order_acquire);
        uint64_t tail = page->data_tail;
        std::vector<char> record;
        while (tail < head) {
            perf_event_header header;
            copy_out(data, size_, tail, &header, sizeof(header));
            if (header.size < sizeof(header)) break;
            record.resize(header.size);
            copy_out(data, size_, tail, record.data(), header.size);
            visit(header, record);
            tail += header.size;
        }
        std::atomic_ref<decltype(page->data_tail)>(page->data_tail).store(head, std::memory_order_release);
    }

  private:
    MappedRing() = default;
    static void copy_out(const char* data, size_t size, uint64_t at, void* to, size_t bytes) {
        const size_t first = std::min(bytes, size - at % size);
        memcpy(to, data + at % size, first);
        memcpy(static_cast<char*>(to) + first, data, bytes - first);
    }

    UniqueFd fd_;
    char* memory_ = nullptr;
    size_t page_ = 0;
    size_t size_ = 0;  ///< without the first page
};

}  // namespace

struct MmapWatch::Impl {
    struct Ring {
        MappedRing mapped;
        uint64_t complete_ns = 0;  ///< nothing is missing of what was mapped before
        EventLoop::Source source{};
    };

    std::map<int, Ring> rings;  ///< by CPU
    std::function<bool(std::string_view)> is_library;
    std::function<bool(std::string_view)> may_be_program;
    Callbacks callbacks;
    OnlineCpus cpus;

    EventLoop* loop = nullptr;
    MappingFilter filter;
    EventLoop::Source resume_timer;
    EventLoop::Source due_timer;
    EventLoop::Source cpus_timer;
    uint64_t covered_ns = 0;   ///< all CPUs that were online then had their rings
    uint64_t slept_ns = 0;     ///< in which the host was suspended, since it started
    bool told_of_cpu = false;  ///< of one that cannot be watched

    /// Errors: those of MappedRing::open().
    Result<void> watch_cpu(int cpu) {
        auto mapped = MappedRing::open(cpu);
        if (!mapped) return tl::unexpected(mapped.error());
        Ring& ring =
            rings.emplace(cpu, Ring{.mapped = std::move(*mapped), .complete_ns = monotonic_now_ns()}).first->second;
        // Urgent, so that whoever asks about a process is answered with all that it has mapped before.
        ring.source = loop->add_io(ring.mapped.fd(), EPOLLIN, [this, &ring](uint32_t) { read(ring); });
        loop->make_urgent(ring.source);
        return {};
    }

    /// nullopt where it cannot be read.
    std::optional<std::set<int>> online() const {
        const auto text = read_proc_file(cpus.file);
        return text ? parse_cpu_list(*text) : std::nullopt;
    }

    /// Errors: those of MappedRing::open() but not_found.
    Result<void> begin() {
        const ClockTriple now = ClockTriple::now();
        covered_ns = now.monotonic_ns;
        slept_ns = suspended_ns(now);
        std::set<int> possible;
        for (int cpu = 0; cpu < libbpf_num_possible_cpus(); ++cpu) possible.insert(cpu);
        for (const int cpu : online().value_or(possible))
            if (auto watched = watch_cpu(cpu); !watched && watched.error().code != ErrorCode::not_found) return watched;
        cpus_timer = loop->add_periodic(
            cpus.period_us, [this] { check_cpus(); }, cpus.period_us / 4);
        return {};
    }

    // A CPU that goes offline takes its event with it, for good. As the host is suspended, all but one go.
    void check_cpus() {
        const ClockTriple now = ClockTriple::now();
        const auto found = online();
        if (!found) return;
        const uint64_t slept_by_now_ns = suspended_ns(now);
        const bool has_slept = slept_by_now_ns > slept_ns + least_sleep_ns;
        if (has_slept) slept_ns = slept_by_now_ns;
        for (auto ring = rings.begin(); ring != rings.end();) {
            if (!has_slept && found->contains(ring->first)) {
                ++ring;
                continue;
            }
            read(ring->second);
            ring = rings.erase(ring);
        }
        watch_new_cpus(*found, now.monotonic_ns);
    }

    void watch_new_cpus(const std::set<int>& found, uint64_t now_ns) {
        bool has_new = false;
        std::string why;
        for (const int cpu : found) {
            if (rings.contains(cpu)) continue;
            const auto watched = watch_cpu(cpu);
            if (watched)
                has_new = true;
            else
                why = "CPU " + std::to_string(cpu) + ": " + watched.error().message;
        }
        if (has_new) callbacks.on_new_cpus(covered_ns);
        if (why.empty()) covered_ns = now_ns;
        if (!std::exchange(told_of_cpu, !why.empty()) && !why.empty())
            spdlog::warn("cannot watch for libraries being mapped on {}; trying again later", why);
    }

    void read(Ring& ring) {
        constexpr uint64_t never = UINT64_MAX;
        uint64_t lost_since_ns = never;
        size_t records = 0;
        filter.begin_turn();
        ring.mapped.read([&](const perf_event_header& header, const std::vector<char>& bytes) {
            ++records;
            const uint64_t time_ns = time_of(bytes);
            // The ring was full from the record before on.
            if (header.type == PERF_RECORD_LOST) lost_since_ns = std::min(lost_since_ns, ring.complete_ns);
            if (header.type == PERF_RECORD_MMAP2 && !take(bytes, time_ns))
                lost_since_ns = std::min(lost_since_ns, time_ns);
            ring.complete_ns = std::max(ring.complete_ns, time_ns);
        });
        // The scan may come across what still waits to be reported, and was mapped earlier.
        if (lost_since_ns != never) callbacks.on_lost(std::min(lost_since_ns, filter.waiting_since_ns()));
        // Who maps as fast as it can would have all turns of the loop: what is urgent comes before all else.
        if (records > calm_records) pause();
        if (filter.has_waiting() && !due_timer.active())
            due_timer = loop->add_timer(
                due_period_us, [this] { look_at_due(); }, due_period_us / 5);
    }

    void pause() {
        if (resume_timer.active()) return;
        for (const auto& [cpu, ring] : rings) loop->set_io_events(ring.source, 0);
        resume_timer = loop->add_timer(pause_us, [this] { resume(); });
    }

    // The kernel signals each wake-up once, and nobody got those in the pause; a ring that is full by now gets nothing
    // that would wake.
    void resume() {
        resume_timer.reset();
        for (const auto& [cpu, ring] : rings) loop->set_io_events(ring.source, EPOLLIN);
        for (auto& [cpu, ring] : rings) read(ring);
    }

    void look_at_due() {
        due_timer.reset();
        filter.begin_turn();
        for (const MappingFilter::Sight& sight : filter.due(monotonic_now_ns()))
            report(sight.pid, sight.mapping, sight.time_ns);
        if (filter.has_waiting() && !due_timer.active())
            due_timer = loop->add_timer(
                due_period_us, [this] { look_at_due(); }, due_period_us / 5);
    }

    void report(uint32_t pid, const Mapping& mapping, uint64_t time_ns) {
        (is_library(mapping.path) ? callbacks.on_mapping : callbacks.on_program)(pid, mapping, time_ns);
    }

    /// False where it is neither looked at nor remembered.
    bool take(const std::vector<char>& bytes, uint64_t time_ns) {
        MmapRecord record;
        if (bytes.size() <= sizeof(record) + sizeof(time_ns)) return true;
        memcpy(&record, bytes.data(), sizeof(record));
        const size_t name_bytes = bytes.size() - sizeof(record) - sizeof(time_ns);
        const char* name = bytes.data() + sizeof(record);
        const std::string_view path(name, strnlen(name, name_bytes));
        if (record.inode == 0) return true;
        if (callbacks.on_executable) callbacks.on_executable(record.pid);
        if (!is_library(path) && !may_be_program(path)) return true;
        Mapping mapping;
        mapping.start = record.address;
        mapping.end = record.address + record.length;
        mapping.offset = record.page_offset;
        mapping.executable = true;
        mapping.file = {makedev(record.device_major, record.device_minor), record.inode};
        mapping.path = path;
        const auto verdict = filter.take(record.pid, mapping, time_ns, monotonic_now_ns());
        if (verdict == MappingFilter::Verdict::now) report(record.pid, mapping, time_ns);
        return verdict != MappingFilter::Verdict::too_many;
    }
};

Result<std::unique_ptr<MmapWatch>> MmapWatch::start(EventLoop& loop, std::function<bool(std::string_view)> is_library,
                                                    std::function<bool(std::string_view)> may_be_program,
                                                    Callbacks callbacks, const OnlineCpus& cpus) {
    auto impl = std::make_unique<Impl>();
    impl->loop = &loop;
    impl->is_library = std::move(is_library);
    impl->may_be_program = std::move(may_be_program);
    impl->callbacks = std::move(callbacks);
    impl->cpus = cpus;
    if (const auto begun = impl->begin(); !begun)
        return fail(begun.error().code, "cannot watch for libraries being mapped: " + begun.error().message,
                    "run as root, or grant CAP_PERFMON");
    return std::unique_ptr<MmapWatch>(new MmapWatch(std::move(impl)));
}

MmapWatch::MmapWatch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MmapWatch::~MmapWatch() = default;

}  // namespace ingero
