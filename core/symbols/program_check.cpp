#include "core/symbols/program_check.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ingero {

namespace {

constexpr size_t most_sections = 1'024;

}  // namespace

bool may_have_symbol_table(int fd) {
    Elf64_Ehdr header{};
    if (pread(fd, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) return false;
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB)
        return false;
    if (header.e_shoff == 0 || header.e_shoff > static_cast<uint64_t>(INT64_MAX) ||
        header.e_shentsize != sizeof(Elf64_Shdr))
        return false;
    // More sections than fit a header's field are for the worker to count.
    if (header.e_shnum == 0 || header.e_shnum > most_sections) return true;
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    const auto bytes = static_cast<ssize_t>(sections.size() * sizeof(Elf64_Shdr));
    if (pread(fd, sections.data(), static_cast<size_t>(bytes), static_cast<off_t>(header.e_shoff)) != bytes)
        return false;
    return std::any_of(sections.begin(), sections.end(),
                       [](const Elf64_Shdr& section) { return section.sh_type == SHT_SYMTAB; });
}

}  // namespace ingero
