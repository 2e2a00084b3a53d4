#include "core/spans/span_stream.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/wire/value.h"
#include "tests/unit/decode_value.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

std::span<const std::byte> as_span(std::string_view text) {
    return std::as_bytes(std::span(text));
}

/// The only frame of a value that is sent alone.
SpanFrame frame_of(const json& value) {
    SpanStream stream;
    const std::string bytes = encode_value(value);
    stream.feed(as_span(bytes));
    auto frame = stream.next();
    EXPECT_TRUE(frame && *frame) << value;
    return frame && *frame ? std::move(**frame) : SpanFrame();
}

SpanFrame frame_of_line(std::string line) {
    SpanStream stream;
    line += '\n';
    stream.feed(as_span(line));
    auto frame = stream.next();
    EXPECT_TRUE(frame && *frame) << line;
    return frame && *frame ? std::move(**frame) : SpanFrame();
}

json request() {
    return {{"id", "r1"}, {"start", 1'000}, {"end", 3'000}};
}

json with(const char* field, json value, json base = request()) {
    base[field] = std::move(value);
    return base;
}

SpanRefusal refusal_of(const json& value) {
    const SpanFrame frame = frame_of(value);
    EXPECT_THAT(frame.spans, IsEmpty()) << value;
    EXPECT_THAT(frame.refused, SizeIs(1)) << value;
    return frame.refused.empty() ? SpanRefusal::bad_frame : frame.refused.begin()->first;
}

TEST(SpanStream, TakesARequestWithAllItsFields) {
    json fields = request();
    fields.update({{"kind", "request"},
                   {"clock", "monotonic"},
                   {"scheduled", 1'500},
                   {"first_token", 2'000},
                   {"prompt_tokens", 11},
                   {"output_tokens", 7},
                   {"model", "llama"},
                   {"labels", {{"tenant", "a"}}},
                   {"values", {{"loss", 2.5}}},
                   {"pid", 42},
                   {"start_time", 99},
                   {"ack", 5},
                   {"of_a_later_version", {1, 2}}});
    const SpanFrame frame = frame_of(fields);
    ASSERT_THAT(frame.spans, SizeIs(1));
    const IncomingSpan& span = frame.spans[0];
    EXPECT_EQ(frame.ack, 5u);
    EXPECT_FALSE(span.realtime);
    EXPECT_EQ(span.pid, 42u);
    EXPECT_EQ(span.start_ticks, 99u);
    EXPECT_EQ(span.row.kind, SpanKind::request);
    EXPECT_EQ(span.row.id, "r1");
    EXPECT_EQ(span.row.start_ns, 1'000u);
    EXPECT_EQ(span.row.end_ns, 3'000u);
    EXPECT_EQ(span.row.scheduled_ns, 1'500u);
    EXPECT_EQ(span.row.first_token_ns, 2'000u);
    EXPECT_EQ(span.row.prompt_tokens, 11u);
    EXPECT_EQ(span.row.output_tokens, 7u);
    EXPECT_EQ(span.row.model, "llama");
    EXPECT_THAT(span.row.labels, ElementsAre(Pair("tenant", "a")));
    EXPECT_THAT(span.row.values, ElementsAre(Pair("loss", 2.5)));
}

TEST(SpanStream, TakesAnArrayOfSpansAndRefusesEachForItself) {
    const SpanFrame frame = frame_of({request(), with("end", 1), with("start", "soon"), 7, with("ack", 9)});
    EXPECT_THAT(frame.spans, SizeIs(2));
    EXPECT_THAT(frame.refused, ElementsAre(Pair(SpanRefusal::bad_field, 2), Pair(SpanRefusal::end_before_start, 1)));
    EXPECT_EQ(frame.ack, 9u);
}

TEST(SpanStream, AnswersForAFrameWhoseAskingSpanIsRefused) {
    const SpanFrame frame = frame_of({with("ack", 3, with("end", 1))});
    EXPECT_EQ(frame.ack, 3u);
    EXPECT_THAT(frame.spans, IsEmpty());
}

TEST(SpanStream, RefusesWhatIsNoSpanWithItsReason) {
    EXPECT_EQ(refusal_of(with("end", 999)), SpanRefusal::end_before_start);
    EXPECT_EQ(refusal_of(with("id", "")), SpanRefusal::bad_id);
    EXPECT_EQ(refusal_of(with("id", std::string(129, 'x'))), SpanRefusal::bad_id);
    EXPECT_EQ(refusal_of(with("id", 7)), SpanRefusal::bad_id);
    EXPECT_EQ(refusal_of({{"start", 1}, {"end", 2}}), SpanRefusal::bad_id) << "a request has one";
    for (const json& bad : {with("kind", "nonsense"),
                            with("kind", 1),
                            with("start", -1),
                            with("start", 1.5),
                            with("end", nullptr),
                            with("clock", "sundial"),
                            with("first_token", 999),
                            with("scheduled", 3'001),
                            with("prompt_tokens", -1),
                            with("output_tokens", "many"),
                            with("model", std::string(129, 'x')),
                            with("labels", json::array()),
                            with("labels", {{"a b", "x"}}),
                            with("labels", {{"a", 1}}),
                            with("labels", {{"a", std::string(257, 'x')}}),
                            with("labels", {{std::string(65, 'a'), "x"}}),
                            with("values", {{"a", "1"}}),
                            with("pid", -5),
                            with("pid", 1ULL << 32),
                            with("start_time", 7)})
        EXPECT_EQ(refusal_of(bad), SpanRefusal::bad_field) << bad;
    json many = json::object();
    for (int i = 0; i < 33; ++i) many["k" + std::to_string(i)] = "v";
    EXPECT_EQ(refusal_of(with("labels", many)), SpanRefusal::bad_field);
}

TEST(SpanStream, TextIsUtf8AndAnIdIsBytes) {
    const auto raw = [](const std::string& key, const std::string& value) {
        std::string bytes = encode_value(with(key.c_str(), "??"));
        bytes.replace(bytes.find("\xa2??"), 3, value);
        SpanStream stream;
        stream.feed(as_span(bytes));
        auto frame = stream.next();
        EXPECT_TRUE(frame && *frame);
        return std::move(**frame);
    };
    EXPECT_THAT(raw("model", "\xa2\xff\xfe").refused, ElementsAre(Pair(SpanRefusal::not_utf8, 1)));
    const SpanFrame text_id = raw("id", "\xa2\xff\xfe"), binary_id = raw("id", std::string("\xc4\x02\x00\xfe", 4));
    ASSERT_THAT(text_id.spans, SizeIs(1));
    EXPECT_EQ(text_id.spans[0].row.id, "\xff\xfe");
    ASSERT_THAT(binary_id.spans, SizeIs(1));
    EXPECT_EQ(binary_id.spans[0].row.id, std::string("\0\xfe", 2));
}

TEST(SpanStream, IsBrokenByWhatCannotBeReadOn) {
    const auto broken = [](const std::string& bytes) -> std::optional<SpanRefusal> {
        SpanStream stream;
        stream.feed(as_span(bytes));
        for (;;) {
            auto frame = stream.next();
            if (!frame) {
                EXPECT_FALSE(stream.next()) << "and stays so";
                return frame.error();
            }
            if (!*frame) return std::nullopt;
        }
    };
    EXPECT_EQ(broken("GET / HTTP/1.1\r\n"), SpanRefusal::bad_frame);
    EXPECT_EQ(broken("\x81\xc1"), SpanRefusal::bad_frame);
    EXPECT_EQ(broken(encode_value(with("labels", {{"a", {{"b", {{"c", 1}}}}}}))), std::nullopt);
    EXPECT_EQ(broken(encode_value({with("labels", {{"a", {{"b", {{"c", {{"d", 1}}}}}}}})})), SpanRefusal::too_deep);
    EXPECT_EQ(broken(encode_value(with("labels", {{"a", std::string(70'000, 'x')}}))), SpanRefusal::too_large);
    std::string endless = "\xdd\xff\xff\xff\xff";
    EXPECT_EQ(broken(endless), SpanRefusal::too_large);
    EXPECT_EQ(broken("{" + std::string(70'000, ' ')), SpanRefusal::too_large);
    EXPECT_EQ(broken(encode_value(request()).substr(0, 5)), std::nullopt) << "more may come";
}

TEST(SpanStream, GivesTheSameFramesHoweverTheBytesAreCut) {
    std::string bytes;
    for (int i = 0; i < 5; ++i) bytes += encode_value({with("id", std::to_string(i)), with("ack", i)});
    for (size_t step = 1; step < bytes.size(); ++step) {
        SpanStream stream;
        std::vector<std::string> ids;
        for (size_t at = 0; at < bytes.size(); at += step) {
            stream.feed(as_span(std::string_view(bytes).substr(at, step)));
            for (;;) {
                auto frame = stream.next();
                ASSERT_TRUE(frame);
                if (!*frame) break;
                for (const IncomingSpan& span : (*frame)->spans) ids.push_back(span.row.id);
            }
        }
        EXPECT_THAT(ids, ElementsAre("0", "r1", "1", "r1", "2", "r1", "3", "r1", "4", "r1")) << step;
        EXPECT_EQ(stream.pending_bytes(), 0u);
    }
}

TEST(Annotation, OfTheEarlierProtocolIsARequestAStepOrALabel) {
    const SpanFrame request_frame = frame_of_line(
        R"({"ts":5,"labels":{"request_id":"q","prompt_len":"12","output_len":"x","model":"m"},"pid":7,"start_time":9,)"
        R"("span_start":1000,"span_end":2000,"v":1})");
    ASSERT_THAT(request_frame.spans, SizeIs(1));
    const IncomingSpan& span = request_frame.spans[0];
    EXPECT_EQ(span.row.kind, SpanKind::request);
    EXPECT_EQ(span.row.id, "q");
    EXPECT_EQ(span.row.start_ns, 1'000u);
    EXPECT_EQ(span.row.end_ns, 2'000u);
    EXPECT_EQ(span.row.prompt_tokens, 12u);
    EXPECT_EQ(span.row.output_tokens, std::nullopt);
    EXPECT_EQ(span.row.model, "m");
    EXPECT_TRUE(span.realtime);
    EXPECT_EQ(span.pid, 7u);
    EXPECT_EQ(span.start_ticks, 9u);

    const SpanFrame step = frame_of_line(R"({"labels":{"step":"3","epoch":"1"},"span_start":1,"span_end":2,"pid":0})");
    ASSERT_THAT(step.spans, SizeIs(1));
    EXPECT_EQ(step.spans[0].row.kind, SpanKind::step);
    EXPECT_EQ(step.spans[0].row.id, "3");
    EXPECT_EQ(step.spans[0].pid, std::nullopt);

    const SpanFrame moment = frame_of_line(R"({"labels":{"step":"3"}})");
    ASSERT_THAT(moment.spans, SizeIs(1));
    EXPECT_EQ(moment.spans[0].row.kind, SpanKind::label);
    EXPECT_FALSE(moment.spans[0].has_interval);
}

TEST(Annotation, ATimeOfZeroIsNone) {
    const SpanFrame frame = frame_of_line(R"({"labels":{"step":"7"},"ts":0,"span_start":0,"span_end":0})");
    ASSERT_THAT(frame.spans, SizeIs(1));
    EXPECT_EQ(frame.spans[0].row.kind, SpanKind::label) << "a moment";
    EXPECT_FALSE(frame.spans[0].has_interval) << "it is when it came";
}

TEST(Annotation, LinesAreRefusedOneByOne) {
    SpanStream stream;
    const std::string lines =
        " \r\n{\"labels\":{\"a\":\"1\"}}\r\n\n"
        "{\"labels\":{}}\n"
        "{\"labels\":{\"a\":\"1\"},\"span_start\":2}\n"
        "{\"labels\":{\"a\":\"1\"},\"span_start\":2,\"span_end\":1}\n"
        "{no json}\n"
        "{\"labels\":{\"a\":\"\xff\"}}\n"
        "{\"labels\":{\"a\":[[[[1]]]]}}\n"
        "{\"labels\":{\"a\":\"[[[[[[[{{{\\\"{\"},\"ack\":4}\n";
    stream.feed(as_span(lines));
    std::vector<std::string> seen;
    for (;;) {
        auto frame = stream.next();
        ASSERT_TRUE(frame);
        if (!*frame) break;
        seen.push_back((*frame)->refused.empty() ? "taken" : std::string(to_string((*frame)->refused.begin()->first)));
        EXPECT_TRUE(seen.size() != 8 || (*frame)->ack == 4u);
    }
    EXPECT_THAT(seen, ElementsAre("taken", "bad-field", "bad-field", "end-before-start", "bad-frame", "not-utf8",
                                  "too-deep", "taken"));
    EXPECT_EQ(stream.encode_reply(4, 1, {{SpanRefusal::bad_id, 2}}),
              "{\"accepted\":1,\"ack\":4,\"reasons\":{\"bad-id\":2},\"rejected\":2}\n");
}

TEST(SpanStream, RepliesInTheFormOfTheStream) {
    SpanStream stream;
    const std::string bytes = encode_value(request());
    stream.feed(as_span(bytes));
    const auto reply = decode_value(stream.encode_reply(7, 2, {{SpanRefusal::too_old, 1}}), {});
    ASSERT_TRUE(reply);
    EXPECT_EQ(*reply, (json{{"ack", 7}, {"accepted", 2}, {"rejected", 1}, {"reasons", {{"too-old", 1}}}}));
}

class PlaceInTime : public testing::Test {
  protected:
    static constexpr uint64_t second = 1'000'000'000;
    SpanRules rules_{.now = {.monotonic_ns = 1'000'000 * second,
                             .boottime_ns = 1'000'000 * second,
                             .realtime_ns = 1'800'000'000 * second},
                     .oldest_ns = 500'000 * second};

    static IncomingSpan span(uint64_t start, uint64_t end, bool realtime = false) {
        IncomingSpan span;
        span.row.start_ns = start;
        span.row.end_ns = end;
        span.realtime = realtime;
        return span;
    }
    std::optional<SpanRefusal> refusal(IncomingSpan span) const {
        const auto placed = place_in_time(span, rules_);
        return placed ? std::nullopt : std::optional(placed.error());
    }
};

TEST_F(PlaceInTime, HoldsASpanAgainstTheClock) {
    const uint64_t now = rules_.now.monotonic_ns;
    EXPECT_EQ(refusal(span(now - second, now)), std::nullopt);
    EXPECT_EQ(refusal(span(now, now + second)), std::nullopt);
    EXPECT_EQ(refusal(span(now, now + second + 1)), SpanRefusal::in_future);
    EXPECT_EQ(refusal(span(0, UINT64_MAX)), SpanRefusal::in_future);
    EXPECT_EQ(refusal(span(now - 24 * 3'600 * second, now)), std::nullopt);
    EXPECT_EQ(refusal(span(now - 24 * 3'600 * second - 1, now)), SpanRefusal::too_long);
    EXPECT_EQ(refusal(span(499'999 * second, 500'000 * second - 1)), SpanRefusal::too_old);
    EXPECT_EQ(refusal(span(499'999 * second, 500'000 * second)), std::nullopt);
    rules_.longest_ns = 10 * second;
    EXPECT_EQ(refusal(span(now - 10 * second, now)), std::nullopt);
    EXPECT_EQ(refusal(span(now - 10 * second - 1, now)), SpanRefusal::too_long);
}

TEST_F(PlaceInTime, TurnsTheWallClockIntoTheMonotonicOne) {
    IncomingSpan wall = span(rules_.now.realtime_ns - 3 * second, rules_.now.realtime_ns - second, true);
    wall.row.first_token_ns = rules_.now.realtime_ns - 2 * second;
    ASSERT_TRUE(place_in_time(wall, rules_));
    EXPECT_EQ(wall.row.start_ns, rules_.now.monotonic_ns - 3 * second);
    EXPECT_EQ(wall.row.first_token_ns, rules_.now.monotonic_ns - 2 * second);
    EXPECT_EQ(wall.row.end_ns, rules_.now.monotonic_ns - second);
    EXPECT_EQ(refusal(span(1, 2, true)), SpanRefusal::too_old) << "1970";
    EXPECT_EQ(refusal(span(rules_.now.realtime_ns, rules_.now.realtime_ns + 2 * second, true)), SpanRefusal::in_future);
}

TEST_F(PlaceInTime, AMomentWithoutATimeIsWhenItArrives) {
    IncomingSpan moment;
    moment.has_interval = false;
    ASSERT_TRUE(place_in_time(moment, rules_));
    EXPECT_EQ(moment.row.start_ns, rules_.now.monotonic_ns);
    EXPECT_EQ(moment.row.end_ns, rules_.now.monotonic_ns);
}

}  // namespace
}  // namespace ingero
