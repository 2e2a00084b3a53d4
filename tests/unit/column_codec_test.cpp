#include "core/store/block/column_codec.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/support/seed.h"

namespace ingero {
namespace {

using Kind = ColumnShape::Kind;
using Values = std::vector<uint64_t>;

struct Encoded {
    ColumnShape shape;
    std::string data;
};

Encoded encode(const Values& values) {
    Encoded encoded;
    encoded.shape = ColumnEncoder().encode(values, encoded.data);
    return encoded;
}

/// By way of the stored shape and a heap copy of the least size, so that the sanitizer sees any read past it.
Values decode(const Encoded& encoded, size_t rows) {
    ColumnShape shape;
    EXPECT_TRUE(from_stored(to_stored(encoded.shape), rows, shape));
    EXPECT_EQ(shape, encoded.shape);
    EXPECT_EQ(column_bytes(shape, rows), encoded.data.size());
    std::vector<char> data(encoded.data.begin(), encoded.data.end());
    data.resize(data.size() + packing_slack_bytes, '\xff');
    Values values(rows);
    EXPECT_TRUE(decode_column(shape, {data.data(), data.size()}, values));
    return values;
}

Encoded round_trip(const Values& values) {
    const Encoded encoded = encode(values);
    EXPECT_TRUE(decode(encoded, values.size()) == values)
        << values.size() << " rows, width " << int{encoded.shape.width};
    return encoded;
}

Values made(size_t rows, const std::function<uint64_t(size_t)>& make) {
    Values values(rows);
    for (size_t i = 0; i < rows; ++i) values[i] = make(i);
    return values;
}

TEST(AColumn, OfOneValueTakesNoBitsARow) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{255}, uint64_t{256}, UINT64_MAX}) {
        const Encoded encoded = round_trip(Values(4096, value));
        EXPECT_EQ(encoded.shape.kind, Kind::constant);
        EXPECT_LE(encoded.data.size(), 8u);
    }
    EXPECT_TRUE(round_trip(Values(100, 0)).data.empty());
}

TEST(AColumn, OfEachWidthAndLengthComesBack) {
    const auto seed = static_cast<unsigned>(test::chosen_seed());
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    for (unsigned width = 1; width <= 64; ++width) {
        for (const size_t rows : {2, 3, 7, 8, 9, 63, 64, 65, 1000, 4096}) {
            const uint64_t top = uint64_t{1} << (width - 1);
            Values values = made(rows, [&](size_t) { return (random() | top) >> (64 - width); });
            values[0] = 0;
            values[1] = width == 64 ? UINT64_MAX : (top << 1) - 1;
            const Encoded encoded = round_trip(values);
            EXPECT_TRUE(is_packed_width(encoded.shape.width));
            EXPECT_LE(encoded.data.size(), rows * packed_width(width) / 8 + 16);
        }
    }
}

TEST(AColumn, CountsFromItsLeastValue) {
    const Values values = made(1000, [](size_t i) { return 0x7f00'1234'5678'0000 + i * 7 % 1000; });
    const Encoded encoded = round_trip(values);
    EXPECT_EQ(encoded.shape.kind, Kind::frame);
    EXPECT_EQ(encoded.shape.width, 10);
    round_trip({UINT64_MAX, UINT64_MAX - 1});
    round_trip({0, UINT64_MAX});
}

TEST(AColumn, PatchesTheFewThatAreWide) {
    std::mt19937_64 random(2);
    Values values = made(4096, [&](size_t) { return random() % 4096; });
    for (const size_t at : {0, 17, 2048, 4095}) values[at] = uint64_t{1} << 50 | at;
    const Encoded encoded = round_trip(values);
    EXPECT_EQ(encoded.shape.kind, Kind::frame);
    EXPECT_EQ(encoded.shape.width, 12);
    EXPECT_EQ(encoded.shape.count, 4);
    EXPECT_LT(encoded.data.size(), 4096u * 12 / 8 + 64);
    values[5] = UINT64_MAX;
    EXPECT_EQ(round_trip(values).shape.count, 5) << "of all 64 bits";
    Values mostly_zero(4096, 0);
    mostly_zero[4000] = 5;
    EXPECT_LT(round_trip(mostly_zero).data.size(), 8u);
}

TEST(AColumn, HasADictionaryWhereFewValuesLieFarApart) {
    std::mt19937_64 random(3);
    const Values pointers = made(57, [&](size_t) { return random(); });
    const Encoded encoded = round_trip(made(4096, [&](size_t) { return pointers[random() % 57]; }));
    EXPECT_EQ(encoded.shape.kind, Kind::dictionary);
    EXPECT_EQ(encoded.shape.count, 57);
    EXPECT_EQ(encoded.shape.width, 6);
    EXPECT_LE(encoded.data.size(), 8 + 57 * 8 + 4096u * 6 / 8);
    EXPECT_EQ(round_trip(made(64, [&](size_t i) { return i % 2 == 0 ? 0 : UINT64_MAX; })).shape.kind, Kind::dictionary);
}

TEST(AColumn, HasNoDictionaryOfMoreEntriesThanItTakes) {
    std::mt19937_64 random(4);
    for (const size_t distinct : {512, 1024, 1025, 2048}) {
        const Values entries = made(distinct, [&](size_t) { return random(); });
        const Encoded encoded =
            round_trip(made(4096, [&](size_t i) { return entries[i < 512 ? i / 4 : (i - 512) % distinct]; }));
        EXPECT_EQ(encoded.shape.kind, distinct <= 1024 ? Kind::dictionary : Kind::frame) << distinct;
    }
}

TEST(AColumn, OfAnyValuesComesBack) {
    const auto seed = static_cast<unsigned>(test::chosen_seed());
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    ColumnEncoder encoder;
    for (int round = 0; round < 2'000; ++round) {
        const size_t rows = 1 + random() % (round % 10 == 0 ? 4096 : 100);
        const unsigned width = static_cast<unsigned>(random() % 65);
        const uint64_t base = random() >> random() % 64;
        const uint64_t distinct = 1 + random() % 50;
        const uint64_t rare = 2 + random() % 200;
        const Values values = made(rows, [&](size_t) {
            const uint64_t any = width == 0 ? 0 : random() >> (64 - width);
            if (random() % rare == 0) return random();
            return round % 2 == 0 ? base + any : base * (any % distinct);
        });
        Encoded encoded;
        encoded.shape = encoder.encode(values, encoded.data);
        ASSERT_TRUE(decode(encoded, rows) == values) << "round " << round;
    }
}

TEST(AColumn, OfAnyShapeIsReadWithinItsBytesOrRefused) {
    const auto seed = static_cast<unsigned>(test::chosen_seed());
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    size_t taken = 0;
    size_t refused = 0;
    for (int round = 0; round < 20'000; ++round) {
        const size_t rows = 1 + random() % (round % 10 == 0 ? 4096 : 64);
        const ColumnShape likely{.kind = random() % 2 == 0 ? Kind::frame : Kind::dictionary,
                                 .base_bytes = static_cast<uint8_t>(random() % 9),
                                 .width = static_cast<uint8_t>(random() % 13),
                                 .extra_width = static_cast<uint8_t>(random() % 57),
                                 .count = static_cast<uint16_t>(1 + random() % rows % 4095)};
        const uint32_t stored = round % 2 == 0 ? to_stored(likely) : static_cast<uint32_t>(random());
        ColumnShape shape;
        if (!from_stored(stored, rows, shape)) {
            ++refused;
            continue;
        }
        std::vector<char> data(column_bytes(shape, rows) + packing_slack_bytes);
        for (char& byte : data) byte = static_cast<char>(random());
        Values values(rows);
        taken += decode_column(shape, {data.data(), data.size()}, values);
    }
    EXPECT_GT(taken, 100u);
    EXPECT_GT(refused, 1'000u);
}

TEST(AColumn, ThatNamesWhatIsNotThereIsRefused) {
    ColumnShape shape{.kind = Kind::dictionary, .base_bytes = 0, .width = 2, .extra_width = 8, .count = 3};
    const std::string three_and_a_fourth = std::string("abc\xe4", 4) + std::string(packing_slack_bytes, '\0');
    Values values(4);
    EXPECT_FALSE(decode_column(shape, three_and_a_fourth, values));
    shape = {.kind = Kind::frame, .base_bytes = 0, .width = 0, .extra_width = 8, .count = 1};
    values.resize(3);
    EXPECT_FALSE(decode_column(shape, std::string("\x03z", 2) + std::string(packing_slack_bytes, '\0'), values));
    EXPECT_TRUE(decode_column(shape, std::string("\x02z", 2) + std::string(packing_slack_bytes, '\0'), values));
    EXPECT_EQ(values, (Values{0, 0, 'z'}));
}

}  // namespace
}  // namespace ingero
