// What is told of GPUs from the rows of a store: the latest of each, however many there are, and what happened to them.
#include "core/query/answers/gpus.h"

#include <gmock/gmock.h>

#include <new>

#include "core/render/render.h"
#include "core/store/rows/rows.h"
#include "core/store/rows/state_names.h"
#include "tests/support/memory_limit.h"
#include "tests/unit/store_fixture.h"

using namespace ingero;
using nlohmann::json;

namespace {

constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t realtime_at_zero_ns = 1'700'000'000 * second;
constexpr Window whole{realtime_at_zero_ns, realtime_at_zero_ns + 1'000'000 * second};

/// All that a driver tells of one.
StateRow gpu_row(const std::string& uuid, uint64_t time_ns, double index = 0) {
    StateRow row{.time_ns = time_ns, .source = std::string(gpu_source).append(uuid), .values = {}, .number = 0};
    for (const StateName& one : state_names)
        if (one.number <= 30) row.values.emplace_back(one.name, one.number % 7);
    row.values.emplace_back("gpu_index", index);
    row.texts = {{"name", "NVIDIA H100 80GB HBM3"}, {"pci", "00000000:3B:00.0"}, {"processes", "[[4711,85899345920]]"}};
    return row;
}

StateRow event_row(const std::string& uuid, uint64_t time_ns) {
    return {.time_ns = time_ns, .source = std::string(gpu_event_source).append(uuid), .values = {}, .number = 0};
}

StateRow change_row(const std::string& uuid, uint64_t time_ns, std::string_view change) {
    StateRow row = event_row(uuid, time_ns);
    row.texts.emplace_back(gpu_change, change);
    return row;
}

class Gpus : public testing::Test {
  protected:
    Gpus() {
        options_.clock = [this] { return now_; };
        writer_ = std::move(*StoreWriter::open(directory_.path(), options_));
        Session session = make_session("boot-a");
        session.clock = {1, 1, realtime_at_zero_ns + 1};
        EXPECT_TRUE(writer_->begin_session(session));
        writer_->set_first_covered(1);
    }

    void store(std::vector<StateRow> rows) {
        Batch batch;
        for (const StateRow& row : rows) batch.covered_until_ns = std::max(batch.covered_until_ns, row.time_ns + 1);
        now_ = {batch.covered_until_ns, batch.covered_until_ns, realtime_at_zero_ns + batch.covered_until_ns};
        batch.states = std::move(rows);
        const auto committed = writer_->commit(batch);
        ASSERT_TRUE(committed) << committed.error().message;
    }

    json latest(std::optional<uint32_t> pid = {}) {
        const auto reader = StoreReader::open(directory_.path());
        EXPECT_TRUE(reader);
        const auto snapshot = (*reader)->snapshot();
        EXPECT_TRUE(snapshot);
        auto answer = latest_gpus(**snapshot, whole, pid);
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? *answer : json();
    }

    TemporaryDirectory directory_;
    StoreOptions options_;
    ClockTriple now_{1, 1, realtime_at_zero_ns + 1};
    std::unique_ptr<StoreWriter> writer_;
};

TEST_F(Gpus, are_told_as_they_were_measured_last) {
    StateRow before = gpu_row("GPU-b", 5 * second, 1), now = gpu_row("GPU-b", 9 * second, 1);
    now.values[0].second = 93;
    StateRow xid = event_row("GPU-a", 8 * second);
    xid.values = {{"xid", 31}};
    store({before, gpu_row("GPU-a", 6 * second, 2), xid, now});
    const json gpus = latest()["gpus"];
    ASSERT_EQ(gpus.size(), 2u);
    EXPECT_EQ(gpus[0]["uuid"], "GPU-b") << "by number";
    EXPECT_EQ(gpus[0]["utilization_percent"], 93);
    EXPECT_EQ(gpus[0]["time_ns"], realtime_at_zero_ns + 9 * second);
    EXPECT_EQ(gpus[0]["xids"], 0);
    EXPECT_EQ(gpus[0]["processes"], json::parse(R"([{"pid": 4711, "memory_bytes": 85899345920}])"));
    EXPECT_EQ(gpus[1]["last_xid"], (json{{"xid", 31}, {"time_ns", realtime_at_zero_ns + 8 * second}}));
    EXPECT_EQ(gpus[1]["lost_ns"], nullptr);
    EXPECT_EQ(latest(4711)["gpus"].size(), 2u);
    EXPECT_EQ(latest(4712)["gpus"].size(), 0u);
}

TEST_F(Gpus, that_were_lost_are_marked_until_they_are_there_again) {
    store({gpu_row("GPU-a", 5 * second), gpu_row("GPU-b", 5 * second, 1), change_row("GPU-a", 6 * second, gpu_lost),
           change_row("GPU-c", 7 * second, gpu_lost), change_row("GPU-b", 8 * second, gpu_found)});
    json answer = latest();
    const json& gpus = answer["gpus"];
    ASSERT_EQ(gpus.size(), 3u);
    EXPECT_EQ(gpus[0]["lost_ns"], realtime_at_zero_ns + 6 * second);
    EXPECT_EQ(gpus[0]["found_ns"], nullptr);
    EXPECT_EQ(gpus[1]["lost_ns"], nullptr);
    EXPECT_EQ(gpus[1]["found_ns"], realtime_at_zero_ns + 8 * second);
    EXPECT_EQ(gpus[2]["uuid"], "GPU-c") << "never measured in this window";
    EXPECT_EQ(gpus[2]["lost_ns"], realtime_at_zero_ns + 7 * second);
    EXPECT_EQ(gpus[2]["power_watts"], nullptr);
    const std::string text = text_gpus(answer, {});
    EXPECT_THAT(text, testing::HasSubstr("STATE"));
    EXPECT_THAT(text, testing::HasSubstr("lost at "));
    EXPECT_THAT(text, testing::HasSubstr("found at "));
    EXPECT_THAT(text, testing::HasSubstr("GPU-c"));

    store({change_row("GPU-a", 9 * second, gpu_found), gpu_row("GPU-a", 10 * second), gpu_row("GPU-c", 10 * second)});
    const json later = latest();
    for (const json& gpu : later["gpus"]) EXPECT_EQ(gpu["lost_ns"], nullptr) << gpu["uuid"];
}

TEST_F(Gpus, of_a_store_with_numbers_that_cannot_be_are_told_all_the_same) {
    StateRow odd = gpu_row("GPU-a", 5 * second, -1);
    odd.values[0].second = std::numeric_limits<double>::quiet_NaN();
    odd.values[1].second = -1e300;
    odd.texts[2].second = R"([[-1, 2], 5, {"pid": "x"}, [7, null], {"pid": 8, "memory_bytes": 9}])";
    store({odd, gpu_row("GPU-b", 5 * second, 3)});
    const json gpus = latest()["gpus"];
    ASSERT_EQ(gpus.size(), 2u);
    EXPECT_EQ(gpus[0]["uuid"], "GPU-b") << "one without a number it could have comes last";
    EXPECT_EQ(gpus[1]["utilization_percent"], nullptr);
    EXPECT_EQ(gpus[1]["processes"],
              json::parse(R"([{"pid": 7, "memory_bytes": null}, {"pid": 8, "memory_bytes": 9}])"));
}

TEST_F(Gpus, of_a_long_window_take_memory_for_the_latest_rows_only) {
    constexpr uint64_t rounds = 10'000, count = 8;
    for (uint64_t round = 0; round < rounds;) {
        std::vector<StateRow> rows;
        for (uint64_t until = round + 500; round < until; ++round)
            for (uint64_t gpu = 0; gpu < count; ++gpu)
                rows.push_back(gpu_row("GPU-" + std::to_string(gpu), (round + 1) * second, static_cast<double>(gpu)));
        store(std::move(rows));
    }
    // Decoded, they are some 200 MB.
    const MemoryLimit limit(48 << 20);
    json answer;
    try {
        answer = latest();
    } catch (const std::bad_alloc&) {
        FAIL() << "it took memory for all of them";
    }
    ASSERT_EQ(answer["gpus"].size(), count);
    for (const json& gpu : answer["gpus"]) EXPECT_EQ(gpu["time_ns"], realtime_at_zero_ns + rounds * second);
}

TEST_F(Gpus, have_rows_that_take_little_room) {
    constexpr uint64_t rounds = 600, count = 8;
    const uint64_t before = writer_->figures().bytes;
    for (uint64_t round = 0; round < rounds; ++round) {
        std::vector<StateRow> rows;
        for (uint64_t gpu = 0; gpu < count; ++gpu) {
            StateRow row = gpu_row("GPU-11111111-2222-3333-4444-55555555555" + std::to_string(gpu),
                                   (round + 1) * second, static_cast<double>(gpu));
            const auto measured = [&](std::string_view name, uint64_t value) {
                for (auto& [known, number] : row.values)
                    if (known == name) number = static_cast<double>(value);
            };
            measured("memory_used_bytes", 40'000'000'000 + noise(round, gpu) % 1'000'000'000);
            measured("memory_total_bytes", 85'899'345'920);
            measured("graphics_clock_mhz", 1'410 + noise(round, gpu) % 500);
            measured("sm_clock_mhz", 1'410 + noise(round, gpu) % 500);
            measured("pcie_sent_bytes_per_s", noise(round, gpu) % 10'000'000'000);
            measured("pcie_received_bytes_per_s", noise(round, 8 + gpu) % 10'000'000'000);
            for (auto& [known, number] : row.values)
                if (known == "power_watts") number = static_cast<double>(300'000 + noise(round, gpu) % 400'000) / 1'000;
            rows.push_back(std::move(row));
        }
        store(std::move(rows));
    }
    const uint64_t bytes = (writer_->figures().bytes - before) / (rounds * count);
    RecordProperty("bytes_a_row", std::to_string(bytes));
    EXPECT_LT(bytes, 400u);
}

}  // namespace
