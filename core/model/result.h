// Results that must be consumed. Errors carry what happened, why, and what to do; their codes are those of the control
// protocol, so that an error can travel from where it arose to a terminal without translation.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace ingero {

enum class ErrorCode {
    bad_request,
    unknown_method,
    version,
    denied,
    not_found,
    limit,
    deadline,
    busy,
    corrupt,
    internal,
};

/// The code's name on the wire: "bad-request", "unknown-method" and so on.
std::string_view to_string(ErrorCode code);
/// The inverse; unknown names are ErrorCode::internal.
ErrorCode error_code_from_string(std::string_view name);

struct Error {
    ErrorCode code = ErrorCode::internal;
    std::string message;  ///< what and why, one line
    std::string hint;     ///< what to do about it; may be empty
};

template <class T>
using Result = tl::expected<T, Error>;

/// Shorthand for returning an error from a function that returns a Result.
inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string hint = {}) {
    return tl::unexpected<Error>(Error{code, std::move(message), std::move(hint)});
}

/// "what: strerror(error_number)".
std::string errno_message(std::string_view what, int error_number);

}  // namespace ingero
