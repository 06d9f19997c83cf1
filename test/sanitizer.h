// Constants that tests use to adapt to builds with sanitizers.
#pragma once

namespace espalier {

/// Whether a test is built with a sanitizer that uses the address space and ends the process if an allocation fails.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool isSanitized = true;
#else
inline constexpr bool isSanitized = false;
#endif

/// The factor by which tests extend their timeouts. test/lit.cfg.py has the same factor for commands.
inline constexpr int slowdown = isSanitized ? 10 : 1;

} // namespace espalier
