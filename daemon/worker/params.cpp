#include "daemon/worker/params.h"

namespace ingero {

using nlohmann::json;

Result<std::optional<uint64_t>> number(const json& params, const char* name, uint64_t most) {
    const auto found = params.find(name);
    if (found == params.end() || found->is_null()) return std::nullopt;
    if (!found->is_number_unsigned() || found->get<uint64_t>() > most)
        return fail(ErrorCode::bad_request, std::string("parameter ") + name + " is not a number in its range");
    return found->get<uint64_t>();
}

Result<bool> flag(const json& params, const char* name) {
    const auto found = params.find(name);
    if (found == params.end() || found->is_null()) return false;
    if (!found->is_boolean())
        return fail(ErrorCode::bad_request, std::string("parameter ") + name + " is not a boolean");
    return found->get<bool>();
}

Result<std::vector<std::string>> texts(const json& params, const char* name, size_t most) {
    std::vector<std::string> result;
    const auto found = params.find(name);
    if (found == params.end() || found->is_null()) return result;
    if (!found->is_array() || found->size() > most)
        return fail(ErrorCode::bad_request, std::string("parameter ") + name + " is not a list of at most " +
                                                std::to_string(most) + " strings");
    for (const json& text : *found) {
        if (!text.is_string())
            return fail(ErrorCode::bad_request,
                        std::string("parameter ") + name + " contains something other than strings");
        result.push_back(text.get<std::string>());
    }
    return result;
}

}  // namespace ingero
