// The workload programs make the calls that they say, and their logs hold them.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "engine/waiting_word.h"
#include "selftest_support.h"

namespace ingero::standin {
namespace {

size_t count_of(const Logged& logged, std::string_view name, bool unfinished_only = false) {
    size_t count = 0;
    for (const Record& record : logged.of(name)) count += !unfinished_only || !finished(record);
    return count;
}

std::string maps_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(StandinWorkload, MakesExactlyTheCallsThatItIsAskedFor) {
    for (const char* op : {"launch", "malloc", "memcpy", "sync", "mixed"}) {
        Logged logged;
        const std::string line = run_workload(logged, {"--threads", "3", "calls", "--count", "1000", "--op", op});
        ASSERT_EQ(logged.status, 0) << op;
        ASSERT_TRUE(logged.log.has_value());
        EXPECT_EQ(number_in(line, "calls"), 1000) << line;
        EXPECT_EQ(number_in(line, "errors"), 0) << line;
        EXPECT_EQ(logged.outermost(), 1000u) << op;
        EXPECT_EQ(logged.log->overflow(), 0u);
        for (const Record& record : logged.log->records()) EXPECT_TRUE(finished(record));
    }
}

TEST(StandinWorkload, KeepsToItsRate) {
    Logged logged;
    const std::string line = run_workload(logged, {"--pace", "sleep", "calls", "--count", "200", "--rate", "1000"});
    EXPECT_GE(number_in(line, "elapsed_s"), 0.19) << line;
}

TEST(StandinWorkload, TrainsWithTheLaunchesAndTheOneSynchronisationOfEachStep) {
    Logged logged;
    const std::string line = run_workload(logged, {"--threads", "2", "--kernel-us", "5", "train", "--steps", "10",
                                                   "--launches", "20", "--loader", "compute", "--loader-us", "100"});
    EXPECT_EQ(number_in(line, "steps"), 20) << line;
    EXPECT_EQ(count_of(logged, "cudaLaunchKernel"), 400u);
    EXPECT_EQ(count_of(logged, "cudaStreamSynchronize"), 20u);
    EXPECT_EQ(logged.outermost(), size_t(number_in(line, "calls")));
    EXPECT_EQ(number_in(line, "launches"), 400);
}

TEST(StandinWorkload, TrainsFromAFileAndWritesCheckpoints) {
    Logged logged;
    const std::string line =
        run_workload(logged, {"train", "--steps", "4", "--launches", "3", "--loader", "read", "--loader-cold",
                              "--loader-kib", "64", "--checkpoint-every", "2", "--checkpoint-kib", "64"});
    EXPECT_EQ(logged.status, 0);
    EXPECT_EQ(count_of(logged, "cuMemcpyDtoHAsync_v2"), 2u) << line;
}

TEST(StandinWorkload, ServesTheSameRequestsForTheSameSeed) {
    std::string lines[2];
    for (std::string& line : lines) {
        Logged logged;
        line = run_workload(logged, {"--kernel-us", "1", "serve", "--requests", "5", "--request-rate", "1000",
                                     "--batch", "1", "--decode-launches", "5", "--prefill-launches", "10"});
        EXPECT_EQ(logged.status, 0);
        EXPECT_EQ(logged.outermost(), size_t(number_in(line, "calls")));
    }
    EXPECT_EQ(number_in(lines[0], "tokens"), number_in(lines[1], "tokens"));
    EXPECT_EQ(number_in(lines[0], "requests"), 5);
}

TEST(StandinWorkload, ServesByLaunchingAGraph) {
    Logged logged;
    const std::string line =
        run_workload(logged, {"--kernel-us", "1", "serve", "--requests", "3", "--request-rate", "1000", "--graph"});
    EXPECT_EQ(count_of(logged, "cudaGraphLaunch"), size_t(number_in(line, "steps"))) << line;
}

TEST(StandinWorkload, IsAlwaysInsideACallInItsSyncLoop) {
    Logged logged;
    run_workload(logged, {"--kernel-us", "2000", "--duration", "0.2", "sync-loop"});
    uint64_t inside = 0, first = ~uint64_t(0), last = 0;
    for (const Record& record : logged.log->records()) {
        if (record.depth != 0) continue;
        inside += duration_ns(record);
        first = std::min(first, record.start_ns);
        last = std::max(last, record.end_ns);
    }
    EXPECT_GT(double(inside), 0.8 * double(last - first));
}

TEST(StandinWorkload, BlocksOnTheDiskForWhatItReads) {
    for (const char* reason : {"disk", "fsync", "major"}) {
        Logged logged;
        run_workload(logged, {"blocked", "--reason", reason, "--count", "5"});
        EXPECT_EQ(logged.status, 0);
        const auto calls = logged.of("cudaStreamSynchronize");
        ASSERT_EQ(calls.size(), 5u);
        EXPECT_TRUE(calls[0].flags & GROUND_TRUTH_SCRIPTED_DELAY);
    }
}

TEST(StandinWorkload, LeavesCallsWithoutAReturnAndGoesOnAtDepthZero) {
    Logged logged;
    const std::string line = run_workload(logged, {"jump", "--count", "4"});
    ASSERT_EQ(logged.status, 0);
    EXPECT_EQ(number_in(line, "left"), 12) << line;
    EXPECT_EQ(count_of(logged, "cudaLaunchHostFunc", true), 12u);
    EXPECT_EQ(count_of(logged, "cuLaunchHostFunc", true), 12u);
    for (const Record& record : logged.of("cudaLaunchKernel")) {
        EXPECT_EQ(record.depth, 0);
        EXPECT_TRUE(finished(record));
    }
    EXPECT_EQ(logged.outermost(), size_t(number_in(line, "calls")));
}

TEST(StandinWorkload, LeavesALogThatReadsWhenItIsKilled) {
    Logged logged;
    Program program("standin-workload", {"--log", logged.path.text(), "--duration", "60", "sync-loop"});
    ASSERT_TRUE(eventually([&] {
        logged.log = GroundTruth::open(logged.path.text());
        return logged.log.has_value() && logged.log->records().size() > 200;
    }));
    kill(program.pid(), SIGKILL);
    EXPECT_EQ(program.finish(), 128 + SIGKILL);
    logged.log = GroundTruth::open(logged.path.text());
    ASSERT_TRUE(logged.log.has_value());
    size_t unfinished = 0;
    for (const Record& record : logged.log->records()) {
        unfinished += !finished(record);
        EXPECT_FALSE(logged.log->name(record).empty());
    }
    EXPECT_LE(unfinished, 2u);
    EXPECT_EQ(logged.log->header().closed.monotonic_ns, 0u);
}

TEST(StandinWorkload, EndsInOrderWhenItIsTerminated) {
    Logged logged;
    Program program("standin-workload", {"--log", logged.path.text(), "--duration", "60", "--gate", "train"});
    EXPECT_EQ(program.read_line(), "ready " + std::to_string(program.pid()));
    program.send_line();
    ASSERT_TRUE(eventually([&] {
        logged.log = GroundTruth::open(logged.path.text());
        return logged.log.has_value() && logged.log->records().size() > 100;
    }));
    kill(program.pid(), SIGTERM);
    const std::string line = program.read_line();
    EXPECT_EQ(program.finish(), 0);
    EXPECT_EQ(logged.outermost(), size_t(number_in(line, "calls"))) << line;
    EXPECT_NE(logged.log->header().closed.monotonic_ns, 0u);
}

TEST(StandinWorkload, WaitsAtItsGateWithEverythingLoadedAndNoCallMade) {
    Logged logged;
    Program program("standin-workload", {"--log", logged.path.text(), "--gate", "calls", "--count", "10"});
    program.read_line();
    const std::string maps = maps_of(program.pid());
    EXPECT_NE(maps.find("libcudart.so.12"), std::string::npos);
    EXPECT_NE(maps.find("libcuda.so.1"), std::string::npos);
    logged.log = GroundTruth::open(logged.path.text());
    ASSERT_TRUE(logged.log.has_value());
    EXPECT_TRUE(logged.log->records().empty());
    program.send_line();
    EXPECT_EQ(number_in(program.read_line(), "calls"), 10);
    EXPECT_EQ(program.finish(), 0);
}

TEST(StandinWorkload, LoadsAfterItsGateWhenAsked) {
    Program program("standin-workload", {"--gate", "--late-load", "--duration", "60", "sync-loop"});
    program.read_line();
    EXPECT_EQ(maps_of(program.pid()).find("libcudart"), std::string::npos);
    program.send_line();
    EXPECT_TRUE(eventually([&] { return maps_of(program.pid()).find("libcuda.so.1") != std::string::npos; }));
}

TEST(StandinWorkload, HasItsRuntimeLinkedOrInsideWhenAsked) {
    for (const char* load : {"link", "static"}) {
        Logged logged;
        const std::string line = run_workload(logged, {"--load", load, "calls", "--count", "100"});
        EXPECT_EQ(logged.status, 0) << load;
        EXPECT_EQ(logged.outermost(), 100u) << line;
    }
    Program program("standin-workload", {"--load", "static", "--gate", "calls"});
    program.read_line();
    EXPECT_EQ(maps_of(program.pid()).find("libcudart"), std::string::npos);
}

TEST(StandinWorkload, UsesTheRuntimeThatItIsGiven) {
    Logged logged;
    run_workload(logged, {"--cudart", lib_dir + "libcudart.so.13", "calls", "--count", "10"});
    EXPECT_EQ(logged.status, 0);
    EXPECT_EQ(logged.outermost(), 10u);
}

// Not a test of the machine's speed: the figure is for the reader.
TEST(StandinWorkload, LogsLaunchesFlatOut) {
    Logged logged;
    const std::string line = run_workload(logged, {"calls", "--count", "200000"});
    ASSERT_EQ(logged.outermost(), 200'000u);
    const double rate = 200'000 / number_in(line, "elapsed_s");
    RecordProperty("launches_per_second", std::to_string(long(rate)));
    std::printf("logged launches a second: %.0f\n", rate);
}

TEST(StandinHog, HasTheNameItIsGivenAndEndsWithItsParent) {
    int link[2];
    ASSERT_EQ(pipe(link), 0);
    const pid_t parent = fork();
    if (parent == 0) {
        Program hog("standin-hog", {"--comm", "data-loader", "--duration", "60", "--duty", "0.1"});
        hog.read_line();
        std::ifstream file("/proc/" + std::to_string(hog.pid()) + "/comm");
        std::string comm;
        std::getline(file, comm);
        const pid_t pid = comm == "data-loader" ? hog.pid() : -1;
        static_cast<void>(write(link[1], &pid, sizeof pid) < 0);
        _exit(0);
    }
    pid_t hog = -1;
    ASSERT_EQ(read(link[0], &hog, sizeof hog), ssize_t(sizeof hog));
    close(link[0]);
    close(link[1]);
    status_of(parent);
    ASSERT_GT(hog, 0);
    // It may stay a zombie where nothing collects orphans: then its address space is gone.
    EXPECT_TRUE(eventually([hog] { return maps_of(hog).empty(); }));
}

/// A file with a word of zero, gone after the test.
class WordFile : public LogPath {
  public:
    WordFile() { std::ofstream(text()).write("\0\0\0\0", 4); }
};

TEST(StandinWorkload, SaysWhenItWaits) {
    const WordFile file;
    Logged logged;
    run_workload(logged, {"--kernel-us", "300", "--standin", "waits=" + file.text(), "train", "--steps", "20"});
    ASSERT_TRUE(logged.log);
    uint32_t waits = 0;
    for (const Record& record : logged.log->records())
        waits += record.depth == 0 && (record.flags & GROUND_TRUTH_WAITED_FOR_DEVICE) != 0;
    EXPECT_GT(waits, 0u);
    EXPECT_EQ(WaitingWord(file.text().c_str()).value(), 2 * waits);
}

/// R, S, … of a process.
char state_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t end = text.rfind(')');
    return end + 2 < text.size() ? text[end + 2] : '?';
}

TEST(StandinHog, TakesTurnsWithAProgram) {
    const WordFile file;
    WaitingWord word(file.text().c_str());
    ASSERT_TRUE(word.exists());
    Program in_waits("standin-hog", {"--waits", file.text()});
    Program in_work("standin-hog", {"--waits", file.text(), "--while", "works"});
    Program for_a_moment("standin-hog", {"--waits", file.text(), "--turn-us", "100"});
    for (Program* hog : {&in_waits, &in_work, &for_a_moment}) hog->read_line();
    const auto are = [&](char waits, char work) {
        return eventually([&] {
            return state_of(in_waits.pid()) == waits && state_of(in_work.pid()) == work &&
                   state_of(for_a_moment.pid()) == 'S';
        });
    };
    EXPECT_TRUE(are('S', 'R'));
    word.turn();
    EXPECT_TRUE(are('R', 'S'));
    word.turn();
    EXPECT_TRUE(are('S', 'R'));
}

}  // namespace
}  // namespace ingero::standin
