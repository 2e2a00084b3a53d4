#include "core/query/answers/stacks.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "core/model/call_time.h"
#include "core/model/op.h"
#include "core/query/event_filter.h"
#include "core/query/kernel_names.h"

namespace ingero {

namespace {

constexpr size_t max_groups = 262'144;

/// Calls of one stack that are not distinguished. What is summed over stays 0.
struct Key {
    uint32_t stack = 0;
    OpId op = 0;
    uint32_t pid = 0;
    ProcessKey process;  ///< whose stack it is, and whose function
    uint64_t function = 0;
    auto operator<=>(const Key&) const = default;
};

struct Sums {
    uint64_t count = 0;
    uint64_t total_ns = 0;
    uint64_t runnable_ns = 0;
    uint64_t blocked_ns = 0;

    void add(const Sums& other) {
        count = saturating_add(count, other.count);
        total_ns = saturating_add(total_ns, other.total_ns);
        runnable_ns = saturating_add(runnable_ns, other.runnable_ns);
        blocked_ns = saturating_add(blocked_ns, other.blocked_ns);
    }
};

class Collector {
  public:
    Collector(const StacksQuery& query, const std::vector<Process>& processes, std::optional<OpId> op)
        : query_(query), filter_(query.filter, processes), op_(op) {}

    /// False where there are more groups than are kept.
    bool add(std::span<const Event> block, StacksAnswer& ret_answer) {
        for (const Event& event : block) {
            if ((op_ && event.op != *op_) || !filter_.matches(event)) continue;
            const Op* op = find_op(event.op);
            const bool launch = op && op->op_class == OpClass::launch;
            if (query_.by == StacksBy::kernel && !launch) continue;
            const uint64_t weight = std::max<uint32_t>(event.weight, 1);
            ret_answer.calls = saturating_add(ret_answer.calls, weight);
            if (event.stack == 0) {
                ret_answer.calls_no_stack = saturating_add(ret_answer.calls_no_stack, weight);
                continue;
            }
            const CallTime time = call_time(event);
            const uint64_t times = std::max<uint32_t>(event.times(), 1);
            if (query_.off_cpu && time.runnable_ns + time.blocked_ns == 0) continue;
            Key key{.stack = event.stack, .op = 0, .pid = 0, .process = event.process(), .function = 0};
            if (query_.by == StacksBy::op) key.op = event.op;
            if (query_.by == StacksBy::process) key.pid = event.tgid;
            if (query_.by == StacksBy::kernel) key.function = event.args[0];
            if (groups_.size() >= max_groups && !groups_.contains(key)) return false;
            groups_[key].add({weight, saturating_multiply(time.duration_ns, times),
                              saturating_multiply(time.runnable_ns, times),
                              saturating_multiply(time.blocked_ns, times)});
        }
        return true;
    }

    const std::map<Key, Sums>& groups() const { return groups_; }

  private:
    const StacksQuery& query_;
    EventFilter filter_;
    std::optional<OpId> op_;
    std::map<Key, Sums> groups_;
};

/// Of a stack whatever its id: one that came again, in another process or session, is the same stack.
struct Content {
    std::optional<OpId> op;
    std::optional<uint32_t> pid;
    std::optional<std::string> kernel;
    StackEnd end = StackEnd::whole;
    std::vector<std::tuple<std::string, std::string, uint64_t>> frames;  ///< build-id or path, symbol, offset
    auto operator<=>(const Content&) const = default;
};

/// The kernel knows a stack by 32 bits of a hash: one that collides has the id of another process's.
bool is_of(const StackRow& stack, const ProcessKey& process) {
    return stack.process.pid == 0 || stack.process == process;
}

/// Whether the offset of a frame says where in the file it lies.
bool has_place(FileState state) {
    return state != FileState::anonymous && state != FileState::imported;
}

class Namer {
  public:
    Namer(const std::map<uint32_t, FileRow>& files, const std::map<StackFrame, SymbolRow>& symbols)
        : files_(files), symbols_(symbols) {}

    NamedFrame name(const StackFrame& frame) const {
        NamedFrame named;
        named.file_offset = frame.offset;
        if (const auto file = files_.find(frame.file); file != files_.end()) {
            named.file = file->second.path;
            named.build_id = file->second.build_id;
            named.state = file->second.state;
        }
        if (const auto symbol = symbols_.find(frame); symbol != symbols_.end()) {
            named.symbol = symbol->second.name;
            named.demangled = symbol->second.demangled;
            named.symbol_offset = symbol->second.symbol_offset;
        }
        return named;
    }

  private:
    const std::map<uint32_t, FileRow>& files_;
    const std::map<StackFrame, SymbolRow>& symbols_;
};

uint64_t weight_of(const StackStats& stats, bool off_cpu) {
    return off_cpu ? saturating_add(stats.runnable_ns, stats.blocked_ns) : stats.total_ns;
}

Result<void> name_stacks(const StoreSnapshot& snapshot, const StacksQuery& query, const std::map<Key, Sums>& groups,
                         StacksAnswer& ret_answer) {
    std::set<uint32_t> ids;
    for (const auto& [key, sums] : groups) ids.insert(key.stack);
    const auto stacks = snapshot.stacks(ids);
    if (!stacks) return tl::unexpected(stacks.error());
    std::set<StackFrame> places;
    for (const auto& [id, stack] : *stacks) places.insert(stack.frames.begin(), stack.frames.end());
    const auto symbols = snapshot.symbols(places);
    if (!symbols) return tl::unexpected(symbols.error());
    const auto files = snapshot.files();
    if (!files) return tl::unexpected(files.error());
    const auto kernels = query.by == StacksBy::kernel ? KernelNames::read(snapshot) : Result<KernelNames>();
    if (!kernels) return tl::unexpected(kernels.error());

    const Namer namer(*files, *symbols);
    std::map<Content, StackStats> merged;
    for (const auto& [key, sums] : groups) {
        const auto stack = stacks->find(key.stack);
        if (stack == stacks->end() || !is_of(stack->second, key.process)) {
            ret_answer.calls_no_stack = saturating_add(ret_answer.calls_no_stack, sums.count);
            continue;
        }
        Content content{.op = {}, .pid = {}, .kernel = {}, .end = stack->second.end, .frames = {}};
        if (query.by == StacksBy::op) content.op = key.op;
        if (query.by == StacksBy::process) content.pid = visible_pid(key.pid);
        if (query.by == StacksBy::kernel) {
            content.kernel = kernels->text(kernels->number(key.process, key.function));
        }
        std::vector<NamedFrame> frames;
        for (const StackFrame& frame : stack->second.frames) {
            const NamedFrame& named = frames.emplace_back(namer.name(frame));
            content.frames.emplace_back(named.build_id.empty() ? named.file : named.build_id, named.symbol,
                                        has_place(named.state) ? named.file_offset : 0);
        }
        StackStats& stats = merged[content];
        if (stats.frames.empty()) {
            stats.op = content.op;
            stats.pid = content.pid;
            stats.kernel = content.kernel;
            stats.end = content.end;
            stats.frames = std::move(frames);
        }
        Sums all{stats.count, stats.total_ns, stats.runnable_ns, stats.blocked_ns};
        all.add(sums);
        std::tie(stats.count, stats.total_ns, stats.runnable_ns, stats.blocked_ns) =
            std::tie(all.count, all.total_ns, all.runnable_ns, all.blocked_ns);
    }
    for (auto& [content, stats] : merged) ret_answer.stacks.push_back(std::move(stats));
    return {};
}

}  // namespace

std::string NamedFrame::text() const {
    if (!demangled.empty()) return demangled;
    if (!symbol.empty()) return symbol;
    if (!has_place(state) || file.empty()) return file.empty() ? "[unknown]" : file;
    char offset[32];
    snprintf(offset, sizeof(offset), "+0x%" PRIx64, file_offset);
    return file.substr(file.rfind('/') + 1) + offset;
}

Result<StacksAnswer> compute_stacks(const StoreSnapshot& snapshot, const StacksQuery& query) {
    StacksAnswer answer;
    answer.window = query.filter.window;
    answer.by = query.by;
    answer.off_cpu = query.off_cpu;
    std::optional<OpId> op;
    if (!query.op.empty() && !(op = op_of_name(query.op)))
        return fail(ErrorCode::bad_request, "there is no operation of that name",
                    "`ingeroctl stats` lists the recorded ones");
    auto covered = coverage(snapshot, query.filter.window, {.uid = query.filter.uid, .pid = query.filter.pid});
    if (!covered) return tl::unexpected(covered.error());
    answer.coverage = std::move(*covered);
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());

    Collector collector(query, *processes, op);
    bool overflowed = false;
    for (const BootWindow& boot : boot_windows(snapshot, query.filter.window)) {
        const auto scanned = snapshot.scan(boot.boot_index, boot.monotonic, [&](std::span<const Event> block) {
            overflowed = !collector.add(block, answer);
            return !overflowed;
        });
        if (!scanned) return tl::unexpected(scanned.error());
        if (overflowed)
            return fail(ErrorCode::limit, "the window has more than 262144 stacks",
                        "ask for a shorter window, for one process with --pid, or for one operation with --op");
    }
    if (auto named = name_stacks(snapshot, query, collector.groups(), answer); !named)
        return tl::unexpected(named.error());
    std::stable_sort(answer.stacks.begin(), answer.stacks.end(), [&](const StackStats& a, const StackStats& b) {
        return weight_of(a, query.off_cpu) > weight_of(b, query.off_cpu);
    });
    answer.more = query.limit != 0 && answer.stacks.size() > query.limit;
    if (answer.more) answer.stacks.resize(query.limit);
    return answer;
}

}  // namespace ingero
