// StoreReader and its snapshots. Everything that needs a system call other than on memory happens in open(): a worker
// opens the store, gives up its rights, and takes snapshots for the rest of its life.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "core/store/block/block.h"
#include "core/store/copy.h"
#include "core/store/file/tables.h"
#include "core/store/rows/rows.h"
#include "core/store/store.h"
#include "core/store/verify.h"

namespace ingero {

namespace {

Error damaged_row(const char* what) {
    return {ErrorCode::corrupt, std::string("a ") + what + " row of the event store is damaged",
            "restore the store from a copy"};
}

Error damaged_block(const EventKey& key, const Error& cause) {
    return {cause.code,
            "event block " + std::to_string(key.boot_index) + "/" + std::to_string(key.first_start_ns) + "/" +
                std::to_string(key.first_sequence) + ": " + cause.message,
            cause.hint.empty() ? "restore the store from a copy, or ask for a window without this block" : cause.hint};
}

class LmdbSnapshot final : public StoreSnapshot {
  public:
    LmdbSnapshot(std::shared_ptr<Environment> environment, Transaction transaction)
        : environment_(std::move(environment)), transaction_(std::move(transaction)) {}

    Result<void> load() {
        const auto sessions = read_sessions(*environment_, transaction_.get());
        if (!sessions) return tl::unexpected(sessions.error());
        for (const auto& [number, session] : *sessions) sessions_.push_back(session);
        const auto figures = read_figures(*environment_, transaction_.get(), *sessions);
        if (!figures) return tl::unexpected(figures.error());
        figures_ = *figures;
        figures_.cap_bytes = environment_->map_bytes();
        return {};
    }

    const std::vector<Session>& sessions() const override { return sessions_; }
    StoreFigures figures() const override { return figures_; }

    Result<std::vector<Process>> processes() const override {
        std::vector<Process> rows;
        auto read = for_each_process([&](StoredProcess& row) { rows.push_back(std::move(row.process)); });
        if (!read) return tl::unexpected(read.error());
        return rows;
    }

    Result<std::map<ProcessKey, uint32_t>> process_boots() const override {
        std::map<ProcessKey, uint32_t> boots;
        auto read = for_each_process([&](const StoredProcess& row) { boots[row.process.key] = row.boot_index; });
        if (!read) return tl::unexpected(read.error());
        return boots;
    }

    Result<std::vector<LossRow>> losses(uint32_t boot_index, Window window) const override {
        std::vector<LossRow> rows;
        bool damaged = false;
        const std::string from = encode_key(LossKey{boot_index, 0, 0, 0});
        const int rc = for_each_row(transaction_.get(), tables().losses, from, [&](auto key, auto value) {
            const auto fields = decode_loss_key(key);
            damaged = !fields;
            if (damaged || fields->boot_index != boot_index || fields->from_ns >= window.to_ns) return false;
            if (fields->to_ns <= window.from_ns && fields->from_ns < window.from_ns) return true;
            const auto content = unseal(key, value);
            const auto row = content ? decode_loss(*content) : std::nullopt;
            damaged = !row;
            if (row) rows.push_back(*row);
            return !damaged;
        });
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the losses", rc));
        if (damaged) return tl::unexpected(damaged_row("loss"));
        return rows;
    }

    Result<std::vector<GapRow>> gaps(uint32_t boot_index, Window window) const override {
        std::vector<GapRow> rows;
        bool damaged = false;
        const std::string from = encode_key(GapKey{boot_index, 0, {}, GapReason{}});
        const int rc = for_each_row(transaction_.get(), tables().gaps, from, [&](auto key, auto value) {
            const auto fields = decode_gap_key(key);
            damaged = !fields;
            if (damaged || fields->boot_index != boot_index || fields->from_ns >= window.to_ns) return false;
            const auto content = unseal(key, value);
            auto row = content ? decode_gap(*content) : std::nullopt;
            damaged = !row;
            if (row && (row->to_ns == 0 || row->to_ns > window.from_ns)) rows.push_back(std::move(*row));
            return !damaged;
        });
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the gaps", rc));
        if (damaged) return tl::unexpected(damaged_row("gap"));
        return rows;
    }

    Result<std::vector<FunctionRow>> functions() const override {
        std::vector<FunctionRow> rows;
        bool damaged = false;
        const int rc = for_each_row(transaction_.get(), tables().functions, {}, [&](auto key, auto value) {
            const auto content = unseal(key, value);
            auto row = content ? decode_function(*content) : std::nullopt;
            damaged = !row;
            if (row) rows.push_back(std::move(row->function));
            return !damaged;
        });
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the functions", rc));
        if (damaged) return tl::unexpected(damaged_row("function"));
        return rows;
    }

    Result<std::optional<FunctionRow>> function(const ProcessKey& process, uint64_t handle) const override {
        auto row = find(tables().functions, encode_key(FunctionKey{process, handle}), decode_function, "function");
        if (!row) return tl::unexpected(row.error());
        if (!*row) return std::optional<FunctionRow>();
        return std::optional<FunctionRow>(std::move((*row)->function));
    }

    Result<std::vector<CommunicatorRow>> communicators() const override {
        std::vector<CommunicatorRow> rows;
        bool damaged = false;
        const int rc = for_each_row(transaction_.get(), tables().communicators, {}, [&](auto key, auto value) {
            const auto content = unseal(key, value);
            const auto row = content ? decode_communicator(*content) : std::nullopt;
            damaged = !row;
            if (row) rows.push_back(row->communicator);
            return !damaged;
        });
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the communicators", rc));
        if (damaged) return tl::unexpected(damaged_row("communicator"));
        return rows;
    }

    Result<std::map<uint32_t, StackRow>> stacks(const std::set<uint32_t>& ids) const override {
        std::map<uint32_t, StackRow> rows;
        for (const uint32_t id : ids) {
            auto row = find(tables().stacks, encode_key(id), decode_stack, "stack");
            if (!row) return tl::unexpected(row.error());
            if (*row) rows.emplace(id, std::move((*row)->stack));
        }
        return rows;
    }

    Result<std::map<StackFrame, SymbolRow>> symbols(const std::set<StackFrame>& places) const override {
        std::map<StackFrame, SymbolRow> rows;
        for (const StackFrame& place : places) {
            auto row = find(tables().symbols, encode_key(place), decode_symbol, "symbol");
            if (!row) return tl::unexpected(row.error());
            if (*row) rows.emplace(place, std::move((*row)->symbol));
        }
        return rows;
    }

    Result<std::map<uint32_t, FileRow>> files() const override {
        std::map<uint32_t, FileRow> rows;
        bool damaged = false;
        const int rc = for_each_row(transaction_.get(), tables().files, {}, [&](auto key, auto value) {
            const auto content = unseal(key, value);
            auto row = content ? decode_file(*content) : std::nullopt;
            damaged = !row;
            if (row) rows.emplace(row->file.id, std::move(row->file));
            return !damaged;
        });
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the files", rc));
        if (damaged) return tl::unexpected(damaged_row("file"));
        return rows;
    }

    Result<std::vector<SpanRow>> spans(uint32_t boot_index, Window window,
                                       const std::function<bool(const SpanRow&)>& wanted) const override {
        const uint64_t from = window.from_ns - std::min(window.from_ns, max_span_ns);
        return history<SpanRow>(
            tables().spans, boot_index, from, window, decode_span, "span",
            [&](const SpanRow& span) { return span_overlaps(span, window) && (!wanted || wanted(span)); });
    }

    Result<std::vector<SpanRow>> spans_of(std::string_view id, const std::set<uint32_t>& boots) const override {
        std::vector<SpanRow> rows;
        std::optional<Error> error;
        const std::string prefix = span_id_prefix(id);
        const int rc = for_each_row(transaction_.get(), tables().span_ids, prefix, [&](auto key, auto value) {
            if (!key.starts_with(prefix)) return false;
            const auto fields = unseal(key, value) ? decode_span_id_key(key) : std::nullopt;
            if (!fields) error = damaged_row("span id");
            if (error) return false;
            if (!boots.empty() && !boots.contains(fields->span.boot_index)) return true;
            auto row = find(tables().spans, encode_key(fields->span), decode_span, "span");
            if (!row) error = row.error();
            if (row && *row) {
                (*row)->number = fields->span.number;
                rows.push_back(std::move(**row));
            }
            return !error;
        });
        if (error) return tl::unexpected(*error);
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the spans", rc));
        return rows;
    }

    Result<std::vector<IncidentRow>> incidents(uint32_t boot_index, Window window) const override {
        return history<IncidentRow>(tables().incidents, boot_index, window.from_ns, window, decode_incident, "incident",
                                    [](const IncidentRow&) { return true; });
    }

    Result<std::vector<StateRow>> states(uint32_t boot_index, Window window) const override {
        return history<StateRow>(tables().states, boot_index, window.from_ns, window, decode_state, "state",
                                 [](const StateRow&) { return true; });
    }

    Result<void> scan_states(uint32_t boot_index, Window window,
                             const std::function<bool(const StateHead&)>& visit) const override {
        bool damaged = false;
        const std::string from = encode_key(HistoryKey{boot_index, window.from_ns, 0});
        const int rc = for_each_row(transaction_.get(), tables().states, from, [&](auto key, auto value) {
            const auto fields = decode_history_key(key);
            damaged = !fields;
            if (damaged || fields->boot_index != boot_index || fields->time_ns >= window.to_ns) return false;
            const auto content = unseal(key, value);
            auto head = content ? decode_state_head(*content) : std::nullopt;
            damaged = !head;
            if (damaged) return false;
            head->number = fields->number;
            return visit(*head);
        });
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the event store", rc));
        if (damaged) return tl::unexpected(damaged_row("state"));
        return {};
    }

    Result<std::vector<ClockRow>> clocks(uint32_t boot_index, Window window) const override {
        return history<ClockRow>(tables().clocks, boot_index, window.from_ns, window, decode_clock, "clock",
                                 [](const ClockRow&) { return true; });
    }

    Result<std::vector<RollupRow>> rollups(uint32_t boot_index, Window window) const override {
        std::vector<RollupRow> rows;
        bool damaged = false;
        const uint64_t first_minute_ns = window.from_ns / rollup_minute_ns * rollup_minute_ns;
        const std::string from = encode_key(RollupKey{boot_index, first_minute_ns, 0, {}});
        const int rc = for_each_row(transaction_.get(), tables().rollups, from, [&](auto key, auto value) {
            const auto fields = decode_rollup_key(key);
            damaged = !fields;
            if (damaged || fields->boot_index != boot_index || fields->minute_ns >= window.to_ns) return false;
            const auto content = unseal(key, value);
            auto row = content ? decode_rollup(*content) : std::nullopt;
            damaged = !row;
            if (row) rows.push_back(std::move(*row));
            return !damaged;
        });
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the rollups", rc));
        if (damaged) return tl::unexpected(damaged_row("rollup"));
        return rows;
    }

    Result<void> scan_blocks(uint32_t boot_index, Window window,
                             const std::function<bool(BlockView&)>& visit) const override {
        return for_each_block(boot_index, window,
                              [&](const EventKey&, BlockView& block) -> Result<bool> { return visit(block); });
    }

    Result<void> scan(uint32_t boot_index, Window window,
                      const std::function<bool(std::span<const Event>)>& visit) const override {
        std::vector<Event> rows;
        return for_each_block(boot_index, window, [&](const EventKey& key, BlockView& block) -> Result<bool> {
            rows.clear();
            if (auto decoded = decode_block(block.bytes(), rows); !decoded)
                return tl::unexpected(damaged_block(key, decoded.error()));
            if (!lies_within(block.header(), window))
                std::erase_if(rows, [&](const Event& event) { return !overlaps(event, window); });
            return rows.empty() || visit(rows);
        });
    }

  private:
    /// Rows of one boot at [from_ns, window.to_ns) that `wanted` says yes to.
    template <class Row, class Wanted>
    Result<std::vector<Row>> history(MDB_dbi table, uint32_t boot_index, uint64_t from_ns, Window window,
                                     std::optional<Row> (*decode)(std::string_view), const char* what,
                                     const Wanted& wanted) const {
        std::vector<Row> rows;
        bool damaged = false;
        const std::string from = encode_key(HistoryKey{boot_index, from_ns, 0});
        const int rc = for_each_row(transaction_.get(), table, from, [&](auto key, auto value) {
            const auto fields = decode_history_key(key);
            damaged = !fields;
            if (damaged || fields->boot_index != boot_index || fields->time_ns >= window.to_ns) return false;
            const auto content = unseal(key, value);
            auto row = content ? decode(*content) : std::nullopt;
            damaged = !row;
            if constexpr (requires { row->number; })
                if (row) row->number = fields->number;
            if (row && wanted(*row)) rows.push_back(std::move(*row));
            return !damaged;
        });
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the event store", rc));
        if (damaged) return tl::unexpected(damaged_row(what));
        return rows;
    }

    /// As calls do: one of no length where its start is in the window.
    static bool span_overlaps(const SpanRow& span, Window window) {
        return span.end_ns > window.from_ns || (span.start_ns == span.end_ns && window.contains(span.start_ns));
    }

    template <class Visit>
    Result<void> for_each_process(const Visit& visit) const {
        bool damaged = false;
        const int rc = for_each_row(transaction_.get(), tables().processes, {}, [&](auto key, auto value) {
            const auto content = unseal(key, value);
            auto row = content ? decode_process(*content) : std::nullopt;
            damaged = !row;
            if (row) visit(*row);
            return !damaged;
        });
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the processes", rc));
        if (damaged) return tl::unexpected(damaged_row("process"));
        return {};
    }

    /// The row of a key; nothing where there is none.
    template <class Row>
    Result<std::optional<Row>> find(MDB_dbi table, const std::string& key,
                                    std::optional<Row> (*decode)(std::string_view), const char* what) const {
        MDB_val raw_key = to_value(key);
        MDB_val value{};
        if (table == Tables::no_table) return std::optional<Row>();
        const int rc = mdb_get(transaction_.get(), table, &raw_key, &value);
        if (rc == MDB_NOTFOUND) return std::optional<Row>();
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the event store", rc));
        const auto content = unseal(key, to_text(value));
        auto row = content ? decode(*content) : std::nullopt;
        if (!row) return tl::unexpected(damaged_row(what));
        return row;
    }

    /// Calls `visit` with each block that the window needs, until it says no or fails.
    Result<void> for_each_block(uint32_t boot_index, Window window,
                                const std::function<Result<bool>(const EventKey&, BlockView&)>& visit) const {
        std::optional<Error> error;
        BlockView block;
        const std::string from = encode_key(EventKey{boot_index, 0, 0});
        const int rc = for_each_row(transaction_.get(), tables().events, from, [&](auto key, auto value) {
            const auto fields = decode_event_key(key);
            if (!fields) error = damaged_row("key of an event");
            if (error || fields->boot_index != boot_index || fields->first_start_ns >= window.to_ns) return false;
            error = open_block(*fields, value, window, block);
            if (error || block.ops().empty()) return !error;
            const auto more = visit(*fields, block);
            if (!more) error = more.error();
            return more && *more;
        });
        if (error) return tl::unexpected(*error);
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the events", rc));
        return {};
    }

    static std::optional<Error> open_block(const EventKey& key, std::string_view value, Window window,
                                           BlockView& ret_block) {
        if (auto opened = ret_block.open(value, window); !opened) return damaged_block(key, opened.error());
        const BlockHeader& header = ret_block.header();
        if (header.boot_index != key.boot_index || header.first_start_ns != key.first_start_ns ||
            header.min_sequence != key.first_sequence)
            return damaged_block(key, {ErrorCode::corrupt, "the block is stored under another's key", {}});
        return std::nullopt;
    }

    const Tables& tables() const { return environment_->tables(); }

    std::shared_ptr<Environment> environment_;
    Transaction transaction_;  // after the environment: it ends first
    std::vector<Session> sessions_;
    StoreFigures figures_;
};

class LmdbStoreReader final : public StoreReader {
  public:
    LmdbStoreReader(std::unique_ptr<Environment> environment, uint64_t layout)
        : environment_(std::move(environment)), layout_(layout) {}

    Result<std::unique_ptr<StoreSnapshot>> snapshot() override {
        auto txn = begin();
        if (!txn) return tl::unexpected(txn.error());
        auto snapshot = std::make_unique<LmdbSnapshot>(environment_, std::move(*txn));
        if (auto loaded = snapshot->load(); !loaded) return tl::unexpected(loaded.error());
        return std::unique_ptr<StoreSnapshot>(std::move(snapshot));
    }

    Result<StoreVerification> verify() override {
        const auto txn = begin();
        if (!txn) return tl::unexpected(txn.error());
        return verify_store(*environment_, txn->get());
    }

    Result<StoreDescription> describe() override {
        const auto txn = begin();
        if (!txn) return tl::unexpected(txn.error());
        return describe_store(*environment_, txn->get(), layout_);
    }

    Result<uint64_t> copy_to(int fd) override {
        Result<uint64_t> copied = uint64_t{0};
        for (int attempt = 0; attempt < 100; ++attempt) {
            const auto txn = begin();
            if (!txn) return tl::unexpected(txn.error());
            copied = copy_pages(*environment_, txn->get(), fd);
            if (copied || copied.error().code != ErrorCode::busy) break;
        }
        return copied;
    }

  private:
    Result<Transaction> begin() {
        auto txn = environment_->begin_read();
        // The store was given a larger cap. Mapping it anew would pull the old map from under a snapshot, so only
        // where none is held; else the error asks the caller to end them.
        if (!txn && txn.error().code == ErrorCode::busy && environment_.use_count() == 1) {
            if (const int rc = mdb_env_set_mapsize(environment_->get(), 0))
                return tl::unexpected(lmdb_error("cannot map the grown event store", rc));
            txn = environment_->begin_read();
        }
        return txn;
    }

    std::shared_ptr<Environment> environment_;
    uint64_t layout_;
};

/// Whether reading without LMDB's lock file is safe: nobody can write there, as far as this process can see. A writer
/// that does not know of a reader reuses the pages under it.
bool is_truly_read_only(const std::string& directory) {
    struct statvfs status {};
    if (statvfs(directory.c_str(), &status) == 0 && (status.f_flag & ST_RDONLY) != 0) return true;
    const std::string readers = directory + "/lock.mdb";
    const auto may_write = [](const std::string& path) {
        return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
    };
    // Who may write to the directory alone, since another user's reader made that file, may not take part either.
    if (may_write(directory) && (may_write(readers) || access(readers.c_str(), F_OK) != 0)) return false;
    const int fd = open((directory + "/ingerod.lock").c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT;
    const bool free = flock(fd, LOCK_SH | LOCK_NB) == 0;
    close(fd);
    return free;
}

}  // namespace

Result<StateRow> read_state(const StateHead& head) {
    auto row = decode_state(head.content);
    if (!row) return tl::unexpected(damaged_row("state"));
    row->number = head.number;
    return std::move(*row);
}

Result<std::unique_ptr<StoreReader>> StoreReader::open(const std::string& directory, PageCheck check) {
    auto environment = Environment::open(directory, Environment::Access::read_only, 0, check);
    if (!environment && environment.error().code != ErrorCode::not_found &&
        environment.error().code != ErrorCode::corrupt && is_truly_read_only(directory))
        environment = Environment::open(directory, Environment::Access::read_only_without_lock, 0, check);
    if (!environment) return tl::unexpected(environment.error());
    const auto blank = (*environment)->is_blank();
    if (!blank) return tl::unexpected(blank.error());
    if (*blank)
        return fail(ErrorCode::not_found, "the event store in " + directory + " is empty",
                    "start ingerod, which fills it");
    const auto layout = open_layout(**environment);
    if (!layout) return tl::unexpected(layout.error());
    return std::make_unique<LmdbStoreReader>(std::move(*environment), *layout);
}

}  // namespace ingero
