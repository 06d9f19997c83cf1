// The mapping of a row, flat or column kernel to threads. It depends on sizes and alignment only and is part of the
// kernel, so launches with equal mappings share a kernel.
#pragma once

#include "compiler/codegen/kernel_shape.h"

namespace espalier::codegen::cuda {

/// The mapping parameters.
struct Policy {
  int vector = 1;       ///< columns per load of a thread
  int rowThreads = 1;   ///< threads per row: the whole block or a power of two within a warp for row kernels, several
                        ///< warps for column kernels
  int vectors = 1;      ///< vectors that a thread loads before it computes; in row and column kernels, all of one row
  bool isHeld = false;  ///< row kernels: `vectors` cover the block's part of the row and stay in registers between
                        ///< passes
  bool isWhole = false; ///< row and column kernels: the number of columns is a multiple of the elements that the
                        ///< threads of a row load at once
  int threads = 256;
  int64_t extentPerBlock = 1, columnsPerBlock = 0, sharedBytes = 0;

  /// Convert to and from the attributes of a kernel.
  exec::GeometryAttr geometry(mlir::MLIRContext *context) const;
  mlir::DictionaryAttr parameters(mlir::MLIRContext *context) const;
  static Policy of(exec::KernelOp kernel);
};

/// Returns the policy for launches with these buffers: operands, then outputs, in KernelShape's order.
Policy choosePolicy(const KernelShape &shape, llvm::ArrayRef<exec::BufferAttr> operands,
                    llvm::ArrayRef<exec::BufferAttr> outputs);

/// Returns whether the buffer's address on every rank is a multiple of `bytes`.
bool isAligned(exec::BufferAttr buffer, int64_t bytes);

/// Returns the maximum number of blocks into which the rows of a column kernel are split.
int64_t columnBlocks(const KernelShape &shape);

} // namespace espalier::codegen::cuda
