#include "core/symbols/elf_symbols.h"

#include <gelf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>

#include "core/symbols/elf_file.h"

namespace ingero {

namespace {

constexpr uint64_t max_symbols = 4'000'000;
constexpr size_t max_name_bytes = 1'024;
// A file can give one name to millions of addresses; an honest one has a handful of versions.
constexpr size_t max_functions = 65'536;
constexpr size_t instruction_bytes = 8;

// The rules of arch/x86/kernel/uprobes.c: push_setup_ops() takes `push reg` with at most a REX.B before it,
// branch_setup_ops() nops and relative jumps and calls. Long nops (0f 1f) are emulated by recent kernels only.
bool is_emulated_x86_64(std::span<const unsigned char> code) {
    const auto at = [&](size_t i) { return i < code.size() ? code[i] : 0xf4; };  // hlt: never emulated
    const auto is_push = [](unsigned char byte) { return byte >= 0x50 && byte <= 0x57; };
    if (is_push(at(0)) || (at(0) == 0x41 && is_push(at(1)))) return true;
    size_t prefixes = 0;
    while (prefixes < 4 && at(prefixes) == 0x66) ++prefixes;
    if (at(prefixes) == 0x90 || (at(prefixes) == 0x0f && at(prefixes + 1) == 0x1f)) return true;
    if (prefixes != 0) return false;  // a 16-bit branch is not
    if (at(0) == 0xe8 || at(0) == 0xe9 || at(0) == 0xeb || (at(0) & 0xf0) == 0x70) return true;
    return at(0) == 0x0f && (at(1) & 0xf0) == 0x80;
}

// What aarch64_insn_is_*() in arch/arm64/kernel/probes/decode-insn.c simulates on every kernel: PC-relative addresses
// and branches. nop, bti and paciasp are hints; kernels differ on them, so they count as stepped.
bool is_emulated_aarch64(std::span<const unsigned char> code) {
    if (code.size() < 4) return false;
    const uint32_t insn = code[0] | code[1] << 8 | code[2] << 16 | static_cast<uint32_t>(code[3]) << 24;
    const bool address = (insn & 0x1f000000) == 0x10000000;          // adr, adrp
    const bool branch = (insn & 0x7c000000) == 0x14000000;           // b, bl
    const bool conditional = (insn & 0xff000010) == 0x54000000;      // b.cond
    const bool compare_or_test = (insn & 0x7c000000) == 0x34000000;  // cbz, cbnz, tbz, tbnz
    const bool to_register = (insn & 0xff9ffc1f) == 0xd61f0000;      // br, blr, ret
    return address || branch || conditional || compare_or_test || to_register;
}

/// "cudaFree@@libcudart.so.13" in .symtab is "cudaFree".
std::string_view without_version(std::string_view name) {
    return name.substr(0, name.find('@'));
}

class SymbolReader {
  public:
    SymbolReader(const ElfFile& file, const std::vector<std::string>& wanted) : file_(file), wanted_(wanted) {}

    Result<LibrarySymbols> read(bool static_symbols);

  private:
    Result<void> read_tables(bool static_symbols);
    Result<void> read_table(Elf_Scn* section, const GElf_Shdr& header);
    Result<void> add(std::string_view name, const GElf_Sym& symbol);

    const ElfFile& file_;
    const std::vector<std::string>& wanted_;
    LibrarySymbols result_;
};

Result<LibrarySymbols> SymbolReader::read(bool static_symbols) {
    result_.build_id = file_.build_id();
    if (auto done = read_tables(static_symbols); !done) return tl::unexpected(done.error());

    const auto key = [](const FunctionSymbol& f) { return std::tie(f.name, f.file_offset); };
    auto& functions = result_.functions;
    // A symbol stands in .dynsym and .symtab; of the copies the one with a size is kept.
    std::sort(functions.begin(), functions.end(), [&](const auto& a, const auto& b) {
        return std::tie(a.name, a.file_offset, b.size) < std::tie(b.name, b.file_offset, a.size);
    });
    const auto same = [&](const auto& a, const auto& b) { return key(a) == key(b); };
    functions.erase(std::unique(functions.begin(), functions.end(), same), functions.end());
    return std::move(result_);
}

Result<void> SymbolReader::read_tables(bool static_symbols) {
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(file_.handle(), section))) {
        GElf_Shdr header;
        errno = 0;
        if (!gelf_getshdr(section, &header)) return ElfFile::libelf_failure("a section header");
        if (header.sh_type != SHT_DYNSYM && !(static_symbols && header.sh_type == SHT_SYMTAB)) continue;
        if (auto done = read_table(section, header); !done) return done;
    }
    return {};
}

Result<void> SymbolReader::read_table(Elf_Scn* section, const GElf_Shdr& header) {
    if (!file_.in_file(header.sh_offset, header.sh_size))
        return ElfFile::corrupt("a symbol table beyond the end of the file");
    if (header.sh_size / sizeof(Elf64_Sym) > max_symbols) return ElfFile::over_limit("more than 4,000,000 symbols");
    auto strings = file_.string_table(header.sh_link);
    if (!strings) return tl::unexpected(strings.error());
    errno = 0;
    Elf_Data* data = elf_getdata(section, nullptr);
    if (!data || data->d_type != ELF_T_SYM) return ElfFile::libelf_failure("its symbol table");

    const size_t count = data->d_size / sizeof(Elf64_Sym);
    for (size_t i = 0; i < count; ++i) {
        GElf_Sym symbol;
        if (!gelf_getsym(data, static_cast<int>(i), &symbol)) return ElfFile::libelf_failure("a symbol");
        // STT_GNU_IFUNC names a resolver, which runs once, and not the function.
        if (GELF_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS) continue;
        if (symbol.st_name >= strings->size()) continue;
        const std::string_view tail = strings->substr(symbol.st_name, max_name_bytes);
        const size_t length = tail.find('\0');
        if (length == std::string_view::npos) continue;
        if (auto added = add(without_version(tail.substr(0, length)), symbol); !added) return added;
    }
    return {};
}

Result<void> SymbolReader::add(std::string_view name, const GElf_Sym& symbol) {
    if (!std::binary_search(wanted_.begin(), wanted_.end(), name)) return {};
    uint64_t bytes_left = 0;
    const std::optional<uint64_t> offset = file_.code_offset(symbol.st_value, bytes_left);
    if (!offset) return {};
    std::array<unsigned char, instruction_bytes> buffer{};
    const size_t wanted_bytes = std::min<uint64_t>(bytes_left, buffer.size());
    const std::span<const unsigned char> code(buffer.data(), file_.read_at(*offset, {buffer.data(), wanted_bytes}));
    if (code.empty()) return ElfFile::corrupt("it became shorter while it was read");
    if (result_.functions.size() == max_functions)
        return ElfFile::over_limit("more than 65,536 functions of the wanted names");
    const bool emulated = (file_.machine() == EM_X86_64 && is_emulated_x86_64(code)) ||
                          (file_.machine() == EM_AARCH64 && is_emulated_aarch64(code));
    result_.functions.push_back({std::string(name), *offset, symbol.st_size, emulated});
    return {};
}

}  // namespace

Result<LibrarySymbols> read_function_symbols(int fd, const std::vector<std::string>& wanted, bool static_symbols) {
    const auto file = ElfFile::open(fd);
    if (!file) return tl::unexpected(file.error());
    return SymbolReader(*file, wanted).read(static_symbols);
}

}  // namespace ingero
