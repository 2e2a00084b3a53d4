#include "core/spans/span_join.h"

#include <gmock/gmock.h>

#include <random>

namespace ingero {
namespace {

uint64_t end_of(const Window& window) {
    return std::max(window.to_ns, window.from_ns + 1);
}

bool overlap(const Window& a, const Window& b) {
    return a.from_ns < end_of(b) && b.from_ns < end_of(a);
}

CallSums sums_of(uint64_t duration) {
    CallSums sums;
    sums[CallSums::calls] = 1;
    sums[CallSums::duration_ns] = duration;
    return sums;
}

TEST(SpanJoin, CountsACallInEachSpanThatItOverlaps) {
    SpanJoin join({{10, 20}, {15, 30}, {40, 50}});
    EXPECT_EQ(join.add({0, 10}, sums_of(10)), 0u) << "it ends as the span begins";
    EXPECT_EQ(join.add({5, 11}, sums_of(6)), 1u);
    EXPECT_EQ(join.add({16, 18}, sums_of(2)), 2u);
    EXPECT_EQ(join.add({19, 45}, sums_of(26)), 3u);
    EXPECT_EQ(join.add({20, 21}, sums_of(1)), 1u);
    EXPECT_EQ(join.add({30, 40}, sums_of(10)), 0u);
    EXPECT_EQ(join.add({12, 12}, sums_of(0)), 1u) << "an instant";
    const auto joined = join.finish();
    EXPECT_EQ(joined[0].sums[CallSums::calls], 4u);
    EXPECT_EQ(joined[1].sums[CallSums::calls], 3u);
    EXPECT_EQ(joined[2].sums[CallSums::calls], 1u);
    EXPECT_EQ(joined[0].sums[CallSums::fair_share_ns], 6u + 2 / 2 + 26 / 3 + 0);
    EXPECT_EQ(joined[0].co_resident, 1u);
    EXPECT_EQ(joined[1].co_resident, 1u);
    EXPECT_EQ(joined[2].co_resident, 0u);
}

TEST(SpanJoin, GivesEachSpanTheLongestStallInIt) {
    SpanJoin join({{0, 100}, {50, 150}, {200, 300}, {400, 500}});
    join.add_stall({60, 70}, 10, 1);
    join.add_stall({90, 210}, 120, 2);
    join.add_stall({10, 45}, 35, 3);
    join.add_stall({420, 430}, 0, 4);
    const auto joined = join.finish();
    EXPECT_EQ(joined[0].longest_stall, 3u) << "of the one that goes on after it, 10 at most are its own";
    EXPECT_EQ(joined[0].stall_ns, 35u);
    EXPECT_EQ(joined[1].longest_stall, 2u);
    EXPECT_EQ(joined[1].stall_ns, 60u);
    EXPECT_EQ(joined[2].longest_stall, 2u);
    EXPECT_EQ(joined[2].stall_ns, 10u);
    EXPECT_EQ(joined[3].longest_stall, std::nullopt) << "a stall of nothing is none";
}

TEST(SpanJoin, HasTheAnswersOfMakingEveryPair) {
    std::mt19937_64 random(11);
    const auto below = [&](uint64_t end) { return random() % end; };
    for (int round = 0; round < 50; ++round) {
        std::vector<Window> spans, calls;
        const uint64_t range = 1 + below(400);
        const auto window = [&] {
            const uint64_t from = below(range);
            return Window{from, from + below(range / 2 + 1)};
        };
        for (uint64_t i = below(40); i > 0; --i) spans.push_back(window());
        for (uint64_t i = below(80); i > 0; --i) calls.push_back(window());
        SpanJoin join(spans);
        std::vector<uint64_t> tags;
        std::vector<uint64_t> expected_share(spans.size()), expected_calls(spans.size());
        std::vector<uint64_t> longest(spans.size());
        for (size_t c = 0; c < calls.size(); ++c) {
            const uint64_t length = calls[c].length_ns(), stalled = (c + 1) * 31 % (length + 1);
            uint64_t with = 0;
            for (const Window& span : spans) with += overlap(span, calls[c]);
            EXPECT_EQ(join.add(calls[c], sums_of(length)), with);
            join.add_stall(calls[c], stalled, tags.size());
            tags.push_back(stalled);
            if (c % 7 == 6) {
                std::vector<uint64_t> kept;
                for (const size_t tag : join.prune_stalls()) kept.push_back(tags[tag]);
                EXPECT_LE(kept.size(), spans.size());
                tags = std::move(kept);
            }
            for (size_t s = 0; s < spans.size(); ++s) {
                if (!overlap(spans[s], calls[c])) continue;
                ++expected_calls[s];
                expected_share[s] += length / with;
                const uint64_t begin = std::max(spans[s].from_ns, calls[c].from_ns);
                const uint64_t end = std::min(end_of(spans[s]), end_of(calls[c]));
                longest[s] = std::max(longest[s], std::min(stalled, end - begin));
            }
        }
        const auto joined = join.finish();
        for (size_t s = 0; s < spans.size(); ++s) {
            uint64_t others = 0;
            for (size_t t = 0; t < spans.size(); ++t) others += t != s && overlap(spans[s], spans[t]);
            EXPECT_EQ(joined[s].sums[CallSums::calls], expected_calls[s]);
            EXPECT_EQ(joined[s].sums[CallSums::fair_share_ns], expected_share[s]);
            EXPECT_EQ(joined[s].co_resident, others);
            EXPECT_EQ(joined[s].stall_ns, longest[s]);
            ASSERT_EQ(joined[s].longest_stall.has_value(), longest[s] != 0);
            if (longest[s] != 0) {
                EXPECT_GE(tags[*joined[s].longest_stall], longest[s]);
            }
        }
    }
}

TEST(SpanJoin, OfNothingIsNothing) {
    SpanJoin join({});
    EXPECT_EQ(join.add({1, 2}, sums_of(1)), 0u);
    join.add_stall({1, 2}, 1, 1);
    EXPECT_TRUE(join.finish().empty());
}

}  // namespace
}  // namespace ingero
