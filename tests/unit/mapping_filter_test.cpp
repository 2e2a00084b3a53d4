// A file that is mapped again and again is looked at seldom, and never forgotten.
#include "daemon/ingerod/discovery/mapping_filter.h"

#include <gtest/gtest.h>

using namespace ingero;

namespace {

using Verdict = MappingFilter::Verdict;
constexpr uint64_t start = 1'000'000'000;
constexpr uint64_t interval = MappingFilter::interval_ns;

Mapping mapping_of(uint64_t inode, uint64_t address = 4096) {
    Mapping mapping;
    mapping.start = address;
    mapping.file = {1, inode};
    mapping.path = "/lib/libcudart.so.12";
    return mapping;
}

TEST(AMappingFilter, lets_a_repeated_mapping_through_once_an_interval_and_then_as_it_was_last) {
    MappingFilter filter;
    filter.begin_turn();
    EXPECT_EQ(filter.take(10, mapping_of(1), start, start), Verdict::now);
    for (uint64_t i = 1; i <= 1'000; ++i)
        ASSERT_EQ(filter.take(10, mapping_of(1, 4096 * i), start + i, start + i), Verdict::later);
    EXPECT_TRUE(filter.due(start + interval - 1).empty());
    const auto due = filter.due(start + interval);
    ASSERT_EQ(due.size(), 1U);
    EXPECT_EQ(due[0].pid, 10U);
    EXPECT_EQ(due[0].time_ns, start + 1) << "since the first that was not looked at";
    EXPECT_EQ(due[0].mapping.start, 4096U * 1'000) << "where it is now";
    EXPECT_FALSE(filter.has_waiting());
    EXPECT_EQ(filter.take(10, mapping_of(1), start, start + interval + 1), Verdict::later) << "looked at just now";
}

TEST(AMappingFilter, knows_since_when_the_first_waits) {
    MappingFilter filter;
    filter.begin_turn();
    EXPECT_EQ(filter.waiting_since_ns(), UINT64_MAX);
    for (const uint64_t inode : {1, 2}) filter.take(10, mapping_of(inode), start, start);
    EXPECT_EQ(filter.waiting_since_ns(), UINT64_MAX) << "both were looked at";
    filter.take(10, mapping_of(2), start + 3, start + 3);
    filter.take(10, mapping_of(1), start + 2, start + 4);
    filter.take(10, mapping_of(1), start + 5, start + 5);
    EXPECT_EQ(filter.waiting_since_ns(), start + 2);
    filter.begin_turn();
    filter.due(start + interval);
    EXPECT_EQ(filter.waiting_since_ns(), UINT64_MAX);
}

TEST(AMappingFilter, tells_files_and_processes_apart) {
    MappingFilter filter;
    filter.begin_turn();
    EXPECT_EQ(filter.take(10, mapping_of(1), start, start), Verdict::now);
    EXPECT_EQ(filter.take(10, mapping_of(2), start, start), Verdict::now);
    EXPECT_EQ(filter.take(11, mapping_of(1), start, start), Verdict::now);
}

TEST(AMappingFilter, spreads_many_over_several_turns_and_loses_none) {
    MappingFilter filter;
    filter.begin_turn();
    size_t looked = 0;
    const size_t many = 3 * MappingFilter::looks_a_turn;
    for (uint64_t inode = 1; inode <= many; ++inode)
        looked += filter.take(10, mapping_of(inode), start, start) == Verdict::now;
    EXPECT_EQ(looked, MappingFilter::looks_a_turn);
    for (int turn = 0; turn < 2; ++turn) {
        EXPECT_TRUE(filter.due(start + 1).empty()) << "the turn has no looks left";
        filter.begin_turn();
        looked += filter.due(start + 1).size();
    }
    EXPECT_EQ(looked, many);
    EXPECT_FALSE(filter.has_waiting());
}

TEST(AMappingFilter, remembers_so_many_and_says_where_it_does_not) {
    MappingFilter filter;
    for (uint64_t inode = 1; inode <= MappingFilter::max_known; ++inode) {
        filter.begin_turn();
        ASSERT_EQ(filter.take(10, mapping_of(inode), start, start), Verdict::now);
    }
    EXPECT_EQ(filter.take(10, mapping_of(0), start, start), Verdict::too_many);
    EXPECT_EQ(filter.take(10, mapping_of(0), start, start + interval), Verdict::now) << "the old ones are forgotten";
}

}  // namespace
