#include "ctl/files/db_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "core/model/unique_fd.h"
#include "ctl/command.h"

namespace ingero::ctl {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// Gone with its content unless it was given its name.
class Making {
  public:
    explicit Making(const std::string& wanted) : path_(wanted + ".making-XXXXXX") {
        if (!mkdtemp(path_.data())) path_.clear();
    }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;
    ~Making() {
        std::error_code error;
        if (!path_.empty()) fs::remove_all(path_, error);
    }
    const std::string& path() const { return path_; }
    /// 0 or errno.
    int give_name(const std::string& name) {
        if (rename(path_.c_str(), name.c_str()) != 0) return errno;
        path_.clear();
        return 0;
    }

  private:
    std::string path_;
};

/// 0 or errno.
int sync_path(const std::string& path, int flags) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
    if (!fd) return errno;
    return fsync(fd.get()) == 0 || errno == EINVAL ? 0 : errno;
}

/// Without a slash at its end, so that what is made lies beside it.
std::string without_slash(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

Result<uint64_t> check_copy(const std::string& directory) {
    const auto checked = ask_closed_store(directory, "db_verify");
    if (!checked) return tl::unexpected(checked.error());
    if (checked->value("clean", false)) return checked->value("events", uint64_t{0});
    const json first = checked->at("damages").at(0);
    return fail(ErrorCode::corrupt, "the copy is damaged: " + first.value("what", std::string()),
                "run 'ingeroctl db verify' on the original, which lists all damage");
}

}  // namespace

Result<StoreCopy> make_store_copy(const std::string& directory, const std::function<Result<void>(int fd)>& write) {
    const std::string wanted = without_slash(directory);
    std::error_code error;
    if (fs::exists(fs::symlink_status(wanted, error)) && !fs::is_empty(wanted, error))
        return fail(ErrorCode::busy, wanted + " already exists", "name a directory that does not exist yet");
    Making making(wanted);
    const auto failed = [&](int error_number) {
        return fail(ErrorCode::internal, errno_message("cannot make " + wanted, error_number));
    };
    if (making.path().empty()) return failed(errno);
    const std::string data = making.path() + "/data.mdb";
    StoreCopy copy;
    {
        const UniqueFd fd(open(data.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
        if (!fd) return failed(errno);
        if (auto written = write(fd.get()); !written) return tl::unexpected(written.error());
        struct stat status {};
        if (fsync(fd.get()) != 0 || fstat(fd.get(), &status) != 0) return failed(errno);
        copy.bytes = static_cast<uint64_t>(status.st_size);
    }
    const auto events = check_copy(making.path());
    if (!events) return tl::unexpected(events.error());
    copy.events = *events;
    unlink((making.path() + "/lock.mdb").c_str());  // of the check
    if (const int failure = sync_path(making.path(), O_DIRECTORY)) return failed(failure);
    if (const int failure = making.give_name(wanted)) return failed(failure);
    const std::string parent = fs::path(wanted).parent_path().string();
    if (const int failure = sync_path(parent.empty() ? "." : parent, O_DIRECTORY)) return failed(failure);
    return copy;
}

}  // namespace ingero::ctl
