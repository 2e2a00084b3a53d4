#include "core/model/time.h"

#include <gtest/gtest.h>
#include <time.h>

#include <cstdlib>
#include <optional>

namespace ingero {
namespace {

constexpr uint64_t second = 1'000'000'000;

/// Sets TZ for one test and puts it back.
class Zone {
  public:
    explicit Zone(const char* name) {
        if (const char* old = std::getenv("TZ")) old_ = old;
        set(name);
    }
    ~Zone() { set(old_ ? old_->c_str() : nullptr); }

  private:
    static void set(const char* name) {
        if (name != nullptr)
            setenv("TZ", name, 1);
        else
            unsetenv("TZ");
        tzset();
    }
    std::optional<std::string> old_;
};

TEST(Durations, AreReadInEveryUnit) {
    EXPECT_EQ(parse_duration_ns("7ns").value(), 7u);
    EXPECT_EQ(parse_duration_ns("200us").value(), 200'000u);
    EXPECT_EQ(parse_duration_ns("200µs").value(), 200'000u);
    EXPECT_EQ(parse_duration_ns("5ms").value(), 5'000'000u);
    EXPECT_EQ(parse_duration_ns("90s").value(), 90 * second);
    EXPECT_EQ(parse_duration_ns("5m").value(), 300 * second);
    EXPECT_EQ(parse_duration_ns("2h").value(), 7200 * second);
    EXPECT_EQ(parse_duration_ns("1d").value(), 86400 * second);
    EXPECT_EQ(parse_duration_ns("0s").value(), 0u);
}

TEST(Durations, MayHaveAFraction) {
    EXPECT_EQ(parse_duration_ns("1.5s").value(), 1'500'000'000u);
    EXPECT_EQ(parse_duration_ns("0.1s").value(), 100'000'000u);
    EXPECT_EQ(parse_duration_ns("1.25h").value(), 4500 * second);
    EXPECT_EQ(parse_duration_ns("0.5d").value(), 43200 * second);
}

TEST(Durations, WithoutAUnitOrWithOtherTextAreRefused) {
    for (const char* text :
         {"", "5", "s", "-5s", "+5s", "5 s", " 5s", "5s ", "5x", "1.s", ".5s", "1.2.3s", "1e3s", "5S", "5m30s", "."}) {
        const auto result = parse_duration_ns(text);
        ASSERT_FALSE(result) << text;
        EXPECT_EQ(result.error().code, ErrorCode::bad_request) << text;
        EXPECT_FALSE(result.error().hint.empty()) << text;
    }
}

TEST(Durations, ThatDoNotFitAreRefused) {
    EXPECT_EQ(parse_duration_ns("18446744073709551615ns").value(), UINT64_MAX);
    EXPECT_FALSE(parse_duration_ns("18446744073709551616ns"));
    EXPECT_FALSE(parse_duration_ns("18446744073.8s"));
    EXPECT_FALSE(parse_duration_ns("999999999d"));
}

TEST(Sizes, ArePowersOf1024) {
    EXPECT_EQ(parse_size_bytes("10GiB").value(), 10ULL << 30);
    EXPECT_EQ(parse_size_bytes("512MiB").value(), 512ULL << 20);
    EXPECT_EQ(parse_size_bytes("4096B").value(), 4096u);
    EXPECT_EQ(parse_size_bytes("1.5KiB").value(), 1536u);
    EXPECT_EQ(parse_size_bytes("2TiB").value(), 2ULL << 40);
    for (const char* text : {"", "10", "10GB", "10G", "10kib", "GiB", "99999999TiB"})
        EXPECT_FALSE(parse_size_bytes(text)) << text;
}

// 2026-11-20 12:00:00 UTC
constexpr uint64_t noon = 1'795'176'000 * second;

TEST(Times, WithAZoneDoNotDependOnTheLocalOne) {
    for (const char* zone : {"UTC", "Asia/Tokyo", "America/New_York"}) {
        Zone local(zone);
        EXPECT_EQ(parse_time_ns("2026-11-20T12:00:00Z", 0).value(), noon);
        EXPECT_EQ(parse_time_ns("2026-11-20 12:00:00Z", 0).value(), noon);
        EXPECT_EQ(parse_time_ns("2026-11-20T13:00:00+01:00", 0).value(), noon);
        EXPECT_EQ(parse_time_ns("2026-11-20T06:30:00-05:30", 0).value(), noon);
        EXPECT_EQ(parse_time_ns("2026-11-20T12:00:00.25Z", 0).value(), noon + second / 4);
        EXPECT_EQ(parse_time_ns("2026-11-20T12:00:00.123456789Z", 0).value(), noon + 123'456'789);
    }
}

TEST(Times, WithoutAZoneAreLocal) {
    Zone local("Asia/Tokyo");
    EXPECT_EQ(parse_time_ns("2026-11-20 21:00:00", 0).value(), noon);
    EXPECT_EQ(parse_time_ns("2026-11-20T21:00", 0).value(), noon);
    EXPECT_EQ(parse_time_ns("21:00", noon + 1).value(), noon);
    EXPECT_EQ(parse_time_ns("21:00:00", noon).value(), noon);
}

TEST(Times, OfDayThatAreStillToComeAreYesterdays) {
    Zone local("UTC");
    EXPECT_EQ(parse_time_ns("12:00", noon - 1).value(), noon - 86400 * second);
    EXPECT_EQ(parse_time_ns("11:59", noon).value(), noon - 60 * second);
    EXPECT_EQ(parse_time_ns("12:00:00.5", noon).value(), noon - 86400 * second + second / 2);
    EXPECT_EQ(parse_time_ns("12:00Z", noon).value(), noon);
}

TEST(Times, OfDayEndAWindowAfterItsStart) {
    Zone local("UTC");
    const uint64_t minute = 60 * second, day = 86400 * second;
    EXPECT_EQ(parse_end_time_ns("11:59", noon - 30 * minute, noon).value(), noon - minute);
    // Still to come today: up to now. The window of yesterday ends yesterday.
    EXPECT_EQ(parse_end_time_ns("12:30", noon - 30 * minute, noon).value(), noon);
    EXPECT_EQ(parse_end_time_ns("12:30", noon + 20 * minute - day, noon).value(), noon + 30 * minute - day);
    // Over midnight, which is not long ago.
    const uint64_t midnight = noon + 12 * 60 * minute;
    EXPECT_EQ(parse_end_time_ns("00:10", midnight - 10 * minute, midnight + 5 * minute).value(), midnight + 5 * minute);
    EXPECT_EQ(parse_end_time_ns("00:04", midnight - 10 * minute, midnight + 5 * minute).value(), midnight + 4 * minute);
    // Of a day long ago it is that day's. The two the wrong way round are no window.
    EXPECT_EQ(parse_end_time_ns("11:10", noon - 60 * minute - 3 * day, noon).value(), noon - 50 * minute - 3 * day);
    EXPECT_LT(parse_end_time_ns("11:00", noon - 50 * minute, noon).value(), noon - 50 * minute);
    // With its date it stays what it is.
    EXPECT_EQ(parse_end_time_ns("2026-11-19 12:00:00", noon - minute, noon).value(), noon - day);
    EXPECT_FALSE(parse_end_time_ns("25:00", noon - minute, noon));
}

TEST(Times, OfADayAreWhenItBegan) {
    Zone local("Asia/Tokyo");
    const uint64_t hour = 3600 * second, midnight = noon - 12 * hour + 15 * hour;  // of the 21st, there
    EXPECT_EQ(parse_time_ns("2026-11-21", 0).value(), midnight);
    EXPECT_EQ(parse_time_ns("today", midnight).value(), midnight);
    EXPECT_EQ(parse_time_ns("today", midnight - 1).value(), midnight - 24 * hour);
    EXPECT_EQ(parse_time_ns("yesterday", midnight + 23 * hour).value(), midnight - 24 * hour);
    EXPECT_EQ(parse_time_ns("now", midnight + 7).value(), midnight + 7);
    EXPECT_EQ(parse_end_time_ns("now", midnight, midnight + 7).value(), midnight + 7);
    EXPECT_EQ(parse_end_time_ns("today", midnight - hour, midnight + hour).value(), midnight);
    EXPECT_EQ(parse_end_time_ns("2026-11-21", midnight - hour, midnight + hour).value(), midnight);
}

TEST(Times, OfYesterdayHoldAcrossAChangeOfDaylightSaving) {
    Zone local("America/New_York");
    // Clocks went back on 2026-11-01: the day before had 25 hours until the same time of day.
    const uint64_t now = parse_time_ns("2026-11-01T12:00:00", 0).value();
    EXPECT_EQ(parse_time_ns("13:00", now).value(), parse_time_ns("2026-10-31T13:00:00", 0).value());
    EXPECT_EQ(now - parse_time_ns("13:00", now).value(), 24 * 3600 * second);
    EXPECT_EQ(now - parse_time_ns("today", now).value(), 13 * 3600 * second);
    EXPECT_EQ(now - parse_time_ns("yesterday", now).value(), 37 * 3600 * second);
}

TEST(Times, ThatAreNoTimesAreRefused) {
    for (const char* text : {"",
                             "Now",
                             "tomorrow",
                             "Today",
                             "25:00",
                             "12:60",
                             "12:00:61",
                             "1:2",
                             "12",
                             "2026-13-01 12:00:00",
                             "2026-02-30 12:00:00",
                             "2026-11-2",
                             "2026-11-20 ",
                             "2026-11-20T",
                             "2026-11-20T12:00:00+1",
                             "2026-11-20T12:00:00.Z",
                             "2026-11-20T12:00:00Zx",
                             "1969-12-31T00:00:00Z",
                             "9999-01-01T00:00:00Z",
                             "2026-11-20_12:00:00",
                             "12:00 "}) {
        const auto result = parse_time_ns(text, noon);
        ASSERT_FALSE(result) << text;
        EXPECT_EQ(result.error().code, ErrorCode::bad_request);
    }
}

TEST(Times, FormattedAreReadBackToTheMillisecond) {
    for (const char* zone : {"UTC", "Asia/Kolkata", "America/New_York"}) {
        Zone local(zone);
        const uint64_t time = noon + 123 * 1'000'000;
        EXPECT_EQ(parse_time_ns(format_time(time), 0).value(), time) << format_time(time);
    }
    Zone local("Asia/Kolkata");
    EXPECT_EQ(format_time(noon + 5'000'000), "2026-11-20T17:30:00.005+05:30");
}

TEST(FormattedDurations, HaveThreeSignificantDigits) {
    EXPECT_EQ(format_duration(0), "0 ns");
    EXPECT_EQ(format_duration(999), "999 ns");
    EXPECT_EQ(format_duration(45'000), "45 µs");
    EXPECT_EQ(format_duration(1'234), "1.23 µs");
    EXPECT_EQ(format_duration(12'345), "12.3 µs");
    EXPECT_EQ(format_duration(123'456), "123 µs");
    EXPECT_EQ(format_duration(3'200'000), "3.2 ms");
    EXPECT_EQ(format_duration(1'500'000'000), "1.5 s");
    EXPECT_EQ(format_duration(90 * second), "1.5 min");
    EXPECT_EQ(format_duration(7200 * second), "2 h");
    EXPECT_EQ(format_duration(36 * 3600 * second), "1.5 d");
}

TEST(FormattedDurations, MoveToTheNextUnitWhenRoundingReachesIt) {
    EXPECT_EQ(format_duration(999'499), "999 µs");
    EXPECT_EQ(format_duration(999'500), "1 ms");
    EXPECT_EQ(format_duration(9'996'000), "10 ms");
    EXPECT_EQ(format_duration(59'990'000'000), "1 min");
    EXPECT_EQ(format_duration(1'005'000), "1.01 ms");
    EXPECT_FALSE(format_duration(UINT64_MAX).empty());
}

TEST(Clocks, ConvertBothWays) {
    const ClockTriple clock{1'000, 2'000, 500'000};
    EXPECT_EQ(clock.to_realtime(1'100), 500'100u);
    EXPECT_EQ(clock.to_realtime(900), 499'900u);
    EXPECT_EQ(clock.to_monotonic(499'900), 900u);
    EXPECT_EQ(clock.to_monotonic(100), 0u) << "before the boot";
    const ClockTriple made_up{1'000, 2'000, 0};
    EXPECT_EQ(made_up.to_monotonic(INT64_MAX), uint64_t{INT64_MAX}) << "as late as there is";
}

TEST(Clocks, ReadTogetherAgreeWithTheSystem) {
    const uint64_t before = monotonic_now_ns();
    const ClockTriple now = ClockTriple::now();
    EXPECT_GE(now.monotonic_ns, before);
    EXPECT_LE(now.monotonic_ns, monotonic_now_ns());
    EXPECT_NEAR(static_cast<double>(now.realtime_ns) / 1e9, static_cast<double>(time(nullptr)), 2.0);
}

}  // namespace
}  // namespace ingero
