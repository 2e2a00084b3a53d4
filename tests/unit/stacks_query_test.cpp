// compute_stacks over rows in memory, and the rows of stacks in a real store.
#include <gmock/gmock.h>

#include <functional>

#include "core/model/op.h"
#include "core/query/answers/stacks.h"
#include "core/render/render.h"
#include "core/wire/value.h"
#include "tests/support/memory_snapshot.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t second = 1'000'000'000;
constexpr OpId launch = op::cudaLaunchKernel;
constexpr OpId copy = op::cudaMemcpy;

Event call(OpId op, uint32_t stack, uint64_t duration_ns, uint32_t pid = 100) {
    Event event;
    event.op = op;
    event.start_ns = second;
    event.duration_ns = duration_ns;
    event.tgid = event.tid = pid;
    event.process_start_ns = pid * second;
    event.stack = stack;
    return event;
}

/// Two files; stack 1 is a ← b ← main in them, stack 2 the same seen in another process, stack 3 ends short.
MemorySnapshot make_snapshot() {
    MemorySnapshot snapshot(100 * second);
    snapshot.add(FileRow{.id = 1, .path = "/lib/liba.so", .build_id = "aa", .state = FileState::ok});
    snapshot.add(FileRow{.id = 2, .path = "/bin/program", .build_id = "bb", .state = FileState::stripped});
    snapshot.add(FileRow{.id = 3, .path = "/lib/liba.so", .build_id = "aa", .state = FileState::ok});
    for (const uint32_t file : {1U, 3U})
        snapshot.add(
            SymbolRow{.file = file, .offset = 0x10, .name = "_ZN1aEv", .demangled = "a()", .symbol_offset = 0});
    snapshot.add(SymbolRow{.file = 2, .offset = 0x20, .name = "b", .demangled = "", .symbol_offset = 4});
    snapshot.add(SymbolRow{.file = 2, .offset = 0x30, .name = "", .demangled = "", .symbol_offset = 0});
    snapshot.add(
        StackRow{.id = 1, .process = {100, 100 * second}, .seen_ns = 1, .frames = {{1, 0x10}, {2, 0x20}, {2, 0x30}}});
    snapshot.add(
        StackRow{.id = 2, .process = {200, 200 * second}, .seen_ns = 1, .frames = {{3, 0x10}, {2, 0x20}, {2, 0x30}}});
    snapshot.add(StackRow{
        .id = 3, .process = {100, 100 * second}, .seen_ns = 1, .end = StackEnd::no_rule, .frames = {{1, 0x10}}});
    return snapshot;
}

StacksQuery asks(const std::function<void(StacksQuery&)>& change) {
    StacksQuery query;
    change(query);
    return query;
}

StacksAnswer stacks_of(const MemorySnapshot& snapshot, StacksQuery query = {}) {
    query.filter.window = snapshot.whole();
    auto answer = compute_stacks(snapshot, query);
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? *answer : StacksAnswer{};
}

std::vector<std::string> names(const StackStats& stack) {
    std::vector<std::string> result;
    for (const NamedFrame& frame : stack.frames) result.push_back(frame.text());
    return result;
}

TEST(StacksQueryTest, TellsOthersGapsToThoseWhoMaySeeThemOnly) {
    MemorySnapshot snapshot = make_snapshot();
    const auto gap = [](uint32_t pid, uint32_t uid) {
        return GapRow{.process = {pid, second},
                      .uid = uid,
                      .from_ns = 10 * second,
                      .to_ns = 20 * second,
                      .reason = GapReason::late_attach,
                      .subject = "program of " + std::to_string(pid)};
    };
    snapshot.add(gap(100, 0));
    snapshot.add(gap(200, 1000));
    snapshot.add(gap(300, 1000));
    const auto subjects = [&](std::optional<uint32_t> uid, std::optional<uint32_t> pid) {
        std::vector<std::string> result;
        const StacksAnswer answer =
            stacks_of(snapshot, asks([&](StacksQuery& query) { query.filter.uid = uid, query.filter.pid = pid; }));
        for (const Gap& one : answer.coverage.gaps) result.push_back(one.reason);
        return result;
    };
    EXPECT_EQ(subjects({}, {}).size(), 3U);
    EXPECT_THAT(subjects(1000, {}), ElementsAre(HasSubstr("program of 200"), HasSubstr("program of 300")));
    EXPECT_THAT(subjects(1000, 300), ElementsAre(HasSubstr("program of 300")));
}

TEST(StacksQueryTest, SumsCallsOfOneStackUnderWhateverIdMostTimeFirst) {
    MemorySnapshot snapshot = make_snapshot();
    snapshot.add(call(launch, 1, 100));
    snapshot.add(call(launch, 2, 50, 200));
    snapshot.add(call(launch, 3, 1000));
    snapshot.add(call(copy, 1, 7));
    const StacksAnswer answer = stacks_of(snapshot);
    ASSERT_EQ(answer.stacks.size(), 3U);
    EXPECT_EQ(answer.stacks[0].end, StackEnd::no_rule);
    EXPECT_EQ(answer.stacks[1].total_ns, 150U);
    EXPECT_EQ(answer.stacks[1].count, 2U);
    EXPECT_EQ(answer.stacks[1].op, launch);
    EXPECT_EQ(answer.stacks[1].pid, std::nullopt);
    EXPECT_THAT(names(answer.stacks[1]), ElementsAre("a()", "b", "program+0x30"));
    EXPECT_EQ(answer.stacks[2].op, copy);
    EXPECT_EQ(answer.calls, 4U);
    EXPECT_EQ(answer.calls_no_stack, 0U);
}

TEST(StacksQueryTest, GivesNoCallTheFramesOfAnotherProcess) {
    MemorySnapshot snapshot = make_snapshot();
    snapshot.add(call(launch, 1, 100));
    snapshot.add(call(launch, 1, 50, 200)).weight = 3;
    snapshot.add(call(launch, 1, 50)).process_start_ns += second;
    for (const StacksBy by : {StacksBy::op, StacksBy::process, StacksBy::kernel}) {
        const StacksAnswer answer = stacks_of(snapshot, asks([&](StacksQuery& query) { query.by = by; }));
        ASSERT_EQ(answer.stacks.size(), 1U);
        EXPECT_EQ(answer.stacks[0].count, 1U);
        EXPECT_EQ(answer.calls_no_stack, 4U);
    }
}

TEST(StacksQueryTest, CountsCallsByTheirWeightAndThoseWithoutAStack) {
    MemorySnapshot snapshot = make_snapshot();
    snapshot.add(call(launch, 1, 10)).weight = 8;
    snapshot.add(call(launch, 0, 10)).weight = 4;
    snapshot.add(call(launch, 99, 10));  // its row was let go
    const StacksAnswer answer = stacks_of(snapshot);
    ASSERT_EQ(answer.stacks.size(), 1U);
    EXPECT_EQ(answer.stacks[0].count, 8U);
    EXPECT_EQ(answer.stacks[0].total_ns, 80U);
    EXPECT_EQ(answer.calls, 13U);
    EXPECT_EQ(answer.calls_no_stack, 5U);
}

TEST(StacksQueryTest, TellsProcessesOrKernelsApartWhereAsked) {
    MemorySnapshot snapshot = make_snapshot();
    snapshot.add(FunctionRow{.process = {100, 100 * second}, .handle = 0x77, .seen_ns = 1, .name = "_Z4gemmv"});
    snapshot.add(call(launch, 1, 100)).args[0] = 0x77;
    snapshot.add(call(launch, 2, 50, 200)).args[0] = 0x77;
    snapshot.add(call(copy, 1, 7));
    const StacksAnswer by_process = stacks_of(snapshot, asks([](auto& query) { query.by = StacksBy::process; }));
    ASSERT_EQ(by_process.stacks.size(), 2U);
    EXPECT_EQ(by_process.stacks[0].pid, 100U);
    EXPECT_EQ(by_process.stacks[0].total_ns, 107U);
    EXPECT_EQ(by_process.stacks[0].op, std::nullopt);
    const StacksAnswer by_kernel = stacks_of(snapshot, asks([](auto& query) { query.by = StacksBy::kernel; }));
    ASSERT_EQ(by_kernel.stacks.size(), 2U);
    EXPECT_EQ(by_kernel.stacks[0].kernel, "gemm()");
    EXPECT_EQ(by_kernel.stacks[1].kernel, "") << "the handle means nothing in another process";
}

TEST(StacksQueryTest, WeighsByTimeOffTheCpuAndLeavesOutWhatSpentNone) {
    MemorySnapshot snapshot = make_snapshot();
    snapshot.add(call(launch, 1, 1000));
    Event& waited = snapshot.add(call(launch, 3, 100));
    waited.blocked_ns = 60;
    waited.runnable_ns = 20;
    const StacksAnswer answer = stacks_of(snapshot, asks([](auto& query) { query.off_cpu = true; }));
    ASSERT_EQ(answer.stacks.size(), 1U);
    EXPECT_EQ(answer.stacks[0].blocked_ns, 60U);
    EXPECT_EQ(answer.stacks[0].runnable_ns, 20U);
    EXPECT_EQ(folded_stacks(to_json(answer, {})), "cudaLaunchKernel;[truncated];a() 80\n");
}

TEST(StacksQueryTest, KeepsToTheOpTheProcessTheUserAndTheLimit) {
    MemorySnapshot snapshot = make_snapshot();
    Process other;
    other.key = {200, 200 * second};
    other.uid = 1000;
    snapshot.add(other);
    snapshot.add(call(launch, 1, 100));
    snapshot.add(call(launch, 2, 50, 200));
    snapshot.add(call(copy, 3, 7));
    EXPECT_EQ(stacks_of(snapshot, asks([](auto& query) { query.op = "cudaMemcpy"; })).stacks.size(), 1U);
    EXPECT_EQ(stacks_of(snapshot, asks([](auto& query) { query.filter.pid = 200; })).stacks.at(0).total_ns, 50U);
    EXPECT_EQ(stacks_of(snapshot, asks([](auto& query) { query.filter.uid = 1000; })).calls, 1U);
    const StacksAnswer limited = stacks_of(snapshot, asks([](auto& query) { query.limit = 1; }));
    EXPECT_EQ(limited.stacks.size(), 1U);
    EXPECT_TRUE(limited.more);
    StacksQuery unknown;
    unknown.op = "cudaNothing";
    unknown.filter.window = snapshot.whole();
    const auto refused = compute_stacks(snapshot, unknown);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::bad_request);
}

TEST(StacksText, EscapesNamesAndTakesTheSeparatorOutOfThem) {
    MemorySnapshot snapshot = make_snapshot();
    snapshot.add(
        SymbolRow{.file = 1, .offset = 0x10, .name = "evil;name\n\033[2J", .demangled = "", .symbol_offset = 0});
    snapshot.add(call(launch, 3, 5));
    const auto json = to_json(stacks_of(snapshot), {});
    EXPECT_EQ(folded_stacks(json), "cudaLaunchKernel;[truncated];evil:name\\n\\x1b[2J 5\n");
    EXPECT_THAT(text_stacks(json), HasSubstr("      evil;name\\n\\x1b[2J  (liba.so)\n"));
    EXPECT_THAT(text_stacks(json), HasSubstr("[truncated: no rule to unwind this code]"));
}

TEST(StoredStacks, ComeBackAsTheyWereAndIdsGoOnInTheNextSession) {
    const TemporaryDirectory directory;
    const StackRow stack{.id = 41,
                         .process = {7, 8 * second},
                         .seen_ns = 9,
                         .end = StackEnd::too_deep,
                         .frames = {{1, 0x1234'5678'9abc}, {2, 5}}};
    const FileRow file{.id = 6, .path = "/a/b.so", .build_id = "0123", .state = FileState::deleted};
    const SymbolRow symbol{.file = 6, .offset = 77, .name = "_Zx", .demangled = "x", .symbol_offset = 3};
    {
        const auto writer = open_writer(directory.path());
        EXPECT_EQ(writer->figures().last_stack, 0U);
        ASSERT_TRUE(writer->begin_session(make_session("boot-a")));
        Batch batch;
        batch.stacks = {stack};
        batch.files = {FileRow{.id = 6, .path = "/a/b.so", .build_id = {}, .state = FileState::unread}, file};
        batch.symbols = {symbol};
        ASSERT_TRUE(writer->commit(batch));
    }
    EXPECT_EQ(open_writer(directory.path())->figures().last_stack, 41U);
    EXPECT_EQ(open_writer(directory.path())->figures().last_file, 6U);
    const auto snapshot = open_snapshot(directory.path());
    const auto stacks = snapshot->stacks({40, 41});
    ASSERT_TRUE(stacks) << stacks.error().message;
    ASSERT_EQ(stacks->size(), 1U);
    const StackRow& read = stacks->at(41);
    EXPECT_EQ(read.process, stack.process);
    EXPECT_EQ(read.seen_ns, stack.seen_ns);
    EXPECT_EQ(read.end, stack.end);
    EXPECT_EQ(read.frames, stack.frames);
    const auto files = snapshot->files();
    ASSERT_TRUE(files);
    EXPECT_EQ(files->at(6).path, file.path);
    EXPECT_EQ(files->at(6).build_id, file.build_id);
    EXPECT_EQ(files->at(6).state, file.state);
    const auto symbols = snapshot->symbols({{6, 77}, {6, 78}});
    ASSERT_TRUE(symbols);
    ASSERT_EQ(symbols->size(), 1U);
    EXPECT_EQ(symbols->at({6, 77}).name, symbol.name);
    EXPECT_EQ(symbols->at({6, 77}).demangled, symbol.demangled);
    EXPECT_EQ(symbols->at({6, 77}).symbol_offset, symbol.symbol_offset);
}

}  // namespace
}  // namespace ingero
