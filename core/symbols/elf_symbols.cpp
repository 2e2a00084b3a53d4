#include "core/symbols/elf_symbols.h"

#include <gelf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>

#include "core/symbols/elf_file.h"
#include "core/symbols/function_ranges.h"

namespace ingero {

namespace {

constexpr size_t max_tables = 16;
constexpr uint64_t max_symbols = 4'000'000;
constexpr size_t max_name_bytes = 1'024;
// A file can give one name to millions of addresses; an honest one has a handful of versions.
constexpr size_t max_functions = 65'536;
constexpr size_t instruction_bytes = 8;
constexpr size_t max_misplaced = 16;
constexpr size_t max_overlaps = 1'000'000;

constexpr size_t longest_jump = 16;  // bytes of a function that only jumps

/// A wanted symbol where the file has it.
struct Placed {
    uint64_t address = 0;
    FunctionSymbol function;
    std::optional<uint64_t> jumps_to;  ///< and does nothing else
    bool misplaced = false;
};

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

/// Where a function jumps whose code is all of `code`: behind at most a landing pad and an empty stack frame, and by a
/// distance that lies in the instruction, as compilers write `return other(arguments)`.
std::optional<uint64_t> target_of_jump(uint64_t address, std::span<const unsigned char> code, uint16_t machine) {
    const auto begins_with = [&](std::initializer_list<unsigned char> bytes) {
        if (code.size() < bytes.size() || !std::equal(bytes.begin(), bytes.end(), code.begin())) return false;
        code = code.subspan(bytes.size());
        address += bytes.size();
        return true;
    };
    int32_t distance = 0;
    if (machine == EM_X86_64) {
        begins_with({0xf3, 0x0f, 0x1e, 0xfa});        // endbr64
        begins_with({0x55, 0x48, 0x89, 0xe5, 0x5d});  // push %rbp; mov %rsp,%rbp; pop %rbp
        if (code.size() == 2 && begins_with({0xeb})) {
            distance = static_cast<int8_t>(code[0]);
        } else {
            if (!begins_with({0xe9}) || code.size() != sizeof distance) return std::nullopt;
            std::memcpy(&distance, code.data(), sizeof distance);
        }
        return address + code.size() + static_cast<uint64_t>(int64_t{distance});
    }
    if (machine == EM_AARCH64) {
        begins_with({0x5f, 0x24, 0x03, 0xd5});  // bti c
        uint32_t instruction = 0;
        if (code.size() != sizeof instruction) return std::nullopt;
        std::memcpy(&instruction, code.data(), sizeof instruction);
        if ((instruction & 0xfc000000) != 0x14000000) return std::nullopt;  // b
        distance = static_cast<int32_t>(instruction << 6) >> 4;
        return address + static_cast<uint64_t>(int64_t{distance});
    }
    return std::nullopt;
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
    template <class F>
    Result<void> for_each_function(Elf_Scn* section, const GElf_Shdr& header, F&& visit);
    Result<void> read_table(Elf_Scn* section, const GElf_Shdr& header);
    Result<void> mark_misplaced(const GElf_Sym& symbol);
    const Placed* jumped_to(const Placed& placed) const;
    void keep_placed();
    Result<void> add(std::string_view name, const GElf_Sym& symbol);

    const ElfFile& file_;
    const std::vector<std::string>& wanted_;
    std::vector<Placed> placed_;
    size_t overlaps_ = 0;
    LibrarySymbols result_;
};

Result<LibrarySymbols> SymbolReader::read(bool static_symbols) {
    result_.build_id = file_.build_id();
    if (auto done = read_tables(static_symbols); !done) return tl::unexpected(done.error());
    keep_placed();

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
    std::vector<std::pair<Elf_Scn*, GElf_Shdr>> tables;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(file_.handle(), section))) {
        GElf_Shdr header;
        errno = 0;
        if (!gelf_getshdr(section, &header)) return ElfFile::libelf_failure("a section header");
        if (header.sh_type != SHT_DYNSYM && !(static_symbols && header.sh_type == SHT_SYMTAB)) continue;
        if (auto done = read_table(section, header); !done) return done;
        if (tables.size() < max_tables) tables.emplace_back(section, header);
    }
    // Once more, now that the places are known: which of them lie inside another function?
    std::sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) { return a.address < b.address; });
    for (const auto& [table, header] : tables)
        if (auto done =
                for_each_function(table, header, [this](const GElf_Sym& symbol) { return mark_misplaced(symbol); });
            !done)
            return done;
    return {};
}

template <class F>
Result<void> SymbolReader::for_each_function(Elf_Scn* section, const GElf_Shdr& header, F&& visit) {
    if (!file_.in_file(header.sh_offset, header.sh_size))
        return ElfFile::corrupt("a symbol table beyond the end of the file");
    if (header.sh_size / sizeof(Elf64_Sym) > max_symbols) return ElfFile::over_limit("more than 4,000,000 symbols");
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
        if (auto done = visit(symbol); !done) return done;
    }
    return {};
}

Result<void> SymbolReader::read_table(Elf_Scn* section, const GElf_Shdr& header) {
    auto strings = file_.string_table(header.sh_link);
    if (!strings) return tl::unexpected(strings.error());
    return for_each_function(section, header, [&](const GElf_Sym& symbol) -> Result<void> {
        if (symbol.st_name >= strings->size()) return {};
        const std::string_view tail = strings->substr(symbol.st_name, max_name_bytes);
        const size_t length = tail.find('\0');
        if (length == std::string_view::npos) return {};
        return add(without_version(tail.substr(0, length)), symbol);
    });
}

Result<void> SymbolReader::mark_misplaced(const GElf_Sym& symbol) {
    auto at = std::upper_bound(placed_.begin(), placed_.end(), symbol.st_value,
                               [](uint64_t address, const Placed& placed) { return address < placed.address; });
    for (; at != placed_.end() && at->address - symbol.st_value < symbol.st_size; ++at) {
        at->misplaced = true;
        if (++overlaps_ > max_overlaps) return ElfFile::over_limit("its functions overlap over and over");
    }
    return {};
}

/// nullptr where it does not only jump, or not to one of these. `placed_` is in order of address.
const Placed* SymbolReader::jumped_to(const Placed& placed) const {
    if (!placed.jumps_to) return nullptr;
    const auto at = std::lower_bound(placed_.begin(), placed_.end(), *placed.jumps_to,
                                     [](const Placed& one, uint64_t address) { return one.address < address; });
    const bool is_one = at != placed_.end() && at->address == *placed.jumps_to && !at->misplaced && !at->jumps_to;
    return is_one ? &*at : nullptr;
}

void SymbolReader::keep_placed() {
    const FunctionRanges ranges(file_);
    for (Placed& placed : placed_) placed.misplaced |= ranges.is_inside(placed.address);
    for (const Placed& placed : placed_) {
        if (!placed.misplaced) {
            result_.functions.push_back(placed.function);
            if (const Placed* const other = jumped_to(placed))
                result_.functions.back().jumps_to = other->function.file_offset;
        } else if (result_.misplaced.size() < max_misplaced) {
            result_.misplaced.push_back(placed.function.name);
        }
    }
}

Result<void> SymbolReader::add(std::string_view name, const GElf_Sym& symbol) {
    if (!std::binary_search(wanted_.begin(), wanted_.end(), name)) return {};
    uint64_t bytes_left = 0;
    const std::optional<uint64_t> offset = file_.code_offset(symbol.st_value, bytes_left);
    if (!offset) return {};
    std::array<unsigned char, longest_jump> buffer{};
    const size_t wanted_bytes = std::min<uint64_t>(bytes_left, buffer.size());
    const std::span<const unsigned char> all(buffer.data(), file_.read_at(*offset, {buffer.data(), wanted_bytes}));
    const auto code = all.first(std::min(all.size(), instruction_bytes));
    if (code.empty()) return ElfFile::corrupt("it became shorter while it was read");
    if (placed_.size() == max_functions) return ElfFile::over_limit("more than 65,536 functions of the wanted names");
    const bool emulated = (file_.machine() == EM_X86_64 && is_emulated_x86_64(code)) ||
                          (file_.machine() == EM_AARCH64 && is_emulated_aarch64(code));
    std::optional<uint64_t> jumps_to;
    if (symbol.st_size <= all.size())
        jumps_to = target_of_jump(symbol.st_value, all.first(symbol.st_size), file_.machine());
    placed_.push_back({symbol.st_value,
                       {std::string(name), *offset, symbol.st_size, emulated, {code.begin(), code.end()}},
                       jumps_to});
    return {};
}

}  // namespace

Result<LibrarySymbols> read_function_symbols(int fd, const std::vector<std::string>& wanted, bool static_symbols) {
    const auto file = ElfFile::open(fd);
    if (!file) return tl::unexpected(file.error());
    return SymbolReader(*file, wanted).read(static_symbols);
}

}  // namespace ingero
