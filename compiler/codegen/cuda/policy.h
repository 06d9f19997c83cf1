// How a kernel of one of the three shapes is spread over threads. The choice depends on sizes and alignment alone and
// is part of the kernel: launches share a kernel where it is equal.
#pragma once

#include "compiler/codegen/kernel_shape.h"

namespace espalier::codegen::cuda {

struct Policy {
  int vector = 1;       ///< columns that a thread loads at once
  int rowThreads = 1;   ///< of one row: row: all of a block, or a power of two within a warp; column: some warps
  int vectors = 1;      ///< that a thread has in hand before it computes; row and column: of one row, flat: any
  bool isHeld = false;  ///< row: `vectors` are all that a block has of it and stay in registers between passes
  bool isWhole = false; ///< row, column: the columns are a multiple of what the threads of a row have in hand
  int threads = 256;
  int64_t extentPerBlock = 1, columnsPerBlock = 0, sharedBytes = 0;

  exec::GeometryAttr geometry(mlir::MLIRContext *context) const;
  mlir::DictionaryAttr parameters(mlir::MLIRContext *context) const;
  static Policy of(exec::KernelOp kernel);
};

/// The policy for launches over buffers (those of the operands, then those of the outputs; in KernelShape's order).
Policy choosePolicy(const KernelShape &shape, llvm::ArrayRef<exec::BufferAttr> operands,
                    llvm::ArrayRef<exec::BufferAttr> outputs);

/// Whether every place of a buffer, on every rank, lies at a multiple of `bytes`.
bool isAligned(exec::BufferAttr buffer, int64_t bytes);

/// Into how many blocks the rows of a column kernel are cut, at most.
int64_t columnBlocks(const KernelShape &shape);

} // namespace espalier::codegen::cuda
