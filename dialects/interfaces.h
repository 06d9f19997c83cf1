// Op interfaces shared by the dialects, and the builders that implement their rules.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OpDefinition.h"

namespace espalier {

/// The effect of sharding a factor (a named dimension) over a mesh axis on an op.
enum class FactorKind {
  Parallel, ///< each device computes its shard of the results
  Sum,      ///< results are partial: they must be summed over the axis
  Blocked,  ///< the op needs the whole dimension: operands are gathered first
};

/// Forward keeps the results for backward, unless the whole layer is recomputed: to compute them again takes long.
template <typename Op> class KeptForBackward : public mlir::OpTrait::TraitBase<Op, KeptForBackward> {};
/// Backward always repeats the op, because its results are larger or slower to keep than to compute.
template <typename Op> class RepeatedInBackward : public mlir::OpTrait::TraitBase<Op, RepeatedInBackward> {};

/// Returns the names of a tensor type's dimensions, outermost first.
llvm::ArrayRef<mlir::StringAttr> dimNames(mlir::Type type);

/// Returns the position of dimension `name` in `type`, or -1.
int dimIndex(mlir::Type type, llvm::StringRef name);

/// Returns the type with the union of the operands' dimensions. Uses the order of the tensor type `order` if it has all
/// of these dimensions, else the order of the first operand that has them all, else the order of first appearance.
mlir::RankedTensorType broadcastType(mlir::ValueRange operands, mlir::Type element, mlir::Type order = {});

/// Returns a tensor type with named dimensions.
mlir::RankedTensorType namedTensor(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<mlir::StringAttr> dims,
                                   mlir::Type element);

/// Returns `type` with another element type.
mlir::RankedTensorType withElement(mlir::Type type, mlir::Type element);

/// Returns the total number of elements of an op's results.
double elementsOfResults(mlir::Operation *op);

/// The interface of derivative rules: gives the cotangents of an op's results, and collects the contributions to the
/// cotangents of its operands.
class GradientBuilder {
public:
  GradientBuilder(mlir::OpBuilder &builder, mlir::Location loc, mlir::Operation *op,
                  llvm::ArrayRef<mlir::Value> cotangents)
      : builder(builder), loc(loc), op(op), cotangents(cotangents), contributions(op->getNumOperands()) {}

  /// Returns the cotangent of result `index`, or null if the loss does not depend on the result.
  mlir::Value cotangent(unsigned index = 0) const { return cotangents[index]; }
  mlir::Value operand(unsigned index) const { return op->getOperand(index); }
  mlir::Value result(unsigned index = 0) const { return op->getResult(index); }

  /// Adds `value` to the cotangent of operand `index`. Sums over dimensions that the operand lacks. `value` may lack
  /// dimensions of the operand if it is constant along them.
  void contribute(unsigned index, mlir::Value value);
  mlir::Value contribution(unsigned index) const { return contributions[index]; }

  /// Create element-wise arithmetic that broadcasts by name. Results are f32, with dimensions in the order of the op's
  /// result.
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value sub(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, mlir::Value b);
  mlir::Value div(mlir::Value a, mlir::Value b);
  mlir::Value neg(mlir::Value a);
  mlir::Value constant(double value);
  /// Returns the cotangent of result `index` with all dimensions and the element type of the result, as matrix products
  /// and attention require.
  mlir::Value fullCotangent(unsigned index = 0);
  /// Returns the type of operand `index`'s gradient: the operand's type, but f32 for parameters.
  mlir::RankedTensorType gradientType(unsigned index) const;

  mlir::OpBuilder &builder;
  mlir::Location loc;

private:
  mlir::Operation *op;
  llvm::ArrayRef<mlir::Value> cotangents;
  llvm::SmallVector<mlir::Value> contributions;
};

/// The interface of localization rules: gives local operands, local result types, and the offsets of this device's
/// shards. The localize pass implements it.
class LocalizeContext {
public:
  virtual ~LocalizeContext() = default;
  /// Returns the local value of operand `index` of the op that is localized.
  virtual mlir::Value operand(unsigned index) = 0;
  virtual mlir::RankedTensorType resultType(unsigned index) = 0;
  /// Returns the offset of the local shard of value `global` along dimension `dim`, as a #dist.origin attribute.
  /// Returns null if the dimension is not sharded.
  virtual mlir::Attribute origin(mlir::Value global, llvm::StringRef dim) = 0;
  /// Returns the mesh axes that shard dimension `dim` of value `global`.
  virtual llvm::SmallVector<mlir::Attribute> axes(mlir::Value global, llvm::StringRef dim) = 0;
  /// Clones `op` with local operands and result types, which is the default localization.
  virtual llvm::SmallVector<mlir::Value> cloneLocal(mlir::Operation *op) = 0;
  /// Clones `op` with these operands and result types.
  virtual mlir::Operation *cloneWith(mlir::Operation *op, mlir::ValueRange operands, mlir::TypeRange results) = 0;
  virtual mlir::OpBuilder &builder() = 0;
};

} // namespace espalier

#include "dialects/interfaces.h.inc"
