// Library functions as the rules see them: what a row of functions.def declares, for one call.
#pragma once

#include "runtime/functions.h"
#include "runtime/plan.pb.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace espalier::rt {

/// One buffer of a library call. `elements` times the size of its type is its bytes; for the type b it is bytes.
struct OperandRule {
  const OperandSignature *row = nullptr;
  pb::Operand::Access access = pb::Operand::READ;
  int64_t elements = 0;
  bool unlessFirst = false; ///< of ADD: overwrites where `first` of the RUN names the bucket
  uint32_t over = 0;        ///< of what is written: operands whose place it may have, as bits
  uint32_t linear = 0;      ///< as Operand.linear
  bool reduces = false;     ///< as Operand.reduces
  uint32_t madeOf = 0;      ///< of what is written: the operands it is made of, as bits; 0: all that are read
};

/// What functions.def says of a call: its row, null for an unknown function; its epilogue's row, null for functions
/// without one; all its sizes, nothing if they are not those of the row.
struct CallRows {
  const FunctionSignature *function = nullptr;
  const EpilogueSignature *epilogue = nullptr;
  std::optional<std::vector<int64_t>> sizes;

  explicit CallRows(const pb::LibraryCall &call);
  std::vector<const OperandSignature *> operands(int buffers) const {
    return operandsOf(*function, epilogue, static_cast<size_t>(buffers));
  }
};

/// The operands of a call, in the order of its buffers; nothing for an unknown function, and if its sizes are too few
/// or too many, negative or too large. The caller compares their number with that of the buffers.
std::optional<std::vector<OperandRule>> operandsOf(const pb::LibraryCall &call);

} // namespace espalier::rt
