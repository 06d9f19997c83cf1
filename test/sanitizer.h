// What tests expect otherwise of a build with sanitizers.
#pragma once

namespace espalier {

/// Whether a test is built with a sanitizer that takes the address space and ends the process where memory is refused.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool isSanitized = true;
#else
inline constexpr bool isSanitized = false;
#endif

/// So many times longer tests wait before they say that something hangs. test/lit.cfg.py has the same for commands.
inline constexpr int slowdown = isSanitized ? 10 : 1;

} // namespace espalier
