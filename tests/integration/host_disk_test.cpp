// What threads wait for at disks and file systems: reads and faults of known times.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/integration/host_fixture.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

bool is_in_memory(const TemporaryDirectory& directory) {
    struct statfs file_system {};
    statfs(directory.path().c_str(), &file_system);
    return file_system.f_type == TMPFS_MAGIC;
}

TEST_F(Host, ReadsAndPageFaultsAreTiedToTheDiskRequestsThatTheyWaitFor) {
    const std::string path = directory_ / "data";
    if (is_in_memory(directory_)) GTEST_SKIP() << "SKIPPED: the temporary folder is no disk";
    daemon_->stop();
    start_daemon("20us");
    constexpr size_t bytes = 64 << 10;  // one request
    std::ofstream(path) << std::string(40 * bytes, 'x');
    start({"read", path, "40", std::to_string(bytes)});
    ASSERT_EQ(test::run({"/usr/bin/sync", path}).status, 0);
    const auto waits = finish();
    ASSERT_EQ(waits.size(), 40u);
    end();
    const auto io = [&] {
        return query("SELECT op, SUM(arg0 = " + std::to_string(bytes) +
                     "), COUNT(*) FROM io_events WHERE tid = " + std::to_string(pid_) + " GROUP BY op");
    };
    Patience limit;
    json found;
    while (((found = io()).empty() || found[0][1] < 10) && limit.lasts()) {
    }
    ASSERT_EQ(found.size(), 1u) << query("SELECT * FROM waits").dump();
    EXPECT_EQ(found[0][0], "block_read");
    EXPECT_GE(found[0][1], 10);  // one that is done before its thread got to sleep is not waited for
    EXPECT_LE(found[0][2].get<int>() - found[0][1].get<int>(), 5);  // a few may be of the file's own table
    const json disk = query("SELECT SUM(blocked_ns), MAX(detail) FROM waits WHERE blocked_on = 'disk' AND tid = " +
                            std::to_string(pid_));
    EXPECT_LE(disk[0][0].get<uint64_t>(), total(waits));
    EXPECT_THAT(disk[0][1].get<std::string>(), HasSubstr("read of"));
}

/// A block device that keeps its data in a file: loop(4).
class LoopDevice {
  public:
    explicit LoopDevice(const std::string& path) {
        const UniqueFd control(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
        const UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
        loop_config config{};
        config.fd = static_cast<uint32_t>(file.get());
        config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
        // Another may be given the same one meanwhile.
        for (int attempt = 0; attempt < 10 && control && !device_; ++attempt) {
            const int number = ioctl(control.get(), LOOP_CTL_GET_FREE);
            path_ = "/dev/loop" + std::to_string(number);
            UniqueFd device(open(path_.c_str(), O_RDWR | O_CLOEXEC));
            if (device && ioctl(device.get(), LOOP_CONFIGURE, &config) == 0) device_ = std::move(device);
        }
    }
    bool usable() const { return static_cast<bool>(device_); }
    const std::string& path() const { return path_; }
    /// "7:0"
    std::string number() const {
        struct stat status {};
        fstat(device_.get(), &status);
        return std::to_string(major(status.st_rdev)) + ":" + std::to_string(minor(status.st_rdev));
    }

  private:
    std::string path_;
    UniqueFd device_;
};

TEST_F(Host, FlushesOfADiskAreTiedToTheThreadThatWaitsForThem) {
    const std::string path = directory_ / "data";
    if (is_in_memory(directory_)) GTEST_SKIP() << "SKIPPED: the temporary folder is no disk";
    std::ofstream(path) << std::string(1 << 20, 'x');
    const LoopDevice disk(path);
    if (!disk.usable()) GTEST_SKIP() << "SKIPPED: no loop device";
    daemon_->stop();
    start_daemon("20us");
    for (const std::string mode : {"flush", "write-through"}) {
        SCOPED_TRACE(mode);
        constexpr size_t flushes = 20;
        start({mode, disk.path(), path, std::to_string(flushes)});
        const auto waits = finish();
        ASSERT_EQ(waits.size(), flushes);
        end();
        const std::string tid = std::to_string(pid_);
        until_there("SELECT 1 FROM host_events WHERE op = 'process_exit' AND pid = " + tid);  // stored after the others
        // One may be done before its thread gets to sleep, and of one whose thread wakes up late nothing is known.
        size_t flushed = 0, written = 0;
        for (const Span& wait : waits)
            for (const json& so :
                 rows("blocked_ns, detail", 0, inside(wait) + " AND blocked_on = 'disk' AND detail LIKE '% to %'")) {
                const auto detail = so[1].get<std::string>();
                EXPECT_THAT(detail, HasSubstr(" to " + disk.number() + " in "));
                EXPECT_LE(so[0].get<uint64_t>(), wait.duration());
                ++(detail.starts_with("flush to ") ? flushed : written);
            }
        const auto requests = [&](const std::string& op) {
            return query("SELECT COUNT(*) FROM io_events WHERE op = '" + op + "' AND tid = " + tid)[0][0].get<size_t>();
        };
        EXPECT_EQ(requests("block_flush"), flushed);
        EXPECT_EQ(requests("block_write"), written);
        if (mode == "flush") {
            EXPECT_GE(flushed, flushes / 2);
            EXPECT_EQ(written, 0u);
        } else {
            EXPECT_GE(written, flushes / 2);  // after each the kernel asks for a flush by itself
        }
    }
}

TEST_F(Host, ReadsOfAThrottledDiskAreWaitsOfTheTimeThatTheyTake) {
    const std::string path = directory_ / "data";
    constexpr size_t bytes = 64 << 10;
    std::ofstream(path) << std::string(12 * bytes, 'x');
    const SlowDisk disk(path, 1 << 20);
    if (!disk.usable()) GTEST_SKIP() << "SKIPPED: no cgroup that throttles the disk of the temporary folder";
    start({"read", path, "12", std::to_string(bytes)});
    ASSERT_EQ(test::run({"/usr/bin/sync", path}).status, 0);
    disk.take(pid_);
    expect_held_up(finish(), "disk");
    end();
}

TEST_F(Host, PageFaultsOfADroppedPageCacheAreWaitsOfTheTimeThatTheyTake) {
    const std::string path = directory_ / "data";
    constexpr size_t pages = 12, stride = 1024 * 4096;
    std::ofstream(path) << std::string(pages * stride, 'x');
    const SlowDisk disk(path, 64 << 10);
    if (!disk.usable()) GTEST_SKIP() << "SKIPPED: no cgroup that throttles the disk of the temporary folder";
    ASSERT_EQ(test::run({"/usr/bin/sync", path}).status, 0);
    start({"map", path, std::to_string(pages)});
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
    disk.take(pid_);
    expect_held_up(finish(), "page_fault");
    end();
}

TEST_F(Host, ReadsOfAFileSystemThatStallsAreWaitsOfTheTimeThatTheyTake) {
    const std::string mount = directory_ / "mount";
    std::filesystem::create_directory(mount);
    constexpr int reads = 10, late_ms = 30;
    Child server({SILENT_FUSE, mount, std::to_string(late_ms)});
    if (!server.wait_for_line("mounted")) GTEST_SKIP() << "SKIPPED: no FUSE: " << server.errors();
    start({"read", mount + "/libcudart.so.12", std::to_string(reads), "4096"});
    const auto waits = finish();
    EXPECT_GE(total(waits), reads * late_ms * ms);
    const json found = rows("blocked_ns + runnable_ns, waker_pid", reads - 2, "blocked_on = 'network_fs'");
    expect_near(total(found, 0), total(waits) * found.size() / waits.size());
    for (const json& row : found) EXPECT_EQ(row.at(1), server.pid());
    end();
    server.close_input();
    umount2(mount.c_str(), MNT_DETACH);
    EXPECT_EQ(server.wait(), 0);
}

TEST_F(Host, ReadsOverNfsAreWaitsOfTheTimeThatTheServerTakes) {
    std::ifstream known("/proc/filesystems");
    const std::string file_systems(std::istreambuf_iterator<char>(known), {});
    if (file_systems.find("\tnfs\n") == std::string::npos) GTEST_SKIP() << "SKIPPED: this kernel has no NFS client";
    const std::string mounted = directory_ / "mount";
    std::filesystem::create_directory(mounted);
    constexpr int reads = 10, late_ms = 30;
    Child server({LATE_NFS, std::to_string(late_ms)});
    const auto line = server.read_line();
    ASSERT_TRUE(line && line->starts_with("port ")) << server.errors();
    const std::string port = line->substr(5);
    const std::string options = "addr=127.0.0.1,vers=3,proto=tcp,port=" + port +
                                ",mountproto=tcp,mountvers=3,mountport=" + port + ",nolock,soft,sec=sys";
    ASSERT_EQ(mount("127.0.0.1:/", mounted.c_str(), "nfs", MS_RDONLY, options.c_str()), 0) << strerror(errno);
    start({"read", mounted + "/data", std::to_string(reads), "4096"});
    const auto waits = finish();
    EXPECT_GE(total(waits), reads * late_ms * ms);
    rows("1", reads, "blocked_on = 'network_fs'");
    uint64_t idle = 0, found_ns = 0;
    for (const Span& wait : waits) {
        // What the emulated CPU of a guest needs for a read is no wait, but what held the thread up in it is.
        const json found = rows("blocked_ns + runnable_ns", 1, inside(wait));
        EXPECT_GE(total(rows("blocked_ns", 1, inside(wait) + " AND blocked_on = 'network_fs'"), 0), late_ms * ms);
        std::cout << "a read took " << format_duration(wait.duration()) << ", waited " << format_duration(wait.idle())
                  << ", found " << format_duration(total(found, 0)) << "\n";
        idle += wait.idle();
        found_ns += total(found, 0);
    }
    expect_near(found_ns, idle);  // of all: interrupts are in neither a thread's CPU time nor its waits
    end();
    EXPECT_EQ(umount2(mounted.c_str(), MNT_DETACH), 0) << strerror(errno);
    server.close_input();
    EXPECT_EQ(server.wait(), 0);
}

}  // namespace
