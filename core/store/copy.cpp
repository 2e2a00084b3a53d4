#include "core/store/copy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/store/file/environment.h"
#include "core/store/file/lmdb_file.h"
#include "core/store/file/tables.h"

namespace ingero {

namespace {

constexpr size_t chunk_bytes = 1 << 20;
/// How often it is asked whether the writer has room.
constexpr uint64_t look_every_bytes = 16 << 20;

Error cannot(const char* what, int error_number) {
    const bool no_room = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
    return {ErrorCode::internal, errno_message(what, error_number),
            no_room ? "make room on the file system that the copy is written to" : ""};
}

/// 0 or errno. What the file does not have reads as zeros: LMDB may leave an unused last page unwritten.
int read_pages(int fd, std::vector<char>& ret_bytes, uint64_t offset) {
    for (size_t done = 0; done < ret_bytes.size();) {
        const ssize_t got =
            pread(fd, ret_bytes.data() + done, ret_bytes.size() - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) {
            std::fill(ret_bytes.begin() + static_cast<std::ptrdiff_t>(done), ret_bytes.end(), '\0');
            return 0;
        }
        done += static_cast<size_t>(got);
    }
    return 0;
}

int write_pages(int fd, const char* bytes, size_t size, uint64_t offset) {
    for (size_t done = 0; done < size;) {
        const ssize_t put = pwrite(fd, bytes + done, size - done, static_cast<off_t>(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        done += static_cast<size_t>(put);
    }
    return 0;
}

/// Pages that a writer can take while transaction `held` lasts: those never used, and those freed before it.
Result<uint64_t> free_pages(const Environment& environment, uint64_t held) {
    auto txn = environment.begin_read();
    if (!txn) return tl::unexpected(txn.error());
    if (mdb_txn_id(txn->get()) <= held + 1) return UINT64_MAX;  // nobody writes
    uint64_t pages = (environment.map_bytes() - environment.used_file_bytes()) / environment.page_bytes();
    for_each_row(txn->get(), MDB_dbi{0}, {}, [&](auto key, auto value) {
        uint64_t id = 0, count = 0;
        if (key.size() != sizeof id || value.size() < sizeof count) return false;
        std::memcpy(&id, key.data(), sizeof id);
        std::memcpy(&count, value.data(), sizeof count);
        pages += id < held ? count : 0;
        return id < held;
    });
    return pages;
}

/// Both headers, of which the newer is this transaction's and the older one of the same content.
int write_headers(int fd, std::vector<char> page, uint64_t id) {
    for (uint64_t number = 0; number < 2; ++number) {
        const uint64_t own_id = number == (id & 1) ? id : id - 1;
        std::memcpy(page.data() + offsetof(lmdb::PageHeader, number), &number, sizeof number);
        std::memcpy(page.data() + sizeof(lmdb::PageHeader) + offsetof(lmdb::Meta, transaction_id), &own_id,
                    sizeof own_id);
        if (const int error = write_pages(fd, page.data(), page.size(), number * page.size())) return error;
    }
    return 0;
}

}  // namespace

Result<uint64_t> copy_pages(const Environment& environment, MDB_txn* transaction, int fd) {
    const uint64_t page_bytes = environment.page_bytes();
    const uint64_t id = mdb_txn_id(transaction);
    std::vector<char> header(page_bytes);
    if (const int error = read_pages(environment.data_fd(), header, (id & 1) * page_bytes))
        return tl::unexpected(cannot("cannot read the event store", error));
    lmdb::Meta meta{};
    std::memcpy(&meta, header.data() + sizeof(lmdb::PageHeader), sizeof meta);
    if (meta.transaction_id != id)
        return fail(ErrorCode::busy, "the event store changes faster than it can be copied", "try again");

    const uint64_t end = (meta.last_page + 1) * page_bytes;
    const uint64_t least_free = std::max<uint64_t>(16, environment.map_bytes() / page_bytes / 20);
    std::vector<char> chunk;
    for (uint64_t at = 2 * page_bytes; at < end; at += chunk.size()) {
        if (at / look_every_bytes != (at - chunk.size()) / look_every_bytes) {
            const auto free = free_pages(environment, id);
            if (!free) return tl::unexpected(free.error());
            if (*free < least_free)
                return fail(ErrorCode::limit,
                            "the copy was stopped: the store needs the space that the copy holds back",
                            "write the copy to a faster disk, or raise [store] max_size");
        }
        chunk.resize(std::min<uint64_t>(chunk_bytes, end - at));
        if (const int error = read_pages(environment.data_fd(), chunk, at))
            return tl::unexpected(cannot("cannot read the event store", error));
        if (const int error = write_pages(fd, chunk.data(), chunk.size(), at))
            return tl::unexpected(cannot("cannot write the copy", error));
    }
    // Last, so that a copy that broke off is none.
    if (const int error = write_headers(fd, std::move(header), id))
        return tl::unexpected(cannot("cannot write the copy", error));
    return end;
}

Result<uint64_t> compact_store(const std::string& directory, int fd) {
    auto environment = Environment::open(directory, Environment::Access::read_only, 0);
    if (!environment && environment.error().code == ErrorCode::denied)
        environment = Environment::open(directory, Environment::Access::read_only_without_lock, 0);
    if (!environment) return tl::unexpected(environment.error());
    if (const auto layout = open_layout(**environment); !layout) return tl::unexpected(layout.error());
    if (const int rc = mdb_env_copyfd2((*environment)->get(), fd, MDB_CP_COMPACT)) {
        if (rc > 0) return tl::unexpected(cannot("cannot write the copy", rc));
        return tl::unexpected(lmdb_error("cannot copy the event store", rc));
    }
    struct stat status {};
    if (fstat(fd, &status) != 0) return tl::unexpected(cannot("cannot write the copy", errno));
    return static_cast<uint64_t>(status.st_size);
}

}  // namespace ingero
