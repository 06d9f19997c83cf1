// How long the virtual buffers of a program are needed, before they have places.
#pragma once

#include "dialects/exec/dialect.h"

#include <map>

namespace espalier::codegen {

/// First and last instruction that a buffer is needed at, and its bytes.
struct Lifetime {
  int64_t first = 0, last = 0, bytes = 0;
  bool overlaps(const Lifetime &other) const { return first <= other.last && other.first <= last; }
};

/// Lifetimes are exact intervals of instructions. A launch that may work in place joins its result with an operand that
/// dies there: they are one buffer.
struct ProgramLifetimes {
  std::map<int64_t, Lifetime> buffers; ///< by number
  std::map<int64_t, int64_t> joined;   ///< number of a result that overwrites an operand -> the buffer's
};

ProgramLifetimes findLifetimes(exec::ProgramOp program);

/// The most of `bytes` that live at one instruction: no placement needs less.
int64_t largestLiveBytes(const std::map<int64_t, Lifetime> &buffers,
                         llvm::function_ref<int64_t(const Lifetime &)> bytes);

} // namespace espalier::codegen
