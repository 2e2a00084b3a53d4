#include "daemon/relay/trusted_path.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

namespace ingero {

namespace {

constexpr int max_links = 40;

auto denied(const std::string& path, const char* what) {
    return fail(ErrorCode::denied, path + " " + what,
                "install the library below directories that only root may write to");
}

}  // namespace

Result<void> check_trusted_path(const std::string& path) {
    if (path.empty() || path.front() != '/') return fail(ErrorCode::bad_request, "not an absolute path: " + path);
    // What is still to be walked, the next part last.
    std::vector<std::string> parts;
    const auto push = [&](const std::filesystem::path& more) {
        std::vector<std::string> names;
        for (const auto& part : more)
            if (part != "/" && part != "." && !part.empty()) names.push_back(part.string());
        parts.insert(parts.end(), names.rbegin(), names.rend());
    };
    push(path);
    std::filesystem::path at = "/";
    int links = 0;
    for (bool last = false; !last;) {
        std::filesystem::path next = at;
        last = parts.empty();
        if (!last) {
            next = parts.back() == ".." ? at.parent_path() : at / parts.back();
            parts.pop_back();
        }
        struct stat facts {};
        if (lstat(next.c_str(), &facts) != 0) return fail(ErrorCode::not_found, errno_message(next.string(), errno));
        if (facts.st_uid != 0) return denied(next.string(), "is not owned by root");
        if (S_ISLNK(facts.st_mode)) {
            char target[PATH_MAX];
            const ssize_t length = readlink(next.c_str(), target, sizeof(target));
            if (length < 0) return fail(ErrorCode::not_found, errno_message(next.string(), errno));
            if (++links > max_links) return fail(ErrorCode::bad_request, path + ": too many symbolic links");
            const std::filesystem::path to(std::string(target, static_cast<size_t>(length)));
            if (to.is_absolute()) at = "/";
            push(to);
            continue;
        }
        const mode_t others = S_IWOTH | (facts.st_gid == 0 ? 0 : S_IWGRP);
        if ((facts.st_mode & others) != 0) return denied(next.string(), "may be changed by users other than root");
        at = next;
    }
    return {};
}

}  // namespace ingero
