#include "core/store/space.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <string>
#include <vector>

#include "core/store/block.h"
#include "core/store/rows.h"
#include "core/store/tables.h"

namespace ingero {

namespace {

/// Blocks looked at together. Keys go by start, and a block with one long call sorts far before its neighbours in
/// writing: the oldest of a few dozen by sequence is the oldest written.
constexpr size_t candidates = 64;

struct Candidate {
    std::string key;
    uint32_t boot_index = 0;
    uint64_t sequence = 0;
    uint64_t max_end_ns = 0;
    uint64_t rows = 0;
    uint64_t bytes = 0;
};

int oldest_blocks(const Environment& environment, MDB_txn* txn, std::vector<Candidate>& ret_blocks) {
    ret_blocks.clear();
    const int rc = for_each_row(txn, environment.tables().events, {}, [&](auto key, auto value) {
        Candidate block{.key = std::string(key), .bytes = value.size() + key.size()};
        // A damaged block goes like any other; only what it held is not known.
        if (const auto fields = decode_event_key(key)) block.boot_index = fields->boot_index;
        if (const auto header = read_block_header(value)) {
            block.sequence = header->min_sequence;
            block.max_end_ns = header->max_end_ns;
            block.rows = header->rows;
        }
        if (!ret_blocks.empty() && ret_blocks.front().boot_index != block.boot_index) return false;
        ret_blocks.push_back(std::move(block));
        return ret_blocks.size() < candidates;
    });
    std::sort(ret_blocks.begin(), ret_blocks.end(),
              [](const Candidate& a, const Candidate& b) { return a.sequence < b.sequence; });
    return rc;
}

/// Deletes the rows at or after `from` that `is_past` says yes to, until it says stop.
enum class Verdict { erase, keep, stop };
template <class Judge>
int erase_rows(MDB_txn* txn, MDB_dbi table, Judge judge) {
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

int forget_losses(const Environment& environment, MDB_txn* txn, const Horizon& horizon) {
    return erase_rows(txn, environment.tables().losses, [&](auto key, auto) {
        const auto fields = decode_loss_key(key);
        if (!fields || fields->boot_index < horizon.boot_index) return Verdict::erase;
        if (fields->boot_index > horizon.boot_index || fields->from_ns >= horizon.covered_from_ns) return Verdict::stop;
        return fields->to_ns <= horizon.covered_from_ns ? Verdict::erase : Verdict::keep;
    });
}

int forget_gaps(const Environment& environment, MDB_txn* txn, const Horizon& horizon) {
    return erase_rows(txn, environment.tables().gaps, [&](auto key, auto value) {
        const auto fields = decode_gap_key(key);
        if (!fields || fields->boot_index < horizon.boot_index) return Verdict::erase;
        if (fields->boot_index > horizon.boot_index || fields->from_ns >= horizon.covered_from_ns) return Verdict::stop;
        const auto content = unseal(key, value);
        const auto row = content ? decode_gap(*content) : std::nullopt;
        return row && row->to_ns != 0 && row->to_ns <= horizon.covered_from_ns ? Verdict::erase : Verdict::keep;
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

int evict_oldest(const Environment& environment, MDB_txn* transaction, uint64_t bytes, Evicted& ret_evicted) {
    std::vector<Candidate> blocks;
    while (ret_evicted.bytes < bytes) {
        if (const int rc = oldest_blocks(environment, transaction, blocks)) return rc;
        if (blocks.empty()) break;
        const size_t most = std::max<size_t>(1, blocks.size() / 2);
        for (size_t i = 0; i < most && ret_evicted.bytes < bytes; ++i) {
            const Candidate& block = blocks[i];
            MDB_val key = to_value(block.key);
            if (const int rc = mdb_del(transaction, environment.tables().events, &key, nullptr)) return rc;
            ret_evicted.events += block.rows;
            ret_evicted.bytes += block.bytes;
            auto& horizon = ret_evicted.horizon;
            if (!horizon || horizon->boot_index < block.boot_index) horizon = Horizon{block.boot_index, 0};
            horizon->covered_from_ns = std::max(horizon->covered_from_ns, block.max_end_ns);
        }
    }
    if (!ret_evicted.horizon) return 0;
    if (const int rc = forget_losses(environment, transaction, *ret_evicted.horizon)) return rc;
    return forget_gaps(environment, transaction, *ret_evicted.horizon);
}

int forget_processes(const Environment& environment, MDB_txn* transaction, const Horizon& horizon) {
    std::set<ProcessKey> forgotten;
    const int rc = erase_rows(transaction, environment.tables().processes, [&](auto key, auto value) {
        const auto content = unseal(key, value);
        const auto row = content ? decode_process(*content) : std::nullopt;
        if (!row || row->boot_index > horizon.boot_index) return Verdict::keep;
        const uint64_t exited = row->process.exited_ns;
        const bool gone = row->boot_index < horizon.boot_index || (exited != 0 && exited <= horizon.covered_from_ns);
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
    return functions_rc != 0 ? functions_rc : forget_stacks(environment, transaction, horizon, forgotten);
}

bool is_pinned_by_reader(const Environment& environment) {
    // LMDB tells of its readers only in text: a header, then lines of "pid thread txnid", "-" where none is held.
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
