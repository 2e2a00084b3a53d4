// Native stacks as they are stored: frames by file and offset, the files, and the names of places in them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/event.h"

namespace ingero {

/// What is known of a file that frames lie in. Numbers are stored: never used again for another.
enum class FileState : uint8_t {
    ok = 0,         ///< names come from its symbols, or from its debug file
    stripped = 1,   ///< it has no symbol table: only what it exports has names
    rebuilt = 2,    ///< another file lies under its path by now; names, where there are any, are of the one mapped
    deleted = 3,    ///< nothing lies under its path any more; names as above
    anonymous = 4,  ///< no file: code written at run time, or the kernel's
    unread = 5,     ///< not yet read, or it cannot be
    imported = 6,   ///< named by the trace it came from: offsets distinguish its places and are none in the file
};

/// "ok", "stripped" and so on: the names used in JSON.
std::string_view to_string(FileState state);

enum class StackEnd : uint8_t {
    whole = 0,      ///< at a function that has no caller
    no_table = 1,   ///< in code whose call frame information was not there
    no_rule = 2,    ///< where that information has no rule that is followed
    no_memory = 3,  ///< stack memory that was not there or makes no sense
    too_deep = 4,   ///< at the most frames that are kept
    not_kept = 5,   ///< written by a version that knows more ways
};

/// "whole", "no-table" and so on.
std::string_view to_string(StackEnd end);

struct StackFrame {
    uint32_t file = 0;    ///< id of a FileRow
    uint64_t offset = 0;  ///< in the file: of the function's entry in the first frame, of the last byte of the call in
                          ///< the others. In a file of state anonymous, the address
    auto operator<=>(const StackFrame&) const = default;
};

/// Whether a text may be a build-id: hexadecimal digits of 1 to 64 bytes.
bool is_build_id(std::string_view text);

struct StackRow {
    uint32_t id = 0;  ///< what Event::stack names; unique in a store
    ProcessKey process;
    uint64_t seen_ns = 0;  ///< CLOCK_MONOTONIC, first
    StackEnd end = StackEnd::whole;
    std::vector<StackFrame> frames;  ///< innermost first: the traced function itself
    bool truncated() const { return end != StackEnd::whole; }
};

struct FileRow {
    uint32_t id = 0;       ///< unique in a store
    std::string path;      ///< as the first process that had it mapped saw it
    std::string build_id;  ///< hex; empty where there is none, or it is not known
    FileState state = FileState::unread;
};

/// The name of a place: a place without one has no row, or one with an empty name.
struct SymbolRow {
    uint32_t file = 0;
    uint64_t offset = 0;         ///< as StackFrame has it
    std::string name;            ///< as the symbol table has it
    std::string demangled;       ///< empty where it is no C++ name
    uint64_t symbol_offset = 0;  ///< from the symbol's start
};

}  // namespace ingero
