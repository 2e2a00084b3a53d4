#include "core/store/block/block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <random>

#include "core/store/block/block_rows.h"
#include "core/store/block/block_view.h"
#include "tests/support/seed.h"
#include "tests/unit/store_fixture.h"
#include "tests/unit/version_1_block.h"

namespace ingero {
namespace {

using testing::HasSubstr;

std::vector<Event> decoded(std::string_view data) {
    std::vector<Event> events;
    const auto result = decode_block(data, events);
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
    return events;
}

/// An opened block.
struct BlockOf {
    explicit BlockOf(std::string_view bytes) {
        const auto opened = view.open(bytes);
        EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
    }
    std::vector<uint64_t> column(ColumnId id, size_t segment) {
        std::vector<uint64_t> values(view.ops()[segment].rows);
        const auto read = view.column(id, segment, values);
        EXPECT_TRUE(read) << (read ? "" : read.error().message);
        return values;
    }
    BlockView view;
};

void expect_equal(const std::vector<Event>& rows, const std::vector<Event>& expected) {
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(all_fields(rows[i]), all_fields(expected[i])) << i;
}

/// What programs do: few ops, few threads, hardly any waits, numbered as they end.
std::vector<Event> usual_events(size_t count, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::vector<Event> events(count);
    uint64_t start = 1'000'000;
    for (size_t i = 0; i < count; ++i) {
        Event& event = events[i];
        event.start_ns = start += random() % 20'000;
        event.op = static_cast<OpId>(0x103 + random() % 8 / 5);
        event.duration_ns = 4'000 + random() % 2'000 + (random() % 500 == 0 ? 5'000'000 : 0);
        event.args = {0x7f00'0000'1000 + random() % 50 * 64, 0, 0};
        event.process_start_ns = 12'345'678;
        event.tgid = 4'000;
        event.tid = 4'000 + static_cast<uint32_t>(random() % 4);
        event.cpu = random() % 16;
        event.device = 0;
        event.return_code = random() % 100 == 0 ? 600 : 0;
    }
    std::vector<Event*> ends;
    for (Event& event : events) ends.push_back(&event);
    std::sort(ends.begin(), ends.end(), [](auto* a, auto* b) { return a->end_ns() < b->end_ns(); });
    for (size_t i = 0; i < count; ++i) ends[i]->sequence = 500 + i;
    return events;
}

/// The same over and over, as a decoding loop is: worth compressing.
std::vector<Event> repeated_events(size_t count) {
    const auto pattern = usual_events(100);
    std::vector<Event> events;
    for (size_t i = 0; i < count; ++i) {
        events.push_back(pattern[i % pattern.size()]);
        events.back().start_ns += i / pattern.size() * 10'000'000;
        events.back().sequence = i + 1;
    }
    return events;
}

TEST(ABlock, GivesBackEveryFieldOfEveryRow) {
    for (const size_t rows : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}, max_block_rows}) {
        const auto events = make_events(1, rows, 5'000);
        const auto back = decoded(encode_block(3, events));
        ASSERT_EQ(back.size(), rows);
        for (size_t i = 0; i < rows; ++i) ASSERT_EQ(all_fields(back[i]), all_fields(events[i])) << i;
    }
}

TEST(ABlock, SaysInItsHeaderWhatIsInIt) {
    std::vector<Event> events = {make_event(9, 100, 5'000), make_event(4, 200, 10), make_event(7, 300, 20)};
    const auto header = read_block_header(encode_block(3, events));
    ASSERT_TRUE(header);
    const BlockHeader expected{.boot_index = 3,
                               .rows = 3,
                               .first_start_ns = 100,
                               .last_start_ns = 300,
                               .max_end_ns = 5'100,
                               .min_sequence = 4,
                               .max_sequence = 9,
                               .min_tgid = std::min({events[0].tgid, events[1].tgid, events[2].tgid}),
                               .max_tgid = std::max({events[0].tgid, events[1].tgid, events[2].tgid}),
                               .min_tid = std::min({events[0].tid, events[1].tid, events[2].tid}),
                               .max_tid = std::max({events[0].tid, events[1].tid, events[2].tid})};
    EXPECT_EQ(*header, expected);
}

TEST(ABlock, AppendsToWhatIsAlreadyThere) {
    std::vector<Event> events = make_events(1, 2, 0);
    ASSERT_TRUE(decode_block(encode_block(0, make_events(3, 2, 9'000)), events));
    EXPECT_EQ(sequences(events), (std::vector<uint64_t>{1, 2, 3, 4}));
}

TEST(ABlock, HoldsADurationThatWouldWrapAtTheEndOfTime) {
    const std::vector<Event> events = {make_event(1, 100, UINT64_MAX)};
    const auto block = encode_block(0, events);
    EXPECT_EQ(read_block_header(block)->max_end_ns, UINT64_MAX);
    EXPECT_EQ(decoded(block).size(), 1u);
    EXPECT_TRUE(overlaps(events[0], Window{1'000'000, 2'000'000}));
}

TEST(ABlock, OfTheLastInstantThereIsIsReadToo) {
    const std::vector<Event> events = {make_event(1, UINT64_MAX, 0)};
    const std::string block = encode_block(0, events);
    EXPECT_EQ(all_fields(decoded(block).at(0)), all_fields(events[0]));
    EXPECT_EQ(BlockOf(block).view.ops().size(), 1u);
}

TEST(ABlock, WithAnyByteFlippedIsRefusedAndLeavesTheRowsAlone) {
    const std::string block = encode_block(0, make_events(1, 20, 5'000));
    for (size_t i = 0; i < block.size(); ++i) {
        for (const char mask : {char(0x01), char(0x80), char(0xff)}) {
            std::string flipped = block;
            flipped[i] = static_cast<char>(flipped[i] ^ mask);
            std::vector<Event> events;
            const auto result = decode_block(flipped, events);
            ASSERT_FALSE(result) << "byte " << i;
            const bool version_field = i == 4 || i == 5;
            ASSERT_TRUE(result.error().code == ErrorCode::corrupt || version_field) << "byte " << i;
            ASSERT_TRUE(events.empty());
        }
    }
}

TEST(ABlock, CutShortAnywhereIsRefused) {
    const std::string block = encode_block(0, make_events(1, 20, 5'000));
    for (size_t length = 0; length < block.size(); ++length) {
        // A copy of exactly that size, so that a read past it is seen by the sanitizer.
        const std::vector<char> cut(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(length));
        std::vector<Event> events;
        const auto result = decode_block({cut.data(), cut.size()}, events);
        ASSERT_FALSE(result) << length;
        ASSERT_EQ(result.error().code, ErrorCode::corrupt);
    }
    std::vector<Event> events;
    EXPECT_FALSE(decode_block(block + "x", events));
}

TEST(ABlock, OfANewerFormatIsRefusedAsSuch) {
    std::string block = encode_block(0, make_events(1, 3, 0));
    const uint16_t newer = block_version + 1;
    std::memcpy(block.data() + 4, &newer, sizeof newer);
    seal_block(block);
    std::vector<Event> events;
    const auto result = decode_block(block, events);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::version);
    EXPECT_FALSE(result.error().hint.empty());
}

/// A block whose checksums fit and whose content does not: what a hostile file would bring.
Result<void> with_field(size_t offset, auto value) {
    std::string block = encode_block(0, make_events(1, 8, 5'000));
    std::memcpy(block.data() + offset, &value, sizeof value);
    seal_block(block);
    std::vector<Event> events;
    auto result = decode_block(block, events);
    EXPECT_TRUE(result || events.empty());
    return result;
}

constexpr size_t first_op = 104;
constexpr size_t op_bytes = 64;

TEST(ABlock, WithGoodChecksumsAndALyingHeaderIsRefused) {
    EXPECT_TRUE(with_field(24, uint32_t{7})) << "a boot index is only checked against the key";
    EXPECT_FALSE(with_field(28, uint32_t{0})) << "no rows";
    EXPECT_FALSE(with_field(28, uint32_t{9})) << "more rows than columns hold";
    EXPECT_FALSE(with_field(28, uint32_t{UINT32_MAX})) << "absurdly many rows";
    EXPECT_FALSE(with_field(32, uint64_t{1})) << "first start";
    EXPECT_FALSE(with_field(40, uint64_t{1})) << "last start";
    EXPECT_FALSE(with_field(48, uint64_t{1})) << "max end";
    EXPECT_FALSE(with_field(56, uint64_t{9})) << "min sequence";
    EXPECT_FALSE(with_field(64, uint64_t{1})) << "max sequence";
    EXPECT_FALSE(with_field(72, uint32_t{1})) << "body length";
    for (const size_t range : {80, 84, 88, 92}) EXPECT_FALSE(with_field(range, uint32_t{5})) << "range at " << range;
    EXPECT_FALSE(with_field(96, uint32_t{1})) << "unpacked length";
    EXPECT_FALSE(with_field(96, uint32_t{UINT32_MAX})) << "absurd unpacked length";
    EXPECT_FALSE(with_field(100, uint16_t{UINT16_MAX})) << "more comms than bytes";
    EXPECT_FALSE(with_field(100, uint16_t{0})) << "comms that rows have are not there";
    EXPECT_FALSE(with_field(102, uint8_t{1})) << "compressed, which it is not";
    EXPECT_FALSE(with_field(102, uint8_t{9})) << "unknown compression";
    EXPECT_FALSE(with_field(103, uint8_t{9})) << "unknown order of sequences";
    EXPECT_FALSE(with_field(6, uint16_t{0})) << "no ops";
    EXPECT_FALSE(with_field(6, uint16_t{UINT16_MAX})) << "more ops than bytes";
}

TEST(ABlock, WithGoodChecksumsAndABadTableOfOpsIsRefused) {
    constexpr size_t second_op = first_op + op_bytes;
    EXPECT_FALSE(with_field(first_op, uint16_t{0x102})) << "ops not ascending";
    EXPECT_FALSE(with_field(second_op, uint16_t{0x101})) << "an op twice";
    EXPECT_FALSE(with_field(first_op + 2, uint16_t{0})) << "no rows";
    EXPECT_FALSE(with_field(first_op + 2, uint16_t{2})) << "more rows than there are";
    EXPECT_FALSE(with_field(first_op + 4, uint32_t{0})) << "errors";
    EXPECT_FALSE(with_field(first_op + 8, uint64_t{0})) << "no columns";
    EXPECT_FALSE(with_field(first_op + 8, UINT64_MAX)) << "all columns";
    for (const size_t sum : {16, 24, 32, 40, 48}) EXPECT_FALSE(with_field(first_op + sum, uint64_t{1})) << sum;
    EXPECT_FALSE(with_field(first_op + 56, uint32_t{UINT32_MAX})) << "segment past the body";
    EXPECT_FALSE(with_field(first_op + 56, uint32_t{0})) << "segment somewhere else";
}

TEST(ABlock, WithGoodChecksumsAndAnyBodyIsReadOrRefused) {
    const std::vector<Event> events = make_events(1, 300, 5'000);
    const int rounds = std::getenv("INGERO_LONG") ? 3'000 : 1'000;
    for (const bool compressed : {false, true}) {
        const std::string block =
            compressed ? compress_block(encode_block(0, repeated_events(2'000))).value() : encode_block(0, events);
        const size_t body_at = first_op + op_bytes * BlockOf(block).view.ops().size();
        const auto seed = static_cast<unsigned>(test::chosen_seed());
        std::mt19937 random(seed);
        SCOPED_TRACE("seed " + std::to_string(seed));
        for (int round = 0; round < rounds; ++round) {
            // Of exactly that size on the heap, so that the sanitizer sees a read past it.
            std::vector<char> altered(block.begin(), block.end());
            for (int change = 0; change < 1 + round % 3; ++change)
                altered[body_at + random() % (altered.size() - body_at)] = static_cast<char>(random());
            seal_block(altered);
            std::vector<Event> rows;
            if (const auto result = decode_block({altered.data(), altered.size()}, rows); !result) {
                ASSERT_EQ(result.error().code, ErrorCode::corrupt);
                ASSERT_TRUE(rows.empty());
            }
        }
    }
}

TEST(ABlock, MayHaveColumnsThisVersionDoesNotKnow) {
    // One op, so that the new column's shape and value go to the end of what there is.
    std::vector<Event> events = make_events(1, 3, 5'000);
    for (Event& event : events) event.op = 0x101;
    const std::string block = encode_block(0, events);
    const BlockOf original(block);
    std::string wider = block;
    uint64_t columns = 0;
    std::memcpy(&columns, wider.data() + first_op + 8, sizeof columns);
    uint32_t offset = 0;
    std::memcpy(&offset, wider.data() + first_op + 56, sizeof offset);
    const size_t shapes = static_cast<size_t>(std::popcount(columns));
    columns |= uint64_t{1} << 42;
    std::memcpy(wider.data() + first_op + 8, &columns, sizeof columns);
    const uint32_t constant_of_no_bytes = 0;
    wider.insert(first_op + op_bytes + offset + shapes * 4, reinterpret_cast<const char*>(&constant_of_no_bytes), 4);
    const auto body_bytes = static_cast<uint32_t>(wider.size() - first_op - op_bytes);
    std::memcpy(wider.data() + 72, &body_bytes, sizeof body_bytes);
    std::memcpy(wider.data() + 96, &body_bytes, sizeof body_bytes);
    seal_block(wider);
    const auto back = decoded(wider);
    ASSERT_EQ(back.size(), events.size());
    EXPECT_EQ(all_fields(back[2]), all_fields(events[2]));
}

TEST(ABlock, OfVersion1IsReadAsItWasWritten) {
    std::vector<Event> events;
    const std::string block = version_1_block();
    const auto result = decode_block(block, events);
    ASSERT_TRUE(result) << result.error().message;
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(sequences(events), (std::vector<uint64_t>{1000, 1001, 900}));
    EXPECT_EQ(events[1].start_ns, 6'000u);
    EXPECT_EQ(events[1].op, events[0].op);
    EXPECT_EQ(events[0].args, (std::array<uint64_t, 3>{17'000, ~uint64_t{1000}, uint64_t{1000} << 40}));
    EXPECT_EQ(events[0].return_code, -1000);
    EXPECT_EQ(to_string_view(events[2].waker_comm), "waker900");
    EXPECT_EQ(std::tuple(events[2].device, events[2].weight, events[2].stack), std::tuple(3, 7u, 77u));
    const auto header = read_block_header(block);
    ASSERT_TRUE(header);
    EXPECT_EQ(header->max_end_ns, 11'000u);
    EXPECT_EQ(header->max_tgid, UINT32_MAX) << "it does not say";
    for (size_t at = 0; at < block.size(); at += 7) {
        std::string flipped = block;
        flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
        ASSERT_FALSE(decode_block(flipped, events)) << "byte " << at;
    }
    EXPECT_EQ(compress_block(block).value(), block);
}

TEST(ABlock, OfNoOrTooManyEventsIsAMistakeOfTheProgrammer) {
    EXPECT_THROW(encode_block(0, {}), std::logic_error);
    EXPECT_THROW(encode_block(0, make_events(1, max_block_rows + 1, 0)), std::logic_error);
}

TEST(ABlock, OfUsualCallsTakesFewBytes) {
    const std::string block = encode_block(0, usual_events(4'096));
    EXPECT_LT(block.size(), 4'096u * 9);
    const auto back = decoded(block);
    const auto events = usual_events(4'096);
    for (size_t i = 0; i < events.size(); ++i) ASSERT_EQ(all_fields(back[i]), all_fields(events[i])) << i;
}

TEST(ABlock, SpendsNothingOnWhatIsNotThere) {
    std::vector<Event> events(4'096);
    for (size_t i = 0; i < events.size(); ++i) events[i].sequence = i + 1;
    EXPECT_LT(encode_block(0, events).size(), 200u) << "all in one instant, with no value in any field";
}

TEST(ABlock, GivesBackAnyRows) {
    const auto seed = static_cast<unsigned>(test::chosen_seed());
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    for (int round = 0; round < 60; ++round) {
        std::vector<Event> events(1 + random() % (round % 4 == 0 ? max_block_rows : 64));
        const uint64_t ops = 1 + random() % 40;
        for (Event& event : events) {
            // Each field of each row: default, one of few, or any.
            for_each_column([&](ColumnId, auto get) {
                auto& field = get(event);
                const uint64_t kind = random() % 4;
                const uint64_t bits = kind == 1 ? random() % 5 : random() >> random() % 64;
                if (kind != 0) std::memcpy(&field, &bits, std::min(sizeof field, sizeof bits));
            });
            event.op = static_cast<OpId>(random() % ops * 771);
        }
        std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
            return std::pair(a.start_ns, a.sequence) < std::pair(b.start_ns, b.sequence);
        });
        const std::string block = encode_block(9, events);
        for (const std::string& bytes : {block, compress_block(block).value()}) {
            const auto back = decoded(bytes);
            ASSERT_EQ(back.size(), events.size());
            for (size_t i = 0; i < events.size(); ++i) ASSERT_EQ(all_fields(back[i]), all_fields(events[i])) << i;
        }
    }
}

TEST(ABlock, CompressedIsSmallerAndTheSame) {
    const std::string block = encode_block(0, repeated_events(4'096));
    const std::string smaller = compress_block(block).value();
    EXPECT_LT(smaller.size(), block.size());
    EXPECT_TRUE(BlockOf(smaller).view.is_compressed());
    EXPECT_EQ(compress_block(smaller).value(), smaller) << "once is enough";
    const auto before = decoded(block);
    const auto after = decoded(smaller);
    for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(all_fields(after[i]), all_fields(before[i]));
    EXPECT_EQ(read_block_header(smaller).value(), read_block_header(block).value());
    std::string damaged = smaller;
    damaged[damaged.size() - 9] = static_cast<char>(damaged[damaged.size() - 9] ^ 1);
    seal_block(damaged);
    std::vector<Event> rows;
    EXPECT_FALSE(decode_block(damaged, rows));
    damaged = block;
    damaged.back() = 1;
    EXPECT_FALSE(compress_block(damaged)) << "damage is not sealed in";
}

TEST(ABlockView, KnowsEachOpByTheHeaderAlone) {
    auto events = usual_events(2'000);
    events[7].weight = 100;
    events[8].weight = 100;
    events[8].time_weight = 9;
    std::map<OpId, OpSummary> expected;
    for (const Event& event : events) {
        OpSummary& op = expected[event.op];
        op.op = event.op;
        op.min_ns = op.rows == 0 ? event.duration_ns : std::min(op.min_ns, event.duration_ns);
        op.max_ns = std::max(op.max_ns, event.duration_ns);
        op.rows += 1;
        op.errors += event.return_code != 0;
        op.calls += event.weight;
        op.duration_ns += event.duration_ns;
        op.calls_duration_ns += event.duration_ns * event.times();
    }
    std::string block = encode_block(0, events);
    // A body that nobody may look at.
    std::fill(block.end() - 1'000, block.end(), 'x');
    BlockOf opened(block);
    ASSERT_EQ(opened.view.ops().size(), expected.size());
    size_t first_row = 0;
    for (size_t i = 0; const auto& [op, summary] : expected) {
        EXPECT_EQ(opened.view.ops()[i], summary) << op;
        EXPECT_EQ(opened.view.first_row(i++), first_row);
        first_row += summary.rows;
    }
    EXPECT_GT(opened.view.max_duration_ns(), 5'000'000u);
    std::vector<uint64_t> out(opened.view.ops()[0].rows);
    const auto read = opened.view.column(ColumnId::duration, 0, out);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, ErrorCode::corrupt);
}

TEST(ABlockView, HoldsSumsThatWouldWrap) {
    std::vector<Event> events = {make_event(1, 1, UINT64_MAX), make_event(2, 2, UINT64_MAX)};
    events[1].op = events[0].op;
    const std::string block = encode_block(0, events);
    EXPECT_EQ(BlockOf(block).view.ops()[0].duration_ns, UINT64_MAX);
    EXPECT_EQ(BlockOf(block).view.ops()[0].calls_duration_ns, UINT64_MAX);
    EXPECT_EQ(decoded(block).size(), 2u);
}

/// What the view says row by row, against the rows.
void expect_columns_of(std::string_view bytes, const std::vector<Event>& events) {
    BlockOf block(bytes);
    const auto order = block.view.time_order();
    ASSERT_TRUE(order);
    ASSERT_EQ(order->size(), events.size());
    std::vector<const Event*> by_row(events.size());
    for (size_t i = 0; i < events.size(); ++i) by_row[(*order)[i]] = &events[i];
    for (size_t segment = 0; segment < block.view.ops().size(); ++segment) {
        for_each_column([&](ColumnId id, auto get) {
            const auto values = block.column(id, segment);
            for (size_t i = 0; i < values.size(); ++i) {
                const Event& event = *by_row[block.view.first_row(segment) + i];
                ASSERT_EQ(event.op, block.view.ops()[segment].op);
                if constexpr (std::is_same_v<column_field<decltype(get)>, Comm>)
                    ASSERT_EQ(block.view.comm(values[i]), get(event));
                else
                    ASSERT_EQ(values[i], static_cast<uint64_t>(get(event))) << static_cast<int>(id) << ", row " << i;
            }
        });
    }
}

TEST(ABlockView, GivesEachColumnOfEachOp) {
    expect_columns_of(encode_block(0, make_events(1, 1'000, 0)), make_events(1, 1'000, 0));
    expect_columns_of(encode_block(0, usual_events(4'096)), usual_events(4'096));
    expect_columns_of(compress_block(encode_block(0, repeated_events(3'000))).value(), repeated_events(3'000));
    expect_columns_of(version_1_block(), decoded(version_1_block()));
}

TEST(ABlockView, GivesWholeRowsOfSomeOpsInOrderOfTimeAndOfSomeRowsOfOne) {
    const auto events = usual_events(2'000);
    const std::string bytes = encode_block(1, events);
    BlockOf block(bytes);
    ASSERT_EQ(block.view.ops().size(), 2u);
    const OpId op = block.view.ops()[1].op;
    std::vector<Event> expected, rows(1);  // it appends
    std::copy_if(events.begin(), events.end(), std::back_inserter(expected),
                 [&](const Event& event) { return event.op == op; });
    const auto wanted = [&](const OpSummary& summary) { return summary.op == op; };
    ASSERT_TRUE(decode_rows(block.view, wanted, rows));
    rows.erase(rows.begin());
    expect_equal(rows, expected);

    rows.clear();
    const std::vector<uint16_t> some = {0, 7, 99};
    ASSERT_TRUE(decode_rows(block.view, 1, some, rows));
    expect_equal(rows, {expected[0], expected[7], expected[99]});
    rows.clear();
    ASSERT_TRUE(decode_rows(
        block.view, [](const OpSummary&) { return false; }, rows));
    EXPECT_TRUE(rows.empty());
}

TEST(ABlock, NumbersItsRowsByTheirEndsHoweverFarApartTheseAre) {
    for (const uint64_t longest : {uint64_t{0}, uint64_t{1} << 30, uint64_t{1} << 45, uint64_t{1} << 62}) {
        auto events = usual_events(max_block_rows);
        // Ends that go back, close together beside a far one.
        for (size_t i = 0; i < events.size(); ++i) {
            events[i].start_ns = 1'000'000 + i * 10;
            events[i].duration_ns = 50'000'000 - i * 11;
        }
        events[17].duration_ns += longest;
        std::vector<Event*> ends;
        for (Event& event : events) ends.push_back(&event);
        std::stable_sort(ends.begin(), ends.end(), [](auto* a, auto* b) { return a->end_ns() < b->end_ns(); });
        for (size_t i = 0; i < ends.size(); ++i) ends[i]->sequence = 500 + i;
        expect_equal(decoded(encode_block(1, events)), events);
    }
}

TEST(ABlockView, KnowsWhichColumnsAreOnlyDefaults) {
    const std::string block = encode_block(0, usual_events(100));
    BlockOf opened(block);
    EXPECT_TRUE(opened.view.is_default(ColumnId::blocked, 0));
    EXPECT_FALSE(opened.view.is_default(ColumnId::duration, 0));
    EXPECT_FALSE(opened.view.is_default(ColumnId::start, 0));
    EXPECT_EQ(opened.column(ColumnId::weight, 1)[0], 1u);
    EXPECT_EQ(opened.column(ColumnId::blocked_syscall, 1)[0], 0xffffu);
}

TEST(ABlockView, IsOpenedAgainAndAgain) {
    const auto first = usual_events(500, 1);
    const std::string blocks[] = {encode_block(0, first), compress_block(encode_block(0, repeated_events(700))).value(),
                                  version_1_block()};
    BlockView view;
    for (int round = 0; round < 3; ++round) {
        for (const std::string& block : blocks) {
            ASSERT_TRUE(view.open(block));
            std::vector<Event> events;
            ASSERT_TRUE(view.events(events));
            EXPECT_EQ(events.size(), read_block_header(block)->rows);
            EXPECT_FALSE(view.open("none"));
            EXPECT_EQ(view.rows(), 0u);
            EXPECT_TRUE(view.ops().empty());
        }
    }
}

TEST(ABlock, LiesWithinAWindowThatHasAllItsStarts) {
    const BlockHeader header{.rows = 2, .first_start_ns = 100, .last_start_ns = 200, .max_end_ns = 900};
    EXPECT_TRUE(lies_within(header, {100, 201}));
    EXPECT_FALSE(lies_within(header, {101, 500}));
    EXPECT_FALSE(lies_within(header, {0, 200}));
}

TEST(AnEvent, OverlapsAWindowByItsHalfOpenInterval) {
    const Event event = make_event(1, 100, 50);
    EXPECT_TRUE(overlaps(event, Window{0, 101}));
    EXPECT_FALSE(overlaps(event, Window{0, 100}));
    EXPECT_TRUE(overlaps(event, Window{149, 200}));
    EXPECT_FALSE(overlaps(event, Window{150, 200}));
    EXPECT_TRUE(overlaps(event, Window{120, 121}));
    const Event instant = make_event(1, 100, 0);
    EXPECT_TRUE(overlaps(instant, Window{100, 101}));
    EXPECT_FALSE(overlaps(instant, Window{101, 200}));
    EXPECT_FALSE(overlaps(instant, Window{0, 100}));
}

}  // namespace
}  // namespace ingero
