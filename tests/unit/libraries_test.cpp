// A file is attached to only as it was read.
#include "daemon/ingerod/targets/libraries.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "core/model/unique_fd.h"
#include "daemon/ingerod/ingest/name_budget.h"
#include "tests/support/daemon.h"

using namespace ingero;

namespace {

using testing::HasSubstr;

class AFileThatWasRead : public testing::Test {
  protected:
    void SetUp() override {
        fd_.reset(memfd_create("library", MFD_CLOEXEC));
        ASSERT_TRUE(fd_);
        ASSERT_EQ(ftruncate(fd_.get(), 4096), 0);
        ASSERT_EQ(pwrite(fd_.get(), "\x55\x48\x89\xe5", 4, 100), 4);
        ASSERT_EQ(fstat(fd_.get(), &read_as_), 0);
        sites_.push_back({.file_offset = 100,
                          .cookie = 0,
                          .symbol = "cudaMalloc",
                          .emulated = true,
                          .op = 0,
                          .code = {0x55, 0x48, 0x89, 0xe5}});
    }
    bool is_the_same() { return is_as_read(fd_.get(), read_as_, sites_); }
    /// Only the bytes tell, as where two writes share a tick of the clock.
    void forget_time_stamps() {
        struct stat now {};
        ASSERT_EQ(fstat(fd_.get(), &now), 0);
        read_as_ = now;
    }

    UniqueFd fd_;
    struct stat read_as_ {};
    std::vector<ProbeSite> sites_;
};

TEST_F(AFileThatWasRead, is_the_same_as_long_as_nobody_writes_to_it) {
    EXPECT_TRUE(is_the_same());
    char byte = 0;
    ASSERT_EQ(pread(fd_.get(), &byte, 1, 100), 1);
    EXPECT_TRUE(is_the_same());
}

TEST_F(AFileThatWasRead, is_another_by_its_times_where_its_bytes_at_the_places_are_the_same) {
    const timespec times[2] = {read_as_.st_atim, {read_as_.st_mtim.tv_sec, read_as_.st_mtim.tv_nsec ^ 1}};
    ASSERT_EQ(futimens(fd_.get(), times), 0);
    EXPECT_FALSE(is_the_same());
}

TEST_F(AFileThatWasRead, is_another_by_its_bytes_where_its_times_are_the_same) {
    ASSERT_EQ(pwrite(fd_.get(), "\x90", 1, 103), 1);
    ASSERT_NO_FATAL_FAILURE(forget_time_stamps());
    EXPECT_FALSE(is_the_same());
}

TEST_F(AFileThatWasRead, is_another_where_a_shared_mapping_wrote_to_it) {
    char* memory = static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
    ASSERT_NE(memory, MAP_FAILED);
    memory[100] = '\xcc';
    ASSERT_NO_FATAL_FAILURE(forget_time_stamps());
    EXPECT_FALSE(is_the_same());
    munmap(memory, 4096);
}

TEST_F(AFileThatWasRead, is_another_where_it_became_shorter) {
    ASSERT_EQ(ftruncate(fd_.get(), 102), 0);
    ASSERT_NO_FATAL_FAILURE(forget_time_stamps());
    EXPECT_FALSE(is_the_same());
}

TEST(ANameBudget, is_each_users_own_and_root_has_no_limit) {
    NameBudget budget;
    const ProcessKey first{1, 1}, second{2, 1}, of_root{3, 1}, unknown{4, 1};
    budget.set_owner(first, 1000);
    budget.set_owner(second, 1000);
    budget.set_owner(of_root, 0);
    for (uint64_t i = 0; i < NameBudget::burst; ++i) ASSERT_TRUE(budget.take(i % 2 ? first : second, 1000));
    EXPECT_FALSE(budget.take(first, 1000));
    EXPECT_FALSE(budget.take(second, 1000)) << "the user's, not the process's";
    EXPECT_TRUE(budget.take(unknown, 1000));
    for (uint64_t i = 0; i <= NameBudget::burst; ++i) ASSERT_TRUE(budget.take(of_root, 1000));
    EXPECT_TRUE(budget.take(first, 1000 + NameBudget::period_ns));
    EXPECT_FALSE(budget.take(first, 1000 + NameBudget::period_ns));
}

TEST(AMountTable, is_read_line_by_line) {
    const auto mount =
        parse_mountinfo_line("36 35 98:10 /mnt1 /mnt\\0402 rw,noatime master:1 - fuse.sshfs host:/ rw,errors=continue");
    ASSERT_TRUE(mount);
    EXPECT_EQ(mount->id, 36u);
    EXPECT_EQ(mount->device, makedev(98, 10));
    EXPECT_EQ(mount->path, "/mnt 2");
    EXPECT_EQ(mount->type, "fuse.sshfs");
    EXPECT_EQ(mount->options, "rw,errors=continue");
    EXPECT_EQ(parse_mountinfo_line("36 35 0:5 / / rw - ext4")->type, "ext4");
    for (const char* line : {"", "36 35", "36 35 98 /a /b rw - ext4 x y", "36 35 9:1 /a /b rw ext4 x",
                             "36 35 9:1 / / - ", "x 35 9:1 / / rw - ext4 a b"})
        EXPECT_FALSE(parse_mountinfo_line(line)) << line;
}

// In a namespace of the thread's own.
TEST(AMountTable, is_read_anew_only_once_it_has_changed) {
    const test::TemporaryDirectory directory;
    const std::string link = directory / "mountinfo", place = directory / "place";
    std::filesystem::create_directory(place);
    const auto look = [&] {
        if (unshare(CLONE_NEWNS) != 0) GTEST_SKIP() << "nothing can be mounted here";
        ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
        const std::string real =
            "/proc/" + std::to_string(getpid()) + "/task/" + std::to_string(gettid()) + "/mountinfo";
        std::filesystem::create_symlink(real, link);
        MountTable table(link);
        const auto is_there = [&] {
            const std::vector<Mount>& mounts = table.read();
            return std::any_of(mounts.begin(), mounts.end(), [&](const Mount& one) { return one.path == place; });
        };
        EXPECT_FALSE(is_there());
        ASSERT_EQ(mount("none", place.c_str(), "tmpfs", 0, nullptr), 0);
        EXPECT_TRUE(is_there());
        std::filesystem::remove(link);
        EXPECT_TRUE(is_there()) << "nothing has changed, so it is not even opened";
        std::filesystem::create_symlink(real, link);
        ASSERT_EQ(umount2(place.c_str(), 0), 0);
        EXPECT_FALSE(is_there());
        EXPECT_FALSE(table.read().empty());
        std::filesystem::remove(link);
        ASSERT_EQ(mount("none", place.c_str(), "tmpfs", 0, nullptr), 0);
        EXPECT_TRUE(table.read().empty()) << "what cannot be read is not taken from before";
        umount2(place.c_str(), 0);
    };
    std::thread(look).join();
}

class ADevice : public testing::Test {
  protected:
    void SetUp() override {
        for (const char* process : {"self", "1", "77"}) std::filesystem::create_directories(root_ / process);
        std::ofstream(root_ / "77/stat") << "77 (x) S";
    }
    void mounted(const std::string& process, const std::string& device, const std::string& type,
                 const std::string& path = "/mnt", const std::string& options = "rw") {
        std::ofstream(root_ / process / "mountinfo", std::ios::app)
            << "36 35 " << device << " / " << path << " rw - " << type << " none " << options << "\n";
    }
    std::string why_not(uint64_t device, const std::vector<std::string>& trusted = {}) {
        ProcFs proc(root_);
        proc.trust_fuse(trusted);
        const auto checked = proc.check_file_system(77, device);
        return checked ? "" : checked.error().message;
    }

    const std::filesystem::path root_ =
        std::filesystem::path(testing::TempDir()) / ("ingero-proc-" + std::to_string(getpid()) + "-" +
                                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    void TearDown() override { std::filesystem::remove_all(root_); }
};

TEST_F(ADevice, is_trusted_by_the_type_of_what_is_mounted_on_it) {
    mounted("self", "8:1", "ext4");
    mounted("77", "0:40", "tmpfs");
    mounted("77", "0:41", "fuse.hello");
    mounted("1", "0:42", "fuse");
    EXPECT_EQ(why_not(makedev(8, 1)), "");
    EXPECT_EQ(why_not(makedev(0, 40)), "");
    EXPECT_THAT(why_not(makedev(0, 41)), HasSubstr("FUSE file system (fuse.hello)"));
    EXPECT_THAT(why_not(makedev(0, 42)), HasSubstr("FUSE"));
}

TEST_F(ADevice, that_nobody_has_mounted_any_more_is_not_trusted) {
    EXPECT_THAT(why_not(makedev(0, 50)), HasSubstr("in no mount table"));
    EXPECT_EQ(ProcFs(root_).check_file_system(78, makedev(0, 50)).error().code, ErrorCode::not_found);
}

TEST_F(ADevice, of_an_overlay_is_trusted_where_the_host_mounted_it_only) {
    mounted("1", "0:60", "overlay");
    mounted("77", "0:60", "overlay");
    mounted("77", "0:61", "overlay");
    EXPECT_EQ(why_not(makedev(0, 60)), "");
    EXPECT_THAT(why_not(makedev(0, 61)), HasSubstr("overlay that a user mounted"));
}

TEST_F(ADevice, of_an_overlay_is_as_good_as_what_it_lies_on) {
    mounted("1", "8:1", "ext4", "/");
    mounted("1", "0:50", "fuse.images", "/run/images/3/fs", "rw,user_id=0,group_id=0,allow_other");
    mounted("1", "0:51", "fuse.sshfs", "/media/2/fs", "rw,user_id=1000,group_id=1000");
    mounted("1", "8:2", "ext4", "/run/images/3/fs/local");
    mounted("1", "0:60", "overlay", "/a", "rw,lowerdir=/var/1:/run/images/3/fs/local/2,upperdir=/var/3,workdir=/var/4");
    mounted("1", "0:61", "overlay", "/b", "rw,lowerdir=/var/1:/run/images/3/fs,upperdir=/var/3");
    mounted("1", "0:62", "overlay", "/c", "rw,lowerdir+=/var/1,lowerdir+=/run/images/3/fs/deep");
    mounted("1", "0:63", "overlay", "/d", "rw,lowerdir=/b/2:/var/1");
    mounted("1", "0:64", "overlay", "/e", "rw,lowerdir=2/fs:1/fs");
    mounted("1", "0:65", "overlay", "/f", "rw,lowerdir=2/fs:3/fs/usr");
    mounted("1", "0:66", "overlay", "/g", "rw,lowerdir=/var/1,upperdir=/run/images/3/fs");
    for (const unsigned fine : {60, 64}) EXPECT_EQ(why_not(makedev(0, fine)), "") << fine;
    for (const unsigned served : {61, 62, 63, 65, 66}) {
        EXPECT_THAT(why_not(makedev(0, served)),
                    HasSubstr("an overlay of a FUSE file system (fuse.images at /run/images/3/fs)"))
            << served;
        EXPECT_EQ(why_not(makedev(0, served), {"/run/images/*/fs"}), "") << served;
        EXPECT_NE(why_not(makedev(0, served), {"/run/*"}), "") << "* spans no slash";
    }
    EXPECT_NE(why_not(makedev(0, 50), {"/run/other/*/fs"}), "");
    EXPECT_EQ(why_not(makedev(0, 50), {"/run/images/*/fs"}), "");
}

TEST_F(ADevice, of_fuse_is_trusted_by_the_hosts_table_alone) {
    mounted("77", "0:50", "fuse.images", "/run/images/3/fs");
    EXPECT_THAT(why_not(makedev(0, 50), {"/run/images/*/fs"}), HasSubstr("FUSE file system (fuse.images)"));
}

TEST(AnOverlay, tells_its_layers_as_each_kernel_writes_them) {
    using testing::ElementsAre;
    EXPECT_THAT(overlay_layers("rw,lowerdir=/a:/b::/c,upperdir=/u,workdir=/w,redirect_dir=on"),
                ElementsAre("/a", "/b", "/c", "/u"));
    EXPECT_THAT(overlay_layers("lowerdir+=/a:1,lowerdir+=/b,datadir+=/c"), ElementsAre("/a:1", "/b", "/c"));
    EXPECT_THAT(overlay_layers("lowerdir=/with\\040space:/with\\072colon:/with\\134:colon:/with\\054comma"),
                ElementsAre("/with space", "/with:colon", "/with:colon", "/with,comma"));
    EXPECT_THAT(overlay_layers("lowerdir=/ends\\134"), ElementsAre("/ends\\"));
    for (const char* none : {"", "rw", "lowerdir=", "lowerdir=:,workdir=/w"})
        EXPECT_THAT(overlay_layers(none), ElementsAre()) << none;
}

TEST(AnOverlay, lies_where_the_links_in_its_layers_lead) {
    const std::map<std::string, std::string> links = {
        {"/var/lib/engine", "/data/engine"}, {"/data", "disks/1"}, {"/round", "round"}, {"/up", "../up/./x//../y"}};
    const auto link_at = [&](const std::string& path) {
        const auto link = links.find(path);
        return link == links.end() ? std::nullopt : std::optional(link->second);
    };
    EXPECT_EQ(without_links("/var/lib/engine/3/fs", link_at), "/disks/1/engine/3/fs");
    EXPECT_EQ(without_links("/data", link_at), "/disks/1");
    EXPECT_EQ(without_links("/a//b/./c/../d/", link_at), "/a/b/d");
    EXPECT_EQ(without_links("/../..", link_at), "/");
    EXPECT_EQ(without_links("/round/x", link_at), "/round/x") << "no more than the kernel follows";
    const std::vector<Mount> table = {{1, 1, "/", "ext4", ""}, {2, 2, "/disks/1/engine/3/fs", "fuse.images", ""}};
    const Mount overlay{3, 3, "/mnt", "overlay", "rw,lowerdir=/var/lib/engine/3/fs:/nothing"};
    EXPECT_THAT(fuse_below(table, overlay), testing::IsEmpty());
    EXPECT_THAT(fuse_below(table, overlay, link_at), testing::ElementsAre(&table[1]));
    const auto no_fuse = [&](const std::string& path) {
        EXPECT_FALSE(path.starts_with("/disks/1/engine/3/fs")) << "whoever serves it is asked for " << path;
        return link_at(path);
    };
    const Mount deeper{4, 4, "/mnt", "overlay", "rw,lowerdir=/var/lib/engine/3/fs/a/b"};
    EXPECT_THAT(fuse_below(table, deeper, no_fuse), testing::ElementsAre(&table[1]));
}

TEST(AFileSystem, that_any_user_can_serve_is_known_by_its_type) {
    for (const char* type : {"fuse", "fuse.sshfs", "fuse.", "fuseblk"}) EXPECT_TRUE(is_served_by_a_user(type)) << type;
    for (const char* type : {"ext4", "overlay", "fusectl", "tmpfs", "nfs4"})
        EXPECT_FALSE(is_served_by_a_user(type)) << type;
}

}  // namespace
