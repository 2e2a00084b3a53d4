#include "core/model/stack.h"

namespace ingero {

std::string_view to_string(FileState state) {
    switch (state) {
        case FileState::ok:
            return "ok";
        case FileState::stripped:
            return "stripped";
        case FileState::rebuilt:
            return "rebuilt";
        case FileState::deleted:
            return "deleted";
        case FileState::anonymous:
            return "anonymous";
        case FileState::imported:
            return "imported";
        case FileState::unread:
            break;
    }
    return "unread";
}

bool is_build_id(std::string_view text) {
    constexpr size_t most_digits = 128;
    return !text.empty() && text.size() <= most_digits && text.size() % 2 == 0 &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string_view to_string(StackEnd end) {
    switch (end) {
        case StackEnd::whole:
            return "whole";
        case StackEnd::no_table:
            return "no-table";
        case StackEnd::no_rule:
            return "no-rule";
        case StackEnd::no_memory:
            return "no-memory";
        case StackEnd::too_deep:
            return "too-deep";
        case StackEnd::not_kept:
            break;
    }
    return "unknown";
}

}  // namespace ingero
