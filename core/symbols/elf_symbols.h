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
    std::vector<uint8_t> code{};  ///< what the file has there: at most 8 bytes, at least 1
    uint64_t jumps_to = 0;        ///< file offset of another of these: it does nothing else; 0: not that
};

struct LibrarySymbols {
    std::string build_id;                   ///< hex; empty when there is none
    std::vector<FunctionSymbol> functions;  ///< one an exported name; several names may share an offset
    std::vector<std::string> misplaced;     ///< names left out since they point inside a function; at most 16
};

/// Symbols whose names are in `wanted` (sorted); from .dynsym, and from .symtab where `static_symbols`. A symbol that
/// is not a function or not in an executable segment is left out, and so is one that points inside another function, by
/// that one's symbol or by .eh_frame_hdr: a probe there could lie within an instruction. Errors: corrupt, limit.
Result<LibrarySymbols> read_function_symbols(int fd, const std::vector<std::string>& wanted, bool static_symbols);

}  // namespace ingero
