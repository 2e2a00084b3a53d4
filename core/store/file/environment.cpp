#include "core/store/file/environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace ingero {

namespace {

constexpr mode_t file_mode = 0640;

/// Before LMDB maps the file: what is not ours or cut short is refused while that is still harmless.
Result<void> check_before_mapping(const std::string& directory, bool writable) {
    const std::string path = directory + "/data.mdb";
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        if (writable) return {};
        return fail(ErrorCode::not_found, "no event store in " + directory,
                    "name the directory that holds data.mdb, or start ingerod to make one");
    }
    if (fd < 0) return fail(errno == EACCES ? ErrorCode::denied : ErrorCode::internal, errno_message(path, errno));
    auto result = check_file(fd);
    close(fd);
    // LMDB makes a new store of an empty file, which is what a crash at the very first start leaves.
    if (!result && result.error().code == ErrorCode::not_found && writable) return {};
    return result;
}

}  // namespace

Error lmdb_error(std::string_view what, int rc) {
    const std::string message = std::string(what) + ": " + mdb_strerror(rc);
    switch (rc) {
        case MDB_CORRUPTED:
        case MDB_PAGE_NOTFOUND:
        case MDB_INVALID:
        case MDB_INCOMPATIBLE:
        case MDB_NOTFOUND:
            return {ErrorCode::corrupt, message, "restore the store from a copy, or move it away and start a new one"};
        case MDB_VERSION_MISMATCH:
            return {ErrorCode::version, message, "the store was opened by another version of LMDB: stop that program"};
        case MDB_MAP_FULL:
            return {ErrorCode::limit, message, "raise [store] max_size, or end the queries that hold old data"};
        case MDB_READERS_FULL:
            return {ErrorCode::limit, message, "end some of the queries that are running"};
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return {ErrorCode::internal, message, "make room on the store's file system"};
        case EIO:
        case EROFS:
        case MDB_PANIC:
            return {ErrorCode::internal, message, "look for errors of the store's disk in the kernel log: dmesg"};
        case EACCES:
        case EPERM:
            return {ErrorCode::denied, message, "check who owns the store's directory"};
        default:
            return {ErrorCode::internal, message, {}};
    }
}

bool is_space_error(int rc) {
    return rc == MDB_MAP_FULL || rc == ENOSPC || rc == EDQUOT || rc == EFBIG;
}

Result<std::unique_ptr<Environment>> Environment::open(const std::string& directory, Access access, uint64_t map_bytes,
                                                       PageCheck check, const PageProgress& progress) {
    const bool writable = access == Access::read_write;
    if (auto checked = check_before_mapping(directory, writable); !checked) return tl::unexpected(checked.error());
    MDB_env* raw = nullptr;
    if (const int rc = mdb_env_create(&raw)) return tl::unexpected(lmdb_error("cannot open the event store", rc));
    std::unique_ptr<Environment> env(new Environment(raw));
    // Default synchronous commits: MDB_WRITEMAP, MDB_NOSYNC and their like would break what commit() promises.
    unsigned flags = MDB_NOTLS;
    if (!writable) flags |= MDB_RDONLY;
    if (access == Access::read_only_without_lock) flags |= MDB_NOLOCK;
    int rc = mdb_env_set_maxdbs(raw, 32);
    if (rc == 0 && map_bytes != 0) rc = mdb_env_set_mapsize(raw, map_bytes);
    if (rc == 0) rc = mdb_env_open(raw, directory.c_str(), flags, file_mode);
    if (rc != 0) return tl::unexpected(lmdb_error("cannot open the event store in " + directory, rc));
    int dead = 0;
    mdb_reader_check(raw, &dead);
    if (check == PageCheck::all)
        if (auto checked = env->check_all_pages(progress); !checked) return tl::unexpected(checked.error());
    return env;
}

Environment::~Environment() {
    mdb_env_close(env_);
}

Result<void> Environment::check_all_pages(const PageProgress& progress) {
    // On a live store the writer may overwrite the meta page before it is read: then a newer transaction is there.
    for (int attempt = 0; attempt < 100; ++attempt) {
        auto txn = begin_read();
        if (!txn) return tl::unexpected(txn.error());
        const auto checked = check_pages(data_fd(), mdb_txn_id(txn->get()), progress);
        if (!checked) return tl::unexpected(checked.error());
        if (*checked) return {};
    }
    return fail(ErrorCode::busy, "the event store changes faster than it can be checked", "try again");
}

Result<Transaction> Environment::begin_read() const {
    MDB_txn* txn = nullptr;
    const int rc = mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn);
    if (rc == MDB_MAP_RESIZED)
        return fail(ErrorCode::busy, "the event store has grown beyond the part that is mapped",
                    "end the queries that are running");
    if (rc != 0) return tl::unexpected(lmdb_error("cannot read the event store", rc));
    return Transaction(txn);
}

int Environment::begin_write(Transaction& ret_transaction) {
    MDB_txn* txn = nullptr;
    const int rc = mdb_txn_begin(env_, nullptr, 0, &txn);
    if (rc == 0) ret_transaction = Transaction(txn);
    return rc;
}

bool Environment::is_broken() const {
    MDB_txn* txn = nullptr;
    const int rc = mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn);
    if (rc == 0) mdb_txn_abort(txn);
    return rc == MDB_PANIC;
}

bool Environment::is_removed() const {
    struct stat status {};
    return fstat(data_fd(), &status) == 0 && status.st_nlink == 0;
}

Result<bool> Environment::is_blank() {
    auto txn = begin_read();
    if (!txn) return tl::unexpected(txn.error());
    MDB_dbi main = 0;
    MDB_stat stat{};
    int rc = mdb_dbi_open(txn->get(), nullptr, 0, &main);
    if (rc == 0) rc = mdb_stat(txn->get(), main, &stat);
    if (rc != 0) return tl::unexpected(lmdb_error("cannot read the event store", rc));
    return stat.ms_entries == 0;
}

int Environment::open_tables(MDB_txn* transaction, bool create) {
    const unsigned flags = create ? MDB_CREATE : 0;
    const std::pair<const char*, MDB_dbi*> names[] = {{"meta", &tables_.meta},
                                                      {"events", &tables_.events},
                                                      {"processes", &tables_.processes},
                                                      {"losses", &tables_.losses},
                                                      {"sessions", &tables_.sessions}};
    for (const auto& [name, table] : names)
        if (const int rc = mdb_dbi_open(transaction, name, flags, table)) return rc;
    // The first five since layout 2; those after came without a new layout, and so may each be missing.
    const std::pair<const char*, MDB_dbi*> newer[] = {
        {"gaps", &tables_.gaps},         {"functions", &tables_.functions}, {"stacks", &tables_.stacks},
        {"files", &tables_.files},       {"symbols", &tables_.symbols},     {"spans", &tables_.spans},
        {"span_ids", &tables_.span_ids}, {"incidents", &tables_.incidents}, {"snapshots", &tables_.states},
        {"rollups", &tables_.rollups},   {"clocks", &tables_.clocks},       {"communicators", &tables_.communicators},
        {"held", &tables_.held}};
    for (const auto& [name, table] : newer) {
        const int rc = mdb_dbi_open(transaction, name, flags, table);
        if (rc == MDB_NOTFOUND) *table = Tables::no_table;
        if (rc != 0 && rc != MDB_NOTFOUND) return rc;
    }
    return 0;
}

bool Tables::are_whole() const {
    for (const MDB_dbi table : {gaps, functions, stacks, files, symbols, spans, span_ids, incidents, states, rollups,
                                clocks, communicators, held})
        if (table == no_table) return false;
    return true;
}

int Environment::data_fd() const {
    int fd = -1;
    mdb_env_get_fd(env_, &fd);
    return fd;
}

uint64_t Environment::page_bytes() const {
    MDB_stat stat{};
    mdb_env_stat(env_, &stat);
    return stat.ms_psize;
}

uint64_t Environment::used_file_bytes() const {
    MDB_envinfo info{};
    mdb_env_info(env_, &info);
    return (info.me_last_pgno + 1) * page_bytes();
}

uint64_t Environment::map_bytes() const {
    MDB_envinfo info{};
    mdb_env_info(env_, &info);
    return info.me_mapsize;
}

uint64_t Environment::live_bytes(MDB_txn* transaction) const {
    // 0 and 1 are LMDB's own: the free list and the table of tables.
    uint64_t pages = 2;
    for (const MDB_dbi table :
         {MDB_dbi{0},     MDB_dbi{1},       tables_.meta,   tables_.events,        tables_.processes,
          tables_.losses, tables_.sessions, tables_.gaps,   tables_.functions,     tables_.stacks,
          tables_.files,  tables_.symbols,  tables_.spans,  tables_.span_ids,      tables_.incidents,
          tables_.states, tables_.rollups,  tables_.clocks, tables_.communicators, tables_.held}) {
        MDB_stat stat{};
        if (table != Tables::no_table && mdb_stat(transaction, table, &stat) == 0)
            pages += stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
    }
    return pages * page_bytes();
}

}  // namespace ingero
