#include "core/sql/small_tables.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "core/model/call_time.h"
#include "core/model/op.h"
#include "core/query/answers/stacks.h"
#include "core/query/communicators.h"
#include "core/query/coverage.h"
#include "core/spans/scope.h"
#include "core/sql/catalogue.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

using Value = std::variant<std::nullptr_t, int64_t, std::string>;

Value number(uint64_t value) {
    return static_cast<int64_t>(value);
}
Value text_or_null(std::string_view text) {
    if (text.empty()) return nullptr;
    return std::string(text);
}

/// Rows into one table; the first failure sticks.
class Filler {
  public:
    Filler(sqlite3* database, const SqlTableInfo& table, size_t columns) : database_(database) {
        std::string marks = "?";
        for (size_t i = 1; i < columns; ++i) marks += ",?";
        const std::string sql = "INSERT INTO " + std::string(table.name) + " VALUES (" + marks + ")";
        sqlite3_stmt* raw = nullptr;
        code_ = sqlite3_prepare_v2(database, sql.c_str(), -1, &raw, nullptr);
        insert_.reset(raw);
    }

    void add(const std::vector<Value>& row) {
        if (code_ != SQLITE_OK) return;
        int place = 0;
        for (const Value& value : row) {
            ++place;
            if (const auto* integer = std::get_if<int64_t>(&value))
                code_ = sqlite3_bind_int64(insert_.get(), place, *integer);
            else if (const auto* text = std::get_if<std::string>(&value))
                code_ = sqlite3_bind_text(insert_.get(), place, text->data(), static_cast<int>(text->size()),
                                          SQLITE_STATIC);
            else
                code_ = sqlite3_bind_null(insert_.get(), place);
            if (code_ != SQLITE_OK) return;
        }
        const int stepped = sqlite3_step(insert_.get());
        code_ = sqlite3_reset(insert_.get());
        if (stepped == SQLITE_DONE) code_ = SQLITE_OK;
    }

    Result<void> finish() const {
        if (code_ == SQLITE_OK) return {};
        return fail(code_ == SQLITE_NOMEM ? ErrorCode::limit : ErrorCode::internal,
                    std::string("a table cannot be filled: ") + sqlite3_errmsg(database_));
    }

  private:
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
    };
    sqlite3* database_;
    std::unique_ptr<sqlite3_stmt, Finalize> insert_;
    int code_ = SQLITE_OK;
};

std::string_view class_name(OpClass op_class) {
    switch (op_class) {
        case OpClass::launch:
            return "launch";
        case OpClass::alloc:
            return "allocation";
        case OpClass::free:
            return "free";
        case OpClass::copy:
            return "copy";
        case OpClass::sync:
            return "synchronisation";
        case OpClass::graph:
            return "graph";
        case OpClass::name:
            return "names functions";
        case OpClass::device:
            return "device or context";
        case OpClass::collective:
            return "collective";
        case OpClass::communicator:
            return "communicator";
        case OpClass::other:
            return "other";
    }
    return "other";
}

Result<void> fill_ops(Filler& filler, SqlContext& context) {
    std::map<OpId, std::string_view> ops;
    for (const Op& op : all_ops()) ops.emplace(op.id, class_name(op.op_class));
    const EventIndex* index = context.index();
    if (!index) return tl::unexpected(*context.error);
    for (const EventIndex::OpEntry& op : index->ops()) ops.emplace(op.id, "");
    for (const auto& [id, description] : ops)
        filler.add({sql_source_name(op_source(id)), op_name(id), op_name(id), std::string(description),
                    number(op_source(id)), number(id & 0xff)});
    return filler.finish();
}

Result<void> fill_sources(Filler& filler, SqlContext& context) {
    std::map<uint8_t, std::string_view> sources = {{1, "calls of the CUDA runtime"},
                                                   {3, "the host's scheduler and memory"},
                                                   {4, "calls of the CUDA driver"},
                                                   {5, "reads and writes of disks"},
                                                   {6, "TCP retransmits and errors of sockets"},
                                                   {7, "sending and receiving"},
                                                   {8, "CUDA graphs"},
                                                   {9, "collectives of NCCL"}};
    const EventIndex* index = context.index();
    if (!index) return tl::unexpected(*context.error);
    for (const EventIndex::OpEntry& op : index->ops()) sources.emplace(op.source_number(), "");
    for (const auto& [source, description] : sources)
        filler.add({sql_source_name(source), sql_source_name(source), std::string(description), number(source)});
    return filler.finish();
}

/// The last session of each process's boot, whose clock and node are the process's.
class ProcessSessions {
  public:
    static Result<ProcessSessions> read(const StoreSnapshot& snapshot) {
        auto boots = snapshot.process_boots();
        if (!boots) return tl::unexpected(boots.error());
        ProcessSessions sessions;
        sessions.boots_ = std::move(*boots);
        for (const Session& session : snapshot.sessions()) sessions.last_[session.boot_index] = &session;
        return sessions;
    }

    /// nullptr where no session of its boot is left.
    const Session* of(const ProcessKey& process) const {
        const auto boot = boots_.find(process);
        const auto session = boot != boots_.end() ? last_.find(boot->second) : last_.end();
        return session != last_.end() ? session->second : nullptr;
    }

  private:
    std::map<ProcessKey, uint32_t> boots_;
    std::map<uint32_t, const Session*> last_;  ///< by boot; the snapshot's
};

Value realtime(const Session* session, uint64_t monotonic_ns) {
    if (session == nullptr) return nullptr;
    return number(session->latest_clock.to_realtime(monotonic_ns));
}

Value exited(const Session* session, const Process& process) {
    if (process.exited_ns == 0) return nullptr;
    return realtime(session, process.exited_ns);
}

/// Null also where it has ended and nobody was told how.
Value exit_code(const Process& process) {
    if (process.exited_ns == 0 || process.exit_code == exit_status_unknown) return nullptr;
    return int64_t{process.exit_code};
}

Result<void> fill_processes(Filler& filler, SqlContext& context) {
    const EventIndex* index = context.index();
    if (!index) return tl::unexpected(*context.error);
    const auto sessions = ProcessSessions::read(*context.snapshot);
    if (!sessions) return tl::unexpected(sessions.error());
    // Ascending by pid, then by start: of a pid that was used again the latest stays.
    std::map<uint32_t, const EventIndex::ProcessEntry*> latest;
    for (const auto& [key, entry] : index->processes())
        if (index->shows(key)) latest[visible_pid(key.pid)] = &entry;
    for (const auto& [pid, entry] : latest) {
        const Process& process = entry->process;
        const Session* session = sessions->of(process.key);
        filler.add({number(pid), to_valid_utf8(process.comm), realtime(session, process.first_seen_ns),
                    session ? Value(session->node) : Value(nullptr), number(process.uid),
                    number(visible_pid(process.parent_pid)), text_or_null(to_valid_utf8(process.unit)),
                    entry->cgroup_id, exited(session, process), exit_code(process)});
    }
    return filler.finish();
}

Value number_or_null(std::optional<uint32_t> value) {
    if (!value) return nullptr;
    return number(*value);
}

Result<void> fill_processes_in_full(Filler& filler, SqlContext& context) {
    const EventIndex* index = context.index();
    if (!index) return tl::unexpected(*context.error);
    const auto sessions = ProcessSessions::read(*context.snapshot);
    if (!sessions) return tl::unexpected(sessions.error());
    for (const auto& [key, entry] : index->processes()) {
        if (!index->shows(key)) continue;
        const Process& process = entry.process;
        const ProcessFacts& facts = process.facts;
        const Session* session = sessions->of(process.key);
        const auto text = [](const std::string& value) { return text_or_null(to_valid_utf8(value)); };
        json environment = json::object();
        for (const auto& [name, value] : facts.environment) environment[to_valid_utf8(name)] = to_valid_utf8(value);
        filler.add({number(visible_pid(key.pid)),
                    session
                        ? number(key.start_ns - session->latest_clock.boottime_ns + session->latest_clock.realtime_ns)
                        : Value(nullptr),
                    to_valid_utf8(process.comm),
                    text(facts.command),
                    number(process.uid),
                    number(visible_pid(process.parent_pid)),
                    text(process.unit),
                    text(process.cgroup),
                    text(scope_of_cgroup(process.cgroup)),
                    text(facts.container),
                    text(facts.container_runtime),
                    text(facts.pod_uid),
                    text(facts.pod_name),
                    text(facts.pod_namespace),
                    text(facts.slurm_job),
                    text(facts.slurm_step),
                    text(facts.ecs_task),
                    number_or_null(facts.rank),
                    number_or_null(facts.local_rank),
                    number_or_null(facts.world_size),
                    text(facts.rank_source),
                    text(facts.cuda_visible_devices),
                    text(facts.nvidia_visible_devices),
                    text(process.cpus_allowed),
                    text(process.mems_allowed),
                    environment.empty() ? Value(nullptr) : Value(environment.dump()),
                    realtime(session, process.first_seen_ns),
                    exited(session, process),
                    exit_code(process),
                    session ? Value(session->node) : Value(nullptr)});
    }
    return filler.finish();
}

Result<void> fill_cgroups(Filler& filler, SqlContext& context) {
    const EventIndex* index = context.index();
    if (!index) return tl::unexpected(*context.error);
    std::map<int64_t, const Process*> groups;
    for (const auto& [key, entry] : index->processes())
        if (entry.cgroup_id != 0 && index->shows(key)) groups[entry.cgroup_id] = &entry.process;
    for (const auto& [id, process] : groups)
        filler.add({id, text_or_null(process->facts.container), to_valid_utf8(process->cgroup),
                    text_or_null(process->facts.pod_name), text_or_null(process->facts.pod_namespace)});
    return filler.finish();
}

NamedFrame name_frame(const StackFrame& frame, const std::map<uint32_t, FileRow>& files,
                      const std::map<StackFrame, SymbolRow>& symbols) {
    NamedFrame named;
    named.file_offset = frame.offset;
    if (const auto file = files.find(frame.file); file != files.end()) {
        named.file = file->second.path;
        named.state = file->second.state;
    }
    if (const auto symbol = symbols.find(frame); symbol != symbols.end()) {
        named.symbol = symbol->second.name;
        named.demangled = symbol->second.demangled;
        named.symbol_offset = symbol->second.symbol_offset;
    }
    return named;
}

Result<void> fill_stacks(Filler& filler, SqlContext& context) {
    const EventIndex* index = context.index();
    if (!index) return tl::unexpected(*context.error);
    const StoreSnapshot& snapshot = *context.snapshot;
    const auto files = snapshot.files();
    if (!files) return tl::unexpected(files.error());
    // Those of an imported trace are of no process. Whose they are is not known.
    const auto shows = [&](const ProcessKey& process) {
        return (process.pid == 0 && !context.filter.uid) || index->shows(process);
    };
    // A part at a time: what SQLite holds of them is limited, what is read here would not be.
    constexpr uint64_t part = 4'096;
    const uint64_t last = snapshot.figures().last_stack;
    for (uint64_t from = 1; from <= last; from += part) {
        std::set<uint32_t> ids;
        for (uint64_t id = from; id < from + part && id <= last; ++id) ids.insert(static_cast<uint32_t>(id));
        const auto stacks = snapshot.stacks(ids);
        if (!stacks) return tl::unexpected(stacks.error());
        std::set<StackFrame> places;
        for (const auto& [id, stack] : *stacks)
            if (shows(stack.process)) places.insert(stack.frames.begin(), stack.frames.end());
        const auto symbols = snapshot.symbols(places);
        if (!symbols) return tl::unexpected(symbols.error());
        for (const auto& [id, stack] : *stacks) {
            if (!shows(stack.process)) continue;
            json offsets = json::array(), frames = json::array();
            std::string folded;
            for (const StackFrame& frame : stack.frames) {
                const NamedFrame named = name_frame(frame, *files, *symbols);
                char offset[2 + 16 + 1];
                std::snprintf(offset, sizeof offset, "0x%llx", static_cast<unsigned long long>(frame.offset));
                offsets.push_back(offset);
                const std::string name = to_valid_utf8(named.text());
                frames.push_back(
                    {{"i", offset}, {"s", name}, {"f", to_valid_utf8(named.file.substr(named.file.rfind('/') + 1))}});
                folded = folded.empty() ? name : name + ";" + folded;
            }
            filler.add({number(id), offsets.dump(), frames.dump(), folded, number(visible_pid(stack.process.pid)),
                        std::string(to_string(stack.end))});
        }
        if (EventCursor::Clock::now() >= context.deadline) return fail(ErrorCode::deadline, "the deadline has passed");
    }
    return filler.finish();
}

Result<void> fill_sessions(Filler& filler, SqlContext& context) {
    std::map<uint32_t, ClockTriple> clocks;
    for (const Session& session : context.snapshot->sessions()) clocks[session.boot_index] = session.latest_clock;
    uint64_t id = 0;
    for (const Session& session : context.snapshot->sessions()) {
        const ClockTriple& clock = clocks[session.boot_index];
        const bool covers = session.first_covered_ns != 0;
        filler.add(
            {number(++id),
             number(clock.to_realtime(session.clock.monotonic_ns)),
             session.ended_cleanly ? number(clock.to_realtime(session.latest_clock.monotonic_ns)) : Value(int64_t{0}),
             nullptr,
             nullptr,
             nullptr,
             nullptr,
             nullptr,
             text_or_null(session.kernel),
             nullptr,
             nullptr,
             nullptr,
             text_or_null(session.version),
             nullptr,
             nullptr,
             session.node,
             nullptr,
             nullptr,
             nullptr,
             text_or_null(session.boot_id),
             text_or_null(session.attach_method),
             covers ? number(clock.to_realtime(session.first_covered_ns)) : Value(nullptr),
             covers ? number(clock.to_realtime(session.last_covered_ns)) : Value(nullptr)});
    }
    return filler.finish();
}

Result<void> fill_communicators(Filler& filler, SqlContext& context) {
    const EventIndex* index = context.index();
    if (!index) return tl::unexpected(*context.error);
    const auto communicators = Communicators::read(*context.snapshot);
    if (!communicators) return tl::unexpected(communicators.error());
    const auto sessions = ProcessSessions::read(*context.snapshot);
    if (!sessions) return tl::unexpected(sessions.error());
    std::set<std::pair<uint64_t, uint32_t>> added;  // does not distinguish processes that have no number here
    for (const Communicator& one : communicators->all()) {
        const CommunicatorRow& row = one.row;
        const uint32_t pid = visible_pid(row.process.pid);
        if (!index->shows(row.process) || !added.emplace(row.id, pid).second) continue;
        const Session* session = sessions->of(row.process);
        const bool is_part = row.split != 0;
        char hash[16 + 1];
        std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(row.hash));
        filler.add({number(row.id), number(pid), row.hash == 0 ? Value(nullptr) : Value(std::string(hash)),
                    one.rank ? number(*one.rank) : Value(nullptr), one.ranks ? number(*one.ranks) : Value(nullptr),
                    row.handle == 0 ? Value(nullptr) : number(row.handle), std::string(to_string(row.origin)),
                    row.parent == 0 ? Value(nullptr) : number(row.parent),
                    is_part ? Value(int64_t{row.color}) : Value(nullptr),
                    is_part ? Value(int64_t{row.key}) : Value(nullptr), realtime(session, row.seen_ns),
                    row.interrupted_ns == 0 ? Value(nullptr) : realtime(session, row.interrupted_ns),
                    session ? Value(session->node) : Value(nullptr)});
    }
    return filler.finish();
}

Result<void> fill_coverage(Filler& filler, SqlContext& context) {
    const StoreSnapshot& snapshot = *context.snapshot;
    const auto found = coverage(snapshot, context.coverage_window,
                                {.uid = context.filter.uid, .pid = context.filter.pid}, context.deadline);
    if (!found) return tl::unexpected(found.error());
    for (const Gap& gap : found->gaps)
        filler.add({number(gap.from_ns), number(gap.to_ns), std::string("gap"), to_valid_utf8(gap.reason),
                    int64_t{gap.partial}, nullptr, nullptr, nullptr, nullptr, nullptr});
    for (const BootWindow& boot : boot_windows(snapshot, context.filter.window)) {
        const auto losses = snapshot.losses(boot.boot_index, boot.monotonic);
        if (!losses) return tl::unexpected(losses.error());
        for (const LossRow& loss : *losses)
            filler.add({number(boot.clock.to_realtime(loss.from_ns)), number(boot.clock.to_realtime(loss.to_ns)),
                        std::string("loss"), nullptr, int64_t{1}, sql_source_name(op_source(loss.op)), op_name(loss.op),
                        number(loss.lost()), number(loss.uncertain), number(loss.thinned)});
    }
    return filler.finish();
}

Result<void> fill_schema(Filler& filler, SqlContext&) {
    for (const SqlTableInfo& table : sql_tables())
        for (const SqlColumnInfo& column : table.columns)
            filler.add({std::string(table.name), std::string(column.name),
                        std::string(column.type.substr(0, column.type.find(' '))), std::string(column.meaning)});
    return filler.finish();
}

struct Source {
    std::string_view table;
    Result<void> (*fill)(Filler&, SqlContext&);
};

constexpr Source sources[] = {
    {"ops", fill_ops},
    {"sources", fill_sources},
    {"process_names", fill_processes},
    {"sessions", fill_sessions},
    {"cgroup_metadata", fill_cgroups},
    {"stack_traces", fill_stacks},
    {"processes", fill_processes_in_full},
    {"communicators", fill_communicators},
    {"coverage", fill_coverage},
    {"schema_columns", fill_schema},
};

}  // namespace

Result<void> fill_small_table(sqlite3* database, std::string_view name, SqlContext& context) {
    const SqlTableInfo* table = find_sql_table(name);
    const auto found =
        std::find_if(std::begin(sources), std::end(sources), [&](const Source& one) { return one.table == name; });
    if (!table || found == std::end(sources)) return {};
    Filler filler(database, *table, table->columns.size());
    return found->fill(filler, context);
}

}  // namespace ingero
