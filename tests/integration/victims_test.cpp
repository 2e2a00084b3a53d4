// Processes that are killed for want of memory, where the kernel gives nothing but their numbers: before Linux 6.8.
#include <bpf/bpf.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/event.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/probes/calibration.h"
#include "daemon/ingerod/probes/call_probes.h"
#include "tests/integration/calibrated_site.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

/// Nobody waits for so long: none but who calls is watched.
constexpr uint64_t wait_floor_ns = 3'600'000'000'000;
/// proc_ns.h, PROC_PID_INIT_INO: in it ids are those that the kernel has.
constexpr const char* first_pid_namespace = "pid:[4026531836]";

/// The program of this name among those that this process has loaded; -1: it has none.
int loaded_program(std::string_view name) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code error;
        if (std::filesystem::read_symlink(entry.path(), error).string() != "anon_inode:bpf-prog") continue;
        const int fd = std::stoi(entry.path().filename().string());
        bpf_prog_info info{};
        uint32_t size = sizeof(info);
        if (bpf_obj_get_info_by_fd(fd, &info, &size) == 0 && name == info.name) return fd;
    }
    return -1;
}

class Victims : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        std::error_code error;
        if (std::filesystem::read_symlink("/proc/self/ns/pid", error).string() != first_pid_namespace)
            GTEST_SKIP() << "SKIPPED: in a pid namespace ids are not those that the kernel has";
        KernelFeatures features;
        auto probes = CallProbes::load(features);
        ASSERT_TRUE(probes) << probes.error().message;
        probes_ = std::move(*probes);
        probes_->set_record_callback([this](std::span<const std::byte> bytes) {
            ingero_wait_record record;
            if (bytes.size() < sizeof(record)) return;
            memcpy(&record, bytes.data(), sizeof(record));
            if (record.type == INGERO_RECORD_WAIT && record.op == INGERO_OP_OOM_KILL) victims_.push_back(record);
        });
        probes_->host().set_floor(wait_floor_ns);
        program_ = loaded_program("on_victim");
        ASSERT_GE(program_, 0);
    }

    /// As the tracepoint does; it is not attached to.
    void mark_victim(uint64_t argument) {
        LIBBPF_OPTS(bpf_test_run_opts, options);
        options.ctx_in = &argument;
        options.ctx_size_in = sizeof(argument);
        ASSERT_EQ(bpf_prog_test_run_opts(program_, &options), 0) << strerror(errno);
        probes_->consume();
    }
    /// From then on this thread is watched.
    void make_call() {
        const auto function = find_calibrated_function();
        ASSERT_TRUE(function) << function.error().message;
        const ProbeSite site = calibrated_site(*function);
        const auto attached = probes_->attach(function->file.get(), {&site, 1});
        ASSERT_TRUE(attached) << attached.error().message;
        ingero_calibrated_call();
    }

    std::unique_ptr<CallProbes> probes_;
    int program_ = -1;
    std::vector<ingero_wait_record> victims_;
};

TEST_F(Victims, that_are_watched_are_known_by_their_number) {
    const auto own_pid = static_cast<uint32_t>(getpid());
    mark_victim(own_pid);
    EXPECT_TRUE(victims_.empty()) << "it has not called yet";
    ASSERT_NO_FATAL_FAILURE(make_call());
    mark_victim(own_pid);
    ASSERT_EQ(victims_.size(), 1u);
    EXPECT_EQ(victims_[0].tgid, own_pid);
    EXPECT_EQ(victims_[0].tid, own_pid);
    EXPECT_EQ(victims_[0].uid, getuid());
    EXPECT_EQ(victims_[0].level, 0);
    EXPECT_NE(victims_[0].start_ns, 0u);
    EXPECT_EQ(reported_start_ns(victims_[0].process_start_ns), ProcFs().start_of(own_pid));
    mark_victim(1);
    EXPECT_EQ(victims_.size(), 1u) << "of a process that is not watched nothing is known";
}

}  // namespace
