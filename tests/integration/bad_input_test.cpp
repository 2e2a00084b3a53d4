// Each bad input gets one clear message that says what to do, and nothing is lost or hangs.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <fstream>
#include <random>

#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

const std::string ingerod = INGEROD_PROGRAM;
const std::string no_file = "/dev/null";  // not the one of a package that is installed here

void expect_one_clear_message(const Finished& finished, const std::string& part, const std::string& hint_part) {
    EXPECT_NE(finished.status, 0);
    EXPECT_LT(finished.status, 128) << "ended by a signal";
    EXPECT_NE(finished.errors.find(part), std::string::npos) << finished.errors;
    const size_t hint = finished.errors.find("hint: ");
    ASSERT_NE(hint, std::string::npos) << finished.errors;
    EXPECT_NE(finished.errors.find(hint_part, hint), std::string::npos) << finished.errors;
    EXPECT_EQ(std::count(finished.errors.begin(), finished.errors.end(), '\n'), 2) << finished.errors;
}

TEST(BadInput, an_unknown_configuration_key_is_named_with_its_line) {
    const TemporaryDirectory directory;
    const std::string file = directory / "bad.conf";
    std::ofstream(file) << "[store]\npath = \"/tmp/x\"\nmax_sise = \"1GiB\"\n";
    const Finished finished = test::run({ingerod, "--config", file, "--check-config"});
    EXPECT_EQ(finished.status, 2);
    expect_one_clear_message(finished, file + ":3: unknown key: store.max_sise", "max_size");
}

TEST(BadInput, a_configuration_that_is_no_toml_is_named_with_its_line) {
    const TemporaryDirectory directory;
    const std::string file = directory / "bad.conf";
    std::ofstream(file) << "[store]\npath = \n";
    expect_one_clear_message(test::run({ingerod, "--config", file, "--check-config"}), file + ":2:", "TOML");
    std::ofstream(file) << "[store]\nmax_size = 10GiB\n";
    expect_one_clear_message(test::run({ingerod, "--config", file, "--check-config"}), file + ":2:", "\"10GiB\"");
    expect_one_clear_message(test::run({ingerod, "--config", directory / "", "--check-config"}), ": Is a directory",
                             "name the file");
}

TEST(BadInput, a_good_configuration_passes_the_check) {
    const TemporaryDirectory directory;
    const std::string file = directory / "good.conf";
    std::ofstream(file) << "[store]\nmax_size = \"64MiB\"\n[workers]\ncount = 1\n";
    const Finished finished = test::run({ingerod, "--config", file, "--check-config"});
    EXPECT_EQ(finished.status, 0) << finished.errors;
}

TEST(BadInput, a_directory_that_cannot_be_used_is_named) {
    const TemporaryDirectory directory;
    std::ofstream(directory / "file") << "x";
    expect_one_clear_message(test::run({ingerod, "--config", no_file, "--directory", directory / "file"}),
                             directory / "file", "may write to");
    if (geteuid() != 0) GTEST_SKIP() << "another user's directory needs root to be made";
    const std::string closed = directory / "closed";
    mkdir(closed.c_str(), 0700);
    expect_one_clear_message(test::run({ingerod, "--config", no_file, "--directory", closed},
                                       {.environment = {}, .uid = 65534, .drop_capabilities = false}),
                             closed, "may write to");
}

TEST(BadInput, a_missing_capability_is_named) {
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    const TemporaryDirectory directory;
    const Finished finished = test::run({ingerod, "--config", no_file, "--directory", directory / "run"},
                                        {.environment = {}, .uid = {}, .drop_capabilities = true});
    expect_one_clear_message(finished, "BPF", "CAP_BPF");
    const Finished check =
        test::run({ingerod, "--config", no_file, "--check"}, {.environment = {}, .uid = {}, .drop_capabilities = true});
    EXPECT_EQ(check.status, 4);
    EXPECT_NE(check.output.find("CAP_BPF"), std::string::npos) << check.output;
}

TEST(BadInput, a_kernel_without_btf_is_named) {
    const TemporaryDirectory directory;
    expect_one_clear_message(
        test::run({ingerod, "--config", no_file, "--directory", directory / "run", "--deny-feature", "btf"}), "BTF",
        "CONFIG_DEBUG_INFO_BTF");
}

TEST(BadInput, a_second_daemon_on_the_same_store_is_refused_and_the_first_goes_on) {
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    const TemporaryDirectory directory;
    Daemon first(directory / "run");
    const Finished second = test::run({ingerod, "--config", no_file, "--directory", directory / "run"});
    expect_one_clear_message(second, std::to_string(first.process().pid()), "");
    EXPECT_TRUE(first.try_call("status"));
    EXPECT_EQ(first.stop(), 0);
}

TEST(BadInput, garbage_on_the_control_socket_harms_nobody_else) {
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
        const UniqueFd fd = connect_to(daemon.socket());
        std::string bytes(1 + random() % 4096, '\0');
        for (char& byte : bytes) byte = static_cast<char>(random());
        (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        shutdown(fd.get(), SHUT_WR);
        char buffer[4096];
        while (recv(fd.get(), buffer, sizeof(buffer), 0) > 0) continue;  // ends: the daemon closes
    }
    EXPECT_TRUE(daemon.try_call("status"));
    EXPECT_EQ(daemon.stop(), 0);
}

TEST(BadInput, a_socket_without_a_daemon_says_how_to_start_one) {
    const Finished finished = test::run({INGEROCTL_PROGRAM, "--socket", "/nonexistent/control.sock", "status"});
    EXPECT_EQ(finished.status, 4);
    expect_one_clear_message(finished, "/nonexistent/control.sock", "ingerod");
}

}  // namespace
