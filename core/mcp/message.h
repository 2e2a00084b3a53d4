// JSON-RPC 2.0 as MCP speaks it: a message a line. What a client sends is foreign: its bytes and depth are bounded, and
// its kind is distinguished here before anything else inspects it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ingero::mcp {

inline constexpr size_t max_message_bytes = 1 << 20;
inline constexpr size_t max_message_depth = 32;
inline constexpr size_t max_id_bytes = 256;

/// The protocol's own errors; what a model can mend is a result instead.
enum class RpcCode : int {
    parse_error = -32700,
    invalid_request = -32600,
    method_not_found = -32601,
    invalid_params = -32602,
    internal_error = -32603,
    resource_not_found = -32002,   ///< up to revision 2025-11-25
    server_lost = -32000,          ///< of our own: the bridge lost its daemon
    unsupported_version = -32022,  ///< from revision 2026-07-28 on
};

struct RpcError {
    RpcCode code = RpcCode::internal_error;
    std::string message;
    nlohmann::json data = nullptr;  ///< left out where null
};

struct Message {
    enum class Kind { request, notification, response, invalid } kind = Kind::invalid;
    nlohmann::json id;  ///< a text or a number; null where there is none
    std::string method;
    nlohmann::json params = nlohmann::json::object();
    RpcError error;  ///< of an invalid one
};

/// Text to JSON, within the limits. nullopt where it is none, or too deep: `ret_error` says which.
std::optional<nlohmann::json> parse_json(std::string_view line, RpcError& ret_error);
/// What one element of a line is.
Message to_message(nlohmann::json value);

nlohmann::json result_message(const nlohmann::json& id, nlohmann::json result);
/// `id` null: it could not be read. It is then left out where `with_null_id` is not set, as revisions from 2025-11-25
/// on have it.
nlohmann::json error_message(const nlohmann::json& id, const RpcError& error, bool with_null_id = true);
nlohmann::json notification_message(std::string_view method, nlohmann::json params);
/// One line, with its newline. Text that is not UTF-8 has U+FFFD in it.
std::string to_line(const nlohmann::json& message);

/// Splits bytes into lines. Drops a line that is too long for a message as it comes, and reports it once it ends.
class LineReader {
  public:
    struct Line {
        std::string text;
        bool too_long = false;  ///< then there is no text
    };

    void feed(std::string_view bytes) { pending_.append(bytes); }
    /// Without its newline; empty ones are left out.
    std::optional<Line> next();
    size_t pending_bytes() const { return pending_.size() - begin_; }

  private:
    std::string pending_;
    size_t begin_ = 0;    ///< of what is not yet given out
    size_t scanned_ = 0;  ///< has no newline up to here
    bool dropping_ = false;
};

}  // namespace ingero::mcp
