// Where functions begin and end by the table that exceptions are unwound with (.eh_frame_hdr): a witness for whether an
// address is the start of a function. Read by pread from hostile files; every look-up is bounded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ingero {

/// What a program header maps from the file.
struct FileSegment {
    uint64_t address = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
};

class FunctionRanges {
  public:
    /// Knows nothing.
    FunctionRanges() = default;
    /// `table` is PT_GNU_EH_FRAME, `loaded` all of PT_LOAD. A table of another form than linkers write is left alone.
    FunctionRanges(int fd, const FileSegment& table, std::vector<FileSegment> loaded);

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

    int fd_ = -1;
    uint64_t table_ = 0;  ///< address
    uint64_t count_ = 0;
    std::vector<FileSegment> loaded_;
};

}  // namespace ingero
