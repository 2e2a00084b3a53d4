// What the daemon says a cause cost, against what the same calls would have taken without it. bench/lost_time has the
// figures of many runs.
#include "tests/support/lost_time.h"

#include <gtest/gtest.h>

#include <iostream>

#include "core/model/time.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

class LostTime : public testing::TestWithParam<LostTimeCase> {
  protected:
    void SetUp() override {
        if (const std::string why = why_not(GetParam()); !why.empty()) GTEST_SKIP() << why;
        if (sanitized) GTEST_SKIP() << "the daemon's sanitizer build is a hog of its own";
    }
};

TEST_P(LostTime, is_what_the_same_calls_took_longer) {
    const LostTimeCase& one = GetParam();
    const auto measured = measure_lost_time(one, full_form() ? 5 : 3);
    ASSERT_TRUE(measured) << measured.error().message;
    const auto took = static_cast<double>(measured->took), lost = static_cast<double>(measured->lost());
    std::cout << measured->summaries << one.name << ": of " << format_duration(measured->took) << " really lost "
              << format_duration(measured->lost()) << ", told " << measured->told / 1e9 << " s (" << measured->low / 1e9
              << " to " << measured->high / 1e9 << ")\n";

    const double next_to_nothing = 0.01 * took;
    // Whatever else runs on this machine is a cause of its own, with a finding of its own.
    EXPECT_TRUE(one.kind.empty() || measured->kind_found)
        << "it had no CPU for " << format_duration(measured->had_no_cpu) << ": " << measured->answer;
    // It never says more than was lost, whatever the machine does. The rest wants a host at rest: what others took of
    // it in parts too small for a finding is in the truth.
    EXPECT_LE(measured->low, lost + (one.costs_nothing ? next_to_nothing : 0));
    if (one.costs_nothing) {
        EXPECT_LE(measured->low_of_kind, lost + next_to_nothing);
    }
    if (!full_form()) return;
    if (one.costs_nothing) {
        EXPECT_FALSE(measured->kind_above_low);
        EXPECT_LE(measured->high_of_kind, lost + next_to_nothing);
        return;
    }
    EXPECT_GE(measured->high, lost - next_to_nothing);
    if (one.bounds_only) return;
    EXPECT_LE(measured->high - measured->low, 0.5 * lost + next_to_nothing);
    EXPECT_NEAR(measured->told, lost, 0.2 * lost + next_to_nothing);
}

INSTANTIATE_TEST_SUITE_P(Of, LostTime, testing::ValuesIn(lost_time_cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
