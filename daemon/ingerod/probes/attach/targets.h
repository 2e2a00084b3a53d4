// Which symbols of which libraries are probed, as what op, and how their arguments are read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/event.h"
#include "core/symbols/elf_symbols.h"

namespace ingero {

enum class Library { cuda_runtime, cuda_driver, nccl };
inline constexpr Library all_libraries[] = {Library::cuda_runtime, Library::cuda_driver, Library::nccl};
std::string_view to_string(Library library);

/// By the base name of a mapped file: libcudart.so.12, libcudart-1a2b3c.so.11.0, libcuda.so.1, libcuda.so.550.54,
/// libnccl.so.2.
std::optional<Library> library_of_path(std::string_view path);

struct Target {
    std::string_view symbol;
    OpId op = 0;
    uint64_t cookie;          ///< for the probe, see bpf/event.h
    unsigned changed_in = 0;  ///< major version of the library from which `later_cookie` holds; 0: none
    uint64_t later_cookie = 0;

    uint64_t cookie_in(unsigned major) const { return changed_in != 0 && major >= changed_in ? later_cookie : cookie; }
};

/// All variants of all symbols of all libraries, at most INGERO_MAX_SYMBOLS - 1. The kernel side knows each by its
/// index and counts its calls apart.
std::span<const Target> all_targets();
/// Those of a library.
std::span<const Target> targets_of(Library library);
/// Their names, sorted, to ask a worker for.
std::vector<std::string> symbol_names(Library library);
/// The named set of probes that an op belongs to, as SetProbe takes it: "launch", "memory", "copy", "sync", "graph",
/// "nccl" or "other".
std::string_view probe_set_of(OpId op);
std::span<const std::string_view> all_probe_sets();
/// The op of each slot of the kernel side for ops that may be thinned (bpf/event.h); of the first, which is for all
/// others, and of those that are free: 0.
const std::vector<OpId>& ops_by_thin_slot();

/// May be called so often that its probes alone cost too much, and says nothing that holds for later calls.
bool is_hot(OpId op);

struct ProbeSite {
    uint64_t file_offset;
    uint64_t cookie;
    std::string symbol;
    bool emulated;
    OpId op = 0;
    std::vector<uint8_t> code{};  ///< that the file must have there
};

/// The major version in a library's file name, libcudart.so.12.4 or libcudart-1a2b3c.so.11.0; 0 where there is none.
unsigned library_major(std::string_view path);

/// One site an offset: several names of one function are probed once, as the first target that names it. One that only
/// jumps to another is probed there, as that one: CUDA 13 launches by __cudaLaunchKernel, which jumps to
/// cudaLaunchKernel.
std::vector<ProbeSite> probe_sites(Library library, unsigned major, const std::vector<FunctionSymbol>& symbols);

}  // namespace ingero
