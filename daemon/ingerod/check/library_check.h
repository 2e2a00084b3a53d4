// The checks of CUDA libraries: those in the usual places, and those that running programs have mapped.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/symbols/elf_symbols.h"
#include "daemon/ingerod/check/check.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/probes/attach/targets.h"

namespace ingero {

class SymbolReader;

/// A file in a usual place.
inline constexpr const char* library_check_name = "library";
/// One that a program uses.
inline constexpr const char* mapped_library_check_name = "mapped-library";

/// Which of the wanted functions a library has, and what probing them costs.
struct SymbolSummary {
    size_t wanted = 0;                 ///< names, variants included
    size_t found = 0;                  ///< of them
    size_t places = 0;                 ///< functions probed: several names may stand for one
    std::vector<std::string> stepped;  ///< of the places: single-stepped, about ten times dearer
    std::vector<std::string> absent;   ///< names that it does not have
};

SymbolSummary summarize_symbols(Library library, const std::vector<FunctionSymbol>& symbols);

/// A library that programs use, as whoever looked knows it.
struct MappedLibrary {
    std::string path;  ///< as the programs see it
    size_t processes = 0;
    bool reading = false;   ///< its symbols are being looked up
    std::string reason;     ///< why it is not traced or cannot be; empty where it is or can
    bool degrades = false;  ///< the reason is not the file's
    SymbolSummary symbols;  ///< where there is no reason
    bool traced = false;    ///< by the daemon that answers
};

CheckResult check_mapped_library(const MappedLibrary& library);
CheckResult check_library_file(const std::string& path, Library library, const Result<std::vector<FunctionSymbol>>&);

/// Both kinds. Without `proc`: those in the usual places only.
CheckResults check_libraries(SymbolReader& symbols, const ProcFs* proc);

/// Paths of CUDA libraries in what `ldconfig -p` prints, in its order.
std::vector<std::string> libraries_of_ldconfig(std::string_view text);

}  // namespace ingero
