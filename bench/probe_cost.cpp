// What a probed call costs, against an empty session probe on the same function, in one run on one CPU. All cases are
// attached at once, each to its own copy of one function, and run in turns, so that noise meets them alike.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "bench/figures.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/model/unique_fd.h"
#include "core/symbols/unwind_table.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/ingest/ingest.h"
#include "daemon/ingerod/probes/attach/targets.h"
#include "daemon/ingerod/probes/call_probes.h"
#include "daemon/ingerod/probes/kernel/bpf_syscall.h"
#include "daemon/ingerod/stacks/walk_tables.h"
#include "rivals_bpf.skel.h"

using namespace ingero;

extern "C" {
int call_unprobed(long, long);
int call_empty_session(long, long);
int call_recorded(long, long);
int call_nested_inner(long, long);
int call_nested_outer(long, long);
int call_usual(long, long);
int call_bpftrace(long, long);
}

namespace {

constexpr int rounds = 31;
constexpr int calls_per_round = 20'000;

using Probed = int (*)(long, long);

double time_calls(Probed function) {
    const uint64_t begin = monotonic_now_ns();
    for (int i = 0; i < calls_per_round; ++i) function(i, 2);
    return static_cast<double>(monotonic_now_ns() - begin) / calls_per_round;
}

// The offset in this executable's file of a function of it.
uint64_t file_offset(const void* address) {
    std::ifstream maps("/proc/self/maps");
    std::string line;
    while (std::getline(maps, line)) {
        unsigned long from = 0, to = 0, offset = 0;
        if (sscanf(line.c_str(), "%lx-%lx %*s %lx", &from, &to, &offset) != 3) continue;
        const auto value = reinterpret_cast<unsigned long>(address);
        if (value >= from && value < to) return value - from + offset;
    }
    return 0;
}

/// Counted as one of the functions of that op.
uint64_t plain_cookie(OpId op) {
    const auto targets = all_targets();
    const auto target = std::find_if(targets.begin(), targets.end(), [&](const Target& one) { return one.op == op; });
    return uint64_t{op} | static_cast<uint64_t>(target - targets.begin()) << 16 | 2ULL << 32 | 1ULL << 40;
}

void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

struct RivalsDeleter {
    void operator()(rivals_bpf* object) const { rivals_bpf__destroy(object); }
};

// Two threads on one CPU that hand it to each other by sched_yield: ns a switch.
double time_switches() {
    constexpr int switches = 20'000;
    std::atomic<int> ready{0};
    double ns = 0;
    auto body = [&](bool measure) {
        pin(0);
        ready++;
        while (ready < 2) sched_yield();
        const uint64_t begin = monotonic_now_ns();
        for (int i = 0; i < switches; ++i) sched_yield();
        if (measure) ns = static_cast<double>(monotonic_now_ns() - begin) / (2.0 * switches);
    };
    std::thread other(body, false);
    std::thread first(body, true);
    first.join();
    other.join();
    return ns;
}

// bpftrace's own latency histogram on the same kind of function, in a process of its own. -1: not installed.
class Bpftrace {
  public:
    explicit Bpftrace(const std::string& executable) {
        if (access("/usr/bin/bpftrace", X_OK) != 0) return;
        const std::string at = executable + ":call_bpftrace";
        const std::string script = "uprobe:" + at + " { @start[tid] = nsecs; } uretprobe:" + at +
                                   " /@start[tid]/ { @ns = hist(nsecs - @start[tid]); delete(@start[tid]); } "
                                   "BEGIN { printf(\"attached\\n\"); }";
        int output[2];
        if (pipe2(output, O_CLOEXEC) != 0) return;
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            dup2(output[1], 1);
            dup2(open("/dev/null", O_WRONLY), 2);
            execl("/usr/bin/bpftrace", "bpftrace", "-B", "line", "-e", script.c_str(), nullptr);
            _exit(127);
        }
        close(output[1]);
        std::string text;
        char buffer[256];
        ssize_t got = 0;
        while (text.find("attached\n") == std::string::npos && (got = read(output[0], buffer, sizeof(buffer))) > 0)
            text.append(buffer, static_cast<size_t>(got));
        output_.reset(output[0]);
        running_ = got > 0;
    }
    ~Bpftrace() {
        if (pid_ <= 0) return;
        kill(pid_, SIGINT);
        char buffer[4096];
        while (read(output_.get(), buffer, sizeof(buffer)) > 0) continue;
        waitpid(pid_, nullptr, 0);
    }
    bool running() const { return running_; }

  private:
    pid_t pid_ = -1;
    UniqueFd output_;
    bool running_ = false;
};

struct Case {
    std::string label;
    std::string figure;
    Probed function;
    std::vector<double> ns;
    bool takes_stack = false;
};

// What the daemon tells of a process that it traces, told of this one. False where a table cannot be had.
bool tell_own_mappings(WalkTables& tables) {
    const ProcFs proc;
    const auto self = proc.read_process(static_cast<uint32_t>(getpid()));
    if (!self) return false;
    std::vector<ingero_mapping> list;
    for (const Mapping& mapping : proc.executable_mappings(self->key.pid)) {
        const auto file = proc.open_mapped_file(self->key.pid, mapping);
        const auto table = file ? compile_unwind_table(file->get()) : tl::unexpected<Error>(file.error());
        if (!table || table->rows.empty() || table->code.empty()) return false;
        const std::span<const uint8_t> rows(reinterpret_cast<const uint8_t*>(table->rows.data()),
                                            table->rows.size() * sizeof(ingero_unwind_row));
        const auto added = tables.add_table({&rows, 1}, 0);
        if (!added) return false;
        list.push_back({.start = mapping.start,
                        .end = mapping.end,
                        .file_address = table->code[0].address + (mapping.offset - table->code[0].offset),
                        .table = *added,
                        .rows = static_cast<ingero_u32>(table->rows.size())});
    }
    return static_cast<bool>(tables.set_mappings(self->key, 0, 1, list));
}

/// Records a second that the reader takes out of full rings and makes rows of, as the ingest thread does it.
std::optional<double> decoded_per_second(CallProbes& probes) {
    constexpr int fills = 31, calls_a_fill = 20'000;
    std::vector<Event> rows;
    rows.reserve(calls_a_fill);
    uint64_t records = 0;
    probes.set_record_callback([&](std::span<const std::byte> record) {
        Event event;
        if (!decode_call(record, event)) return;
        event.sequence = ++records;
        rows.push_back(event);
    });
    std::vector<double> rates;
    for (int fill = 0; fill < fills; ++fill) {
        rows.clear();
        for (int i = 0; i < calls_a_fill; ++i) call_recorded(i, 2);
        const uint64_t begin = monotonic_now_ns();
        probes.consume();
        rates.push_back(1e9 * static_cast<double>(rows.size()) / static_cast<double>(monotonic_now_ns() - begin));
        if (rows.size() != calls_a_fill) return std::nullopt;
    }
    return bench::median(rates);
}

int fail_with(const std::string& what) {
    fprintf(stderr, "probe_cost: %s\n", what.c_str());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    const bool as_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    libbpf_set_print([](libbpf_print_level level, const char* format, va_list arguments) {
        return level == LIBBPF_WARN ? vfprintf(stderr, format, arguments) : 0;
    });
    const UniqueFd self(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    const std::string path = "/proc/self/fd/" + std::to_string(self.get());
    char executable[4096] = {};
    if (readlink("/proc/self/exe", executable, sizeof(executable) - 1) < 0) return fail_with(strerror(errno));

    // Another first instruction is single-stepped, which costs about ten times as much and hides what is compared.
    for (const Probed function : {call_empty_session, call_recorded, call_nested_inner, call_nested_outer, call_usual})
        if ((*reinterpret_cast<const unsigned char*>(function) & 0xf8) != 0x50)
            return fail_with("the probed functions do not begin with push");

    KernelFeatures features;
    if (!features.has(Feature::uprobe_session))
        return fail_with("this kernel has no uprobe sessions: " + features.why_not(Feature::uprobe_session));

    std::unique_ptr<rivals_bpf, RivalsDeleter> rivals(rivals_bpf__open());
    bpf_program__set_expected_attach_type(rivals->progs.empty_session,
                                          static_cast<bpf_attach_type>(attach_type_uprobe_session));
    if (rivals_bpf__load(rivals.get()) != 0) return fail_with("cannot load the rivals' programs");

    // The switch cost first, while nothing else is attached.
    std::vector<double> switch_none, switch_empty, switch_ours;
    for (int i = 0; i < 11; ++i) {
        switch_none.push_back(time_switches());
        bpf_link* empty = bpf_program__attach(rivals->progs.empty_switch);
        switch_empty.push_back(time_switches());
        bpf_link__destroy(empty);
        auto ours = CallProbes::load(features);
        if (!ours) return fail_with(ours.error().message);
        switch_ours.push_back(time_switches());
    }

    auto probes = CallProbes::load(features);
    if (!probes) return fail_with(probes.error().message);
    uint64_t records = 0, stacks = 0, whole_stacks = 0;
    (*probes)->set_record_callback([&](std::span<const std::byte> bytes) {
        ingero_stack_record stack;
        memcpy(&stack, bytes.data(), std::min(bytes.size(), sizeof(stack)));
        records += stack.type != INGERO_RECORD_STACK;
        if (stack.type != INGERO_RECORD_STACK) return;
        stacks++;
        whole_stacks += stack.end == INGERO_STACK_WHOLE && stack.frames >= 5;
    });
    WalkTables tables((*probes)->stack_maps(), 256ULL << 20);
    tables.set_next_stack(1, INT32_MAX);
    tables.allow_stacks(1000);
    if (!tell_own_mappings(tables)) return fail_with("no unwind tables for this program");
    const OpId runtime = op::cudaMemcpy, driver = op::cuMemcpy;
    const std::vector<ProbeSite> sites = {
        {file_offset(reinterpret_cast<void*>(call_recorded)), plain_cookie(runtime), "call_recorded", true},
        {file_offset(reinterpret_cast<void*>(call_nested_outer)), plain_cookie(runtime), "call_nested_outer", true},
        {file_offset(reinterpret_cast<void*>(call_nested_inner)), plain_cookie(driver), "call_nested_inner", true},
    };
    auto ours = (*probes)->attach(self.get(), sites);
    if (!ours) return fail_with(ours.error().message);

    const uint64_t empty_offset = file_offset(reinterpret_cast<void*>(call_empty_session));
    const uint64_t no_cookie = 0;
    auto empty = link_uprobes(bpf_program__fd(rivals->progs.empty_session), UprobeLinkKind::session, path,
                              {&empty_offset, 1}, {&no_cookie, 1});
    if (!empty) return fail_with(empty.error().message);

    const uint64_t usual_offset = file_offset(reinterpret_cast<void*>(call_usual));
    bpf_link* usual_return = bpf_program__attach_uprobe(rivals->progs.usual_return, true, -1, executable, usual_offset);
    bpf_link* usual_entry = bpf_program__attach_uprobe(rivals->progs.usual_entry, false, -1, executable, usual_offset);
    if (!usual_entry || !usual_return) return fail_with("cannot attach the usual design");
    const Bpftrace bpftrace(executable);

    std::atomic<bool> stop{false};
    std::thread reader([&] {
        pin(1);
        while (!stop) {
            (*probes)->consume();
            const timespec period{0, 1'500'000};
            nanosleep(&period, nullptr);
        }
    });
    std::thread usual_reader([&] {
        pin(1);
        ring_buffer* ring = ring_buffer__new(
            bpf_map__fd(rivals->maps.records), [](void*, void*, size_t) { return 0; }, nullptr, nullptr);
        while (!stop) ring_buffer__poll(ring, 100);
        ring_buffer__free(ring);
    });

    std::vector<Case> cases = {{"no probe", "unprobed_ns", call_unprobed, {}},
                               {"empty session", "empty_session_ns", call_empty_session, {}},
                               {"recorded call with time split", "recorded_ns", call_recorded, {}},
                               {"nested: runtime call with a driver call inside", "nested_ns", call_nested_outer, {}},
                               {"usual design: hash map, a wake-up a record", "usual_design_ns", call_usual, {}},
                               {"recorded call with native stack", "native_stack_ns", call_recorded, {}, true}};
    if (bpftrace.running()) cases.push_back({"bpftrace latency histogram", "bpftrace_ns", call_bpftrace, {}});
    pin(0);
    for (int round = 0; round < rounds; ++round)
        for (Case& one : cases) {
            tables.enable(one.takes_stack);
            one.ns.push_back(time_calls(one.function));
        }
    stop = true;
    reader.join();
    usual_reader.join();
    (*probes)->consume();
    bpf_link__destroy(usual_entry);
    bpf_link__destroy(usual_return);

    const uint64_t made = uint64_t{4} * rounds * calls_per_round;
    const SymbolCounters counters = (*probes)->counters();
    uint64_t lost = 0;
    for (const ingero_call_counters& one : counters) lost += one.lost_ring + one.lost_frames + one.lost_depth;
    if (records != made || lost != 0)
        return fail_with("a ring that is full is cheaper than one that is not: " + std::to_string(records) + " of " +
                         std::to_string(made) + " calls recorded, " + std::to_string(lost) + " lost");

    if (stacks == 0 || stacks != whole_stacks)
        return fail_with("a stack that is cut short is cheaper than a whole one: " + std::to_string(whole_stacks) +
                         " whole ones of " + std::to_string(stacks));

    tables.enable(false);
    const auto decoded = decoded_per_second(**probes);
    if (!decoded) return fail_with("not every call was in the rings");

    // Medians of the ratios of each round: both parts of a ratio met the same noise.
    auto ratio = [&](const Case& one, double parts) {
        std::vector<double> ratios;
        for (int i = 0; i < rounds; ++i) ratios.push_back(one.ns[i] / (parts * cases[1].ns[i]));
        return bench::median(ratios);
    };
    std::vector<bench::Row> rows;
    for (const Case& one : cases) rows.push_back({one.label, one.figure, bench::median(one.ns), "ns", ""});
    rows.push_back({"recorded call / empty session", "recorded_ratio", ratio(cases[2], 1), "x", "at most 1.35"});
    rows.push_back({"nested pair / two empty sessions", "nested_ratio", ratio(cases[3], 2), "x", ""});
    rows.push_back({"usual design / empty session", "usual_design_ratio", ratio(cases[4], 1), "x", "for comparison"});
    rows.push_back({"recorded call with native stack / empty session", "native_stack_ratio", ratio(cases[5], 1), "x",
                    "at most 2.3"});
    if (bpftrace.running())
        rows.push_back({"bpftrace / empty session", "bpftrace_ratio", ratio(cases[6], 1), "x", "for comparison"});
    const double none = bench::median(switch_none), with_empty = bench::median(switch_empty),
                 with_ours = bench::median(switch_ours);
    rows.push_back({"a switch, untraced tasks, no program", "switch_ns", none, "ns", ""});
    rows.push_back({"the same, empty program", "switch_empty_ns", with_empty, "ns", ""});
    rows.push_back({"the same, ours", "switch_recorded_ns", with_ours, "ns", ""});
    rows.push_back({"what ours adds / what an empty program adds", "untraced_switch_ratio",
                    with_empty > none ? (with_ours - none) / (with_empty - none) : 0, "x", "at most 1.5"});
    rows.push_back({"records made rows of, from full rings", "ring_events_per_s", *decoded, "1/s", "one reader"});
    bench::print("probe_cost", rows, as_json);
    return 0;
}
