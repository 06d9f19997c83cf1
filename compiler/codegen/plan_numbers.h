// Numbers of the dialect's enumerations in plan.proto. They are the same there, which whoever writes one asserts.
#pragma once

#include <optional>

namespace espalier {

/// Whether a case has the number that plan.proto gives it.
template <typename Ours, typename Theirs> constexpr bool isSame(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

/// The number of a word that the op's verifier has seen.
template <typename Number, typename Enumeration> Number numberOf(std::optional<Enumeration> known) {
  return static_cast<Number>(static_cast<int>(*known));
}

} // namespace espalier
