// What a plan says about placement, as the module's attributes hold it: the mesh, which axes split which named
// dimension, and whether the stream's sequence is split between the tensor-parallel regions.
//   dist.mesh = #dist.mesh<dp = 2, tp = 2>, dist.dims = {batch = ["dp"], heads = ["tp"]}, dist.sequence_parallel
#pragma once

#include "dialects/dist/dialect.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Axes that split a dimension, outermost first.
using Axes = llvm::SmallVector<mlir::StringAttr, 2>;

/// A sharding under construction: axes per dimension, and the axes over which the value is a partial sum.
struct Sharding {
  llvm::SmallVector<Axes> dims;
  Axes partial;

  Sharding() = default;
  explicit Sharding(size_t rank) : dims(rank) {}
  explicit Sharding(dist::ShardingAttr attribute);
  dist::ShardingAttr attribute(mlir::MLIRContext *context) const;
  bool isPartial() const { return !partial.empty(); }
  bool operator==(const Sharding &other) const = default;
};

/// The placement that a module's attributes describe. Axes of size 1 do not appear in any sharding.
class Layout {
public:
  explicit Layout(mlir::ModuleOp module);

  dist::MeshAttr mesh() const { return meshAttribute; }
  int64_t size(llvm::ArrayRef<mlir::StringAttr> axes) const { return meshAttribute.size(axes); }
  /// The same axes, outermost first.
  Axes inMeshOrder(const Axes &axes) const;
  /// Where a value of this type lives unless an op says otherwise: each named dimension on its axes, and the
  /// sequence of [batch, seq, hidden] on tp under sequence parallelism.
  Sharding nominal(mlir::Type type) const;
  /// Placement of an argument by its role: parameters and inputs by dimension only.
  Sharding argument(mlir::Type type, llvm::StringRef role) const;
  /// The part of a global tensor that one device holds.
  mlir::RankedTensorType localType(mlir::Type global, const Sharding &sharding) const;

private:
  /// The batch leaves an axis that another dimension of the value has, too, to that one: experts on ep.
  Sharding byDimension(mlir::Type type) const;

  dist::MeshAttr meshAttribute;
  llvm::DenseMap<mlir::StringAttr, Axes> axesOfDim;
  bool sequenceParallel = false;
};

/// Sharding of `value` as `propagate-shardings` recorded it; whole for values it did not see.
Sharding shardingOf(mlir::Value value);

/// Whether the op or something it reads depends on model.cotangent: the backward part of a joint function.
llvm::DenseSet<mlir::Operation *> backwardOps(mlir::Block &body);

} // namespace espalier
