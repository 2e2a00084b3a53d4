#include "core/symbols/elf_symbols.h"

#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>

#include "core/symbols/function_ranges.h"

namespace ingero {

namespace {

constexpr uint64_t max_file_bytes = 8ULL << 30;
constexpr uint64_t max_sections = 65'536;
constexpr size_t max_segments = 256;
constexpr size_t max_tables = 16;
constexpr uint64_t max_symbols = 4'000'000;
constexpr uint64_t max_string_table_bytes = 128ULL << 20;
constexpr uint64_t max_note_bytes = 64 << 10;
constexpr size_t max_build_id_bytes = 64;
constexpr size_t max_name_bytes = 1'024;
// A file can give one name to millions of addresses; an honest one has a handful of versions.
constexpr size_t max_functions = 65'536;
constexpr size_t instruction_bytes = 8;
constexpr size_t max_misplaced = 16;
constexpr size_t max_overlaps = 1'000'000;

struct ElfEnd {
    void operator()(Elf* elf) const { elf_end(elf); }
};
using ElfHandle = std::unique_ptr<Elf, ElfEnd>;

/// A wanted symbol where the file has it.
struct Placed {
    uint64_t address = 0;
    FunctionSymbol function;
    bool misplaced = false;
};

auto corrupt(std::string why) {
    return fail(ErrorCode::corrupt, "not a usable ELF file: " + why,
                "the file is damaged, was replaced while it was read, or is no library");
}

auto over_limit(std::string why) {
    return fail(ErrorCode::limit, "ELF file refused: " + why, "no library that is traced comes near this limit");
}

/// libelf's last failure. Its allocations are sized by the file, so running out of memory is the file's doing.
tl::unexpected<Error> libelf_failure(const char* what) {
    const int code = elf_errno();
    const char* text = elf_errmsg(code);
    if (errno == ENOMEM) return over_limit(std::string(what) + " needs too much memory");
    return corrupt(std::string(what) + ": " + (code != 0 && text ? text : "invalid"));
}

/// Bytes read; fewer than asked for at the end of the file or on an error.
size_t read_at(int fd, uint64_t offset, std::span<unsigned char> out) {
    size_t done = 0;
    while (done < out.size()) {
        const ssize_t n = pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += static_cast<size_t>(n);
    }
    return done;
}

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
    SymbolReader(int fd, const std::vector<std::string>& wanted) : fd_(fd), wanted_(wanted) {}

    Result<LibrarySymbols> read(bool static_symbols);

  private:
    Result<void> check_file();
    Result<void> check_header();
    Result<void> read_segments();
    std::string read_build_id(const GElf_Phdr& segment) const;
    Result<void> read_tables(bool static_symbols);
    template <class F>
    Result<void> for_each_function(Elf_Scn* section, const GElf_Shdr& header, F&& visit);
    Result<void> read_table(Elf_Scn* section, const GElf_Shdr& header);
    Result<void> mark_misplaced(const GElf_Sym& symbol);
    void keep_placed();
    Result<std::string_view> string_table(size_t index) const;
    Result<void> add(std::string_view name, const GElf_Sym& symbol);
    std::optional<uint64_t> code_offset(uint64_t address, uint64_t& bytes_left) const;
    bool in_file(uint64_t offset, uint64_t bytes) const { return offset <= size_ && bytes <= size_ - offset; }

    int fd_;
    const std::vector<std::string>& wanted_;
    uint64_t size_ = 0;
    uint16_t machine_ = EM_NONE;
    ElfHandle elf_;
    std::vector<FileSegment> code_;    ///< of PT_LOAD, what is executable
    std::vector<FileSegment> loaded_;  ///< all of PT_LOAD
    std::optional<FileSegment> frames_;
    std::vector<Placed> placed_;
    size_t overlaps_ = 0;
    LibrarySymbols result_;
};

Result<LibrarySymbols> SymbolReader::read(bool static_symbols) {
    if (auto checked = check_file(); !checked) return tl::unexpected(checked.error());
    if (auto checked = check_header(); !checked) return tl::unexpected(checked.error());
    elf_version(EV_CURRENT);
    errno = 0;
    // Read, not mapped: a mapped file that its owner truncates meanwhile would be a SIGBUS, this is an error.
    elf_.reset(elf_begin(fd_, ELF_C_READ, nullptr));
    if (!elf_) return libelf_failure("its headers");
    if (elf_kind(elf_.get()) != ELF_K_ELF) return corrupt("no ELF object");
    if (auto done = read_segments(); !done) return tl::unexpected(done.error());
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

Result<void> SymbolReader::check_file() {
    struct stat status {};
    if (fstat(fd_, &status) != 0) return corrupt(errno_message("fstat", errno));
    if (!S_ISREG(status.st_mode)) return corrupt("not a regular file");
    size_ = static_cast<uint64_t>(status.st_size);
    if (size_ > max_file_bytes) return over_limit("larger than 8 GiB");
    return {};
}

/// Before libelf sees the file: it allocates by the number of sections, which the file states freely.
Result<void> SymbolReader::check_header() {
    Elf64_Ehdr header{};
    if (read_at(fd_, 0, {reinterpret_cast<unsigned char*>(&header), sizeof(header)}) != sizeof(header))
        return corrupt("shorter than an ELF header");
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return corrupt("no ELF magic");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
        return corrupt("not 64-bit little-endian");
    if (header.e_type != ET_DYN && header.e_type != ET_EXEC) return corrupt("neither library nor executable");
    machine_ = header.e_machine;
    uint64_t sections = header.e_shnum;
    if (sections == 0 && header.e_shoff != 0) {
        Elf64_Shdr first{};  // holds the number where it is 65,280 or more
        if (!in_file(header.e_shoff, sizeof(first)) ||
            read_at(fd_, header.e_shoff, {reinterpret_cast<unsigned char*>(&first), sizeof(first)}) != sizeof(first))
            return corrupt("section headers beyond the end of the file");
        sections = first.sh_size;
    }
    if (sections > max_sections) return over_limit("more than 65,536 sections");
    if (sections != 0 &&
        (header.e_shentsize != sizeof(Elf64_Shdr) || !in_file(header.e_shoff, sections * sizeof(Elf64_Shdr))))
        return corrupt("section headers beyond the end of the file");
    return {};
}

Result<void> SymbolReader::read_segments() {
    size_t count = 0;
    errno = 0;
    if (elf_getphdrnum(elf_.get(), &count) != 0) return libelf_failure("its program headers");
    if (count > max_segments) return over_limit("more than 256 segments");
    for (size_t i = 0; i < count; ++i) {
        GElf_Phdr segment;
        if (!gelf_getphdr(elf_.get(), static_cast<int>(i), &segment)) return libelf_failure("its program headers");
        if (segment.p_type == PT_NOTE && result_.build_id.empty()) result_.build_id = read_build_id(segment);
        const FileSegment place{segment.p_vaddr, segment.p_offset, segment.p_filesz};
        if (segment.p_type == PT_GNU_EH_FRAME && !frames_) frames_ = place;
        if (segment.p_type != PT_LOAD) continue;
        const bool code = segment.p_flags & PF_X;
        const bool fits = in_file(place.offset, place.bytes) && place.address + place.bytes >= place.address;
        if (code && !in_file(place.offset, place.bytes)) return corrupt("a segment beyond the end of the file");
        if (code && !fits) return corrupt("a segment's address overflows");
        if (fits) loaded_.push_back(place);
        if (code) code_.push_back(place);
    }
    return {};
}

std::string SymbolReader::read_build_id(const GElf_Phdr& segment) const {
    if (segment.p_filesz > max_note_bytes || !in_file(segment.p_offset, segment.p_filesz)) return {};
    const Elf_Type type = segment.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR;
    Elf_Data* data = elf_getdata_rawchunk(elf_.get(), static_cast<int64_t>(segment.p_offset), segment.p_filesz, type);
    if (!data) return {};
    GElf_Nhdr note;
    size_t name = 0, description = 0;
    for (size_t at = 0; (at = gelf_getnote(data, at, &note, &name, &description)) > 0;) {
        const auto* bytes = static_cast<const unsigned char*>(data->d_buf);
        if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof(ELF_NOTE_GNU) ||
            std::memcmp(bytes + name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) != 0)
            continue;
        if (note.n_descsz > max_build_id_bytes) return {};
        std::string hex;
        for (const unsigned char byte : std::span(bytes + description, note.n_descsz)) {
            hex += "0123456789abcdef"[byte >> 4];
            hex += "0123456789abcdef"[byte & 15];
        }
        return hex;
    }
    return {};
}

Result<void> SymbolReader::read_tables(bool static_symbols) {
    std::vector<std::pair<Elf_Scn*, GElf_Shdr>> tables;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(elf_.get(), section))) {
        GElf_Shdr header;
        errno = 0;
        if (!gelf_getshdr(section, &header)) return libelf_failure("a section header");
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
    if (!in_file(header.sh_offset, header.sh_size)) return corrupt("a symbol table beyond the end of the file");
    if (header.sh_size / sizeof(Elf64_Sym) > max_symbols) return over_limit("more than 4,000,000 symbols");
    errno = 0;
    Elf_Data* data = elf_getdata(section, nullptr);
    if (!data || data->d_type != ELF_T_SYM) return libelf_failure("its symbol table");
    const size_t count = data->d_size / sizeof(Elf64_Sym);
    for (size_t i = 0; i < count; ++i) {
        GElf_Sym symbol;
        if (!gelf_getsym(data, static_cast<int>(i), &symbol)) return libelf_failure("a symbol");
        // STT_GNU_IFUNC names a resolver, which runs once, and not the function.
        if (GELF_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS) continue;
        if (auto done = visit(symbol); !done) return done;
    }
    return {};
}

Result<void> SymbolReader::read_table(Elf_Scn* section, const GElf_Shdr& header) {
    auto strings = string_table(header.sh_link);
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
        if (++overlaps_ > max_overlaps) return over_limit("its functions overlap over and over");
    }
    return {};
}

void SymbolReader::keep_placed() {
    const FunctionRanges ranges = frames_ ? FunctionRanges(fd_, *frames_, loaded_) : FunctionRanges();
    for (Placed& placed : placed_) {
        if (!placed.misplaced && !ranges.is_inside(placed.address))
            result_.functions.push_back(std::move(placed.function));
        else if (result_.misplaced.size() < max_misplaced)
            result_.misplaced.push_back(std::move(placed.function.name));
    }
}

Result<std::string_view> SymbolReader::string_table(size_t index) const {
    Elf_Scn* section = elf_getscn(elf_.get(), index);
    GElf_Shdr header;
    errno = 0;
    if (index == 0 || !section || !gelf_getshdr(section, &header) || header.sh_type != SHT_STRTAB ||
        !in_file(header.sh_offset, header.sh_size))
        return corrupt("a symbol table without names");
    if (header.sh_size > max_string_table_bytes) return over_limit("more than 128 MiB of names");
    Elf_Data* data = elf_getdata(section, nullptr);
    if (!data) return libelf_failure("its symbol names");
    if (!data->d_buf) return std::string_view{};
    return std::string_view(static_cast<const char*>(data->d_buf), data->d_size);
}

Result<void> SymbolReader::add(std::string_view name, const GElf_Sym& symbol) {
    if (!std::binary_search(wanted_.begin(), wanted_.end(), name)) return {};
    uint64_t bytes_left = 0;
    const std::optional<uint64_t> offset = code_offset(symbol.st_value, bytes_left);
    if (!offset) return {};
    std::array<unsigned char, instruction_bytes> buffer{};
    const size_t wanted_bytes = std::min<uint64_t>(bytes_left, buffer.size());
    const std::span<const unsigned char> code(buffer.data(), read_at(fd_, *offset, {buffer.data(), wanted_bytes}));
    if (code.empty()) return corrupt("it became shorter while it was read");
    if (placed_.size() == max_functions) return over_limit("more than 65,536 functions of the wanted names");
    const bool emulated =
        (machine_ == EM_X86_64 && is_emulated_x86_64(code)) || (machine_ == EM_AARCH64 && is_emulated_aarch64(code));
    placed_.push_back(
        {symbol.st_value, {std::string(name), *offset, symbol.st_size, emulated, {code.begin(), code.end()}}});
    return {};
}

/// Where the address lies in the file. None where no executable segment has it, or more than one: which of them the
/// loader leaves on top is not for a probe to guess.
std::optional<uint64_t> SymbolReader::code_offset(uint64_t address, uint64_t& bytes_left) const {
    std::optional<uint64_t> offset;
    for (const FileSegment& segment : code_) {
        if (address < segment.address || address - segment.address >= segment.bytes) continue;
        if (offset) return std::nullopt;
        offset = segment.offset + (address - segment.address);
        bytes_left = segment.bytes - (address - segment.address);
    }
    return offset;
}

}  // namespace

Result<LibrarySymbols> read_function_symbols(int fd, const std::vector<std::string>& wanted, bool static_symbols) {
    return SymbolReader(fd, wanted).read(static_symbols);
}

}  // namespace ingero
