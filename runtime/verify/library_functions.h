// The declarations of functions.def for one library call, in the form that the rules use.
#pragma once

#include "runtime/kernels/call_rows.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace espalier::rt {

/// The rule for one buffer of a library call. The buffer has `elements` times the size of its type in bytes; for type
/// b, `elements` counts bytes.
struct OperandRule {
  const OperandSignature *row = nullptr;
  pb::Operand::Access access = pb::Operand::READ;
  int64_t elements = 0;
  bool unlessFirst = false; ///< with access ADD: overwrites if `first` of the RUN names the bucket
  uint32_t over = 0;        ///< outputs: a bit mask of the operands that the output may overwrite in place
  uint32_t linear = 0;      ///< as Operand.linear
  bool reduces = false;     ///< as Operand.reduces
  uint32_t madeOf = 0;      ///< outputs: a bit mask of the operands that it depends on; 0: all inputs
};

/// Returns the operands of a call in buffer order. Returns nothing if the function is unknown, or if its sizes are too
/// few, too many, negative or too large. The caller compares the number of operands with the number of buffers.
std::optional<std::vector<OperandRule>> operandsOf(const pb::LibraryCall &call);

} // namespace espalier::rt
