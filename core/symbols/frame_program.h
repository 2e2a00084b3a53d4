// The parts of .eh_frame: the pointers, the entries (CIE and FDE) and the programs that say how frames look at each
// address. DWARF 5 section 6.4, and the Linux Standard Base core specification for what .eh_frame adds.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "bpf/unwind_row.h"

namespace ingero {

/// Reads forward through bytes that lie at an address of the file. After a read past the end all give 0.
class ByteCursor {
  public:
    ByteCursor(std::span<const unsigned char> bytes, uint64_t address) : bytes_(bytes), address_(address) {}

    template <class T>
    T fixed() {
        T value{};
        if (bytes_.size() < sizeof value) return fail(), T{};
        std::memcpy(&value, bytes_.data(), sizeof value);
        advance(sizeof value);
        return value;
    }
    uint64_t uleb();
    int64_t sleb();
    void skip(uint64_t count) { count > bytes_.size() ? fail() : advance(count); }
    /// The next bytes as a cursor of their own.
    ByteCursor take(uint64_t count);
    /// By a DW_EH_PE encoding; nothing where it is none that is followed here (indirect, relative to text or data).
    std::optional<uint64_t> pointer(uint8_t encoding);

    bool at_end() const { return bytes_.empty(); }
    bool failed() const { return failed_; }
    std::span<const unsigned char> rest() const { return bytes_; }

  private:
    void advance(uint64_t count) {
        bytes_ = bytes_.subspan(count);
        address_ += count;
    }
    void fail() {
        failed_ = true;
        bytes_ = {};
    }

    std::span<const unsigned char> bytes_;
    uint64_t address_;
    bool failed_ = false;
};

/// How one register of the caller is found.
struct RegisterRule {
    enum class Kind : uint8_t { unchanged, at_cfa, at_frame_pointer, lost, undefined };
    Kind kind = Kind::unchanged;
    int64_t offset = 0;
    bool operator==(const RegisterRule&) const = default;
};

struct CfaRule {
    enum class Kind : uint8_t { none, stack_pointer, frame_pointer, plt, frame_pointer_deref };
    Kind kind = Kind::none;
    int64_t offset = 0;
};

struct FrameState {
    CfaRule cfa;
    uint64_t cfa_register = 0;
    RegisterRule frame_pointer;
    RegisterRule return_address;
};

/// A CIE.
struct CommonEntry {
    bool usable = false;  ///< false: what its functions look like is not known
    uint16_t machine = 0;
    uint64_t code_factor = 1;
    int64_t data_factor = 1;
    uint64_t return_register = 0;
    uint8_t pointer_encoding = 0;
    bool has_augmentation_size = false;
    FrameState initial;
};

struct FunctionRange {
    uint64_t start = 0;
    uint64_t bytes = 0;
};

/// The cursor stands behind the id. Bytes that are no CIE give one that is not usable.
CommonEntry read_common_entry(ByteCursor cursor, uint16_t machine);

/// The cursor stands behind the CIE pointer, afterwards at the program. Look at failed() afterwards.
FunctionRange read_function_range(ByteCursor& cursor, const CommonEntry& common);

/// Runs an FDE's program and appends its rows, at most `max_rows`. False where some rule is not one that is followed:
/// its row says so.
bool run_frame_program(ByteCursor cursor, const CommonEntry& common, const FunctionRange& range, size_t max_rows,
                       std::vector<ingero_unwind_row>& ret_rows);

}  // namespace ingero
