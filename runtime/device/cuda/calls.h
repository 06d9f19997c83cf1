// The library calls of a plan, checked when the plan is loaded.
#pragma once

#include "format/plan.pb.h"
#include "runtime/device/cuda/matmul.h"
#include "runtime/device/cuda/movement.h"

#include <string>
#include <variant>
#include <vector>

namespace espalier::rt::cuda {

/// A ZERO call.
struct Clearing {
  int64_t bytes;
};

/// One library call; std::monostate if the instruction is not a library call.
using LibraryCall = std::variant<std::monostate, const Matmuls::Product *, StridedCopy, Rearrangement, Clearing>;

/// Describes a call for messages: "product of f32 [8, 4] by f32 [4, 6] to f32", "copy of 3 x 32 bytes".
std::string describe(const LibraryCall &call);
/// Returns the floating-point operations of a call; 0 for copies.
double flopsOf(const LibraryCall &call);

/// All library calls of a plan.
class LibraryCalls {
public:
  /// Throws PlanError for a malformed call, for a call that the compiler replaces by kernels on CUDA, and for a product
  /// that cuBLASLt does not support.
  LibraryCalls(const pb::Plan &plan, Matmuls &matmuls);

  const LibraryCall &at(uint32_t subprogram, uint32_t instruction) const { return calls[subprogram][instruction]; }

private:
  std::vector<std::vector<LibraryCall>> calls;
};

} // namespace espalier::rt::cuda
