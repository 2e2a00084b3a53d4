// One MCP session: messages in, messages out. It speaks every revision with an `initialize` up to 2025-11-25, and
// 2026-07-28, where each request says which revision it is of; docs/mcp.md says what differs. It knows no socket and no
// clock: whoever owns it feeds bytes, has it handle one message after the other, and writes what it says.
// One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/mcp/message.h"
#include "core/mcp/tool.h"

namespace ingero::mcp {

struct SessionOptions {
    std::string version = "0";                      ///< of ingero
    std::function<void(const std::string&)> write;  ///< a line, with its newline
    /// Called before each question to the source: the owner may feed() meanwhile, which is how a running call is
    /// cancelled.
    std::function<void()> look_for_input = [] {};
};

class McpSession {
  public:
    /// The source must outlive it.
    McpSession(Source& source, SessionOptions options);

    /// What came from the client, cut anywhere. Cancellations take effect at once.
    void feed(std::string_view bytes);
    /// False while so much waits that the client had better wait too.
    bool wants_input() const;
    /// Handles the next message that is there; false where there is none.
    bool handle_next();

  private:
    /// How a request is answered.
    struct Context {
        std::string_view revision;
        bool is_stateless = false;
        nlohmann::json id;
        nlohmann::json progress_token;
    };
    using Answer = tl::expected<nlohmann::json, RpcError>;

    void take_lines();
    void note_cancellation(const std::string& line);
    bool is_cancelled(const nlohmann::json& id) const;
    std::vector<nlohmann::json> handle_line(const LineReader::Line& line);
    std::optional<nlohmann::json> handle(Message message);
    Answer dispatch(const Message& message, const Context& context);
    tl::expected<Context, RpcError> context_of(const Message& message) const;
    Answer initialize(const nlohmann::json& params);
    Answer discover(const Context& context);
    Answer list(const Message& message, const Context& context);
    Answer call_tool(const nlohmann::json& params, const Context& context);
    Answer read_resource(const nlohmann::json& params, const Context& context);
    nlohmann::json server_info(std::string_view revision) const;
    nlohmann::json error_of(const nlohmann::json& id, const RpcError& error) const;
    void notify_progress(const Context& context, const std::string& method);

    Source& source_;
    SessionOptions options_;
    LineReader reader_;
    std::deque<LineReader::Line> lines_;
    size_t waiting_bytes_ = 0;              ///< of lines_
    std::deque<nlohmann::json> cancelled_;  ///< ids, of requests that wait or run
    std::string revision_;                  ///< of initialize; empty before it
    uint64_t progress_ = 0;
};

}  // namespace ingero::mcp
