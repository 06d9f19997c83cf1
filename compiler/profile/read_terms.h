// Reads the planner's terms from the compiler's own IR: a partitioned model whose elementwise work is grouped into
// kernels in execution order, after overlap-communication and before lowering to programs.
#pragma once

#include "compiler/profile/emitted_work.h"
#include "compiler/profile/read_sizes.h"
#include "dialects/exec/dialect.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Fills compute, collectives, parameters and saved bytes of one segment's terms; peaks stay empty. If the module has
/// no forward function, reads only the parameters and the work once per step. Without `tiedStep`,
/// omits the step's work on tied parameters, because their owner on the same stage does it. Bytes come from `emitted`,
/// or from each op's operands and results if `emitted` is null.
planner::PatternTerms readTerms(mlir::ModuleOp fused, exec::SegmentOp segment, const SizeReader &sizes, bool tiedStep,
                                const EmittedWork *emitted);

/// Returns the bytes of the stream that a segment returns, or an empty size if no segment returns one.
planner::Size readStreamBytes(mlir::ModuleOp module, const SizeReader &sizes);

/// Returns the bytes of all inputs that have memory. All inputs have the same shape.
planner::Monomial readInputBytes(mlir::ModuleOp module, const SizeReader &sizes);

/// Returns whether any function of a segment reads an input.
bool readsInputs(mlir::ModuleOp module, llvm::StringRef segment);

/// Returns the floating-point operations of matrix products and attention in the given phases ("forward", "backward"),
/// for one micro-batch on one rank. Expert slots that no token can fill do not count. The module must not be fused,
/// because fused products do not show what they compute.
double readFlops(mlir::ModuleOp partitioned, llvm::StringRef segment, llvm::ArrayRef<llvm::StringRef> phases);

} // namespace espalier
