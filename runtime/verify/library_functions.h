// What library functions do with their buffers: for calls what Kernel.operands of the plan is for launches.
#pragma once

#include "runtime/plan.pb.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace espalier::rt {

/// One buffer of a library call. `elements` times the size of its type is its bytes.
struct OperandRule {
  /// Of types that a function takes: one, any float, or (where bytes are moved) any, elements then being bytes.
  enum class Types : uint8_t { F32, I32, Float, Bytes };

  pb::Operand::Access access = pb::Operand::READ;
  int64_t elements = 0;
  Types types = Types::Float;
  bool unlessFirst = false; ///< of ADD: overwrites where `first` of the RUN names the bucket
  uint32_t over = 0;        ///< of what is written: operands whose place it may have, as bits
  uint32_t linear = 0;      ///< as Operand.linear
  bool reduces = false;     ///< as Operand.reduces
  uint32_t madeOf = 0;      ///< of what is written: the operands it is made of, as bits; 0: all that are read
};

/// The operands of a call, in the order of its buffers; nothing where its sizes are too few, negative or too large. The
/// caller compares their number with that of the buffers.
std::optional<std::vector<OperandRule>> operandsOf(const pb::LibraryCall &call);

} // namespace espalier::rt
