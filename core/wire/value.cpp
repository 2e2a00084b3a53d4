#include "core/wire/value.h"

#include <bit>
#include <cstring>
#include <msgpack.hpp>
#include <utility>

#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

struct StringSink {
    std::string& text;
    void write(const char* bytes, size_t size) { text.append(bytes, size); }
};

class Encoder {
  public:
    std::string take() { return std::move(bytes_); }

    void pack(const json& value) {
        switch (value.type()) {
            case json::value_t::boolean:
                value.get<bool>() ? packer_.pack_true() : packer_.pack_false();
                break;
            case json::value_t::number_integer:
                packer_.pack_int64(value.get<int64_t>());
                break;
            case json::value_t::number_unsigned:
                packer_.pack_uint64(value.get<uint64_t>());
                break;
            case json::value_t::number_float:
                pack_double(value.get<double>());
                break;
            case json::value_t::string:
                pack_text(value.get_ref<const std::string&>());
                break;
            case json::value_t::binary:
                pack_binary(value.get_binary());
                break;
            case json::value_t::array:
                pack_array(value);
                break;
            case json::value_t::object:
                pack_object(value);
                break;
            case json::value_t::null:
            case json::value_t::discarded:
                packer_.pack_nil();
                break;
        }
    }

  private:
    // The packer's own pack_double turns 2.0 into the integer 2, and casts out of range at 2^64.
    void pack_double(double value) {
        const auto bits = std::bit_cast<uint64_t>(value);
        bytes_.push_back('\xcb');
        for (int shift = 56; shift >= 0; shift -= 8) bytes_.push_back(static_cast<char>(bits >> shift & 0xff));
    }

    void pack_text(const std::string& text) {
        const auto size = static_cast<uint32_t>(text.size());
        packer_.pack_str(size);
        packer_.pack_str_body(text.data(), size);
    }

    void pack_binary(const json::binary_t& bytes) {
        const auto size = static_cast<uint32_t>(bytes.size());
        packer_.pack_bin(size);
        packer_.pack_bin_body(reinterpret_cast<const char*>(bytes.data()), size);
    }

    void pack_array(const json& value) {
        packer_.pack_array(static_cast<uint32_t>(value.size()));
        for (const json& element : value) pack(element);
    }

    void pack_object(const json& value) {
        packer_.pack_map(static_cast<uint32_t>(value.size()));
        for (const auto& [key, member] : value.items()) {
            pack_text(key);
            pack(member);
        }
    }

    std::string bytes_;
    StringSink sink_{bytes_};
    msgpack::packer<StringSink> packer_{sink_};
};

/// Builds JSON as the parser goes. A container grows only as its elements arrive, never by the size its header claims.
class JsonBuilder : public msgpack::null_visitor {
  public:
    explicit JsonBuilder(const RpcLimits& limits) : limits_(limits) {}

    void init() {
        root_ = nullptr;
        frames_.clear();
        elements_ = 0;
    }
    json take() { return std::exchange(root_, nullptr); }
    const std::optional<Error>& error() const { return error_; }
    bool too_deep() const { return too_deep_; }

    bool visit_nil() { return add(nullptr); }
    bool visit_boolean(bool value) { return add(value); }
    bool visit_positive_integer(uint64_t value) { return add(value); }
    bool visit_negative_integer(int64_t value) {
        // Signed forms may carry a positive number: one number has one JSON type here.
        return value >= 0 ? add(static_cast<uint64_t>(value)) : add(value);
    }
    bool visit_float32(float value) { return add(static_cast<double>(value)); }
    bool visit_float64(double value) { return add(value); }

    bool visit_str(const char* text, uint32_t size) {
        if (size > limits_.string_bytes) return refuse(ErrorCode::limit, "a string is too long");
        if (limits_.keep_invalid_text && !in_key_ && !is_utf8({size == 0 ? "" : text, size}))
            return visit_bin(text, size);
        std::string valid = to_valid_utf8({size == 0 ? "" : text, size});
        if (!in_key_) return add(std::move(valid));
        frames_.back().key = std::move(valid);
        return true;
    }

    bool visit_bin(const char* bytes, uint32_t size) {
        json::binary_t::container_type copy(size);
        if (size > 0) std::memcpy(copy.data(), bytes, size);
        return add(json::binary(std::move(copy)));
    }

    bool visit_ext(const char*, uint32_t) {
        return refuse(ErrorCode::bad_request, "MessagePack extension types are not used here");
    }

    bool start_array(uint32_t size) { return start(json::array(), size); }
    bool start_map(uint32_t size) { return start(json::object(), 2 * static_cast<size_t>(size)); }
    bool end_array() { return end(); }
    bool end_map() { return end(); }
    bool start_map_key() {
        in_key_ = true;
        return true;
    }
    bool end_map_key() {
        in_key_ = false;
        return true;
    }
    void parse_error(size_t, size_t) { refuse(ErrorCode::bad_request, "not MessagePack"); }

    bool refuse(ErrorCode code, std::string message) {
        if (!error_) error_ = Error{code, std::move(message), ""};
        return false;
    }

  private:
    struct Frame {
        json* container;
        std::string key;
    };

    bool start(json container, size_t elements) {
        if (frames_.size() >= limits_.depth) {
            too_deep_ = true;
            return refuse(ErrorCode::limit, "nested too deeply");
        }
        if (elements > limits_.elements - elements_) return refuse(ErrorCode::limit, "too many elements");
        elements_ += elements;
        json* added = nullptr;
        if (!add(std::move(container), &added)) return false;
        frames_.push_back({added, {}});
        return true;
    }

    bool end() {
        frames_.pop_back();
        return true;
    }

    bool add(json value, json** ret_added = nullptr) {
        if (in_key_) return refuse(ErrorCode::bad_request, "a map key is not a string");
        json* added = &root_;
        if (frames_.empty()) {
            root_ = std::move(value);
        } else if (json& parent = *frames_.back().container; parent.is_array()) {
            added = &parent.get_ref<json::array_t&>().emplace_back(std::move(value));
        } else {
            const auto [place, fresh] =
                parent.get_ref<json::object_t&>().emplace(std::move(frames_.back().key), std::move(value));
            if (!fresh) return refuse(ErrorCode::bad_request, "a map has the same key twice");
            added = &place->second;
        }
        if (ret_added) *ret_added = added;
        return true;
    }

    const RpcLimits limits_;
    json root_;
    // Pointers into root_: an open container's parent does not grow until it is closed.
    std::vector<Frame> frames_;
    size_t elements_ = 0;
    bool in_key_ = false;
    bool too_deep_ = false;
    std::optional<Error> error_;
};

/// Never called: no visited value refers to the buffer.
struct NoHook {
    void operator()(char*) {}
};

class Parser : public msgpack::parser<Parser, NoHook> {
  public:
    Parser(NoHook& hook, const RpcLimits& limits) : msgpack::parser<Parser, NoHook>(hook, 4096), builder_(limits) {}
    JsonBuilder& visitor() { return builder_; }
    bool referenced() const { return false; }
    void set_referenced(bool) {}

  private:
    JsonBuilder builder_;
};

}  // namespace

struct ValueDecoder::Impl {
    explicit Impl(const RpcLimits& decoder_limits) : limits(decoder_limits), parser(hook, decoder_limits) {}

    RpcLimits limits;
    NoHook hook;
    Parser parser;
};

ValueDecoder::ValueDecoder(const RpcLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
ValueDecoder::~ValueDecoder() = default;

void ValueDecoder::feed(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    impl_->parser.reserve_buffer(bytes.size());
    std::memcpy(impl_->parser.buffer(), bytes.data(), bytes.size());
    impl_->parser.buffer_consumed(bytes.size());
}

Result<std::optional<json>> ValueDecoder::next() {
    JsonBuilder& builder = impl_->parser.visitor();
    if (builder.error()) return tl::unexpected(*builder.error());
    const bool whole = impl_->parser.next();
    if (builder.error()) return tl::unexpected(*builder.error());
    const size_t size = whole ? impl_->parser.parsed_size() : impl_->parser.message_size();
    if (size > impl_->limits.message_bytes) {
        builder.refuse(ErrorCode::limit, "a message is too long");
        return tl::unexpected(*builder.error());
    }
    if (!whole) return std::nullopt;
    json value = builder.take();
    impl_->parser.reset();
    return value;
}

size_t ValueDecoder::pending_bytes() const {
    return impl_->parser.message_size();
}

bool ValueDecoder::too_deep() const {
    return impl_->parser.visitor().too_deep();
}

std::optional<std::byte> ValueDecoder::first_byte() const {
    if (impl_->parser.parsed_size() != 0 || impl_->parser.nonparsed_size() == 0) return std::nullopt;
    return static_cast<std::byte>(*impl_->parser.nonparsed_buffer());
}

std::string encode_value(const json& value) {
    Encoder encoder;
    encoder.pack(value);
    return encoder.take();
}

namespace {

bool fits(const json& value, const RpcLimits& limits, size_t depth, size_t& elements) {
    if (value.is_string()) return value.get_ref<const std::string&>().size() <= limits.string_bytes;
    if (!value.is_structured()) return true;
    const size_t more = value.size() * (value.is_object() ? 2 : 1);
    if (depth == 0 || more > elements) return false;
    elements -= more;
    if (value.is_object()) {
        for (const auto& [key, member] : value.items())
            if (key.size() > limits.string_bytes || !fits(member, limits, depth - 1, elements)) return false;
        return true;
    }
    for (const json& element : value)
        if (!fits(element, limits, depth - 1, elements)) return false;
    return true;
}

}  // namespace

bool fits_in_message(const json& value, const RpcLimits& limits) {
    constexpr size_t envelope = 4;  // [1, id, error, result]
    if (limits.depth == 0 || limits.elements < envelope) return false;
    size_t elements = limits.elements - envelope;
    return fits(value, limits, limits.depth - 1, elements);
}

}  // namespace ingero
