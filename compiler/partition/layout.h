// The placement of a plan, read from the module's attributes: the mesh, the axes that split each named dimension, and
// whether the stream's sequence is split between the tensor-parallel regions.
//   dist.mesh = #dist.mesh<dp = 2, tp = 2>, dist.dims = {batch = ["dp"], heads = ["tp"]}, dist.sequence_parallel
#pragma once

#include "dialects/dist/dialect.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// The axes that split a dimension, outermost first.
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
  /// Returns whether cp rank r of n holds chunks r and 2 n - 1 - r of the 2 n chunks of a sequence.
  bool isZigzag() const { return zigzag; }
  /// Returns the same axes, outermost first.
  Axes inMeshOrder(const Axes &axes) const;
  /// Returns the default sharding of a value of this type: each named dimension is split over its axes. Under sequence
  /// parallelism, the sequence of [batch, seq, hidden] is split over tp.
  Sharding nominal(mlir::Type type) const;
  /// Returns the sharding of an argument by its role: parameters and inputs by dimension only.
  Sharding argument(mlir::Type type, llvm::StringRef role) const;
  /// Returns the axes over which the plan splits a named dimension.
  llvm::ArrayRef<mlir::StringAttr> axesOf(llvm::StringRef dim) const;
  /// Returns the type of the shard of a global tensor on one device.
  mlir::RankedTensorType localType(mlir::Type global, const Sharding &sharding) const;

private:
  /// If another dimension of the value has an axis of `batch` or `capacity`, too, these are not split over it: experts
  /// on ep or cp.
  Sharding byDimension(mlir::Type type) const;

  dist::MeshAttr meshAttribute;
  llvm::DenseMap<mlir::StringAttr, Axes> axesOfDim;
  bool sequenceParallel = false, zigzag = false;
};

/// Returns the sharding of `value` recorded by `propagate-shardings`; unsharded for values that the pass did not see.
Sharding shardingOf(mlir::Value value);

/// Returns the backward ops of a joint function: model.cotangent and all ops that depend on it.
llvm::DenseSet<mlir::Operation *> backwardOps(mlir::Block &body);

} // namespace espalier
