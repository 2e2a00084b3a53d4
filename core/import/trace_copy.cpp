#include "core/import/trace_copy.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/import/trace_database.h"
#include "core/model/unique_fd.h"

namespace ingero {

namespace {

constexpr size_t header_bytes = 100;
constexpr size_t log_header_bytes = 32;
constexpr std::string_view magic{"SQLite format 3\0", 16};

tl::unexpected<Error> file_error(const std::string& what, int error) {
    if (error == ENOENT || error == ENOTDIR) return fail(ErrorCode::not_found, errno_message(what, error));
    const bool denied = error == EACCES || error == EPERM;
    return fail(denied ? ErrorCode::denied : ErrorCode::internal, errno_message(what, error));
}

Result<UniqueFd> open_source(const std::string& path) {
    // Not blocking: a FIFO must not hold us.
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd) return file_error("cannot open " + path, errno);
    struct stat status {};
    if (fstat(fd.get(), &status) != 0) return file_error(path, errno);
    if (!S_ISREG(status.st_mode))
        return fail(ErrorCode::bad_request, path + " is not a regular file, so it cannot hold a trace");
    return fd;
}

Result<void> copy(int from, int to, const std::string& name) {
    std::array<char, 256 << 10> buffer;
    for (off_t at = 0;;) {
        const ssize_t got = pread(from, buffer.data(), buffer.size(), at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error("cannot read " + name, errno);
        if (got == 0) return {};
        for (ssize_t done = 0; done < got;) {
            const ssize_t put = pwrite(to, buffer.data() + done, static_cast<size_t>(got - done), at + done);
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) return file_error("cannot copy " + name, errno);
            done += put;
        }
        at += got;
    }
}

Result<UniqueFd> unnamed_file(const std::string& directory) {
    UniqueFd fd(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (fd) return fd;
    std::string name = directory + "/.ingero-trace-XXXXXX";
    fd.reset(mkostemp(name.data(), O_CLOEXEC));
    if (!fd) return file_error("cannot make a file in " + directory, errno);
    unlink(name.c_str());
    return fd;
}

uint64_t size_of(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) ? static_cast<uint64_t>(status.st_size) : 0;
}

/// A directory of ours with a copy of file and log in it, gone with its content when this ends.
class LogFolder {
  public:
    explicit LogFolder(const std::string& parent) : path_(parent + "/.ingero-trace-XXXXXX") {
        if (!mkdtemp(path_.data())) path_.clear();
    }
    LogFolder(const LogFolder&) = delete;
    LogFolder& operator=(const LogFolder&) = delete;
    ~LogFolder() {
        if (path_.empty()) return;
        for (const char* name : {"/trace", "/trace-wal", "/trace-shm", "/trace-journal"})
            unlink((path_ + name).c_str());
        rmdir(path_.c_str());
    }

    bool made() const { return !path_.empty(); }
    std::string file() const { return path_ + "/trace"; }

    Result<void> add(int from, const std::string& to, const std::string& name) {
        const UniqueFd fd(open(to.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!fd) return file_error("cannot copy " + name, errno);
        return copy(from, fd.get(), name);
    }

  private:
    std::string path_;
};

Result<UniqueFd> with_log_worked_in(int source, const std::string& path, const std::string& scratch_directory) {
    LogFolder folder(scratch_directory);
    if (!folder.made()) return file_error("cannot make a directory in " + scratch_directory, errno);
    if (auto added = folder.add(source, folder.file(), path); !added) return tl::unexpected(added.error());
    const auto log = open_source(path + "-wal");
    if (!log) return tl::unexpected(log.error());
    if (auto added = folder.add(log->get(), folder.file() + "-wal", path + "-wal"); !added)
        return tl::unexpected(added.error());
    if (auto done = work_in_log(folder.file()); !done) return tl::unexpected(done.error());
    UniqueFd result(open(folder.file().c_str(), O_RDWR | O_CLOEXEC));
    if (!result) return file_error("cannot open the copy of " + path, errno);
    return result;
}

}  // namespace

Result<TraceCopy> TraceCopy::make(const std::string& path, const std::string& scratch_directory) {
    const auto source = open_source(path);
    if (!source) return tl::unexpected(source.error());
    std::array<char, magic.size()> start{};
    if (pread(source->get(), start.data(), start.size(), 0) != static_cast<ssize_t>(start.size()) ||
        std::string_view(start.data(), start.size()) != magic)
        return fail(ErrorCode::bad_request, path + " is not a SQLite file");
    if (size_of(path + "-wal") > log_header_bytes) {
        const auto copied = with_log_worked_in(source->get(), path, scratch_directory);
        return copied ? map(copied->get()) : tl::unexpected(copied.error());
    }
    const auto fd = unnamed_file(scratch_directory);
    if (!fd) return tl::unexpected(fd.error());
    if (auto copied = copy(source->get(), fd->get(), path); !copied) return tl::unexpected(copied.error());
    return map(fd->get());
}

Result<TraceCopy> TraceCopy::of_bytes(std::span<const std::byte> bytes) {
    const UniqueFd fd(memfd_create("trace", MFD_CLOEXEC));
    if (!fd) return file_error("cannot make a file in memory", errno);
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t put = write(fd.get(), bytes.data() + done, bytes.size() - done);
        if (put < 0) return file_error("cannot copy the trace", errno);
        done += static_cast<size_t>(put);
    }
    return map(fd.get());
}

/// The file has no name any more and is only ours: what is mapped cannot change or end under us.
Result<TraceCopy> TraceCopy::map(int fd) {
    struct stat status {};
    if (fstat(fd, &status) != 0) return file_error("cannot read the copy", errno);
    const auto size = static_cast<size_t>(status.st_size);
    if (size < header_bytes) return fail(ErrorCode::corrupt, "the file is too short to be a SQLite file");
    void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (start == MAP_FAILED) return file_error("cannot map the copy", errno);
    return TraceCopy({static_cast<std::byte*>(start), size});
}

TraceCopy::TraceCopy(TraceCopy&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

TraceCopy& TraceCopy::operator=(TraceCopy&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
}

TraceCopy::~TraceCopy() {
    if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

std::string TraceCopy::hash() const {
    const XXH128_hash_t value = XXH3_128bits(bytes_.data(), bytes_.size());
    std::array<char, 33> text{};
    std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(value.high64),
                  static_cast<unsigned long long>(value.low64));
    return text.data();
}

}  // namespace ingero
