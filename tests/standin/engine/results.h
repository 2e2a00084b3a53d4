// Result codes that the stand-in gives. The runtime's and the driver's have the same numbers.
#pragma once

namespace ingero::standin {

enum Result : int {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    insufficient_driver = 35,
    no_device = 100,
    invalid_device = 101,
    invalid_context = 201,
    invalid_handle = 400,
    capture_illegal_state = 401,
    not_found = 500,
    not_ready = 600,
    capture_unsupported = 900,
};

struct ResultName {
    int code;
    const char* runtime;
    const char* driver;
    const char* text;
};

/// Hands a value out through a pointer of the caller's.
template <typename To, typename Value>
int give(To* to, Value value) {
    if (to == nullptr) return invalid_value;
    *to = static_cast<To>(value);
    return success;
}

/// Null for a code that is unknown.
const ResultName* find_result(int code);

}  // namespace ingero::standin
