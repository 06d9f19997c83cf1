// Op interfaces shared by the dialects, and the small builders that their rules are written with.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OpDefinition.h"

namespace espalier {

/// What splitting a factor (a named dimension) over a mesh axis does to an op.
enum class FactorKind {
  Parallel, ///< each device computes its part of the results
  Sum,      ///< results are partial: they must be summed over the axis
  Blocked,  ///< the op needs the whole dimension: operands are gathered first
};

/// Names of the dimensions of a tensor type, outermost first.
llvm::ArrayRef<mlir::StringAttr> dimNames(mlir::Type type);

/// Position of dimension `name` in `type`, or -1.
int dimIndex(mlir::Type type, llvm::StringRef name);

/// The f32 type with the union of the operands' dimensions, in the order of the first operand that has them all
/// or, when none has, of first appearance; given `order`, a tensor type with all of these dimensions, in its order.
mlir::RankedTensorType broadcastType(mlir::ValueRange operands, mlir::Type element, mlir::Type order = {});

/// A tensor type with named dimensions.
mlir::RankedTensorType namedTensor(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<mlir::StringAttr> dims,
                                   mlir::Type element);

/// `type` with another element type.
mlir::RankedTensorType withElement(mlir::Type type, mlir::Type element);

double elementsOfResults(mlir::Operation *op);

/// What an op's derivative rule sees: cotangents of its results in, contributions to its operands out.
class GradientBuilder {
public:
  GradientBuilder(mlir::OpBuilder &builder, mlir::Location loc, mlir::Operation *op,
                  llvm::ArrayRef<mlir::Value> cotangents)
      : builder(builder), loc(loc), op(op), cotangents(cotangents), contributions(op->getNumOperands()) {}

  /// Cotangent of result `index`; null when no use of the result reaches the loss.
  mlir::Value cotangent(unsigned index = 0) const { return cotangents[index]; }
  mlir::Value operand(unsigned index) const { return op->getOperand(index); }
  mlir::Value result(unsigned index = 0) const { return op->getResult(index); }

  /// Adds `value` to the cotangent of operand `index`. Dimensions that the operand lacks are summed away; the value
  /// may lack dimensions of the operand along which it is constant.
  void contribute(unsigned index, mlir::Value value);
  mlir::Value contribution(unsigned index) const { return contributions[index]; }

  /// Element-wise arithmetic with broadcast by name; results are f32 with dimensions in the order of the op's result.
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value sub(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, mlir::Value b);
  mlir::Value div(mlir::Value a, mlir::Value b);
  mlir::Value neg(mlir::Value a);
  mlir::Value constant(double value);
  /// The cotangent of result `index` with all of the result's dimensions and its element type, as matrix products
  /// and attention need it.
  mlir::Value fullCotangent(unsigned index = 0);
  /// Type of the gradient of operand `index`: the operand's, but f32 for parameters.
  mlir::RankedTensorType gradientType(unsigned index) const;

  mlir::OpBuilder &builder;
  mlir::Location loc;

private:
  mlir::Operation *op;
  llvm::ArrayRef<mlir::Value> cotangents;
  llvm::SmallVector<mlir::Value> contributions;
};

/// What an op's localization sees: local operands, the local types of its results, and where this device's part of
/// a dimension begins. Implemented by the localize pass.
class LocalizeContext {
public:
  virtual ~LocalizeContext() = default;
  /// Local value of operand `index` of the op that is localized.
  virtual mlir::Value operand(unsigned index) = 0;
  virtual mlir::RankedTensorType resultType(unsigned index) = 0;
  /// Where the local part of dimension `dim` of value `global` begins: a #dist.origin attribute, null when whole.
  virtual mlir::Attribute origin(mlir::Value global, llvm::StringRef dim) = 0;
  /// The mesh axes that split dimension `dim` of value `global`.
  virtual llvm::SmallVector<mlir::Attribute> axes(mlir::Value global, llvm::StringRef dim) = 0;
  /// The default localization: a clone with local operands and result types.
  virtual llvm::SmallVector<mlir::Value> cloneLocal(mlir::Operation *op) = 0;
  /// A clone with the attributes of `op`, but these operands and result types.
  virtual mlir::Operation *cloneWith(mlir::Operation *op, mlir::ValueRange operands, mlir::TypeRange results) = 0;
  virtual mlir::OpBuilder &builder() = 0;
};

} // namespace espalier

#include "dialects/interfaces.h.inc"
