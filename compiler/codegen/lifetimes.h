// Computes the live ranges of a program's virtual buffers, before buffers are allocated.
#pragma once

#include "dialects/exec/dialect.h"

#include <map>

namespace espalier::codegen {

/// A buffer's live range (first and last instruction that uses it) and its size.
struct Lifetime {
  int64_t first = 0, last = 0, bytes = 0;
  bool overlaps(const Lifetime &other) const { return first <= other.last && other.first <= last; }
};

/// Live ranges of a program. They are exact intervals of instructions. If a launch may work in place, its result is
/// merged with an operand that dies there.
struct ProgramLifetimes {
  std::map<int64_t, Lifetime> buffers; ///< by buffer number
  std::map<int64_t, int64_t> joined;   ///< result that overwrites an operand -> number of the merged buffer
};

/// Returns the live ranges of a program's virtual buffers.
ProgramLifetimes findLifetimes(exec::ProgramOp program);

/// Returns the largest sum of `bytes` over the buffers that are live at one instruction. It is a lower bound of any
/// allocation.
int64_t largestLiveBytes(const std::map<int64_t, Lifetime> &buffers,
                         llvm::function_ref<int64_t(const Lifetime &)> bytes);

} // namespace espalier::codegen
