#include "core/mcp/message.h"

#include <utility>

namespace ingero::mcp {

using nlohmann::json;

namespace {

/// Brackets outside of texts: the parser itself has no limit, and what it builds is walked over by recursion later.
bool is_too_deep(std::string_view text) {
    size_t depth = 0;
    bool in_text = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_text) {
            if (c == '\\')
                ++i;
            else if (c == '"')
                in_text = false;
            continue;
        }
        if (c == '"') in_text = true;
        if (c == '[' || c == '{') {
            if (++depth > max_message_depth) return true;
        }
        if ((c == ']' || c == '}') && depth > 0) --depth;
    }
    return false;
}

bool is_id(const json& id) {
    return id.is_number() || (id.is_string() && id.get_ref<const std::string&>().size() <= max_id_bytes);
}

Message invalid(json id, RpcCode code, std::string what) {
    Message message;
    message.id = std::move(id);
    message.error = {code, std::move(what)};
    return message;
}

}  // namespace

std::optional<json> parse_json(std::string_view line, RpcError& ret_error) {
    if (line.size() > max_message_bytes) {
        ret_error = {RpcCode::invalid_request, "the message is longer than 1 MiB"};
        return std::nullopt;
    }
    if (is_too_deep(line)) {
        ret_error = {RpcCode::invalid_request, "the message is nested more than 32 deep"};
        return std::nullopt;
    }
    json value = json::parse(line, nullptr, false);
    if (value.is_discarded()) {
        ret_error = {RpcCode::parse_error, "the line is not valid JSON"};
        return std::nullopt;
    }
    return value;
}

Message to_message(json value) {
    if (!value.is_object()) return invalid(nullptr, RpcCode::invalid_request, "the message is not an object");
    const auto id = value.find("id");
    const bool has_id = id != value.end();
    const json known_id = has_id && is_id(*id) ? *id : json();
    const auto version = value.find("jsonrpc");
    if (version == value.end() || *version != "2.0")
        return invalid(known_id, RpcCode::invalid_request, "jsonrpc is not \"2.0\"");
    const auto method = value.find("method");
    if (method == value.end() && (value.contains("result") || value.contains("error"))) {
        Message message;
        message.kind = Message::Kind::response;
        message.id = known_id;
        return message;
    }
    if (has_id && known_id.is_null())
        return invalid(nullptr, RpcCode::invalid_request, "id is neither a number nor a string of at most 256 bytes");
    if (method == value.end() || !method->is_string())
        return invalid(known_id, RpcCode::invalid_request, "method is missing");
    Message message;
    message.kind = has_id ? Message::Kind::request : Message::Kind::notification;
    message.id = known_id;
    message.method = method->get<std::string>();
    if (const auto params = value.find("params"); params != value.end()) {
        if (!params->is_object())
            return has_id ? invalid(known_id, RpcCode::invalid_params, "params is not an object")
                          : invalid(nullptr, RpcCode::invalid_request, "params is not an object");
        message.params = std::move(*params);
    }
    return message;
}

json result_message(const json& id, json result) {
    return {{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}};
}

json error_message(const json& id, const RpcError& error, bool with_null_id) {
    json message = {{"jsonrpc", "2.0"},
                    {"error", {{"code", static_cast<int>(error.code)}, {"message", error.message}}}};
    if (!error.data.is_null()) message["error"]["data"] = error.data;
    if (!id.is_null() || with_null_id) message["id"] = id;
    return message;
}

json notification_message(std::string_view method, json params) {
    return {{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}};
}

std::string to_line(const json& message) {
    return message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<LineReader::Line> LineReader::next() {
    for (;;) {
        const size_t end = pending_.find('\n', scanned_);
        if (end == std::string::npos) {
            // Taken together again only now: a line that comes in pieces is not moved for each.
            pending_.erase(0, std::exchange(begin_, 0));
            scanned_ = pending_.size();
            if (pending_.size() > max_message_bytes) {
                dropping_ = true;
                pending_.clear();
                scanned_ = 0;
            }
            return std::nullopt;
        }
        std::string text = pending_.substr(begin_, end - begin_);
        begin_ = scanned_ = end + 1;
        if (std::exchange(dropping_, false) || text.size() > max_message_bytes) return Line{{}, true};
        if (!text.empty() && text.back() == '\r') text.pop_back();
        if (!text.empty()) return Line{std::move(text), false};
    }
}

}  // namespace ingero::mcp
