// Where functions begin and end by the table that exceptions are unwound with (.eh_frame_hdr): a witness for whether an
// address is the start of a function. Read by pread from hostile files; every look-up is bounded.
#pragma once

#include <cstdint>
#include <optional>

#include "core/symbols/elf_file.h"

namespace ingero {

class FunctionRanges {
  public:
    /// Of a file that outlives this. Knows nothing where it has no table, or one of another form than linkers write.
    explicit FunctionRanges(const ElfFile& file);

    /// The address lies in a function and not at its start. False where no function is known there.
    bool is_inside(uint64_t address) const;

  private:
    struct Entry {
        uint64_t start = 0;
        uint64_t description = 0;  ///< address of the FDE
    };
    std::optional<Entry> entry(uint64_t index) const;
    std::optional<uint64_t> length_of(const Entry& entry) const;
    template <class T>
    std::optional<T> read(uint64_t address) const;

    const ElfFile& file_;
    uint64_t table_ = 0;  ///< address
    uint64_t count_ = 0;
};

}  // namespace ingero
