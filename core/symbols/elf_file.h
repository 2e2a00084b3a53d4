// An ELF file of a target, opened by libelf from a descriptor, with its headers checked first: what the readers of
// symbols and of unwind tables stand on. Runs in a worker: the bytes are hostile.
#pragma once

#include <gelf.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/result.h"

namespace ingero {

/// A PT_LOAD: `file_bytes` at `offset` in the file are mapped at `address`.
struct ElfSegment {
    uint64_t address = 0;
    uint64_t offset = 0;
    uint64_t file_bytes = 0;
    bool executable = false;
    bool writable = false;
};

class ElfFile {
  public:
    /// 64-bit little-endian libraries and executables only. The descriptor stays the caller's and must stay open.
    /// Errors: corrupt, limit.
    static Result<ElfFile> open(int fd) { return open(fd, false); }
    /// A file of debug information alone: its segments are those of the file it was split from, and not in it.
    static Result<ElfFile> open_debug_file(int fd) { return open(fd, true); }

    uint64_t size() const { return size_; }
    uint16_t machine() const { return machine_; }
    Elf* handle() const { return elf_.get(); }
    const std::vector<ElfSegment>& segments() const { return segments_; }
    /// GNU build-id in hex; empty where there is none.
    const std::string& build_id() const { return build_id_; }
    /// The .eh_frame_hdr section, as PT_GNU_EH_FRAME has it: nothing of it is checked.
    const std::optional<ElfSegment>& frame_header() const { return frame_header_; }

    bool in_file(uint64_t offset, uint64_t bytes) const { return offset <= size_ && bytes <= size_ - offset; }
    /// Bytes read; fewer than asked for at the end of the file or on an error.
    size_t read_at(uint64_t offset, std::span<unsigned char> out) const;
    /// Where an address lies in the file; none where no executable segment has it, or more than one: which of them the
    /// loader leaves on top is not to be guessed. `ret_bytes_left`: to the end of the segment.
    std::optional<uint64_t> code_offset(uint64_t address, uint64_t& ret_bytes_left) const;
    /// The reverse: the address of a byte of an executable segment.
    std::optional<uint64_t> code_address(uint64_t offset) const;
    /// Address to offset in any segment.
    std::optional<uint64_t> any_offset(uint64_t address, uint64_t& ret_bytes_left) const;
    /// The names of a symbol table; stays valid as long as this object.
    Result<std::string_view> string_table(size_t section_index) const;

    static tl::unexpected<Error> corrupt(std::string why);
    static tl::unexpected<Error> over_limit(std::string why);
    /// libelf's last failure. Its allocations are sized by the file, so running out of memory is the file's doing.
    static tl::unexpected<Error> libelf_failure(const char* what);

  private:
    struct End {
        void operator()(Elf* elf) const { elf_end(elf); }
    };

    static Result<ElfFile> open(int fd, bool debug_file);
    Result<void> check_file();
    Result<void> check_header();
    Result<void> read_segments(bool debug_file);
    std::string read_build_id(const GElf_Phdr& segment) const;

    int fd_ = -1;
    uint64_t size_ = 0;
    uint16_t machine_ = EM_NONE;
    std::unique_ptr<Elf, End> elf_;
    std::vector<ElfSegment> segments_;
    std::string build_id_;
    std::optional<ElfSegment> frame_header_;
};

}  // namespace ingero
