// A failure as plain data of one size: in memory that ranks share, and as a message between them.
#pragma once

#include "runtime/status.h"

#include <array>

namespace espalier::rt {

/// A Failure, with texts cut where they do not fit.
struct PackedFailure {
  int rank = -1, stage = -1, endSignal = 0;
  bool isEcho = false;
  int64_t step = -1;
  std::array<char, 512> action{}, subprogram{}, op{};
  std::array<char, 8192> message{};
};

/// Allocates nothing, as memory may be what is missing.
void pack(const Failure &failure, PackedFailure &to) noexcept;
/// What came from elsewhere may lack the ends of its texts.
Failure unpack(const PackedFailure &packed);

} // namespace espalier::rt
