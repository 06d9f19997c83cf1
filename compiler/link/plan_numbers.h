// Converts the dialect's enumerators to those of plan.proto. Their numbers are equal, which each user asserts.
#pragma once

#include <optional>

namespace espalier {

/// Returns whether two enumerators have the same number.
template <typename Ours, typename Theirs> constexpr bool isSame(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

/// Returns the number of a keyword that the op's verifier has already accepted.
template <typename Number, typename Enumeration> Number numberOf(std::optional<Enumeration> known) {
  return static_cast<Number>(static_cast<int>(*known));
}

} // namespace espalier
