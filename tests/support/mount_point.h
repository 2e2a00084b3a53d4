// Mounts of a test, which are gone with it however it ends.
#pragma once

#include <string>

namespace ingero::test {

class MountPoint {
  public:
    /// Makes the directory. Whatever is mounted on it is unmounted at the end, at once, whoever still uses it.
    explicit MountPoint(std::string path);
    ~MountPoint();
    MountPoint(const MountPoint&) = delete;
    MountPoint& operator=(const MountPoint&) = delete;

    /// False with errno, as mount(2).
    [[nodiscard]] bool mount(const char* type, const std::string& options = {});
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace ingero::test
