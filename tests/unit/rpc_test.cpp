// MessagePack-RPC: what is a message, what is refused, and that no header makes the decoder believe its size.

#include "core/wire/rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/wire/utf8.h"
#include "core/wire/value.h"
#include "tests/unit/decode_value.h"

namespace ingero {
namespace {

using nlohmann::json;

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

Result<std::optional<RpcMessage>> decode_one(std::string_view bytes, RpcLimits limits = {}) {
    RpcDecoder decoder(limits);
    decoder.feed(bytes_of(bytes));
    return decoder.next();
}

ErrorCode code_of(std::string_view bytes, RpcLimits limits = {}) {
    const auto message = decode_one(bytes, limits);
    EXPECT_FALSE(message.has_value()) << "was taken for a message";
    return message ? ErrorCode::internal : message.error().code;
}

std::string request_with(const std::string& params) {
    return std::string("\x94\x00\x01\xa1m", 5) + params;
}

TEST(Rpc, ARequestComesBackAsItWasSent) {
    const json params = {
        {"pid", 7},      {"negative", -5}, {"large", std::numeric_limits<uint64_t>::max()},
        {"share", 0.25}, {"name", "µs"},   {"list", {1, nullptr, true, json::array(), json::object()}}};
    const auto message = decode_one(encode(RpcRequest{~0ULL, "stats", params}));
    ASSERT_TRUE(message.has_value() && message->has_value());
    const auto& request = std::get<RpcRequest>(**message);
    EXPECT_EQ(request.id, ~0ULL);
    EXPECT_EQ(request.method, "stats");
    EXPECT_EQ(request.params, params);
}

TEST(Rpc, AnErrorTravelsAsAMapOfCodeMessageAndHint) {
    const std::string bytes = encode(RpcResponse{3, Error{ErrorCode::not_found, "no such pid", "look again"}, {}});
    const auto raw = decode_value(bytes, {});
    ASSERT_TRUE(raw.has_value());
    EXPECT_EQ(*raw, json::array(
                        {1, 3, {{"code", "not-found"}, {"message", "no such pid"}, {"hint", "look again"}}, nullptr}));
    const auto message = decode_one(bytes);
    ASSERT_TRUE(message.has_value() && message->has_value());
    const auto& response = std::get<RpcResponse>(**message);
    ASSERT_TRUE(response.error.has_value());
    EXPECT_EQ(response.error->code, ErrorCode::not_found);
    EXPECT_EQ(response.error->hint, "look again");
}

TEST(Rpc, ANotificationKeepsItsBinaryPayload) {
    const json payload = json::binary({0, 255, 128});
    const auto message = decode_one(encode(RpcNotification{"chunk", json::array({1, 0, payload})}));
    ASSERT_TRUE(message.has_value() && message->has_value());
    EXPECT_EQ(std::get<RpcNotification>(**message).params[2], payload);
}

TEST(Rpc, MessagesMayArriveByteByByteAndBackToBack) {
    const std::string bytes = encode(RpcRequest{1, "status", json::object()}) +
                              encode(RpcNotification{"ack", json::array({1, 0})}) +
                              encode(RpcResponse{1, std::nullopt, {{"text", std::string(300, 'x')}}});
    RpcDecoder decoder;
    size_t messages = 0;
    for (const char byte : bytes) {
        decoder.feed(bytes_of({&byte, 1}));
        const auto message = decoder.next();
        ASSERT_TRUE(message.has_value()) << message.error().message;
        messages += message->has_value() ? 1 : 0;
    }
    EXPECT_EQ(messages, 3u);
    EXPECT_EQ(decoder.pending_bytes(), 0u);

    decoder.feed(bytes_of(bytes));
    for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(decoder.next().value().has_value());
    EXPECT_FALSE(decoder.next().value().has_value());
}

TEST(Rpc, PendingBytesTellHalfAMessageFromNone) {
    const std::string bytes = encode(RpcRequest{1, "status", json::object()});
    RpcDecoder decoder;
    EXPECT_EQ(decoder.pending_bytes(), 0u);
    decoder.feed(bytes_of(bytes + bytes.substr(0, 4)));
    ASSERT_TRUE(decoder.next().value().has_value());
    ASSERT_FALSE(decoder.next().value().has_value());
    EXPECT_EQ(decoder.pending_bytes(), 4u);
}

TEST(Rpc, OtherProtocolsAreRefusedAtTheirFirstByte) {
    EXPECT_EQ(code_of("GET / HTTP/1.1\r\n"), ErrorCode::bad_request);
    EXPECT_EQ(code_of("{\"jsonrpc\":\"2.0\"}"), ErrorCode::bad_request);
    EXPECT_EQ(code_of("\x16\x03\x01"), ErrorCode::bad_request);
    EXPECT_EQ(code_of("\xc1"), ErrorCode::bad_request);
    EXPECT_EQ(code_of("\xdb\xff\xff\xff\xff"), ErrorCode::bad_request) << "waits for 4 GiB of string";
}

TEST(Rpc, WhatIsNoMessageIsRefused) {
    const auto encoded = [](const json& value) { return encode_value(value); };
    EXPECT_EQ(code_of(encoded({0, 1, "m"})), ErrorCode::bad_request) << "a request of three";
    EXPECT_EQ(code_of(encoded({3, 1, "m", json::object()})), ErrorCode::bad_request) << "an unknown type";
    EXPECT_EQ(code_of(encoded({0, -1, "m", json::object()})), ErrorCode::bad_request) << "a negative id";
    EXPECT_EQ(code_of(encoded({0, 1.0, "m", json::object()})), ErrorCode::bad_request) << "a float id";
    EXPECT_EQ(code_of(encoded({0, 1, nullptr, json::object()})), ErrorCode::bad_request) << "no method";
    EXPECT_EQ(code_of(encoded({0, 1, "m", json::array()})), ErrorCode::bad_request) << "params as an array";
    EXPECT_EQ(code_of(encoded({1, 1, "error", nullptr})), ErrorCode::bad_request) << "an error that is no map";
    EXPECT_EQ(code_of(encoded({2, "m", json::object()})), ErrorCode::bad_request) << "a notification with a map";
    EXPECT_EQ(code_of(request_with(std::string("\x81\x01\x01", 3))), ErrorCode::bad_request) << "an integer key";
    EXPECT_EQ(code_of(request_with("\x82\xa1k\x01\xa1k\x02")), ErrorCode::bad_request) << "a key given twice";
    EXPECT_EQ(code_of(request_with(std::string("\x81\xa1k\xd4\x01\x00", 6))), ErrorCode::bad_request) << "an extension";
}

TEST(Rpc, AnErrorIsForEver) {
    RpcDecoder decoder;
    decoder.feed(bytes_of("x"));
    EXPECT_FALSE(decoder.next().has_value());
    decoder.feed(bytes_of(encode(RpcRequest{1, "status", json::object()})));
    EXPECT_FALSE(decoder.next().has_value());
}

TEST(Rpc, AHugeArrayOrMapIsRefusedByItsHeaderAlone) {
    EXPECT_EQ(code_of(std::string("\xdd\xff\xff\xff\xff", 5)), ErrorCode::limit);
    EXPECT_EQ(code_of(request_with(std::string("\xdf\xff\xff\xff\xff", 5))), ErrorCode::limit);
    EXPECT_EQ(code_of(request_with(std::string("\x81\xa1k\xdc\x10\x00", 6))), ErrorCode::limit);
}

TEST(Rpc, AHugeStringIsRefusedBeforeAllOfItArrived) {
    RpcDecoder decoder;
    decoder.feed(bytes_of(request_with(std::string("\x81\xa1k\xdb\xff\xff\xff\xff", 8))));
    const std::string piece(64 << 10, 'x');
    int pieces = 0;
    for (; pieces < 100; ++pieces) {
        const auto message = decoder.next();
        if (!message) {
            EXPECT_EQ(message.error().code, ErrorCode::limit);
            break;
        }
        ASSERT_FALSE(message->has_value());
        decoder.feed(bytes_of(piece));
    }
    EXPECT_LE(pieces, 17) << "more than 1 MiB was kept";
}

TEST(Rpc, ElementsCountOverTheWholeMessage) {
    // The four of the message, 2 of the params, then 4,090 more are the limit.
    EXPECT_TRUE(decode_one(encode(RpcRequest{1, "m", {{"k", json(json::array_t(4090))}}})).has_value());
    EXPECT_EQ(code_of(encode(RpcRequest{1, "m", {{"k", json(json::array_t(4091))}}})), ErrorCode::limit);
    const json many_small(json::array_t(64, json(json::array_t(64))));
    EXPECT_EQ(code_of(encode(RpcRequest{1, "m", {{"k", many_small}}})), ErrorCode::limit);
}

TEST(Rpc, DepthAndStringLengthAreLimited) {
    const auto nested = [](int levels) {
        json value = 1;
        for (int i = 0; i < levels; ++i) value = json::array({value});
        return RpcRequest{1, "m", {{"k", value}}};
    };
    EXPECT_TRUE(decode_one(encode(nested(6))).has_value());
    EXPECT_EQ(code_of(encode(nested(7))), ErrorCode::limit);
    EXPECT_TRUE(decode_one(encode(RpcRequest{1, "m", {{"k", std::string(64 << 10, 'x')}}})).has_value());
    EXPECT_EQ(code_of(encode(RpcRequest{1, "m", {{"k", std::string((64 << 10) + 1, 'x')}}})), ErrorCode::limit);
    EXPECT_EQ(code_of(encode(RpcRequest{1, std::string((64 << 10) + 1, 'x'), json::object()})), ErrorCode::limit);
}

TEST(Rpc, AMessageOverOneMebibyteIsRefusedEvenWhereItIsWhole) {
    const json big = json::binary(std::vector<uint8_t>(1 << 20));
    EXPECT_EQ(code_of(encode(RpcRequest{1, "m", {{"k", big}}})), ErrorCode::limit);
}

TEST(Rpc, InvalidUtf8ArrivesAsReplacementCharactersSoThatJsonCanBePrinted) {
    const auto message = decode_one(encode(RpcRequest{1,
                                                      "m\xff",
                                                      {{"k\xc0",
                                                        "a\xf0\x9f\x98"
                                                        "b"}}}));
    ASSERT_TRUE(message.has_value() && message->has_value());
    const auto& request = std::get<RpcRequest>(**message);
    EXPECT_EQ(request.method, "m\ufffd");
    EXPECT_EQ(request.params, (json{{"k\ufffd",
                                     "a\ufffd"
                                     "b"}}));
    EXPECT_NO_THROW(static_cast<void>(request.params.dump()));
}

TEST(Rpc, KeysThatBecomeEqualByReplacementAreADuplicate) {
    EXPECT_EQ(code_of(request_with("\x82\xa1\xff\x01\xa1\xfe\x02")), ErrorCode::bad_request);
}

TEST(Value, PositiveNumbersHaveOneTypeHoweverTheyWereSent) {
    const auto value = decode_value(std::string("\xd3\x00\x00\x00\x00\x00\x00\x00\x05", 9), {});
    ASSERT_TRUE(value.has_value());
    EXPECT_TRUE(value->is_number_unsigned());
    EXPECT_EQ(*value, 5u);
}

TEST(Value, NothingMayFollowOrLack) {
    EXPECT_EQ(decode_value(std::string("\x01\x02", 2), {}).error().code, ErrorCode::bad_request);
    EXPECT_EQ(decode_value(std::string("\x92\x01", 2), {}).error().code, ErrorCode::bad_request);
    EXPECT_EQ(decode_value("", {}).error().code, ErrorCode::bad_request);
}

TEST(Value, WhatFitsIsWhatTheReaderTakes) {
    const auto agrees = [](const json& result) {
        const bool taken = decode_one(encode(RpcResponse{1, std::nullopt, result})).has_value();
        EXPECT_EQ(fits_in_message(result), taken) << result.type_name() << " of " << result.size();
        return taken;
    };
    EXPECT_TRUE(agrees(json(json::array_t(4092))));
    EXPECT_FALSE(agrees(json(json::array_t(4093))));
    EXPECT_TRUE(agrees(json{{"k", std::string(64 << 10, 'x')}}));
    EXPECT_FALSE(agrees(json{{"k", std::string((64 << 10) + 1, 'x')}}));
    json deep = 1;
    for (int i = 0; i < 7; ++i) deep = json::array({deep});
    EXPECT_TRUE(agrees(deep));
    EXPECT_FALSE(agrees(json::array({deep})));
}

TEST(Utf8, EveryInvalidSequenceIsReplacedOnceForItsLongestValidPart) {
    EXPECT_EQ(to_valid_utf8("plain"), "plain");
    EXPECT_EQ(to_valid_utf8("\xe2\x82\xac"), "€");
    EXPECT_EQ(to_valid_utf8("\xc0\xaf"), "\ufffd\ufffd") << "overlong";
    EXPECT_EQ(to_valid_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd") << "a surrogate";
    EXPECT_EQ(to_valid_utf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd") << "over U+10FFFF";
    EXPECT_EQ(to_valid_utf8("\xf0\x9f\x98z"), "\ufffdz") << "cut short";
    EXPECT_TRUE(is_utf8("€\xf0\x9f\x98\x80"));
    EXPECT_FALSE(is_utf8("\x80"));
}

TEST(Utf8, EveryCodePointSurvivesEncodingAndDecoding) {
    for (uint32_t point = 0; point <= 0x10ffff; ++point) {
        if (point >= 0xd800 && point <= 0xdfff) continue;
        std::string text;
        append_utf8(text, point);
        const CodePoint decoded = first_code_point(text);
        ASSERT_TRUE(decoded.valid && decoded.value == point && decoded.length == text.size()) << point;
    }
}

}  // namespace
}  // namespace ingero
