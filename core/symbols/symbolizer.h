// Names for places in the code of a file. Runs in a worker: the bytes, names included, are a target's and hostile.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/result.h"
#include "core/model/stack.h"

namespace ingero {

struct FrameSymbol {
    std::string name;       ///< as the symbol table has it; empty where no function covers the place
    std::string demangled;  ///< of a C++ name; empty where it is none
    uint64_t offset = 0;    ///< from the symbol's start
    uint64_t address = 0;   ///< of the place, by the program headers; what a debug file is asked about
};

struct FileSymbols {
    FileState state = FileState::ok;
    std::string build_id;              ///< hex; empty where there is none
    std::string debug_link;            ///< file name of the debug file, by .gnu_debuglink; empty where there is none
    std::vector<FrameSymbol> symbols;  ///< one a place asked about, in their order
};

/// Of a name, and of what it is demangled to.
inline constexpr size_t max_symbol_name_bytes = 4'096;

/// At most this many places in one request.
inline constexpr size_t max_places = 4096;

/// What a request may spend of the processor on demangling: names that come later keep their mangled form. A hostile
/// name of a few hundred bytes takes exponentially long.
inline constexpr std::chrono::milliseconds demangling_budget{200};

/// C++ only; empty where the name is none, or is longer than any honest one.
std::string demangle(const std::string& name);

/// Demangles until its budget is used up.
class Demangler {
  public:
    explicit Demangler(std::chrono::milliseconds budget = demangling_budget) : left_(budget) {}
    /// Empty as of demangle(), and where nothing of the budget is left.
    std::string demangle(const std::string& name);
    /// The name itself where that is empty.
    std::string text(const std::string& name);

  private:
    std::chrono::nanoseconds left_;  ///< of the thread's time on the processor
};

/// Names for places given as file offsets, from .symtab, and from .dynsym where that is missing. `build_id`, where not
/// empty, is what was seen when the places were: another gives the state rebuilt and no names. Errors: corrupt, limit.
Result<FileSymbols> symbolize_offsets(int fd, std::span<const uint64_t> offsets, std::string_view build_id,
                                      std::chrono::milliseconds for_demangling = demangling_budget);

/// The same for places given as addresses in the file that `fd` is the debug file of.
Result<FileSymbols> symbolize_addresses(int fd, std::span<const uint64_t> addresses, std::string_view build_id,
                                        std::chrono::milliseconds for_demangling = demangling_budget);

}  // namespace ingero
