// Function symbols of a shared library or executable, read from an open descriptor. Runs in a worker: the bytes are a
// target's and hostile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/result.h"

namespace ingero {

struct FunctionSymbol {
    std::string name;          ///< without version suffix
    uint64_t file_offset = 0;  ///< where the function starts in the file, inside an executable segment
    uint64_t size = 0;
    /// The first instruction decides a probe's price: push, nop and the like are emulated, others single-stepped.
    bool emulated = false;
};

struct LibrarySymbols {
    std::string build_id;                   ///< hex; empty when there is none
    std::vector<FunctionSymbol> functions;  ///< one an exported name; several names may share an offset
};

/// Symbols whose names are in `wanted` (sorted); from .dynsym, and from .symtab where `static_symbols`. A symbol that
/// is not a function, not at a function's start, or not in an executable segment is left out. Errors: corrupt, limit.
Result<LibrarySymbols> read_function_symbols(int fd, const std::vector<std::string>& wanted, bool static_symbols);

}  // namespace ingero
