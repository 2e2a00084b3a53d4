#include "core/store/block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using testing::HasSubstr;

std::vector<Event> decoded(std::string_view data) {
    std::vector<Event> events;
    const auto result = decode_block(data, events);
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
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
                               .max_sequence = 9};
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

constexpr size_t first_column = 80;

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
    EXPECT_FALSE(with_field(6, uint16_t{0})) << "no columns";
    EXPECT_FALSE(with_field(6, uint16_t{UINT16_MAX})) << "more columns than bytes";
}

TEST(ABlock, WithGoodChecksumsAndABadColumnTableIsRefused) {
    EXPECT_FALSE(with_field(first_column, uint16_t{999})) << "sequence is missing";
    EXPECT_FALSE(with_field(first_column + 2, uint8_t{1})) << "unknown encoding";
    EXPECT_FALSE(with_field(first_column + 3, uint8_t{4})) << "other width";
    EXPECT_FALSE(with_field(first_column + 4, uint32_t{UINT32_MAX})) << "offset past the body";
    EXPECT_FALSE(with_field(first_column + 8 + 4, uint32_t{0}))
        << "starts read from another column do not fit the header";
}

TEST(ABlock, MayHaveColumnsThisVersionDoesNotKnow) {
    const auto events = make_events(1, 3, 5'000);
    const std::string block = encode_block(0, events);
    uint16_t columns = 0;
    std::memcpy(&columns, block.data() + 6, sizeof columns);
    std::string wider = block.substr(0, first_column) + std::string(8, '\0') + block.substr(first_column);
    const uint16_t more = columns + 1;
    const uint16_t id = 4242;
    std::memcpy(wider.data() + 6, &more, sizeof more);
    std::memcpy(wider.data() + first_column, &id, sizeof id);
    seal_block(wider);
    const auto back = decoded(wider);
    ASSERT_EQ(back.size(), events.size());
    EXPECT_EQ(all_fields(back[2]), all_fields(events[2]));
}

TEST(ABlock, OfNoOrTooManyEventsIsAMistakeOfTheProgrammer) {
    EXPECT_THROW(encode_block(0, {}), std::logic_error);
    EXPECT_THROW(encode_block(0, make_events(1, max_block_rows + 1, 0)), std::logic_error);
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
