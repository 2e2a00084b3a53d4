// [capture]: what must not be traced is not, from its first call on, and answers say so.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "test_paths.h"
#include "tests/integration/attach_target.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;

class Capture : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        library_ = directory_ / "libcudart-capture.so.12";
        fs::copy_file(PLAIN_CUDART_A, library_);
    }

    /// Lines of [capture]. Exact counts are compared: nothing is thinned.
    void configure(const std::string& lines, const std::string& wait_floor = "off") {
        std::ofstream(directory_ / "ingerod.conf")
            << "[capture]\noverhead_budget = 0\nwait_floor = \"" << wait_floor << "\"\n"
            << lines;
    }
    void start_daemon(const std::string& config, const std::string& wait_floor = "off") {
        configure(config, wait_floor);
        daemon_.emplace(directory_ / "run", std::vector<std::string>{"--config", directory_ / "ingerod.conf"});
    }
    void reload(const std::string& config) {
        configure(config);
        daemon_->call("reload");
    }
    /// A process that has the library loaded, under a name by which it can be left out.
    void start(AttachTarget& target, const std::string& name) {
        ASSERT_EQ(target.tell("name " + name), "named");
        target.load(library_);
    }
    bool is_listed(int pid) {
        const json answer = daemon_->call("processes");
        return std::any_of(answer.at("processes").begin(), answer.at("processes").end(),
                           [&](const json& process) { return process.at("pid") == pid; });
    }
    /// Of all probes and processes: other tests' processes are kept out by an include list.
    uint64_t hits() {
        const json answer = daemon_->call("probes");
        uint64_t sum = 0;
        for (const json& probe : answer.at("probes")) sum += probe.at("hits").get<uint64_t>();
        return sum;
    }
    uint64_t recorded(int pid) {
        const json answer = daemon_->call_when_stored("stats", {{"since_ns", 600'000'000'000}, {"pid", pid}});
        uint64_t sum = 0;
        for (const json& op : answer.at("ops")) sum += op.at("count").get<uint64_t>();
        return sum;
    }
    /// Until the daemon has decided on it calls are not recorded, and a gap says so. The number recorded so far.
    uint64_t wait_recorded(AttachTarget& target) {
        Patience limit;
        uint64_t count = 0;
        while (count == 0 && limit.lasts()) {
            target.tell("calls 1");
            count = recorded(target.pid());
        }
        EXPECT_NE(count, 0u) << daemon_->process().output();
        return count;
    }
    json gaps() { return daemon_->call_when_stored("stats", {{"since_ns", 60'000'000'000}}).at("coverage").at("gaps"); }
    bool has_gap(const std::string& text) {
        const json all = gaps();
        return std::any_of(all.begin(), all.end(), [&](const json& gap) {
            return gap.at("reason").get<std::string>().find(text) != std::string::npos;
        });
    }
    StoreContents stop() {
        EXPECT_EQ(daemon_->stop(), 0);
        return read_store(directory_ / "run/store");
    }
    static size_t events_of(const StoreContents& store, int pid) {
        return static_cast<size_t>(std::count_if(store.events.begin(), store.events.end(), [&](const Event& event) {
            return event.tgid == static_cast<uint32_t>(pid);
        }));
    }
    static bool has_row(const StoreContents& store, int pid) {
        return std::any_of(store.processes.begin(), store.processes.end(),
                           [&](const Process& row) { return row.key.pid == static_cast<uint32_t>(pid); });
    }

    const TemporaryDirectory directory_;
    std::string library_;
    std::optional<Daemon> daemon_;
};

TEST_F(Capture, records_not_one_call_of_a_process_that_is_excluded_nor_counts_it) {
    start_daemon("include = [\"comm:ci-*\"]\nexclude = [\"comm:ci-secret*\"]\n");
    AttachTarget open, secret;
    ASSERT_NO_FATAL_FAILURE(start(open, "ci-open"));
    ASSERT_TRUE(daemon_->wait_traced(open.pid()));
    ASSERT_NE(wait_recorded(open), 0u);
    const uint64_t before = hits();
    // The library has its probes already: every call traps.
    ASSERT_NO_FATAL_FAILURE(start(secret, "ci-secret-1"));
    ASSERT_EQ(secret.tell("calls 20000"), "done");
    EXPECT_EQ(hits(), before);
    EXPECT_FALSE(is_listed(secret.pid()));
    EXPECT_TRUE(has_gap("excluded: [capture] exclude comm:ci-secret* (pid " + std::to_string(secret.pid()) + ")"));
    ASSERT_EQ(open.tell("calls 500"), "done");
    EXPECT_EQ(hits(), before + 500);
    const StoreContents store = stop();
    EXPECT_EQ(events_of(store, secret.pid()), 0u);
    EXPECT_FALSE(has_row(store, secret.pid()));
    EXPECT_GE(events_of(store, open.pid()), 500u);
    EXPECT_TRUE(has_row(store, open.pid()));
}

TEST_F(Capture, does_not_attach_for_an_excluded_process_alone) {
    start_daemon("exclude = [\"comm:ci-secret*\"]\n");
    AttachTarget secret;
    ASSERT_NO_FATAL_FAILURE(start(secret, "ci-secret-1"));
    const std::string gap = "exclude comm:ci-secret* (pid " + std::to_string(secret.pid()) + ")";
    Patience limit;
    while (!has_gap(gap) && limit.lasts()) {
    }
    EXPECT_TRUE(has_gap(gap));
    std::ifstream file(library_, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(secret.changed_bytes(bytes).empty() || is_beside_another_ingerod());
    EXPECT_FALSE(is_listed(secret.pid()));
    stop();
}

TEST_F(Capture, takes_in_only_what_include_names) {
    start_daemon("include = [\"comm:ci-wanted\"]\n");
    AttachTarget wanted, other;
    ASSERT_NO_FATAL_FAILURE(start(wanted, "ci-wanted"));
    ASSERT_NO_FATAL_FAILURE(start(other, "ci-other"));
    ASSERT_NE(wait_recorded(wanted), 0u);
    ASSERT_EQ(other.tell("calls 5000"), "done");
    EXPECT_EQ(recorded(other.pid()), 0u);
    EXPECT_TRUE(has_gap("[capture] include does not match it (pid " + std::to_string(other.pid()) + ")"));
    const StoreContents store = stop();
    EXPECT_EQ(events_of(store, other.pid()), 0u);
    EXPECT_GE(events_of(store, wanted.pid()), 1u);
}

TEST_F(Capture, of_a_forked_child_is_its_parents_until_it_is_decided_and_then_its_own) {
    start_daemon("exclude = [\"comm:ci-secret*\"]\n");
    AttachTarget open, secret;
    ASSERT_NO_FATAL_FAILURE(start(open, "ci-open"));
    ASSERT_NE(wait_recorded(open), 0u);
    ASSERT_NO_FATAL_FAILURE(start(secret, "ci-secret"));
    const std::string hidden = secret.tell("fork 3000"), seen = open.tell("fork 3000");
    ASSERT_THAT(hidden, HasSubstr("child "));
    ASSERT_THAT(seen, HasSubstr("child "));
    const StoreContents store = stop();
    EXPECT_EQ(events_of(store, std::stoi(hidden.substr(6))), 0u);
    EXPECT_EQ(events_of(store, std::stoi(seen.substr(6))), 3000u) << "from its first call on";
}

TEST_F(Capture, ends_with_its_threads_calls_and_waits_for_a_process_that_becomes_excluded_while_it_runs) {
    start_daemon("include = [\"comm:ci-*\"]\nexclude = [\"comm:ci-secret*\"]\n", "10us");
    AttachTarget changed, other;
    ASSERT_NO_FATAL_FAILURE(start(changed, "ci-open"));
    ASSERT_NO_FATAL_FAILURE(start(other, "ci-other"));
    ASSERT_NE(wait_recorded(changed), 0u);
    ASSERT_NE(wait_recorded(other), 0u);
    // Its thread knows by now that it is recorded, and is known for its waits.
    ASSERT_EQ(changed.tell("calls 10"), "done");
    ASSERT_EQ(changed.tell("name ci-secret"), "named");
    // It is looked at again as it maps another library.
    const std::string second = directory_ / "libcudart-second.so.12";
    fs::copy_file(PLAIN_CUDART_A, second);
    changed.load(second);
    const std::string gap = "excluded: [capture] exclude comm:ci-secret* (pid " + std::to_string(changed.pid()) + ")";
    Patience limit;
    while (!has_gap(gap) && limit.lasts()) {
    }
    ASSERT_TRUE(has_gap(gap));
    const uint64_t excluded_ns = monotonic_now_ns(), before = hits();
    changed.load(library_);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(changed.tell("calls 100"), "done");
    EXPECT_EQ(hits(), before);
    ASSERT_EQ(other.tell("calls 500"), "done");
    EXPECT_EQ(hits(), before + 500) << "what changes for one process changes nothing for another";
    const StoreContents store = stop();
    const auto later = [&](const Event& event) {
        return event.tgid == static_cast<uint32_t>(changed.pid()) && event.start_ns > excluded_ns;
    };
    EXPECT_EQ(std::count_if(store.events.begin(), store.events.end(), later), 0);
    EXPECT_GE(events_of(store, changed.pid()), 11u);
}

TEST_F(Capture, changes_with_a_reload_for_processes_that_run) {
    start_daemon("");
    AttachTarget target;
    ASSERT_NO_FATAL_FAILURE(start(target, "ci-target"));
    ASSERT_TRUE(daemon_->wait_traced(target.pid()));
    ASSERT_EQ(target.tell("calls 100"), "done");
    EXPECT_EQ(recorded(target.pid()), 100u);
    reload("exclude = [\"comm:ci-target\"]\n");
    ASSERT_EQ(target.tell("calls 100"), "done");
    EXPECT_EQ(recorded(target.pid()), 100u);
    EXPECT_FALSE(is_listed(target.pid()));
    EXPECT_TRUE(has_gap("excluded"));
    reload("exclude = [\"comm:ci-somebody\"]\n");
    ASSERT_EQ(target.tell("calls 100"), "done");
    EXPECT_EQ(recorded(target.pid()), 200u) << "decided before the reload was answered";
    EXPECT_TRUE(is_listed(target.pid()));
    reload("");
    ASSERT_EQ(target.tell("calls 100"), "done");
    const StoreContents store = stop();
    EXPECT_EQ(events_of(store, target.pid()), 300u);
}

TEST_F(Capture, goes_by_the_user_too) {
    start_daemon("exclude = [\"uid:65534\"]\n");
    AttachTarget mine;
    AttachTarget theirs({}, {.environment = {}, .uid = 65534, .drop_capabilities = false});
    ASSERT_NO_FATAL_FAILURE(start(mine, "ci-same"));
    ASSERT_NO_FATAL_FAILURE(start(theirs, "ci-same"));
    ASSERT_NE(wait_recorded(mine), 0u);
    ASSERT_EQ(theirs.tell("calls 5000"), "done");
    const StoreContents store = stop();
    EXPECT_EQ(events_of(store, theirs.pid()), 0u);
    EXPECT_GE(events_of(store, mine.pid()), 1u);
}

TEST_F(Capture, hits_and_records_of_each_probe_are_told) {
    start_daemon("include = [\"comm:ci-*\"]\n");
    AttachTarget target;
    ASSERT_NO_FATAL_FAILURE(start(target, "ci-target"));
    const uint64_t before = wait_recorded(target);
    ASSERT_EQ(target.tell("calls 700"), "done");
    const Finished answer = test::run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "--json", "probes"});
    ASSERT_EQ(answer.status, 0) << answer.errors;
    const std::string file = directory_ / "probes.json";
    std::ofstream(file) << answer.output;
    const Finished valid =
        test::run({"/usr/bin/python3", VALIDATE_SCHEMA, std::string(SCHEMA_DIRECTORY) + "/probes.schema.json", file});
    EXPECT_EQ(valid.status, 0) << valid.output << valid.errors;
    const json parsed = json::parse(answer.output);
    size_t libraries = 0, found = 0;
    for (const json& library : parsed.at("libraries")) {
        if (library.at("library") != "libcudart-capture.so.12") continue;
        ++libraries;
        EXPECT_EQ(library.at("attached"), 1);
        EXPECT_EQ(library.at("sets").size(), 3u) << "launch, memory, sync";
    }
    for (const json& probe : parsed.at("probes")) {
        const bool hit = probe.at("source") == "CUDA" && probe.at("op") == "cudaDeviceSync";
        found += hit;
        EXPECT_EQ(probe.at("hits"), hit ? before + 700 : 0u) << probe;
        EXPECT_EQ(probe.at("records"), probe.at("hits"));
        const json called = json::array({{{"symbol", "cudaDeviceSynchronize"}, {"hits", before + 700}}});
        EXPECT_EQ(probe.at("symbols"), hit ? called : json::array()) << probe;
    }
    EXPECT_EQ(libraries, 1u);
    EXPECT_EQ(found, 1u);
    stop();
}

}  // namespace
