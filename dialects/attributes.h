// The discardable attributes of the three dialects: the name of each, and the type of its value. SPEC.md says who sets
// them and what they mean. Passes use these constants and no names of their own.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

namespace espalier {

/// The name of a discardable attribute, and access to its value on an op, an argument or a result.
template <typename Value> struct Declared {
  llvm::StringLiteral name;
  operator llvm::StringRef() const { return name; }

  /// Returns the value, or null if `op` does not have the attribute.
  Value of(mlir::Operation *op) const { return op->getAttrOfType<Value>(name); }
  bool isOn(mlir::Operation *op) const { return op->hasAttr(name); }
  void set(mlir::Operation *op, Value value) const { op->setAttr(name, value); }
  /// Sets a flag.
  void set(mlir::Operation *op) const { op->setAttr(name, mlir::UnitAttr::get(op->getContext())); }
  /// Return the value on an argument or a result, or null.
  template <typename Function> Value ofArgument(Function function, unsigned index) const {
    return function.template getArgAttrOfType<Value>(index, name);
  }
  template <typename Function> Value ofResult(Function function, unsigned index) const {
    return function.template getResultAttrOfType<Value>(index, name);
  }
  /// Returns the value in the attributes of an argument or a result, or null.
  Value in(mlir::DictionaryAttr attributes) const { return attributes ? attributes.getAs<Value>(name) : Value(); }
};

namespace model {

// Of arguments and results.
inline constexpr Declared<mlir::StringAttr> nameAttr{"model.name"};
inline constexpr Declared<mlir::StringAttr> roleAttr{"model.role"};
inline constexpr Declared<mlir::UnitAttr> frozenAttr{"model.frozen"};
// Of functions.
inline constexpr Declared<mlir::UnitAttr> segmentAttr{"model.segment"};
inline constexpr Declared<mlir::DictionaryAttr> parametersAttr{"model.parameters"};
inline constexpr Declared<mlir::ArrayAttr> recomputeAttr{"model.recompute"};
inline constexpr Declared<mlir::UnitAttr> splitBackwardAttr{"model.split_backward"};
// Of modules.
inline constexpr Declared<mlir::StringAttr> phaseAttr{"model.phase"};
inline constexpr Declared<mlir::ArrayAttr> symbolsAttr{"model.symbols"};
inline constexpr Declared<mlir::ArrayAttr> runsAttr{"model.runs"};
inline constexpr Declared<mlir::DictionaryAttr> sizesAttr{"model.sizes"};
inline constexpr Declared<mlir::TypeAttr> gradientTypeAttr{"model.gradient_type"};
inline constexpr Declared<mlir::FloatAttr> documentTokensAttr{"model.document_tokens"};

} // namespace model

namespace dist {

class MeshAttr;
class ShardingAttr;

// Of arguments.
inline constexpr Declared<ShardingAttr> shardingAttr{"dist.sharding"};
// Of ops.
inline constexpr Declared<mlir::ArrayAttr> shardingsAttr{"dist.shardings"};
inline constexpr Declared<mlir::ArrayAttr> operandsAttr{"dist.operands"};
// Of modules.
inline constexpr Declared<MeshAttr> meshAttr{"dist.mesh"};
inline constexpr Declared<mlir::DictionaryAttr> dimsAttr{"dist.dims"};
inline constexpr Declared<mlir::UnitAttr> sequenceParallelAttr{"dist.sequence_parallel"};
inline constexpr Declared<mlir::UnitAttr> zigzagAttr{"dist.zigzag"};
inline constexpr Declared<mlir::UnitAttr> keepCollectivesAttr{"dist.keep_collectives"};
inline constexpr Declared<mlir::ArrayAttr> sliceInputsAttr{"dist.slice_inputs"};

} // namespace dist

namespace exec {

class MatmulAlgorithmsAttr;
class ModeAttr;
class OptimizerAttr;
class PlanAttr;

// Of arguments and results.
inline constexpr Declared<mlir::StringAttr> regionAttr{"exec.region"};
inline constexpr Declared<mlir::IntegerAttr> offsetAttr{"exec.offset"};
inline constexpr Declared<mlir::StringAttr> valueAttr{"exec.value"};
inline constexpr Declared<mlir::IntegerAttr> partAttr{"exec.part"};
inline constexpr Declared<mlir::IntegerAttr> bucketAttr{"exec.bucket"};
inline constexpr Declared<mlir::ArrayAttr> shareAttr{"exec.share"};
// Of functions, programs and kernels.
inline constexpr Declared<mlir::FloatAttr> maxGradNormAttr{"exec.max_grad_norm"};
inline constexpr Declared<mlir::UnitAttr> limitsNormAttr{"exec.limits_norm"};
inline constexpr Declared<mlir::DenseI64ArrayAttr> guardsAttr{"exec.guards"};
inline constexpr Declared<mlir::DictionaryAttr> shapesAttr{"exec.shapes"};
inline constexpr Declared<mlir::DictionaryAttr> axesAttr{"exec.axes"};
inline constexpr Declared<mlir::ArrayAttr> usesAttr{"exec.uses"};
// Of modules.
inline constexpr Declared<PlanAttr> planAttr{"exec.plan"};
inline constexpr Declared<OptimizerAttr> optimizerAttr{"exec.optimizer"};
inline constexpr Declared<ModeAttr> modeAttr{"exec.mode"};
inline constexpr Declared<mlir::DenseI64ArrayAttr> batchRampAttr{"exec.batch_ramp"};
inline constexpr Declared<MatmulAlgorithmsAttr> matmulAlgorithmsAttr{"exec.matmul_algorithms"};
inline constexpr Declared<mlir::ArrayAttr> unfusedEpiloguesAttr{"exec.unfused_epilogues"};
inline constexpr Declared<mlir::StringAttr> targetAttr{"exec.target"};
inline constexpr Declared<mlir::IntegerAttr> guardBytesAttr{"exec.guard_bytes"};
inline constexpr Declared<mlir::FloatAttr> stepFlopsAttr{"exec.step_flops"};

} // namespace exec
} // namespace espalier
