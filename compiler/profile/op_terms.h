// Reads the planner's cost terms of single ops.
#pragma once

#include "compiler/profile/emitted_work.h"
#include "compiler/profile/read_sizes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace espalier {

bool isCollective(mlir::Operation *op);

/// Returns whether the op is a matrix product.
bool isProduct(mlir::Operation *op);

/// Returns whether the op is a library or runtime call or a collective. Such ops are read one by one and are not fused.
bool isSingle(mlir::Operation *op);

/// Returns whether the op moves bytes. An accumulation that only follows a product is done by the product.
bool movesBytes(mlir::Operation *op);

/// Returns the mesh axis of this name.
planner::Axis axisNamed(llvm::StringRef name);

using Positions = llvm::DenseMap<mlir::Operation *, int>; ///< positions of ops in their function's block

Positions positionsIn(mlir::func::FuncOp function);

/// Returns the term of a kernel that is bound by memory bandwidth, without a position.
planner::ComputeTerm memoryTerm(const std::string &name, planner::Phase phase, planner::Size bytes);

/// Reads the terms of ops at one profile point. Bytes come from `emitted`, or from each op's operands and results if
/// `emitted` is null.
class OpTerms {
public:
  OpTerms(const SizeReader &sizes, const EmittedWork *emitted) : sizes(sizes), emitted(emitted) {}

  /// Returns the kernels and copies that do an op's work. Returns a single kernel if the emitted work is unknown.
  std::vector<EmittedPiece> piecesOf(mlir::Operation *op) const;

  /// Returns the kernels and copies of an op that are bound by memory bandwidth. A product may have such kernels, for
  /// example the addition of a bias gradient.
  std::vector<EmittedPiece> memoryPiecesOf(mlir::Operation *op) const;

  /// Returns all bytes that an op reads and writes. Of a lookup table, only the selected rows count.
  planner::Size trafficOf(mlir::Operation *op) const;

  /// Returns the term of a matrix product or of attention, without a position.
  planner::ComputeTerm singleTerm(mlir::Operation *op, planner::Phase phase) const;

  /// Returns the term of a collective without positions, because the ops beside it are unknown.
  planner::CollectiveTerm collectiveTerm(mlir::Operation *op, planner::Phase phase) const;

  /// Returns the term of a collective that starts at its position and is waited for by the first user of its result.
  planner::CollectiveTerm collectiveTerm(mlir::Operation *op, planner::Phase phase, const Positions &positions) const;

private:
  planner::ComputeTerm productTerm(mlir::Operation *op, planner::Phase phase) const;
  planner::Size attentionOperations(mlir::Operation *op) const;

  const SizeReader &sizes;
  const EmittedWork *emitted;
};

} // namespace espalier
