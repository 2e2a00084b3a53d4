// Whether GCC's or Clang's sanitizers are in this program.
#pragma once

namespace ingero::test {

/// They make it many times slower: what is a promise of the product is not one of theirs.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
inline constexpr bool sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace ingero::test
