#include "tests/support/mount_point.h"

#include <sys/mount.h>
#include <sys/stat.h>

#include <utility>

namespace ingero::test {

MountPoint::MountPoint(std::string path) : path_(std::move(path)) {
    mkdir(path_.c_str(), 0755);
}

MountPoint::~MountPoint() {
    umount2(path_.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
}

bool MountPoint::mount(const char* type, const std::string& options) {
    return ::mount("none", path_.c_str(), type, 0, options.c_str()) == 0;
}

}  // namespace ingero::test
