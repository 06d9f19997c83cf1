// The rows of functions.def that describe a library call.
#pragma once

#include "format/functions.h"
#include "format/plan.pb.h"

namespace espalier::rt {

/// The description of a call in functions.def. `function` is the call's row, or null for an unknown function.
/// `epilogue` is the row of its epilogue, or null if the function has none. `sizes` has all sizes of the call, or
/// nothing if they do not match the row.
struct CallRows {
  const FunctionSignature *function = nullptr;
  const EpilogueSignature *epilogue = nullptr;
  std::optional<std::vector<int64_t>> sizes;

  explicit CallRows(const pb::LibraryCall &call);
  std::vector<const OperandSignature *> operands(int buffers) const {
    return operandsOf(*function, epilogue, static_cast<size_t>(buffers), sizes ? *sizes : std::vector<int64_t>());
  }
};

} // namespace espalier::rt
