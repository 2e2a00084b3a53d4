#include "core/symbols/elf_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ingero {

namespace {

constexpr uint64_t max_file_bytes = 8ULL << 30;
constexpr uint64_t max_sections = 65'536;
constexpr size_t max_segments = 256;
constexpr uint64_t max_string_table_bytes = 128ULL << 20;
constexpr uint64_t max_note_bytes = 64 << 10;
constexpr size_t max_build_id_bytes = 64;

}  // namespace

tl::unexpected<Error> ElfFile::corrupt(std::string why) {
    return fail(ErrorCode::corrupt, "not a usable ELF file: " + why,
                "the file is damaged, was replaced while it was read, or is no library");
}

tl::unexpected<Error> ElfFile::over_limit(std::string why) {
    return fail(ErrorCode::limit, "ELF file refused: " + why, "no library that is traced comes near this limit");
}

tl::unexpected<Error> ElfFile::libelf_failure(const char* what) {
    const int code = elf_errno();
    const char* text = elf_errmsg(code);
    if (errno == ENOMEM) return over_limit(std::string(what) + " needs too much memory");
    return corrupt(std::string(what) + ": " + (code != 0 && text ? text : "invalid"));
}

size_t ElfFile::read_at(uint64_t offset, std::span<unsigned char> out) const {
    size_t done = 0;
    while (done < out.size()) {
        const ssize_t n = pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += static_cast<size_t>(n);
    }
    return done;
}

Result<ElfFile> ElfFile::open(int fd, bool debug_file) {
    ElfFile file;
    file.fd_ = fd;
    if (auto checked = file.check_file(); !checked) return tl::unexpected(checked.error());
    if (auto checked = file.check_header(); !checked) return tl::unexpected(checked.error());
    elf_version(EV_CURRENT);
    errno = 0;
    // Read, not mapped: a mapped file that its owner truncates meanwhile would be a SIGBUS, this is an error.
    file.elf_.reset(elf_begin(fd, ELF_C_READ, nullptr));
    if (!file.elf_) return libelf_failure("its headers");
    if (elf_kind(file.elf_.get()) != ELF_K_ELF) return corrupt("no ELF object");
    if (auto done = file.read_segments(debug_file); !done) return tl::unexpected(done.error());
    return file;
}

Result<void> ElfFile::check_file() {
    struct stat status {};
    if (fstat(fd_, &status) != 0) return corrupt(errno_message("fstat", errno));
    if (!S_ISREG(status.st_mode)) return corrupt("not a regular file");
    size_ = static_cast<uint64_t>(status.st_size);
    if (size_ > max_file_bytes) return over_limit("larger than 8 GiB");
    return {};
}

/// Before libelf sees the file: it allocates by the number of sections, which the file states freely.
Result<void> ElfFile::check_header() {
    Elf64_Ehdr header{};
    if (read_at(0, {reinterpret_cast<unsigned char*>(&header), sizeof(header)}) != sizeof(header))
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
            read_at(header.e_shoff, {reinterpret_cast<unsigned char*>(&first), sizeof(first)}) != sizeof(first))
            return corrupt("section headers beyond the end of the file");
        sections = first.sh_size;
    }
    if (sections > max_sections) return over_limit("more than 65,536 sections");
    if (sections != 0 &&
        (header.e_shentsize != sizeof(Elf64_Shdr) || !in_file(header.e_shoff, sections * sizeof(Elf64_Shdr))))
        return corrupt("section headers beyond the end of the file");
    return {};
}

Result<void> ElfFile::read_segments(bool debug_file) {
    size_t count = 0;
    errno = 0;
    if (elf_getphdrnum(elf_.get(), &count) != 0) return libelf_failure("its program headers");
    if (count > max_segments) return over_limit("more than 256 segments");
    for (size_t i = 0; i < count; ++i) {
        GElf_Phdr segment;
        if (!gelf_getphdr(elf_.get(), static_cast<int>(i), &segment)) return libelf_failure("its program headers");
        if (segment.p_type == PT_NOTE && build_id_.empty()) build_id_ = read_build_id(segment);
        const bool executable = (segment.p_flags & PF_X) != 0;
        const ElfSegment place{segment.p_vaddr, segment.p_offset, segment.p_filesz, executable,
                               (segment.p_flags & PF_W) != 0};
        if (segment.p_type == PT_GNU_EH_FRAME && !frame_header_) frame_header_ = place;
        if (segment.p_type != PT_LOAD || debug_file) continue;
        if (executable && !in_file(segment.p_offset, segment.p_filesz))
            return corrupt("a segment beyond the end of the file");
        const bool overflows = segment.p_vaddr + segment.p_filesz < segment.p_vaddr;
        if (executable && overflows) return corrupt("a segment's address overflows");
        if (overflows || !in_file(segment.p_offset, segment.p_filesz)) continue;
        segments_.push_back(place);
    }
    return {};
}

std::string ElfFile::read_build_id(const GElf_Phdr& segment) const {
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

namespace {

/// What of a segment's extent a value lies in, by its start: address or offset.
std::optional<uint64_t> find_in(const std::vector<ElfSegment>& segments, uint64_t value, uint64_t ElfSegment::*from,
                                uint64_t ElfSegment::*to, bool executable_only, uint64_t& ret_bytes_left) {
    std::optional<uint64_t> result;
    for (const ElfSegment& segment : segments) {
        if (executable_only && !segment.executable) continue;
        const uint64_t start = segment.*from;
        if (value < start || value - start >= segment.file_bytes) continue;
        if (result) return std::nullopt;
        result = segment.*to + (value - start);
        ret_bytes_left = segment.file_bytes - (value - start);
    }
    return result;
}

}  // namespace

std::optional<uint64_t> ElfFile::code_offset(uint64_t address, uint64_t& ret_bytes_left) const {
    return find_in(segments_, address, &ElfSegment::address, &ElfSegment::offset, true, ret_bytes_left);
}

std::optional<uint64_t> ElfFile::code_address(uint64_t offset) const {
    uint64_t bytes_left = 0;
    return find_in(segments_, offset, &ElfSegment::offset, &ElfSegment::address, true, bytes_left);
}

std::optional<uint64_t> ElfFile::any_offset(uint64_t address, uint64_t& ret_bytes_left) const {
    return find_in(segments_, address, &ElfSegment::address, &ElfSegment::offset, false, ret_bytes_left);
}

Result<std::string_view> ElfFile::string_table(size_t section_index) const {
    Elf_Scn* section = elf_getscn(elf_.get(), section_index);
    GElf_Shdr header;
    errno = 0;
    if (section_index == 0 || !section || !gelf_getshdr(section, &header) || header.sh_type != SHT_STRTAB ||
        !in_file(header.sh_offset, header.sh_size))
        return corrupt("a symbol table without names");
    if (header.sh_size > max_string_table_bytes) return over_limit("more than 128 MiB of names");
    Elf_Data* data = elf_getdata(section, nullptr);
    if (!data) return libelf_failure("its symbol names");
    if (!data->d_buf) return std::string_view{};
    return std::string_view(static_cast<const char*>(data->d_buf), data->d_size);
}

}  // namespace ingero
