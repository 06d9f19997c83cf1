// The rows of functions.def that a library call goes by.
#pragma once

#include "runtime/functions.h"
#include "runtime/plan.pb.h"

namespace espalier::rt {

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

} // namespace espalier::rt
