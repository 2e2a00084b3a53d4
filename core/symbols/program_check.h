// A look at a file that many programs of a host pass, before any of it is given to a worker.
#pragma once

namespace ingero {

/// Whether the file is a 64-bit little-endian ELF file that may have a .symtab: programs as distributions ship them
/// have none. Reads at most 64 KiB of section headers, takes nothing from them but their type, and makes no promise of
/// the rest of the file.
bool may_have_symbol_table(int fd);

}  // namespace ingero
