// The library calls of a plan, read and checked when it is loaded.
#pragma once

#include "runtime/device/cuda/matmul.h"
#include "runtime/device/cuda/movement.h"
#include "runtime/plan.pb.h"

#include <string>
#include <variant>
#include <vector>

namespace espalier::rt::cuda {

struct Clearing {
  int64_t bytes;
};

/// One call; nothing where an instruction is none.
using LibraryCall = std::variant<std::monostate, const Matmuls::Product *, StridedCopy, Rearrangement, Clearing>;

/// For people: "product of f32 [8, 4] by f32 [4, 6] to f32", "copy of 3 x 32 bytes".
std::string describe(const LibraryCall &call);
/// 0 for what only moves bytes.
double flopsOf(const LibraryCall &call);

class LibraryCalls {
public:
  /// Throws PlanError for a call that is malformed, that the compiler does not leave to libraries on CUDA, or that
  /// cuBLASLt cannot do.
  LibraryCalls(const pb::Plan &plan, Matmuls &matmuls);

  const LibraryCall &at(uint32_t subprogram, uint32_t instruction) const { return calls[subprogram][instruction]; }

private:
  std::vector<std::vector<LibraryCall>> calls;
};

} // namespace espalier::rt::cuda
