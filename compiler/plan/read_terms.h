// Reads the planner's terms off the compiler's own IR: a partitioned model whose element-wise work is grouped into
// kernels, in the order in which they run (after overlap-communication, before programs are made).
#pragma once

#include "compiler/pipeline/segment_layout.h"
#include "compiler/plan/emitted_work.h"
#include "compiler/plan/read_sizes.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Fills compute, collectives, parameters and saved bytes of the terms of one segment; peaks are left empty. Without
/// `tiedStep` the work once per step of tied parameters is left out: their owner on the same stage does it. Bytes are
/// those of `emitted`; where it is null those of each op's operands and results.
planner::PatternTerms readTerms(mlir::ModuleOp fused, const SegmentLayout &segment, const SizeReader &sizes,
                                bool tiedStep, const EmittedWork *emitted);

/// Bytes of the stream that a segment returns, empty when no segment does.
planner::Size readStreamBytes(mlir::ModuleOp module, const SizeReader &sizes);

/// Bytes of one input (tokens, positions, ...): all have the same shape.
planner::Monomial readInputBytes(mlir::ModuleOp module, const SizeReader &sizes);

/// Whether any function of a segment reads an input.
bool readsInputs(mlir::ModuleOp module, llvm::StringRef segment);

/// Floating-point operations of matrix products and attention in the given phases ("forward", "backward") of one
/// micro-batch on one rank, without those of slots of experts that no token can fill. Reads a module before fusion:
/// fused products cannot tell what they compute.
double readFlops(mlir::ModuleOp partitioned, llvm::StringRef segment, llvm::ArrayRef<llvm::StringRef> phases);

} // namespace espalier
