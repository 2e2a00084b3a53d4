// What a worker gives up before it reads its first foreign byte. Nothing here can be taken back.
#pragma once

#include <cstdint>

#include "core/model/result.h"

namespace ingero {

/// Whether this build's filter only refuses (EPERM) what it does not allow, instead of killing: a sanitizer's run time
/// makes calls of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitizer_build = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool sanitizer_build = true;
#else
inline constexpr bool sanitizer_build = false;
#endif
#else
inline constexpr bool sanitizer_build = false;
#endif

/// Makes `socket_fd` worker_socket_fd, standard input and output /dev/null, and closes everything else but standard
/// error, and worker_client_fd where `has_client`. Call first: what is opened later stays open.
Result<void> keep_only_socket(int socket_fd, bool has_client = false);

/// Drops capabilities, user and group (nobody, where root), sets the limits, asks to die with `parent_pid`, and
/// installs the seccomp filter. `memory_bytes` is address space beyond what is mapped now. Errors: the first step that
/// failed; the process must then end. With `has_client` messages on worker_client_fd are allowed too.
Result<void> enter_sandbox(uint64_t memory_bytes, int parent_pid, bool has_client = false);

}  // namespace ingero
