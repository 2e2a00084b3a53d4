// Long results: the sender's window, the assembler's checks, and both together.

#include "core/wire/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/wire/value.h"

namespace ingero {
namespace {

using nlohmann::json;

std::string payload_of_chunks(size_t chunks) {
    return std::string(chunks * stream_chunk_bytes, 'x');
}

json chunk(uint64_t stream, uint64_t seq, const std::string& payload) {
    return json::array({stream, seq, json::binary({payload.begin(), payload.end()})});
}

TEST(StreamSender, SendsAWindowAndThenWaits) {
    StreamSender sender(5, payload_of_chunks(20));
    for (uint64_t seq = 0; seq < stream_window; ++seq) {
        const auto message = sender.next();
        ASSERT_TRUE(message.has_value());
        EXPECT_EQ(message->method, "chunk");
        EXPECT_EQ(message->params[0], 5u);
        EXPECT_EQ(message->params[1], seq);
        EXPECT_EQ(message->params[2].get_binary().size(), stream_chunk_bytes);
    }
    EXPECT_FALSE(sender.next().has_value());
    EXPECT_TRUE(sender.waits_for_reader());
    ASSERT_TRUE(sender.acknowledge(0).has_value());
    EXPECT_TRUE(sender.next().has_value());
    EXPECT_FALSE(sender.next().has_value());
}

TEST(StreamSender, AnAcknowledgementCoversAllChunksBeforeIt) {
    StreamSender sender(1, payload_of_chunks(20));
    while (sender.next()) {
    }
    ASSERT_TRUE(sender.acknowledge(7).has_value());
    ASSERT_TRUE(sender.acknowledge(3).has_value()) << "a late one is no error";
    int more = 0;
    while (sender.next()) ++more;
    EXPECT_EQ(more, 8);
}

TEST(StreamSender, AnAcknowledgementOfWhatWasNotSentIsAnError) {
    StreamSender sender(1, payload_of_chunks(2));
    EXPECT_EQ(sender.acknowledge(0).error().code, ErrorCode::bad_request);
    ASSERT_TRUE(sender.next().has_value());
    EXPECT_TRUE(sender.acknowledge(0).has_value());
    EXPECT_EQ(sender.acknowledge(~0ULL).error().code, ErrorCode::bad_request);
}

TEST(StreamSender, EndsWithWhatItSent) {
    StreamSender sender(9, std::string(stream_chunk_bytes + 1, 'x'));
    ASSERT_TRUE(sender.next().has_value());
    EXPECT_EQ(sender.next()->params[2].get_binary().size(), 1u);
    EXPECT_FALSE(sender.ended());
    const auto end = sender.next();
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->method, "end");
    EXPECT_EQ(end->params, json::array({9, {{"bytes", stream_chunk_bytes + 1}, {"chunks", 2}}}));
    EXPECT_TRUE(sender.ended());
    EXPECT_FALSE(sender.next().has_value());
}

TEST(Stream, AResultOfManyMebibytesComesOverWhole) {
    json rows = json::array();
    for (int i = 0; i < 100'000; ++i) rows.push_back({{"op", "cudaLaunchKernel"}, {"count", i}});
    StreamSender sender(3, encode_value(rows));
    StreamAssembler assembler(3);
    size_t chunks = 0;
    for (auto message = sender.next(); message; message = sender.next()) {
        if (message->method == "end") {
            const auto result = assembler.on_end(message->params);
            ASSERT_TRUE(result.has_value()) << result.error().message;
            EXPECT_EQ(*result, rows);
            EXPECT_GT(chunks, stream_window);
            return;
        }
        ++chunks;
        // The message as a whole keeps to the limits of any reader.
        EXPECT_LE(encode(*message).size(), RpcLimits{}.message_bytes);
        const auto ack = assembler.on_chunk(message->params);
        ASSERT_TRUE(ack.has_value());
        EXPECT_EQ(ack->method, "ack");
        ASSERT_TRUE(sender.acknowledge(ack->params[1].get<uint64_t>()).has_value());
    }
    FAIL() << "the stream did not end";
}

TEST(StreamAssembler, RefusesAChunkOutOfOrder) {
    StreamAssembler assembler(1);
    EXPECT_EQ(assembler.on_chunk(chunk(1, 1, "x")).error().code, ErrorCode::bad_request);
    EXPECT_TRUE(assembler.on_chunk(chunk(1, 0, "x")).has_value());
    EXPECT_EQ(assembler.on_chunk(chunk(1, 0, "x")).error().code, ErrorCode::bad_request);
    EXPECT_EQ(assembler.on_chunk(json::array({1u, 1u, "text"})).error().code, ErrorCode::bad_request);
    EXPECT_EQ(assembler.on_chunk(json::array()).error().code, ErrorCode::bad_request);
}

TEST(StreamAssembler, RefusesMoreBytesOrElementsThanItsLimits) {
    RpcLimits limits = stream_limits;
    limits.message_bytes = 10;
    StreamAssembler small(1, limits);
    EXPECT_TRUE(small.on_chunk(chunk(1, 0, "12345678")).has_value());
    EXPECT_EQ(small.on_chunk(chunk(1, 1, "901")).error().code, ErrorCode::limit);

    StreamAssembler claims(1);
    const std::string huge_array("\xdd\x00\x0f\x42\x41", 5);  // 1,000,001 elements
    ASSERT_TRUE(claims.on_chunk(chunk(1, 0, huge_array)).has_value());
    EXPECT_EQ(claims.on_end(json::array({1u, {{"bytes", 5}, {"chunks", 1}}})).error().code, ErrorCode::limit);
}

TEST(StreamAssembler, RefusesAnEndThatDoesNotMatch) {
    const auto end_after_one_chunk = [](const json& end) {
        StreamAssembler assembler(1);
        EXPECT_TRUE(assembler.on_chunk(chunk(1, 0, std::string("\xc0"))).has_value());
        return assembler.on_end(end);
    };
    EXPECT_TRUE(end_after_one_chunk({1u, {{"bytes", 1}, {"chunks", 1}}}).has_value());
    EXPECT_FALSE(end_after_one_chunk({1u, {{"bytes", 2}, {"chunks", 1}}}).has_value());
    EXPECT_FALSE(end_after_one_chunk({1u, {{"bytes", 1}, {"chunks", 2}}}).has_value());
    EXPECT_FALSE(end_after_one_chunk({1u, json::object()}).has_value());
    EXPECT_FALSE(end_after_one_chunk({2u, {{"bytes", 1}, {"chunks", 1}}}).has_value());
}

TEST(StreamAssembler, HandsOnTheSendersError) {
    StreamAssembler assembler(1);
    const auto result =
        assembler.on_end(json::array({1u, {{"code", "deadline"}, {"message", "too slow"}, {"hint", "x"}}}));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::deadline);
    EXPECT_EQ(result.error().message, "too slow");
}

TEST(Stream, OnlyAMapOfStreamAloneAnnouncesOne) {
    EXPECT_EQ(announced_stream({{"stream", 4u}}), 4u);
    EXPECT_FALSE(announced_stream({{"stream", 4u}, {"ops", 1}}).has_value());
    EXPECT_FALSE(announced_stream({{"stream", "4"}}).has_value());
    EXPECT_FALSE(announced_stream(nullptr).has_value());
}

}  // namespace
}  // namespace ingero
