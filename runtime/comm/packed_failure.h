// A failure as plain data of fixed size, for shared memory and for messages between ranks.
#pragma once

#include "runtime/status.h"

#include <array>

namespace espalier::rt {

/// A Failure with texts truncated to fixed sizes.
struct PackedFailure {
  int rank = -1, stage = -1, endSignal = 0;
  bool isEcho = false, isFinal = false;
  int64_t step = -1;
  std::array<char, 512> action{}, subprogram{}, op{};
  std::array<char, 8192> message{};
};

/// Does not allocate, because the failure may be a lack of memory.
void pack(const Failure &failure, PackedFailure &to) noexcept;
/// Accepts texts without a terminating zero, because `packed` comes from another process.
Failure unpack(const PackedFailure &packed);

} // namespace espalier::rt
