#include "tests/reliability/write_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <utility>

namespace ingero::test {

namespace {

std::mutex current_mutex;
WriteLog* current = nullptr;

std::string path_of(int fd) {
    std::array<char, 4096> buffer;
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const ssize_t length = readlink(link.c_str(), buffer.data(), buffer.size());
    return length > 0 ? std::string(buffer.data(), static_cast<size_t>(length)) : std::string();
}

void note(int fd, FileOperation operation) {
    const int saved = errno;
    const std::lock_guard lock(current_mutex);
    if (current) current->note(fd, std::move(operation));
    errno = saved;
}

void note_write(int fd, uint64_t offset, const void* bytes, ssize_t written) {
    if (written <= 0) return;
    const int flags = fcntl(fd, F_GETFL);
    note(fd, {.kind = FileOperation::Kind::write,
              .offset = offset,
              .bytes = std::string(static_cast<const char*>(bytes), static_cast<size_t>(written)),
              .durable = flags >= 0 && (flags & O_DSYNC) != 0});
}

void apply(const FileOperation& operation, std::string& image) {
    if (operation.kind == FileOperation::Kind::resize) image.resize(operation.offset);
    if (operation.kind != FileOperation::Kind::write) return;
    const uint64_t end = operation.offset + operation.bytes.size();
    if (image.size() < end) image.resize(end);
    image.replace(operation.offset, operation.bytes.size(), operation.bytes);
}

/// A part of a write, in sectors of the disk.
void apply_torn(const FileOperation& operation, std::mt19937_64& random, std::string& image) {
    const uint64_t sector = random() % 2 == 0 ? 512 : 4096;
    const uint64_t end = operation.offset + operation.bytes.size();
    for (uint64_t at = operation.offset; at < end;) {
        const uint64_t stop = std::min(end, (at / sector + 1) * sector);
        if (random() % 2 == 0)
            apply({.kind = FileOperation::Kind::write,
                   .offset = at,
                   .bytes = operation.bytes.substr(at - operation.offset, stop - at)},
                  image);
        at = stop;
    }
}

}  // namespace

WriteLog::WriteLog(std::string directory) : directory_(std::move(directory)) {
    const std::lock_guard lock(current_mutex);
    current = this;
}

WriteLog::~WriteLog() {
    const std::lock_guard lock(current_mutex);
    current = nullptr;
}

void WriteLog::note(int fd, FileOperation operation) {
    const std::string path = path_of(fd);
    if (!path.starts_with(directory_)) return;
    if (path == directory_ && operation.kind == FileOperation::Kind::sync)
        operations_.push_back({.kind = FileOperation::Kind::sync_directory});
    else if (path.ends_with("/data.mdb"))
        operations_.push_back(std::move(operation));
}

void WriteLog::note_rename(const char* to) {
    if (directory_ + "/data.mdb" == to) operations_.push_back({.kind = FileOperation::Kind::name});
}

bool PowerLoss::next() {
    if (begun_) ++cut_;
    begun_ = true;
    settle();
    return cut_ < operations_.size();
}

/// Once a sync has returned, all before it is on the disk.
void PowerLoss::settle() {
    if (broken_ == BrokenSync::data) return;
    size_t synced = first_unsettled_;
    for (size_t i = first_unsettled_; i < std::min(cut_, operations_.size()); ++i)
        if (operations_[i].kind == FileOperation::Kind::sync) synced = i + 1;
    for (; first_unsettled_ < synced; ++first_unsettled_) apply(operations_[first_unsettled_], durable_);
}

bool PowerLoss::has_choice() const {
    for (size_t i = first_unsettled_; i <= cut_ && i < operations_.size(); ++i) {
        const FileOperation& operation = operations_[i];
        const bool changes = operation.kind == FileOperation::Kind::write ||
                             operation.kind == FileOperation::Kind::resize ||
                             operation.kind == FileOperation::Kind::name;
        if (changes && !(operation.durable && i < cut_)) return true;
    }
    return false;
}

PowerLoss::Image PowerLoss::image(Kept kept, std::mt19937_64& random) const {
    Image image{.exists = true, .bytes = durable_};
    for (size_t i = first_unsettled_; i <= cut_ && i < operations_.size(); ++i) {
        const FileOperation& operation = operations_[i];
        const bool must = operation.durable && i < cut_ && broken_ != BrokenSync::meta;
        if (must || kept == Kept::everything || (kept == Kept::only_the_last && i == cut_)) {
            apply(operation, image.bytes);
        } else if (kept == Kept::at_random) {
            switch (random() % 3) {
                case 0:
                    break;
                case 1:
                    apply(operation, image.bytes);
                    break;
                default:
                    apply_torn(operation, random, image.bytes);
            }
        }
    }
    // The name, where the file was given it only when it was whole.
    size_t named = operations_.size(), name_synced = operations_.size();
    for (size_t i = 0; i < operations_.size(); ++i) {
        if (operations_[i].kind == FileOperation::Kind::name) named = std::min(named, i);
        if (operations_[i].kind == FileOperation::Kind::sync_directory && i > named)
            name_synced = std::min(name_synced, i);
    }
    if (named == operations_.size() || cut_ > name_synced) return image;
    image.exists = cut_ >= named && (kept == Kept::everything || (kept == Kept::at_random && random() % 2 == 0));
    return image;
}

}  // namespace ingero::test

using ingero::test::FileOperation;

// As glibc declares them: the same names, found before glibc's own.
extern "C" {

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
    const auto written = static_cast<ssize_t>(syscall(SYS_pwrite64, fd, bytes, size, offset));
    ingero::test::note_write(fd, static_cast<uint64_t>(offset), bytes, written);
    return written;
}

ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
    return pwrite(fd, bytes, size, offset);
}

ssize_t write(int fd, const void* bytes, size_t size) {
    const off_t at = lseek(fd, 0, SEEK_CUR);
    const auto written = static_cast<ssize_t>(syscall(SYS_write, fd, bytes, size));
    if (at >= 0) ingero::test::note_write(fd, static_cast<uint64_t>(at), bytes, written);
    return written;
}

ssize_t writev(int fd, const iovec* parts, int count) {
    const off_t at = lseek(fd, 0, SEEK_CUR);
    const auto written = static_cast<ssize_t>(syscall(SYS_writev, fd, parts, count));
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    if (at >= 0) ingero::test::note_write(fd, static_cast<uint64_t>(at), bytes.data(), written);
    return written;
}

ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
    ssize_t total = 0;
    for (int i = 0; i < count; ++i) {
        const ssize_t written = pwrite(fd, parts[i].iov_base, parts[i].iov_len, offset + total);
        if (written < 0) return total > 0 ? total : written;
        total += written;
    }
    return total;
}

int ftruncate(int fd, off_t length) {
    const auto rc = static_cast<int>(syscall(SYS_ftruncate, fd, length));
    if (rc == 0) ingero::test::note(fd, {.kind = FileOperation::Kind::resize, .offset = static_cast<uint64_t>(length)});
    return rc;
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
    const auto rc = static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, length));
    struct stat status {};
    if (rc == 0 && mode == 0 && fstat(fd, &status) == 0)
        ingero::test::note(fd, {.kind = FileOperation::Kind::resize, .offset = static_cast<uint64_t>(status.st_size)});
    return rc;
}

int fdatasync(int fd) {
    const auto rc = static_cast<int>(syscall(SYS_fdatasync, fd));
    if (rc == 0) ingero::test::note(fd, {.kind = FileOperation::Kind::sync});
    return rc;
}

int fsync(int fd) {
    const auto rc = static_cast<int>(syscall(SYS_fsync, fd));
    if (rc == 0) ingero::test::note(fd, {.kind = FileOperation::Kind::sync});
    return rc;
}

int rename(const char* from, const char* to) noexcept {
    const auto rc = static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
    const std::lock_guard lock(ingero::test::current_mutex);
    if (rc == 0 && ingero::test::current) ingero::test::current->note_rename(to);
    return rc;
}

}  // extern "C"
