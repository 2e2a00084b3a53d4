// Start of the engine in a process: options, log, rules; and what a fork changes.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "call.h"
#include "delays.h"
#include "device.h"
#include "options.h"
#include "rules.h"

namespace ingero::standin {

__thread ThreadState thread_state __attribute__((tls_model("initial-exec")));
Hot hot{};

namespace {

constexpr uint64_t page = 4096;

uint64_t round_to_page(uint64_t size) {
    return (size + page - 1) / page * page;
}

// The file is sparse: places that are not used take no room.
constexpr uint32_t kernel_name_capacity = 65'536;

struct Layout {
    explicit Layout(uint64_t records_wanted) : capacity(records_wanted) {}
    uint64_t capacity;
    uint64_t kernel_names = page + round_to_page(function_count * GROUND_TRUTH_NAME_SIZE);
    uint64_t records = kernel_names + kernel_name_capacity * sizeof(ground_truth_kernel_name);
    uint64_t size = records + capacity * sizeof(ground_truth_record);
};

ground_truth_clocks read_clocks() {
    return {now_ns(), read_clock(CLOCK_REALTIME), read_clock(CLOCK_BOOTTIME)};
}

void populate(uint64_t records) {
#ifndef MADV_POPULATE_WRITE  // kernel 5.14; older headers lack the name
#define MADV_POPULATE_WRITE 23
#endif
    char* base = reinterpret_cast<char*>(hot.records);
    char* end = reinterpret_cast<char*>(hot.records + std::min(records, hot.capacity));
    if (madvise(base, round_to_page(uint64_t(end - base)), MADV_POPULATE_WRITE) == 0) return;
    // An older kernel: writing back what a page holds makes it present. Records may be in use, so atomically.
    for (char* place = base; place < end; place += page) {
        __atomic_fetch_add(reinterpret_cast<uint64_t*>(place), 0, __ATOMIC_RELAXED);
    }
}

void write_header(char* base, const Layout& layout) {
    auto* header = reinterpret_cast<ground_truth_header*>(base);
    *header = {};
    header->version = GROUND_TRUTH_VERSION;
    header->record_size = sizeof(ground_truth_record);
    header->name_size = GROUND_TRUTH_NAME_SIZE;
    header->name_count = uint32_t(function_count);
    header->names_offset = page;
    header->kernel_names_offset = layout.kernel_names;
    header->kernel_name_capacity = kernel_name_capacity;
    header->records_offset = layout.records;
    header->capacity = layout.capacity;
    header->pid = uint32_t(getpid());
    header->opened = read_clocks();
    for (size_t i = 0; i < function_count; ++i) {
        std::memcpy(base + page + i * GROUND_TRUTH_NAME_SIZE, function_names[i].data(), function_names[i].size());
    }
    // Last: a reader takes the file for a log only from here on.
    __atomic_store_n(&header->magic, GROUND_TRUTH_MAGIC, __ATOMIC_RELEASE);
}

void open_log(const Options& options) {
    const char* path = options.log_path.c_str();
    // Replaced rather than truncated: a process that still maps the old file would be killed by its next write.
    unlink(path);
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) reject("cannot create the log", options.log_path);
    const Layout layout(options.log_capacity);
    if (ftruncate(file, off_t(layout.size)) != 0) reject("cannot size the log", options.log_path);
    void* base = mmap(nullptr, layout.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (base == MAP_FAILED) reject("cannot map the log", options.log_path);
    write_header(static_cast<char*>(base), layout);
    hot.records = reinterpret_cast<ground_truth_record*>(static_cast<char*>(base) + layout.records);
    hot.capacity = options.log_capacity;
    hot.cpu_depths = options.log_cpu == LogCpu::all ? ~0u : options.log_cpu == LogCpu::outermost ? 1 : 0;
    hot.header = static_cast<ground_truth_header*>(base);
    populate(options.log_populate);
}

void set_thread_ids() {
    thread_state.pid = uint32_t(getpid());
    thread_state.tid = uint32_t(syscall(SYS_gettid));
}

// The child writes to the log it inherited, under its own ids; threads of the parent, our helper among them, are gone.
void after_fork_in_child() {
    if (thread_state.tid != 0) set_thread_ids();
    forget_helper();
}

void start_process() {
    const Options& parsed = options();
    hot.call_ns = parsed.call_ns;
    load_rules(parsed.rules, hot.rules);
    if (!parsed.log_path.empty()) open_log(parsed);
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

__attribute__((destructor)) void end_process() {
    if (hot.header != nullptr) hot.header->closed = read_clocks();
}

}  // namespace

uint32_t log_kernel_name(const char* name) {
    if (hot.header == nullptr) return 0;
    const uint64_t slot = __atomic_fetch_add(&hot.header->next_kernel_name, 1, __ATOMIC_RELAXED);
    if (slot >= kernel_name_capacity) return 0;
    char* base = reinterpret_cast<char*>(hot.header) + hot.header->kernel_names_offset;
    ground_truth_kernel_name& place = reinterpret_cast<ground_truth_kernel_name*>(base)[slot];
    const size_t length = std::strlen(name);
    std::memcpy(place.name, name, std::min(length, sizeof place.name - 1));
    __atomic_store_n(&place.length, uint32_t(length), __ATOMIC_RELEASE);
    return uint32_t(slot) + 1;
}

void begin_thread() {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_process);
    set_thread_ids();
}

}  // namespace ingero::standin

/// Gets the engine ready before a run, so that the first call does not do it: options, log, the scratch file and helper
/// that rules need, and room in memory for so many records. Not a call of the API, and not logged.
extern "C" void standin_prepare(uint64_t records) {
    using namespace ingero::standin;
    if (thread_state.tid == 0) begin_thread();
    if (hot.header != nullptr) populate(std::max(records, options().log_populate));
    Devices::instance();
    if (!options().rules.empty()) prepare_delays();
}

/// The calling thread's next call of any exported function returns `code` and does nothing else. Not a call of the API,
/// and not logged; functions that return no result code take it and return as ever.
extern "C" void standin_fail_next(int code) {
    ingero::standin::thread_state.fail_next = code;
}
