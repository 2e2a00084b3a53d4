#include "core/store/retention/space.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/store/block/block.h"
#include "core/store/file/tables.h"
#include "core/store/retention/rollup.h"
#include "core/store/rows/rows.h"

namespace ingero {

namespace {

/// Beyond so many uids of one user a gap is anyone's.
constexpr size_t most_gap_uids = 16;

/// Blocks looked at together. Keys go by start, and a block with one long call sorts far before its neighbours in
/// writing: the oldest of a few dozen by sequence is the oldest written.
constexpr size_t candidates = 64;

struct Candidate {
    std::string key;
    uint32_t boot_index = 0;
    uint64_t first_start_ns = 0;
    uint64_t sequence = 0;
    uint64_t max_end_ns = 0;
    uint64_t rows = 0;
    uint64_t bytes = 0;
};

Candidate candidate(std::string_view key, std::string_view value) {
    Candidate block{.key = std::string(key), .bytes = value.size() + key.size()};
    // A damaged block goes like any other; only what it held is not known.
    if (const auto fields = decode_event_key(key)) {
        block.boot_index = fields->boot_index;
        block.first_start_ns = block.max_end_ns = fields->first_start_ns;
    }
    if (const auto header = read_block_header(value)) {
        block.sequence = header->min_sequence;
        block.max_end_ns = header->max_end_ns;
        block.rows = header->rows;
    }
    return block;
}

bool written_before(const Candidate& a, const Candidate& b) {
    return a.sequence < b.sequence;
}

int oldest_blocks(const Environment& environment, MDB_txn* txn, std::vector<Candidate>& ret_blocks) {
    ret_blocks.clear();
    const int rc = for_each_row(txn, environment.tables().events, {}, [&](auto key, auto value) {
        Candidate block = candidate(key, value);
        if (!ret_blocks.empty() && ret_blocks.front().boot_index != block.boot_index) return false;
        ret_blocks.push_back(std::move(block));
        return ret_blocks.size() < candidates;
    });
    std::sort(ret_blocks.begin(), ret_blocks.end(), written_before);
    return rc;
}

/// Rows of "held" whose block is not there go, so that who has none is not asked again.
int oldest_blocks_of(const Environment& environment, MDB_txn* txn, Holders& holders, uint32_t user,
                     std::vector<Candidate>& ret_blocks) {
    ret_blocks.clear();
    std::vector<std::string> keys;
    if (const int rc = holders.first_blocks(environment, txn, user, candidates, keys)) return rc;
    if (keys.empty()) holders[user].bytes = 0;
    for (const std::string& key : keys) {
        MDB_val raw_key = to_value(key);
        MDB_val value{};
        const int rc = mdb_get(txn, environment.tables().events, &raw_key, &value);
        if (rc == MDB_NOTFOUND) {
            uint32_t ignored = 0;
            if (const int removed = holders.remove(environment, txn, key, ignored)) return removed;
            continue;
        }
        if (rc != 0) return rc;
        Candidate block = candidate(key, to_text(value));
        if (!ret_blocks.empty() && ret_blocks.front().boot_index != block.boot_index) break;
        ret_blocks.push_back(std::move(block));
    }
    std::sort(ret_blocks.begin(), ret_blocks.end(), written_before);
    return 0;
}

/// Deletes the rows at or after `from` that `is_past` says yes to, until it says stop.
enum class Verdict { erase, keep, stop };
template <class Judge>
int erase_rows(MDB_txn* txn, MDB_dbi table, Judge judge) {
    if (table == Tables::no_table) return 0;
    Cursor cursor;
    if (const int rc = cursor.open(txn, table)) return rc;
    MDB_val key{};
    MDB_val value{};
    int rc = cursor.get(key, value, MDB_FIRST);
    while (rc == 0) {
        const Verdict verdict = judge(to_text(key), to_text(value));
        if (verdict == Verdict::stop) return 0;
        // After a deletion MDB_NEXT gives the row that took the deleted one's place.
        if (verdict == Verdict::erase) rc = cursor.erase();
        if (rc == 0) rc = cursor.get(key, value, MDB_NEXT);
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int forget_losses(const Environment& environment, MDB_txn* txn, const Horizon& horizon, RollupWriter* rollups) {
    return erase_rows(txn, environment.tables().losses, [&](auto key, auto value) {
        const auto fields = decode_loss_key(key);
        if (!fields) return Verdict::erase;
        const bool earlier_boot = fields->boot_index < horizon.boot_index;
        const bool later = fields->boot_index > horizon.boot_index || fields->from_ns >= horizon.from_ns;
        if (!earlier_boot && later) return Verdict::stop;
        if (!earlier_boot && fields->to_ns > horizon.from_ns) return Verdict::keep;
        const auto content = unseal(key, value);
        const auto row = content ? decode_loss(*content) : std::nullopt;
        if (rollups && row) rollups->add_loss(fields->boot_index, *row);
        return Verdict::erase;
    });
}

bool is_past(const HistoryKey& key, const Horizon& horizon) {
    return key.boot_index < horizon.boot_index ||
           (key.boot_index == horizon.boot_index && key.time_ns < horizon.from_ns);
}

int erase_span_id(const Environment& environment, MDB_txn* txn, const HistoryKey& key, std::string_view value) {
    const auto content = unseal(encode_key(key), value);
    const auto row = content ? decode_span(*content) : std::nullopt;
    if (!row || row->id.empty() || environment.tables().span_ids == Tables::no_table) return 0;
    const std::string id = encode_key(SpanIdKey{row->id, key});
    MDB_val raw_key = to_value(id);
    const int rc = mdb_del(txn, environment.tables().span_ids, &raw_key, nullptr);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/// Spans that last beyond the horizon and are walked past at once. Those behind them go when these have ended.
constexpr size_t most_lasting_spans = 10'000;

/// A span goes when it ended before the horizon; it may have begun long before.
int forget_spans(const Environment& environment, MDB_txn* txn, const Horizon& horizon) {
    int failed = 0;
    size_t lasting = 0;
    const int rc = erase_rows(txn, environment.tables().spans, [&](auto key, auto value) {
        const auto fields = decode_history_key(key);
        if (!fields) return Verdict::erase;
        if (!is_past(*fields, horizon)) return Verdict::stop;
        const auto content = unseal(key, value);
        const auto row = content ? decode_span(*content) : std::nullopt;
        const bool lasts = row && fields->boot_index == horizon.boot_index && row->end_ns > horizon.from_ns;
        if (lasts) return ++lasting < most_lasting_spans ? Verdict::keep : Verdict::stop;
        failed = erase_span_id(environment, txn, *fields, value);
        return failed != 0 ? Verdict::stop : Verdict::erase;
    });
    return failed != 0 ? failed : rc;
}

int forget_history(MDB_txn* txn, MDB_dbi table, const Horizon& horizon) {
    return erase_rows(txn, table, [&](auto key, auto) {
        const auto fields = decode_history_key(key);
        return !fields || is_past(*fields, horizon) ? Verdict::erase : Verdict::stop;
    });
}

int forget_gaps(const Environment& environment, MDB_txn* txn, const Horizon& horizon) {
    return erase_rows(txn, environment.tables().gaps, [&](auto key, auto value) {
        const auto fields = decode_gap_key(key);
        if (!fields || fields->boot_index < horizon.boot_index) return Verdict::erase;
        if (fields->boot_index > horizon.boot_index || fields->from_ns >= horizon.from_ns) return Verdict::stop;
        const auto content = unseal(key, value);
        const auto row = content ? decode_gap(*content) : std::nullopt;
        return row && row->to_ns != 0 && row->to_ns <= horizon.from_ns ? Verdict::erase : Verdict::keep;
    });
}

/// Stacks go with their process. Files and names, which all processes of a boot share, go with the boot.
int forget_stacks(const Environment& environment, MDB_txn* txn, const Horizon& horizon,
                  const std::set<ProcessKey>& forgotten) {
    int rc = erase_rows(txn, environment.tables().stacks, [&](auto key, auto value) {
        const auto content = unseal(key, value);
        const auto row = content ? decode_stack(*content) : std::nullopt;
        const bool gone = !row || row->boot_index < horizon.boot_index || forgotten.contains(row->stack.process);
        return gone ? Verdict::erase : Verdict::keep;
    });
    if (rc == 0)
        rc = erase_rows(txn, environment.tables().files, [&](auto key, auto value) {
            const auto content = unseal(key, value);
            const auto row = content ? decode_file(*content) : std::nullopt;
            return !row || row->boot_index < horizon.boot_index ? Verdict::erase : Verdict::keep;
        });
    if (rc == 0)
        rc = erase_rows(txn, environment.tables().symbols, [&](auto key, auto value) {
            const auto content = unseal(key, value);
            const auto row = content ? decode_symbol(*content) : std::nullopt;
            return !row || row->boot_index < horizon.boot_index ? Verdict::erase : Verdict::keep;
        });
    return rc;
}

/// What one transaction lets go, step by step.
class Eviction {
  public:
    Eviction(const Environment& environment, MDB_txn* txn, const Demand& demand, Holders& holders, Evicted& evicted)
        : environment_(environment),
          txn_(txn),
          demand_(demand),
          holders_(holders),
          evicted_(evicted),
          rollups_(environment, txn) {}

    int run() {
        int rc = blocks_by_age();
        if (rc == 0) rc = spans_over_share();
        if (rc == 0) rc = states_over_share();
        if (rc == 0) rc = blocks_for_space();
        if (rc == 0 && evicted_.horizon) rc = rows_about_time(*evicted_.horizon);
        if (rc == 0) rc = rollups_.flush();
        if (rc == 0) rc = rollups();
        if (rc == 0) rc = last_resort();
        return rc;
    }

  private:
    int blocks_by_age() {
        for (const auto& demanded : demand_.calls) {
            const uint32_t boot_index = demanded.first;
            const uint64_t limit_ns = demanded.second;
            std::vector<Candidate> old;
            const std::string from = encode_key(EventKey{boot_index, 0, 0});
            uint64_t bytes = 0;
            bool kept = false;
            const int rc = for_each_row(txn_, environment_.tables().events, from, [&](auto key, auto value) {
                const auto fields = decode_event_key(key);
                if (!fields || fields->boot_index != boot_index) return false;
                Candidate block = candidate(key, value);
                kept |= block.max_end_ns > limit_ns;
                if (fields->first_start_ns >= limit_ns) return false;
                if (block.max_end_ns > limit_ns) return true;
                bytes += block.bytes;
                old.push_back(std::move(block));
                evicted_.more_by_age = evicted_.bytes + bytes >= demand_.most_bytes;
                return !evicted_.more_by_age;
            });
            if (rc != 0) return rc;
            for (const Candidate& block : old) {
                if (const int erased = erase(block)) return erased;
                raise_horizon({block.boot_index, block.max_end_ns});
            }
            if (evicted_.more_by_age) return 0;
            if (limit_ns != 0) raise_horizon({boot_index, limit_ns});
            if (kept) return 0;
        }
        return 0;
    }

    int blocks_for_space() {
        std::vector<Candidate> blocks;
        while (evicted_.bytes < demand_.bytes) {
            // Blocks that nobody is known to hold go by age, and with them what is older than they are.
            const bool all_are_held = entries(environment_.tables().events) <= entries(environment_.tables().held);
            const auto user = all_are_held ? holders_.who_has_most() : std::nullopt;
            if (const int rc = user ? oldest_blocks_of(environment_, txn_, holders_, *user, blocks)
                                    : oldest_blocks(environment_, txn_, blocks))
                return rc;
            if (blocks.empty() && user) continue;
            if (blocks.empty()) break;
            const size_t most = std::max<size_t>(1, blocks.size() / 2);
            for (size_t i = 0; i < most && evicted_.bytes < demand_.bytes; ++i) {
                if (user && holders_.who_has_most() != user) break;
                if (const int rc = erase(blocks[i])) return rc;
                evicted_.events += blocks[i].rows;
                if (const int rc = record_eviction(blocks[i], user)) return rc;
            }
        }
        return 0;
    }

    /// Records that the block went for room: nothing of its time is covered any more, or nothing of the user's.
    int record_eviction(const Candidate& block, std::optional<uint32_t> user) {
        std::optional<EventKey> others;
        if (user)
            if (const int rc = holders_.first_of_others(environment_, txn_, *user, others)) return rc;
        if (others &&
            std::tie(others->boot_index, others->first_start_ns) < std::tie(block.boot_index, block.max_end_ns))
            return give_way(*user, block);
        raise_horizon({block.boot_index, block.max_end_ns});
        return 0;
    }

    /// One row a uid for all that went of a user in a boot.
    int give_way(uint32_t user, const Candidate& block) {
        evicted_.gave_way = true;
        auto& gap = holders_[user].gave_way;
        const bool known = gap && gap->boot_index == block.boot_index;
        const Window before = known ? gap->window : Window{block.first_start_ns, block.max_end_ns};
        gap = {block.boot_index,
               {std::min(before.from_ns, block.first_start_ns), std::max(before.to_ns, block.max_end_ns)}};
        std::set<uint32_t> uids = demand_.roll_up ? rollups_.uids_of_block() : std::set<uint32_t>();
        const bool is_anyones = uids.empty() || uids.size() > most_gap_uids || uids.contains(UINT32_MAX);
        if (is_anyones) uids = {0};
        for (const uint32_t uid : uids) {
            const GapRow row{.process = {0, is_anyones ? 0 : uint64_t{uid} + 1},
                             .uid = uid,
                             .from_ns = gap->window.from_ns,
                             .to_ns = gap->window.to_ns,
                             .reason = GapReason::gave_way,
                             .subject = "the oldest calls of " +
                                        (user == nobody ? "unknown processes" : "uid " + std::to_string(user)) +
                                        " were removed to make room in the store"};
            if (const int rc = put_gap(block.boot_index, before.from_ns, row)) return rc;
        }
        return 0;
    }

    /// In the place of the row that began at `before_ns`.
    int put_gap(uint32_t boot_index, uint64_t before_ns, const GapRow& row) {
        const MDB_dbi table = environment_.tables().gaps;
        if (before_ns != row.from_ns) {
            const std::string old = encode_key(GapKey{boot_index, before_ns, row.process, row.reason});
            MDB_val key = to_value(old);
            if (const int rc = mdb_del(txn_, table, &key, nullptr); rc != 0 && rc != MDB_NOTFOUND) return rc;
        }
        return put_sealed(txn_, table, encode_key(GapKey{boot_index, row.from_ns, row.process, row.reason}),
                          encode_row(row));
    }

    int erase(const Candidate& block) {
        MDB_val key = to_value(block.key);
        if (demand_.roll_up) {
            MDB_val value{};
            if (const int rc = mdb_get(txn_, environment_.tables().events, &key, &value)) return rc;
            if (const int rc = rollups_.add_block(to_text(value))) return rc;
        }
        if (const int rc = mdb_del(txn_, environment_.tables().events, &key, nullptr)) return rc;
        evicted_.bytes += block.bytes;
        uint32_t user = nobody;
        return holders_.remove(environment_, txn_, block.key, user);
    }

    int rows_about_time(const Horizon& horizon) {
        holders_.forget(horizon.boot_index, horizon.from_ns);
        int rc = forget_losses(environment_, txn_, horizon, demand_.roll_up ? &rollups_ : nullptr);
        if (rc == 0) rc = forget_gaps(environment_, txn_, horizon);
        if (rc == 0) rc = forget_spans(environment_, txn_, horizon);
        return rc == 0 ? forget_history(txn_, environment_.tables().states, horizon) : rc;
    }

    static void raise(std::optional<Horizon>& known, const Horizon& horizon) {
        if (!known || known->boot_index < horizon.boot_index ||
            (known->boot_index == horizon.boot_index && known->from_ns < horizon.from_ns))
            known = horizon;
    }
    void raise_horizon(const Horizon& horizon) { raise(evicted_.horizon, horizon); }

    size_t entries(MDB_dbi table) const {
        MDB_stat stat{};
        return table != Tables::no_table && mdb_stat(txn_, table, &stat) == 0 ? stat.ms_entries : 0;
    }

    uint64_t table_bytes(MDB_dbi table) const {
        MDB_stat stat{};
        if (table == Tables::no_table || mdb_stat(txn_, table, &stat) != 0) return 0;
        return (stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages) * environment_.page_bytes();
    }
    uint64_t rollup_bytes() const { return table_bytes(environment_.tables().rollups); }

    /// Those that began first, by no more than has to go.
    int spans_over_share() {
        if (evicted_.bytes >= demand_.bytes) return 0;
        const uint64_t used = table_bytes(environment_.tables().spans) + table_bytes(environment_.tables().span_ids);
        if (used <= demand_.most_span_bytes) return 0;
        const uint64_t wanted = std::min(used - demand_.most_span_bytes, demand_.bytes - evicted_.bytes);
        return erase_oldest_spans(evicted_.bytes + wanted, evicted_.spans);
    }

    int states_over_share() {
        if (evicted_.bytes >= demand_.bytes) return 0;
        const uint64_t used = table_bytes(environment_.tables().states);
        if (used <= demand_.most_state_bytes) return 0;
        const uint64_t wanted = std::min(used - demand_.most_state_bytes, demand_.bytes - evicted_.bytes);
        return erase_oldest_states(evicted_.bytes + wanted);
    }

    int erase_oldest_states(uint64_t until_bytes) {
        return erase_rows(txn_, environment_.tables().states, [&](auto key, auto value) {
            if (evicted_.bytes >= until_bytes) return Verdict::stop;
            evicted_.bytes += key.size() + value.size() + 16;
            ++evicted_.states;
            return Verdict::erase;
        });
    }

    /// Until `until_bytes` have gone in all.
    int erase_oldest_spans(uint64_t until_bytes, uint64_t& ret_erased) {
        int failed = 0;
        const int rc = erase_rows(txn_, environment_.tables().spans, [&](auto key, auto value) {
            if (evicted_.bytes >= until_bytes) return Verdict::stop;
            evicted_.bytes += key.size() + value.size() + 16;
            ++ret_erased;
            if (const auto fields = decode_history_key(key)) failed = erase_span_id(environment_, txn_, *fields, value);
            return failed != 0 ? Verdict::stop : Verdict::erase;
        });
        return failed != 0 ? failed : rc;
    }

    /// By age, and down to their share.
    int rollups() {
        for (const auto& [boot_index, limit_ns] : demand_.rollups)
            if (limit_ns != 0) raise(evicted_.rollups, {boot_index, limit_ns});
        const uint64_t used = rollup_bytes();
        const uint64_t share = used > demand_.most_rollup_bytes ? used - demand_.most_rollup_bytes : 0;
        if (const int rc = oldest_rollups(share)) return rc;
        if (!evicted_.rollups) return 0;
        return forget_history(txn_, environment_.tables().clocks, *evicted_.rollups);
    }

    bool is_past_rollups(const RollupKey& key) const {
        const auto limit = demand_.rollups.find(key.boot_index);
        return limit != demand_.rollups.end() && key.minute_ns < limit->second &&
               limit->second - key.minute_ns >= rollup_minute_ns;
    }

    /// Those too old, and others until `bytes` have gone.
    int oldest_rollups(uint64_t bytes) {
        uint64_t gone = 0;
        return erase_rows(txn_, environment_.tables().rollups, [&](auto key, auto value) {
            const auto fields = decode_rollup_key(key);
            if (fields && gone >= bytes && !is_past_rollups(*fields)) return Verdict::stop;
            gone += key.size() + value.size() + 16;
            if (fields) raise(evicted_.rollups, {fields->boot_index, fields->minute_ns + rollup_minute_ns});
            return Verdict::erase;
        });
    }

    /// No block is left to go: all the rest, the oldest first.
    int last_resort() {
        const auto erase_some = [&](MDB_dbi table) {
            return erase_rows(txn_, table, [&](auto key, auto value) {
                if (evicted_.bytes >= demand_.bytes) return Verdict::stop;
                evicted_.bytes += key.size() + value.size() + 16;
                return Verdict::erase;
            });
        };
        const Tables& tables = environment_.tables();
        int rc = erase_oldest_spans(demand_.bytes, evicted_.spans);
        if (rc == 0) rc = erase_oldest_states(demand_.bytes);
        if (rc == 0 && evicted_.bytes < demand_.bytes) {
            const uint64_t missing = demand_.bytes - evicted_.bytes;
            const uint64_t before = rollup_bytes();
            rc = oldest_rollups(missing);
            evicted_.bytes += before - std::min(before, rollup_bytes());
        }
        return rc == 0 ? erase_some(tables.incidents) : rc;
    }

    const Environment& environment_;
    MDB_txn* txn_;
    const Demand& demand_;
    Holders& holders_;
    Evicted& evicted_;
    RollupWriter rollups_;
};

/// Before which nothing is left of the calls of each user of whom some gave way.
int gone_of_users(const Environment& environment, MDB_txn* txn, const Holders& holders,
                  std::map<uint32_t, Horizon>& ret_gone) {
    std::vector<std::string> first;
    for (const auto& [user, holder] : holders.users()) {
        if (!holder.gave_way) continue;
        Horizon gone{holder.gave_way->boot_index, holder.gave_way->window.to_ns};
        // A long call ends after others have begun that are still there.
        if (const int rc = holders.first_blocks(environment, txn, user, 1, first)) return rc;
        const auto left = first.empty() ? std::nullopt : decode_event_key(first.front());
        if (left && left->boot_index == gone.boot_index) gone.from_ns = std::min(gone.from_ns, left->first_start_ns);
        ret_gone[user] = gone;
    }
    return 0;
}

bool ended_before(const StoredProcess& row, const Horizon& horizon) {
    return row.boot_index < horizon.boot_index || (row.boot_index == horizon.boot_index && row.process.exited_ns != 0 &&
                                                   row.process.exited_ns <= horizon.from_ns);
}

uint64_t file_bytes(int fd) {
    struct stat status {};
    return fstat(fd, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

/// 0 or errno.
int grow_file(int fd, uint64_t from, uint64_t to) {
    for (;;) {
        if (fallocate(fd, 0, static_cast<off_t>(from), static_cast<off_t>(to - from)) == 0) return 0;
        if (errno == EINTR) continue;
        // Not every file system can allocate ahead; a longer file with a hole is still better than none.
        if (errno == EOPNOTSUPP || errno == ENOSYS) return ftruncate(fd, static_cast<off_t>(to)) == 0 ? 0 : errno;
        return errno;
    }
}

}  // namespace

int let_go(const Environment& environment, MDB_txn* transaction, const Demand& demand, Holders& holders,
           Evicted& ret_evicted) {
    return Eviction(environment, transaction, demand, holders, ret_evicted).run();
}

int forget_processes(const Environment& environment, MDB_txn* transaction, const std::optional<Horizon>& passed,
                     const Holders& holders, const UserOfUid& user_of) {
    const Horizon horizon = passed.value_or(Horizon{});
    std::map<uint32_t, Horizon> gone_of;
    if (const int failed = gone_of_users(environment, transaction, holders, gone_of)) return failed;
    std::set<ProcessKey> forgotten;
    const int rc = erase_rows(transaction, environment.tables().processes, [&](auto key, auto value) {
        const auto content = unseal(key, value);
        const auto row = content ? decode_process(*content) : std::nullopt;
        if (!row) return Verdict::keep;
        const auto of_user = gone_of.find(user_of ? user_of(row->process.uid) : 0);
        const bool gone =
            ended_before(*row, horizon) || (of_user != gone_of.end() && ended_before(*row, of_user->second));
        if (gone) forgotten.insert(row->process.key);
        return gone ? Verdict::erase : Verdict::keep;
    });
    if (rc != 0) return rc;
    const int functions_rc = erase_rows(transaction, environment.tables().functions, [&](auto key, auto value) {
        const auto content = unseal(key, value);
        const auto row = content ? decode_function(*content) : std::nullopt;
        const bool gone = !row || row->boot_index < horizon.boot_index || forgotten.contains(row->function.process);
        return gone ? Verdict::erase : Verdict::keep;
    });
    if (functions_rc != 0) return functions_rc;
    const int communicators_rc = erase_rows(transaction, environment.tables().communicators, [&](auto key, auto value) {
        const auto content = unseal(key, value);
        const auto row = content ? decode_communicator(*content) : std::nullopt;
        const bool gone = !row || row->boot_index < horizon.boot_index || forgotten.contains(row->communicator.process);
        return gone ? Verdict::erase : Verdict::keep;
    });
    return communicators_rc != 0 ? communicators_rc : forget_stacks(environment, transaction, horizon, forgotten);
}

bool is_pinned_by_reader(const Environment& environment) {
    int dead = 0;
    mdb_reader_check(environment.get(), &dead);
    // LMDB lists its readers only as text: a header, then lines of "pid thread txnid", "-" where none is held.
    std::string text;
    const auto append = [](const char* line, void* context) {
        *static_cast<std::string*>(context) += line;
        return 0;
    };
    mdb_reader_list(environment.get(), append, &text);
    MDB_envinfo info{};
    mdb_env_info(environment.get(), &info);
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const size_t field = text.rfind(' ', end) + 1;
        uint64_t id = 0;
        const auto [rest, error] = std::from_chars(text.data() + field, text.data() + end, id);
        if (error == std::errc{} && rest == text.data() + end && id + 2 < info.me_last_txnid) return true;
        at = end + 1;
    }
    return false;
}

uint64_t FileRoom::reserve(const Environment& environment, uint64_t wanted_bytes, uint64_t cap_bytes) {
    const uint64_t have = file_bytes(environment.data_fd());
    const uint64_t need = std::min(cap_bytes, environment.used_file_bytes() + wanted_bytes);
    error_ = 0;
    if (have >= need) return cap_bytes;
    const uint64_t step = std::min<uint64_t>(64 << 20, cap_bytes / 16);
    const uint64_t ahead = std::min(cap_bytes, (need + step - 1) / step * step);
    error_ = grow_file(environment.data_fd(), have, ahead);
    if (error_ != 0) error_ = grow_file(environment.data_fd(), have, need);
    return error_ == 0 ? cap_bytes : have;
}

void cover_last_page(const Environment& environment) {
    const uint64_t used = environment.used_file_bytes();
    if (file_bytes(environment.data_fd()) >= used) return;
    // Where even this fails the data is whole all the same; the next growth covers the page.
    [[maybe_unused]] const int rc = ftruncate(environment.data_fd(), static_cast<off_t>(used));
}

}  // namespace ingero
