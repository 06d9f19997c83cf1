// Rule A for the machine code of a CPU plan: the system's loader, which maps it, must not act on anything in it.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace espalier::rt::verify {

/// Returns how a kernel object differs from what the compiler emits, or an empty string. It may have constants and
/// code, but no constructors, relocations, needed libraries or undefined symbols, and its symbols are `kernels`. The
/// code itself is not examined.
std::string codeFault(std::string_view object, const std::set<std::string_view> &kernels);

} // namespace espalier::rt::verify
