// StoreWriter: every change of the store is one call of write(), so that eviction, retries and failure are in one
// place.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "core/store/block/block_encoder.h"
#include "core/store/file/lock_file.h"
#include "core/store/file/tables.h"
#include "core/store/prepared.h"
#include "core/store/retention/holders.h"
#include "core/store/retention/rollup.h"
#include "core/store/retention/sessions.h"
#include "core/store/retention/space.h"
#include "core/store/rows/rows.h"
#include "core/store/rows/span_repeats.h"
#include "core/store/store.h"
#include "core/store/upkeep.h"

namespace ingero {

namespace {

constexpr uint64_t min_map_bytes = 16 << 20;
/// Past the cap only where an older, larger cap already filled more than the new one allows.
constexpr uint64_t overfull_room_bytes = 16 << 20;
/// Deleting more at once would make the free list of that commit, and the commit, long.
constexpr uint64_t most_evicted_bytes = 32 << 20;
constexpr uint64_t housekeeping_every = 64;
/// Commits after a tidy() that found no room: planning it costs the same again.
constexpr uint64_t tidy_again_after = 16;
constexpr uint64_t age_check_every_ns = 1'000'000'000;
constexpr uint64_t clock_row_every_ns = 60'000'000'000;
/// Of the cap, what rollups may take: they outlive calls, and are not to leave them without room.
constexpr uint64_t rollup_share = 4;
/// Of the cap, what spans may take once it is reached: programs report as many as they like.
constexpr uint64_t span_share = 4;
/// And what states may: those of eight GPUs, one a second, take some 200 MB a day.
constexpr uint64_t state_share = 8;

/// What is in memory of the store; replaced as a whole once a transaction has been committed.
struct State {
    SessionMap sessions;
    Holders holders;
    std::optional<uint32_t> current;  ///< the running session's number
    uint64_t last_sequence = 0;
    uint32_t last_stack = 0;
    uint32_t last_file = 0;
    uint64_t last_row = 0;
    uint64_t dropped = 0;
    uint64_t dropped_spans = 0;
    uint64_t dropped_states = 0;
    uint64_t next_age_check_ns = 0;  ///< CLOCK_MONOTONIC, as the next
    uint64_t next_clock_row_ns = 0;

    Session* running() { return current ? &sessions.at(*current) : nullptr; }
};

/// Never reuse an id, even if its row was not stored: rows may name it.
void note_ids(const Batch& batch, State& state) {
    for (const FileRow& file : batch.files) state.last_file = std::max(state.last_file, file.id);
    for (const StackRow& stack : batch.stacks) {
        state.last_stack = std::max(state.last_stack, stack.id);
        for (const StackFrame& frame : stack.frames) state.last_file = std::max(state.last_file, frame.file);
    }
}

/// A second row of the same interval and op adds to the first: a count once stored is never lost.
int put_loss(MDB_txn* txn, MDB_dbi table, uint32_t boot_index, LossRow row) {
    const std::string key = encode_key(LossKey{boot_index, row.from_ns, row.to_ns, row.op});
    MDB_val raw_key = to_value(key);
    MDB_val found{};
    if (mdb_get(txn, table, &raw_key, &found) == 0) {
        const auto content = unseal(key, to_text(found));
        if (const auto old = content ? decode_loss(*content) : std::nullopt) {
            row.lost_ring += old->lost_ring;
            row.lost_frames += old->lost_frames;
            row.lost_depth += old->lost_depth;
            row.uncertain += old->uncertain;
            row.thinned += old->thinned;
        }
    }
    return put_sealed(txn, table, key, encode_row(row));
}

void sync_directory(const std::string& directory) {
    const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);  // some file systems cannot; then there is nothing more to be had
    close(fd);
}

class LmdbStoreWriter final : public StoreWriter {
  public:
    LmdbStoreWriter(std::string directory, const StoreOptions& options, LockFile lock)
        : directory_(std::move(directory)), options_(options), lock_(std::move(lock)) {
        const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
        cap_bytes_ = std::max(options.max_size_bytes, min_map_bytes) / page * page;
    }

    Result<void> open_store();
    Result<void> begin_session(Session session) override;
    void set_first_covered(uint64_t monotonic_ns) override {
        if (first_covered_ns_ == 0) first_covered_ns_ = monotonic_ns;
    }
    Result<void> commit(const Batch& batch) override;
    bool fits(const Batch& batch) override {
        return prepare(batch, {}, 0, state_.last_row, encoder_, users_of(batch)).bytes() <= most_batch_bytes();
    }
    Result<void> end_session() override;
    Result<bool> tidy() override;
    StoreFigures figures() const override { return figures_; }

  private:
    using Change = std::function<void(State&)>;

    Result<void> open_environment();
    Result<void> ensure_open();
    Result<void> make_ready();
    Result<void> create_file();
    Result<void> create_layout();
    Result<void> raise_layout();
    Result<void> make_deletable();
    Result<void> load_state();
    UserOf users_of(const Batch& batch);
    Result<void> write(const Prepared& prepared, const Change& change);
    int transact(const Prepared& prepared, const Change& change, uint64_t limit, bool roll_up = true);
    int begin(Transaction& ret_transaction);
    int evict(MDB_txn* txn, const Demand& demand, State& state);
    int store(MDB_txn* txn, const Prepared& prepared, State& state);
    int store_clock(MDB_txn* txn, const Session& session, State& state);
    void make_room(uint64_t bytes);
    void update_figures();
    uint64_t most_batch_bytes() const { return cap_bytes_ / 4; }

    std::string directory_;
    StoreOptions options_;
    LockFile lock_;  // before the environment: given back last
    std::unique_ptr<Environment> environment_;
    FileRoom room_;
    BlockEncoder encoder_;
    Upkeep upkeep_;
    State state_;
    StoreFigures figures_;
    uint64_t cap_bytes_ = 0;
    uint64_t first_covered_ns_ = 0;
    uint64_t commits_ = 0;
    uint64_t next_tidy_ = 0;  ///< not before so many commits
};

Result<void> LmdbStoreWriter::open_store() {
    auto opened = open_environment();
    options_.progress = {};  // ensure_open() opens it anew for another thread, long after the start
    if (!opened) return opened;
    if (auto loaded = load_state(); !loaded) return loaded;
    update_figures();
    return {};
}

/// Where it fails, there is none.
Result<void> LmdbStoreWriter::open_environment() {
    environment_.reset();
    struct stat status {};
    const bool exists = stat((directory_ + "/data.mdb").c_str(), &status) == 0;
    if (!exists && !options_.create)
        return fail(ErrorCode::not_found, "no event store in " + directory_, "allow ingerod to create one");
    if (!exists || status.st_size == 0)
        if (auto created = create_file(); !created) return created;
    auto opened =
        Environment::open(directory_, Environment::Access::read_write, cap_bytes_, PageCheck::all, options_.progress);
    if (!opened) return tl::unexpected(opened.error());
    environment_ = std::move(*opened);
    auto ready = make_ready();
    if (!ready) environment_.reset();
    return ready;
}

/// Where a meta page could not be written, LMDB wants the environment closed; the last good commit stands. On a disk
/// that was then mounted read-only there is none, until it can be written again. No new file is made for one that was
/// removed: it would lack what is in memory of the old one.
Result<void> LmdbStoreWriter::ensure_open() {
    const bool is_open = environment_ && !environment_->is_broken();
    const auto is_missing = [this] { return access((directory_ + "/data.mdb").c_str(), F_OK) != 0 && errno == ENOENT; };
    if (is_open ? environment_->is_removed() : is_missing())
        return fail(ErrorCode::not_found, "the event store's file was removed; restart ingerod to begin a new one",
                    "systemctl restart ingerod");
    return is_open ? Result<void>() : open_environment();
}

Result<void> LmdbStoreWriter::make_ready() {
    const auto blank = environment_->is_blank();
    if (!blank) return tl::unexpected(blank.error());
    if (*blank) {
        if (auto created = create_layout(); !created) return created;
    } else {
        const auto layout = open_layout(*environment_);
        if (!layout) return tl::unexpected(layout.error());
        if (*layout < store_layout_version || !environment_->tables().are_whole())
            if (auto raised = raise_layout(); !raised) return raised;
    }
    return make_deletable();
}

/// A cap lowered to about what the file holds: LMDB needs pages to delete, and at its own 85 % there always are some.
Result<void> LmdbStoreWriter::make_deletable() {
    uint64_t live = 0;
    {
        const auto txn = environment_->begin_read();
        if (!txn) return tl::unexpected(txn.error());
        live = environment_->live_bytes(txn->get());
    }
    if (live < cap_bytes_ / 100 * 90) return {};
    const uint64_t least = std::max(cap_bytes_, environment_->used_file_bytes()) + overfull_room_bytes;
    if (const int rc = mdb_env_set_mapsize(environment_->get(), least))
        return tl::unexpected(lmdb_error("cannot map the event store", rc));
    return {};
}

/// Made under another name, so that a power loss on the way leaves no file that is half a store.
Result<void> LmdbStoreWriter::create_file() {
    const std::string making = directory_ + "/making";
    const auto remove_it = [&] {
        for (const char* name : {"/data.mdb", "/lock.mdb"}) unlink((making + name).c_str());
        rmdir(making.c_str());
    };
    remove_it();
    if (mkdir(making.c_str(), 0750) != 0) return tl::unexpected(lmdb_error("cannot make " + making, errno));
    auto opened = Environment::open(making, Environment::Access::read_write, cap_bytes_);
    auto created = opened ? Result<void>() : tl::unexpected(opened.error());
    if (opened) {
        environment_ = std::move(*opened);
        created = create_layout();
        environment_.reset();
    }
    if (created && rename((making + "/data.mdb").c_str(), (directory_ + "/data.mdb").c_str()) != 0)
        created = tl::unexpected(lmdb_error("cannot make the event store in " + directory_, errno));
    remove_it();
    if (created) sync_directory(directory_);  // else a power loss could forget the file's name
    return created;
}

Result<void> LmdbStoreWriter::create_layout() {
    Transaction txn;
    int rc = environment_->begin_write(txn);
    if (rc == 0) rc = environment_->open_tables(txn.get(), true);
    const MDB_dbi meta = environment_->tables().meta;
    if (rc == 0) rc = put_sealed(txn.get(), meta, application_key, application_name);
    if (rc == 0) rc = put_sealed(txn.get(), meta, layout_key, encode_number(store_layout_version));
    if (rc == 0) rc = put_sealed(txn.get(), meta, last_sequence_key, encode_number(0));
    if (rc == 0) rc = txn.commit();
    if (rc != 0) return tl::unexpected(lmdb_error("cannot make the event store in " + directory_, rc));
    cover_last_page(*environment_);
    return {};
}

/// What older layouts wrote reads as it is, blocks of version 1 too: only the tables they lacked are made.
Result<void> LmdbStoreWriter::raise_layout() {
    Transaction txn;
    int rc = environment_->begin_write(txn);
    if (rc == 0) rc = environment_->open_tables(txn.get(), true);
    if (rc == 0)
        rc = put_sealed(txn.get(), environment_->tables().meta, layout_key, encode_number(store_layout_version));
    if (rc == 0) rc = txn.commit();
    if (rc != 0) return tl::unexpected(lmdb_error("cannot bring the event store to this version's layout", rc));
    return {};
}

Result<void> LmdbStoreWriter::load_state() {
    auto txn = environment_->begin_read();
    if (!txn) return tl::unexpected(txn.error());
    auto sessions = read_sessions(*environment_, txn->get());
    if (!sessions) return tl::unexpected(sessions.error());
    const auto sequence = read_last_sequence(*environment_, txn->get());
    if (!sequence) return tl::unexpected(sequence.error());
    state_.sessions = std::move(*sessions);
    state_.last_sequence = *sequence;
    const auto figures = read_figures(*environment_, txn->get(), state_.sessions);
    if (!figures) return tl::unexpected(figures.error());
    state_.last_stack = figures->last_stack;
    state_.last_file = figures->last_file;
    state_.last_row = read_last_row(*environment_, txn->get());
    int rc = state_.holders.load(*environment_, txn->get());
    if (rc == 0) rc = upkeep_.load(*environment_, txn->get(), state_.holders);
    if (rc != 0) return tl::unexpected(lmdb_error("cannot read the events", rc));
    return {};
}

/// Of processes in the batch, and of those that the store has.
UserOf LmdbStoreWriter::users_of(const Batch& batch) {
    if (!options_.owner_of) return [](const ProcessKey&) { return 0; };
    std::map<ProcessKey, uint32_t> users;
    for (const Process& process : batch.processes) users[process.key] = options_.owner_of(process.uid);
    return [this, users = std::move(users)](const ProcessKey& key) mutable {
        const auto [known, added] = users.try_emplace(key, nobody);
        if (!added) return known->second;
        if (!environment_) return nobody;
        const auto txn = environment_->begin_read();
        if (!txn) return nobody;
        const std::string raw = encode_key(key);
        MDB_val raw_key = to_value(raw);
        MDB_val value{};
        if (mdb_get(txn->get(), environment_->tables().processes, &raw_key, &value) != 0) return nobody;
        const auto content = unseal(raw, to_text(value));
        const auto row = content ? decode_process(*content) : std::nullopt;
        if (row) known->second = options_.owner_of(row->process.uid);
        return known->second;
    };
}

Result<void> LmdbStoreWriter::begin_session(Session session) {
    if (state_.current) return fail(ErrorCode::internal, "a session is already running");
    session.boot_index = 0;
    for (const auto& [number, earlier] : state_.sessions) {
        const bool same = earlier.boot_id == session.boot_id;
        session.boot_index = same ? earlier.boot_index : std::max(session.boot_index, earlier.boot_index + 1);
        if (same) break;
    }
    if (session.clock.realtime_ns == 0) session.clock = options_.clock();
    session.latest_clock = session.clock;
    session.ended_cleanly = false;
    first_covered_ns_ = session.first_covered_ns;
    return write({}, [&](State& state) {
        state.current = state.sessions.empty() ? 0 : state.sessions.rbegin()->first + 1;
        state.next_clock_row_ns = 0;
        state.sessions.emplace(*state.current, session);
    });
}

Result<void> LmdbStoreWriter::commit(const Batch& batch) {
    const Session* running = state_.running();
    if (running == nullptr) return fail(ErrorCode::internal, "no session is running: call begin_session first");
    const ClockTriple clock = options_.clock();
    if (auto opened = ensure_open(); !opened) return opened;
    std::vector<size_t> repeats;
    if (!batch.spans.empty()) {
        const auto txn = environment_->begin_read();
        if (!txn) return tl::unexpected(txn.error());
        auto found = find_repeats(*environment_, txn->get(), running->boot_index, batch.spans);
        if (!found) return tl::unexpected(found.error());
        repeats = std::move(*found);
    }
    Prepared prepared = prepare(batch, repeats, running->boot_index, state_.last_row, encoder_, users_of(batch));
    prepare_clocks(batch, running->boot_index, *state_.current, prepared);
    auto written = write(prepared, [&](State& state) {
        if (!batch.clocks.empty()) state.next_clock_row_ns = UINT64_MAX;
        Session& session = *state.running();
        session.latest_clock = clock;
        session.last_covered_ns = std::max(session.last_covered_ns, batch.covered_until_ns);
        for (const Event& event : batch.events) {
            state.last_sequence = std::max(state.last_sequence, event.sequence);
            state.last_stack = std::max(state.last_stack, event.stack);
        }
        note_ids(batch, state);
        state.last_row += batch.spans.size() + batch.incidents.size() + batch.states.size();
    });
    if (written) upkeep_.note(prepared.blocks);
    return written;
}

Result<void> LmdbStoreWriter::end_session() {
    if (!state_.current) return fail(ErrorCode::internal, "no session is running");
    const ClockTriple clock = options_.clock();
    auto written = write({}, [&](State& state) {
        state.running()->latest_clock = clock;
        state.running()->ended_cleanly = true;
    });
    if (written) state_.current.reset();
    return written;
}

/// Nothing is let go for it, and where there is no room it waits for some.
Result<bool> LmdbStoreWriter::tidy() {
    if (commits_ < next_tidy_) return false;
    if (auto opened = ensure_open(); !opened) return tl::unexpected(opened.error());
    Prepared prepared;
    {
        const auto txn = environment_->begin_read();
        if (!txn) return tl::unexpected(txn.error());
        Upkeep::Now now{.compress_after_ns = options_.compress_after_ns, .max_bytes = cap_bytes_ / 32};
        for (const auto& [number, session] : state_.sessions) {
            now.boot_index = session.boot_index;
            now.now_ns = session.latest_clock.monotonic_ns;
        }
        Rewrite rewrite = upkeep_.plan(*environment_, txn->get(), state_.holders, encoder_, now);
        prepared.replaced = std::move(rewrite.replaced);
        prepared.blocks = std::move(rewrite.blocks);
    }
    if (!prepared.replaced.empty()) {
        const uint64_t need = prepared.bytes();
        room_.reserve(*environment_, 3 * need, cap_bytes_);
        int rc = need > cap_bytes_ / 16 ? MDB_MAP_FULL : room_.error();
        if (rc == 0)
            rc = transact(
                prepared, [](State&) {}, UINT64_MAX);
        if (rc != 0) {
            next_tidy_ = commits_ + tidy_again_after;
            return tl::unexpected(lmdb_error("cannot rewrite blocks of the event store", rc));
        }
        update_figures();
    }
    upkeep_.done();
    return upkeep_.has_more();
}

/// Up to two rounds of making room; what still fails is the caller's to know, and nothing of it is stored.
Result<void> LmdbStoreWriter::write(const Prepared& prepared, const Change& change) {
    const uint64_t need = prepared.bytes();
    if (need > most_batch_bytes())
        return fail(ErrorCode::limit,
                    "a batch of " + std::to_string(need) + " bytes is more than a quarter of the store",
                    "raise [store] max_size");
    int rc = 0;
    for (int round = 0;; ++round) {
        if (auto opened = ensure_open(); !opened) return opened;
        const uint64_t usable = room_.reserve(*environment_, 3 * need, cap_bytes_);
        // All the store could let go would not make enough room: then nothing is let go.
        if (room_.error() != 0 && need > usable / 4)
            return tl::unexpected(lmdb_error("cannot write to the event store", room_.error()));
        // Pages freed by the last two commits cannot be reused yet: this commit needs its own room besides theirs.
        const uint64_t limit = std::min(usable / 100 * 85, usable - std::min(usable, 3 * need));
        rc = transact(prepared, change, limit);
        if (rc == 0) break;
        // A write that a full disk cut short is EIO to LMDB; with room on the disk EIO is a broken disk.
        if (rc == EIO && room_.error() != 0) rc = room_.error();
        if (!is_space_error(rc) || round == 2 || is_pinned_by_reader(*environment_))
            return tl::unexpected(lmdb_error("cannot write to the event store", rc));
        make_room(std::max(2 * need, usable / 16));
    }
    update_figures();
    if (++commits_ % housekeeping_every == 0) {
        int dead = 0;
        mdb_reader_check(environment_->get(), &dead);
    }
    return {};
}

int LmdbStoreWriter::begin(Transaction& ret_transaction) {
    return ensure_open() ? environment_->begin_write(ret_transaction) : MDB_PANIC;
}

/// One transaction: evict down to `limit` live bytes, apply, store, commit. An LMDB code; memory follows only success.
int LmdbStoreWriter::transact(const Prepared& prepared, const Change& change, uint64_t limit, bool roll_up) {
    Transaction txn;
    if (const int rc = begin(txn)) return rc;
    State next = state_;
    change(next);
    if (limit != UINT64_MAX) {
        const uint64_t live = environment_->live_bytes(txn.get());
        Demand demand{.most_bytes = std::max(most_evicted_bytes, 2 * prepared.bytes()),
                      .calls = {},
                      .rollups = {},
                      .most_rollup_bytes = cap_bytes_ / rollup_share,
                      .most_span_bytes = cap_bytes_ / span_share,
                      .most_state_bytes = cap_bytes_ / state_share,
                      .roll_up = roll_up};
        demand.bytes = std::min(live - std::min(live, limit), demand.most_bytes);
        if (const int rc = evict(txn.get(), demand, next)) return rc;
    }
    if (Session* session = next.running(); session != nullptr && session->first_covered_ns == 0)
        session->first_covered_ns = first_covered_ns_;
    if (const int rc = store(txn.get(), prepared, next)) return rc;
    if (const int rc = txn.commit()) return rc;
    cover_last_page(*environment_);
    state_ = std::move(next);
    return 0;
}

int LmdbStoreWriter::evict(MDB_txn* txn, const Demand& asked, State& state) {
    Demand demand = asked;
    const Session* running = state.running();
    const uint64_t now_ns = running ? running->latest_clock.monotonic_ns : 0;
    const bool age_is_due = running && now_ns >= state.next_age_check_ns;
    if (age_is_due) {
        demand.calls = age_limits(state.sessions, state.current, options_.max_age_ns);
        demand.rollups = age_limits(state.sessions, state.current, options_.max_rollup_age_ns);
    }
    if (demand.bytes == 0 && !age_is_due) return 0;
    Evicted evicted;
    if (const int rc = let_go(*environment_, txn, demand, state.holders, evicted)) return rc;
    if (age_is_due && !evicted.more_by_age) state.next_age_check_ns = now_ns + age_check_every_ns;
    state.dropped += evicted.events;
    state.dropped_spans += evicted.spans;
    state.dropped_states += evicted.states;
    if ((evicted.horizon || evicted.gave_way) && commits_ % housekeeping_every == 0)
        if (const int rc = forget_processes(*environment_, txn, evicted.horizon, state.holders, options_.owner_of))
            return rc;
    if (!evicted.horizon && !evicted.rollups) return 0;
    return move_horizon(txn, environment_->tables().sessions, evicted, demand.roll_up, state.sessions, state.current);
}

int LmdbStoreWriter::store(MDB_txn* txn, const Prepared& prepared, State& state) {
    const Tables& tables = environment_->tables();
    for (const std::string& key : prepared.replaced) {
        MDB_val raw_key = to_value(key);
        if (const int rc = mdb_del(txn, tables.events, &raw_key, nullptr)) return rc;
        uint32_t user = nobody;
        if (const int rc = state.holders.remove(*environment_, txn, key, user)) return rc;
    }
    for (const BlockRow& block : prepared.blocks) {
        if (const int rc = put(txn, tables.events, block.key, block.bytes, MDB_NOOVERWRITE)) return rc;
        const uint64_t bytes = block.key.size() + block.bytes.size();
        if (const int rc = state.holders.add(*environment_, txn, block.user, block.key, bytes)) return rc;
    }
    for (const Prepared::Row& row : prepared.rows)
        if (const int rc = put(txn, tables.*row.table, row.key, row.value)) return rc;
    if (const Session* session = state.running()) {
        for (const LossRow& row : prepared.losses)
            if (const int rc = put_loss(txn, tables.losses, session->boot_index, row)) return rc;
        if (const int rc = put_sealed(txn, tables.sessions, encode_key(*state.current), encode_row(*session)))
            return rc;
        RollupWriter rollups(*environment_, txn);
        for (const RollupRow& row : prepared.rollups) rollups.add(session->boot_index, row);
        if (const int rc = rollups.flush()) return rc;
        if (const int rc = store_clock(txn, *session, state)) return rc;
    }
    if (state.last_row != state_.last_row)
        if (const int rc = put_sealed(txn, tables.meta, last_row_key, encode_number(state.last_row))) return rc;
    if (const int rc = put_sealed(txn, tables.meta, last_stack_key, encode_number(state.last_stack))) return rc;
    if (const int rc = put_sealed(txn, tables.meta, last_file_key, encode_number(state.last_file))) return rc;
    return put_sealed(txn, tables.meta, last_sequence_key, encode_number(state.last_sequence));
}

int LmdbStoreWriter::store_clock(MDB_txn* txn, const Session& session, State& state) {
    const ClockTriple& clock = session.latest_clock;
    if (clock.monotonic_ns < state.next_clock_row_ns) return 0;
    state.next_clock_row_ns = clock.monotonic_ns + clock_row_every_ns;
    const HistoryKey key{session.boot_index, clock.monotonic_ns, *state.current};
    return put_sealed(txn, environment_->tables().clocks, encode_key(key), encode_row(ClockRow{*state.current, clock}));
}

/// Lets `bytes` of the oldest go and makes two more small commits: only then does LMDB reuse what was freed.
void LmdbStoreWriter::make_room(uint64_t bytes) {
    const Change nothing = [](State&) {};
    auto txn = environment_->begin_read();
    if (!txn) return;
    const uint64_t live = environment_->live_bytes(txn->get());
    txn = Transaction();
    const uint64_t limit = live - std::min(live, bytes);
    if (transact({}, nothing, limit) != 0 && transact({}, nothing, limit, false) != 0) return;
    update_figures();  // also where what the room is for fails
    for (int i = 0; i < 2; ++i)
        if (transact({}, nothing, UINT64_MAX) != 0) return;
}

void LmdbStoreWriter::update_figures() {
    auto txn = environment_->begin_read();
    if (!txn) return;
    if (const auto figures = read_figures(*environment_, txn->get(), state_.sessions)) figures_ = *figures;
    figures_.cap_bytes = cap_bytes_;
    figures_.events_dropped_for_space = state_.dropped;
    figures_.spans_dropped_for_space = state_.dropped_spans;
    figures_.states_dropped_for_space = state_.dropped_states;
}

}  // namespace

Result<std::unique_ptr<StoreWriter>> StoreWriter::open(const std::string& directory, const StoreOptions& options) {
    auto lock = LockFile::take(directory);
    if (!lock) return tl::unexpected(lock.error());
    auto writer = std::make_unique<LmdbStoreWriter>(directory, options, std::move(*lock));
    if (auto opened = writer->open_store(); !opened) return tl::unexpected(opened.error());
    return std::unique_ptr<StoreWriter>(std::move(writer));
}

}  // namespace ingero
