// The interpreter of the model and dist dialects: what a program means, in numbers. It serves as the reference for
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

/// One axis of the device mesh and where this rank stands on it.
struct MeshPlace {
  std::string axis;
  int64_t size = 1;
  int64_t coordinate = 0;
};

/// What a function's value depends on besides its arguments.
struct EvalContext {
  /// Results keep all digits of a double: for finite differences. Otherwise each is rounded to its element type.
  bool isExact = false;
  std::map<std::string, double> scalars; ///< by slot name of model.scalar
  uint32_t seed = 0;
  uint32_t step = 0;
  int64_t microBatch = 0;
  int64_t layer = 0;
  /// Whether accumulators are zero before the first micro-batch; otherwise it overwrites them.
  bool hasClearedSums = false;
  /// Index in the global batch of the first sample, for ops without #dist.origin (a function on global shapes).
  int64_t firstSample = 0;
  std::optional<Tensor> cotangent; ///< what model.cotangent gives; ones when absent

  std::vector<MeshPlace> mesh; ///< outermost first
  int rank = 0;
  Rendezvous *rendezvous = nullptr; ///< null: collectives are possible only within one rank

  /// Coordinate on `axis`, the micro-batch for "micro_batch", 0 on an axis that the mesh does not have.
  int64_t coordinate(llvm::StringRef axis) const;
  /// Size of `axis`, 1 when the mesh does not have it.
  int64_t axisSize(llvm::StringRef axis) const;
  /// Puts `rank` on `mesh`, whose last axis varies fastest with the rank.
  void placeOn(dist::MeshAttr mesh, int64_t rank);
};

/// Number that a #dist.origin attribute stands for; 0 for none or unit.
int64_t originOf(mlir::Attribute origin, const EvalContext &context);

/// Runs `function` on `arguments`. Errors: wrong number or types of arguments, an op without evaluation, a scalar that
/// the context lacks, a collective whose group does not fit or whose other ranks have failed; the message ends with the
/// op's location.
llvm::Expected<std::vector<Tensor>> evaluate(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> arguments,
                                             EvalContext &context);

} // namespace espalier
