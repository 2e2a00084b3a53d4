// What answers have in common: values that may not be known.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/model/process/process.h"
#include "core/render/render.h"
#include "core/wire/utf8.h"

namespace ingero {

/// null: empty.
inline nlohmann::json text_or_null(std::string_view text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(to_valid_utf8(text));
}

/// null: none of this pid namespace.
inline nlohmann::json pid_or_null(uint32_t pid) {
    return visible_pid(pid) == 0 ? nlohmann::json() : nlohmann::json(visible_pid(pid));
}

/// null: not known.
inline nlohmann::json comm_of(const ProcessKey& process, const AnswerContext& context) {
    const auto known = context.comms.find(process);
    return known == context.comms.end() ? nlohmann::json() : text_or_null(known->second);
}

}  // namespace ingero
