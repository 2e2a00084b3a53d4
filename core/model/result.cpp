#include "core/model/result.h"

#include <array>
#include <system_error>

namespace ingero {

namespace {
constexpr std::array<std::string_view, 10> code_names = {"bad-request", "unknown-method", "version",  "denied",
                                                         "not-found",   "limit",          "deadline", "busy",
                                                         "corrupt",     "internal"};
}

std::string_view to_string(ErrorCode code) {
    return code_names.at(static_cast<size_t>(code));
}

ErrorCode error_code_from_string(std::string_view name) {
    for (size_t i = 0; i < code_names.size(); ++i)
        if (code_names[i] == name) return static_cast<ErrorCode>(i);
    return ErrorCode::internal;
}

std::string errno_message(std::string_view what, int error_number) {
    return std::string(what) + ": " + std::generic_category().message(error_number);
}

}  // namespace ingero
