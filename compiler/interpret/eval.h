// The interpreter of the model and dist dialects. It defines the numeric meaning of programs and is the reference for
// sharded programs, derivative rules and generated kernels.
#pragma once

#include "compiler/interpret/tensor.h"
#include "dialects/dist/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Error.h"

#include <map>
#include <optional>
#include <string>

namespace espalier {

class Rendezvous;

/// One axis of the device mesh and this rank's coordinate on it.
struct MeshPlace {
  std::string axis;
  int64_t size = 1;
  int64_t coordinate = 0;
};

/// The inputs of a function besides its arguments.
struct EvalContext {
  /// If true, results keep double precision, for finite differences. Otherwise each result is rounded to its element
  /// type.
  bool isExact = false;
  std::map<std::string, double> scalars; ///< keyed by slot name of model.scalar
  uint32_t seed = 0;
  uint32_t step = 0;
  int64_t microBatch = 0;
  int64_t layer = 0;
  /// Whether accumulators are zeroed before the first micro-batch. Otherwise the first micro-batch overwrites them.
  bool hasClearedSums = false;
  /// Index in the global batch of the first sample, for ops without #dist.origin (functions on global shapes).
  int64_t firstSample = 0;
  std::optional<Tensor> cotangent; ///< value of model.cotangent; ones if not set

  std::vector<MeshPlace> mesh; ///< outermost first
  int rank = 0;
  Rendezvous *rendezvous = nullptr; ///< if null, collectives work only on groups of one rank

  /// Returns the coordinate on `axis`, the micro-batch for "micro_batch", or 0 for an axis that the mesh does not have.
  int64_t coordinate(llvm::StringRef axis) const;
  /// Returns the size of `axis`, or 1 if the mesh does not have it.
  int64_t axisSize(llvm::StringRef axis) const;
  /// Sets the coordinates of `rank` on `mesh`, whose last axis varies fastest with the rank.
  void placeOn(dist::MeshAttr mesh, int64_t rank);
};

/// Returns the index that a #dist.origin attribute evaluates to; 0 for null or unit.
int64_t originOf(mlir::Attribute origin, const EvalContext &context);

/// Runs `function` on `arguments`. Fails on a wrong number or types of arguments, an op without evaluation, a scalar
/// that the context lacks, and a collective whose group does not match or whose other ranks failed. The message ends
/// with the op's location.
llvm::Expected<std::vector<Tensor>> evaluate(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> arguments,
                                             EvalContext &context);

} // namespace espalier
