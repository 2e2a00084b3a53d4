// What an AI client sends, byte by byte: every answer is one line of JSON-RPC, and where the bytes are cut changes
// none.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/mcp/session.h"
#include "core/wire/utf8.h"

namespace {

using namespace ingero;
using nlohmann::json;

void require(bool condition) {
    if (!condition) std::abort();
}

/// Answers each method with something of the right form, or not at all.
class FuzzSource final : public mcp::Source {
  public:
    Result<json> ask(const std::string& method, json params) override {
        require(params.is_object() && !params.contains("uid"));
        json answer = {{"node", "n"},
                       {"window", {{"from_ns", 1U}, {"to_ns", 2U}}},
                       {"coverage", {{"complete", true}, {"gaps", json::array()}}}};
        if (method == "query")
            answer.update({{"columns", {{{"name", "c"}}}}, {"rows", {{"x\x1b\xff"}}}, {"truncated", false}});
        else if (method == "processes")
            answer["processes"] = {{{"pid", 1U}, {"comm", "\xe2\x80\xae"}}};
        else if (method == "stats")
            answer["ops"] = json::array({{{"op", "o"}}});
        else
            return fail(ErrorCode::not_found, "no " + method, "hint");
        return answer;
    }
    bool is_live() const override { return false; }
};

std::string hold(std::string_view bytes, size_t piece) {
    FuzzSource source;
    std::string out;
    mcp::McpSession session(source, {.version = "0", .write = [&](const std::string& line) { out += line; }});
    while (!bytes.empty()) {
        if (session.wants_input()) {
            session.feed(bytes.substr(0, piece));
            bytes.remove_prefix(std::min(piece, bytes.size()));
        }
        while (session.handle_next()) continue;
    }
    return out;
}

void check(std::string_view out) {
    require(is_utf8(out));
    while (!out.empty()) {
        const size_t end = out.find('\n');
        require(end != std::string_view::npos);
        const json line = json::parse(out.substr(0, end), nullptr, false);
        for (const json& one : line.is_array() ? line : json::array({line})) {
            require(one.is_object() && one.value("jsonrpc", "") == "2.0");
            require(one.contains("result") + one.contains("error") + one.contains("method") == 1);
        }
        out.remove_prefix(end + 1);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    // Cancellations look ahead over what has come: without them no cut matters.
    const bool cancels = bytes.find("cancelled") != std::string_view::npos;
    const std::string whole = hold(bytes, SIZE_MAX);
    check(whole);
    const std::string cut = hold(bytes, 1 + size % 7);
    check(cut);
    require(cancels || whole == cut);
    return 0;
}
