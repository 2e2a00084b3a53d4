// The gaps of single processes as the daemon keeps and tells them.
#include "daemon/ingerod/targets/coverage_gaps.h"

#include <gmock/gmock.h>

#include "daemon/ingerod/limits/token_bucket.h"

using namespace ingero;

namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

constexpr ProcessKey one{100, 5};
constexpr ProcessKey other{101, 5};
constexpr FileId runtime{1, 10};
constexpr FileId driver{1, 11};

class OpenGaps : public testing::Test {
  protected:
    std::vector<GapRow> rows;
    CoverageGaps gaps{[this](GapRow row) { rows.push_back(std::move(row)); }};
};

TEST_F(OpenGaps, are_told_as_they_open_and_once_more_with_their_end) {
    gaps.open({one, GapReason::late_attach, runtime}, 1000, 50, "libcudart.so.12");
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].to_ns, 0u);
    EXPECT_EQ(rows[0].uid, 1000u);
    gaps.open({one, GapReason::late_attach, runtime}, 1000, 70, "libcudart.so.12");
    EXPECT_EQ(rows.size(), 1u) << "it is open already";
    gaps.close({one, GapReason::late_attach, runtime}, 90);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[1].from_ns, 50u);
    EXPECT_EQ(rows[1].to_ns, 90u);
    gaps.close({one, GapReason::late_attach, runtime}, 95);
    EXPECT_EQ(rows.size(), 2u) << "it is closed already";
}

TEST_F(OpenGaps, of_one_process_and_instant_are_told_apart_by_the_store_key) {
    gaps.open({one, GapReason::late_attach, runtime}, 0, 50, "libcudart.so.12");
    gaps.open({one, GapReason::late_attach, driver}, 0, 50, "libcuda.so.1");
    gaps.open({other, GapReason::late_attach, driver}, 0, 50, "libcuda.so.1");
    gaps.open({one, GapReason::refused, driver}, 0, 50, "libcuda.so.1");
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[0].from_ns, 50u);
    EXPECT_EQ(rows[1].from_ns, 51u);
    EXPECT_EQ(rows[2].from_ns, 50u);
    EXPECT_EQ(rows[3].from_ns, 50u);
}

TEST_F(OpenGaps, end_with_their_process_and_leave_the_others_open) {
    gaps.open({one, GapReason::late_attach, runtime}, 0, 50, "a");
    gaps.open({one, GapReason::refused, driver}, 0, 60, "b");
    gaps.open({other, GapReason::late_attach, runtime}, 0, 70, "a");
    rows.clear();
    gaps.end_process(one, 99);
    EXPECT_THAT(rows, ElementsAre(Field(&GapRow::to_ns, 99u), Field(&GapRow::to_ns, 99u)));
    for (const GapRow& row : rows) EXPECT_EQ(row.process, one);
    rows.clear();
    gaps.close_all(120);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].process, other);
}

TEST_F(OpenGaps, of_a_file_close_for_all_processes_and_may_go_on_for_another_reason) {
    gaps.open({one, GapReason::late_attach, runtime}, 1, 50, "a");
    gaps.open({other, GapReason::late_attach, runtime}, 2, 50, "a");
    gaps.open({other, GapReason::late_attach, driver}, 2, 50, "b");
    rows.clear();
    gaps.close_file(runtime, GapReason::late_attach, 80, [&](const ProcessKey& process, uint32_t uid) {
        gaps.open({process, GapReason::refused, runtime}, uid, 80, "a: why");
    });
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[0].to_ns, 80u);
    EXPECT_EQ(rows[1].to_ns, 80u);
    EXPECT_EQ(rows[2].reason, GapReason::refused);
    EXPECT_EQ(rows[2].to_ns, 0u);
    EXPECT_EQ(rows[3].uid, 2u);
}

TEST_F(OpenGaps, that_close_before_they_began_still_have_a_length) {
    gaps.open({one, GapReason::late_attach, runtime}, 0, 50, "a");
    gaps.close({one, GapReason::late_attach, runtime}, 40);
    EXPECT_EQ(rows.back().to_ns, 51u);
}

TEST_F(OpenGaps, of_programs_that_come_and_go_are_summed_of_root_too) {
    const auto from = static_cast<uint32_t>(CoverageGaps::max_rows_a_uid);
    for (uint32_t pid = 1; pid <= 2 * from; ++pid)
        gaps.open({{pid, 1}, GapReason::refused, runtime}, 0, pid, "a", true);
    EXPECT_LT(rows.size(), from + 100);
    EXPECT_THAT(rows, testing::Contains(testing::AllOf(testing::Field(&GapRow::reason, GapReason::too_many),
                                                       testing::Field(&GapRow::to_ns, 0))));
}

TEST_F(OpenGaps, of_a_user_with_too_many_are_summed_and_root_has_no_limit) {
    const uint64_t many = CoverageGaps::max_rows_a_uid + 100;
    for (uint32_t pid = 1; pid <= many; ++pid) gaps.open({{pid, 1}, GapReason::refused, runtime}, 1000, pid, "a");
    std::erase_if(rows, [](const GapRow& row) { return row.reason != GapReason::too_many; });
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].process.pid, 0u);
    EXPECT_EQ(rows[0].uid, 1000u);
    EXPECT_EQ(rows[0].to_ns, 0u);
    rows.clear();
    for (uint32_t pid = 1; pid <= many; ++pid) gaps.end_process({pid, 1}, many + pid);
    EXPECT_THAT(rows, testing::Contains(testing::AllOf(Field(&GapRow::reason, GapReason::too_many),
                                                       Field(&GapRow::to_ns, testing::Gt(many)))));
    EXPECT_LE(rows.size(), CoverageGaps::max_rows_a_uid + 20);
    rows.clear();
    for (uint32_t pid = 1; pid <= many; ++pid) gaps.open({{pid, 2}, GapReason::refused, runtime}, 0, pid, "a");
    EXPECT_EQ(rows.size(), many);
}

TEST_F(OpenGaps, of_one_process_beyond_a_bound_are_counted_in_one_that_lasts_as_long_as_it) {
    constexpr uint64_t files = 5'000;
    for (uint64_t inode = 1; inode <= files; ++inode)
        gaps.open({one, GapReason::refused, {1, inode}}, 1000, 50, "libcuda.so." + std::to_string(inode));
    EXPECT_LT(rows.size(), CoverageGaps::max_open_a_process + 20) << "and as few are looked at for the next one";
    gaps.open({other, GapReason::refused, runtime}, 1000, 50, "a");
    EXPECT_EQ(rows.back().process, other) << "another process's are kept";
    rows.clear();
    gaps.end_process(one, 99);
    ASSERT_EQ(rows.size(), CoverageGaps::max_open_a_process + 1);
    EXPECT_EQ(rows.back().process, one);
    EXPECT_EQ(rows.back().uid, 1000u);
    EXPECT_EQ(rows.back().reason, GapReason::too_many);
    EXPECT_EQ(rows.back().to_ns, 99u);
    EXPECT_THAT(rows.back().subject, testing::HasSubstr(std::to_string(files - CoverageGaps::max_open_a_process)));
}

TEST_F(OpenGaps, tell_a_bounded_text_of_valid_characters) {
    gaps.open({one, GapReason::late_attach, runtime}, 0, 50, std::string(5000, '\xff'));
    EXPECT_LE(rows[0].subject.size(), 3u * 256);
    EXPECT_EQ(rows[0].subject.find('\xff'), std::string::npos);
}

TEST(ATokenBucket, lets_a_burst_through_and_then_one_a_period) {
    TokenBucket bucket(3, 10);
    EXPECT_TRUE(bucket.take(1000));
    EXPECT_TRUE(bucket.take(1000));
    EXPECT_TRUE(bucket.take(1000));
    EXPECT_FALSE(bucket.take(1000));
    EXPECT_FALSE(bucket.take(1009));
    EXPECT_TRUE(bucket.take(1010));
    EXPECT_FALSE(bucket.take(1011));
    EXPECT_TRUE(bucket.take(5000));
    EXPECT_TRUE(bucket.take(5000));
    EXPECT_TRUE(bucket.take(5000));
    EXPECT_FALSE(bucket.take(5000)) << "never more than a burst is saved up";
}

}  // namespace
