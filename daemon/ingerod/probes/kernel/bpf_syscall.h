// The parts of the bpf(2) interface that the distribution's libbpf does not wrap yet: uprobe multi and session links.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/model/result.h"
#include "core/model/unique_fd.h"

namespace ingero {

/// enum bpf_attach_type, from kernels newer than the headers built with.
inline constexpr uint32_t attach_type_uprobe_multi = 48;
inline constexpr uint32_t attach_type_uprobe_session = 57;

enum class UprobeLinkKind { session, entry, function_return };

/// One link for many places of one file. `path` is resolved by the kernel at once: /proc/self/fd/N is the safe one.
/// `offsets` and `cookies` have the same length. `pid`: of that process alone, which only kernels that have sessions do
/// for all of its threads; 0: of all. Errors: denied, not_found (no such process), busy, internal, with the errno in
/// the message.
Result<UniqueFd> link_uprobes(int program_fd, UprobeLinkKind kind, const std::string& path,
                              std::span<const uint64_t> offsets, std::span<const uint64_t> cookies, uint32_t pid = 0);

/// The errno that linking at an impossible place gives: EBADF where the kernel knows this kind of link.
int probe_uprobe_link(int program_fd, UprobeLinkKind kind);

/// Runs a raw tracepoint program once, in the caller's context.
Result<void> run_program_once(int program_fd);

}  // namespace ingero
