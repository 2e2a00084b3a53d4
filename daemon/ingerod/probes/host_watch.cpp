#include "daemon/ingerod/probes/host_watch.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <string_view>

namespace ingero {

namespace {

struct HostProgram {
    const char* name;
    const char* tracepoint;
    int arguments = 0;  ///< that the kernel's tracepoint has, where there is one program for each number of them
};

// Entered by a tail call, from the program of the same tracepoint.
struct TailProgram {
    const char* name;
    const char* table;
};
constexpr TailProgram tail_programs[] = {{"on_watched_switch", "watched_switch"},
                                         {"on_watched_waking", "watched_waking"}};

constexpr HostProgram programs[] = {
    {"on_request_done", "block_rq_complete"},
    {"on_reclaim", "mm_vmscan_direct_reclaim_begin"},
    {"on_reclaimed", "mm_vmscan_direct_reclaim_end"},
    {"on_group_reclaim", "mm_vmscan_memcg_reclaim_begin"},
    {"on_group_reclaimed", "mm_vmscan_memcg_reclaim_end"},
    {"on_victim", "mark_victim"},
    {"on_interrupt", "irq_handler_entry"},
    {"on_interrupt_done", "irq_handler_exit"},
    {"on_soft_interrupt", "softirq_entry"},
    {"on_soft_interrupt_done", "softirq_exit"},
    {"on_socket_state", "inet_sock_set_state"},
    {"on_retransmit", "tcp_retransmit_skb", 2},
    {"on_retransmit_attempt", "tcp_retransmit_skb", 3},  // since 6.17
    {"on_socket_error", "inet_sk_error_report"},
};

struct BtfDeleter {
    void operator()(btf* types) const { btf__free(types); }
};

/// -1: the kernel has no such tracepoint. Its type is a pointer to a function of a context and of these arguments.
int arguments_of(const btf* kernel, const char* tracepoint) {
    const std::string name = std::string("btf_trace_") + tracepoint;
    const int found = kernel ? btf__find_by_name_kind(kernel, name.c_str(), BTF_KIND_TYPEDEF) : -1;
    const btf_type* type = found > 0 ? btf__type_by_id(kernel, static_cast<uint32_t>(found)) : nullptr;
    if (type && btf_is_typedef(type)) type = btf__type_by_id(kernel, type->type);
    if (type && btf_is_ptr(type)) type = btf__type_by_id(kernel, type->type);
    return type && btf_is_func_proto(type) ? btf_vlen(type) - 1 : -1;
}

}  // namespace

void HostWatch::prepare(bpf_object* object, bool has_tracepoints) {
    const std::unique_ptr<btf, BtfDeleter> kernel(has_tracepoints ? btf__load_vmlinux_btf() : nullptr);
    for (const HostProgram& program : programs) {
        const int arguments = arguments_of(kernel.get(), program.tracepoint);
        const bool fits = arguments >= 0 && (program.arguments == 0 || program.arguments == arguments);
        bpf_program__set_autoload(bpf_object__find_program_by_name(object, program.name), fits);
    }
}

Result<HostWatch> HostWatch::open(bpf_object* object, uint64_t* floor_ns, const uint64_t* lost) {
    HostWatch watch;
    watch.object_ = object;
    watch.floor_ns_ = floor_ns;
    watch.lost_ = lost;
    for (const TailProgram& program : tail_programs) {
        const int table = bpf_map__fd(bpf_object__find_map_by_name(object, program.table));
        const uint32_t place = 0;
        const int fd = bpf_program__fd(bpf_object__find_program_by_name(object, program.name));
        if (bpf_map_update_elem(table, &place, &fd, BPF_ANY) != 0)
            return fail(ErrorCode::internal,
                        errno_message(std::string("cannot register the BPF program ") + program.name, errno));
    }
    return watch;
}

void HostWatch::set_floor(uint64_t ns) {
    __atomic_store_n(floor_ns_, ns, __ATOMIC_RELAXED);
}

void HostWatch::begin() {
    if (begun_ || __atomic_load_n(floor_ns_, __ATOMIC_RELAXED) == 0) return;
    begun_ = true;
    for (const HostProgram& program : programs) {
        bpf_program* found = bpf_object__find_program_by_name(object_, program.name);
        const bool is_loaded = bpf_program__autoload(found);
        bpf_link* link = is_loaded ? bpf_program__attach(found) : nullptr;
        const int error = errno;
        if (link) {
            links_.emplace_back(link);
            continue;
        }
        const bool has_another = std::any_of(std::begin(programs), std::end(programs), [&](const HostProgram& other) {
            return &other != &program && std::string_view(other.tracepoint) == program.tracepoint &&
                   bpf_program__autoload(bpf_object__find_program_by_name(object_, other.name));
        });
        if (has_another && !is_loaded) continue;
        const std::string why =
            is_loaded ? errno_message("it cannot be attached to", error) : "this kernel does not have it";
        const std::string text = std::string("tracepoint ") + program.tracepoint + ": " + why;
        if (std::find(missing_.begin(), missing_.end(), text) != missing_.end()) continue;
        spdlog::warn("{}: its events will be missing", text);
        missing_.push_back(text);
    }
}

uint64_t HostWatch::lost() const {
    return __atomic_load_n(lost_, __ATOMIC_RELAXED);
}

}  // namespace ingero
