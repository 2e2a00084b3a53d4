#include "daemon/ingerod/probes/as_read.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

namespace ingero {

namespace {

bool same_time(const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool same_file(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size && same_time(a.st_mtim, b.st_mtim) &&
           same_time(a.st_ctim, b.st_ctim);
}

bool has_code(int fd, std::span<const ProbeSite> sites) {
    return std::all_of(sites.begin(), sites.end(), [fd](const ProbeSite& site) {
        std::vector<uint8_t> bytes(site.code.size());
        const ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(site.file_offset));
        return got == static_cast<ssize_t>(bytes.size()) && bytes == site.code;
    });
}

}  // namespace

bool is_as_read(int fd, const struct stat& read_as, std::span<const ProbeSite> sites) {
    struct stat now {};
    return fstat(fd, &now) == 0 && same_file(now, read_as) && has_code(fd, sites);
}

bool has_same_content(int fd, const struct stat& first, std::span<const ProbeSite> sites) {
    struct stat now {};
    return fstat(fd, &now) == 0 && now.st_size == first.st_size && same_time(now.st_mtim, first.st_mtim) &&
           has_code(fd, sites);
}

}  // namespace ingero
