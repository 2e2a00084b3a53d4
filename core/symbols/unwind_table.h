// The call frame information of a library or executable (.eh_frame), compiled to rows that the walk in the kernel can
// search. Runs in a worker: the bytes are a target's and hostile.
//
// Own decoding, where libdw has one: libdw runs a function's program anew for every address asked about and keeps what
// it read, so that a table of a large library takes it minutes and gigabytes; and it distinguishes no rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bpf/unwind_row.h"
#include "core/model/result.h"
#include "core/symbols/elf_file.h"

namespace ingero {

struct UnwindTable {
    std::string build_id;                 ///< hex; empty where there is none
    std::vector<ElfSegment> code;         ///< executable segments: from a mapping's file offset to addresses
    std::vector<ingero_unwind_row> rows;  ///< by address, no two of one address, no two equal neighbours
    size_t functions = 0;                 ///< entries (FDEs) that were compiled
    size_t unsupported = 0;               ///< of these, where a rule is not followed at some address
};

/// Bounds for hostile and for outsized files: beyond them the answer is the error `limit`.
struct UnwindLimits {
    size_t rows = 4'000'000;              ///< 32 MiB; PyTorch's libtorch_cpu.so has 2,333,981
    uint64_t frame_bytes = 256ULL << 20;  ///< of .eh_frame
};

/// x86-64 and aarch64; found by the section headers, or PT_GNU_EH_FRAME where they are stripped. A file without call
/// frame information gives no rows. Errors: corrupt, limit.
Result<UnwindTable> compile_unwind_table(int fd, const UnwindLimits& limits = {});

}  // namespace ingero
