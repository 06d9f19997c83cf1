// Whether a test is built with a sanitizer that takes the address space and ends the process where memory is refused.
#pragma once

namespace espalier {

#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool isSanitized = true;
#else
inline constexpr bool isSanitized = false;
#endif

} // namespace espalier
