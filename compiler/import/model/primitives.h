// Builds primitive ops of the model dialect.
#pragma once

#include "compiler/import/model/model_description.h"
#include "compiler/import/model/op_vocabulary.h"
#include "dialects/model/dialect.h"

namespace espalier {

/// Builds primitives at the location `loc`. Results are f32 unless an element type is given.
struct PrimitiveBuilder {
  explicit PrimitiveBuilder(mlir::OpBuilder &builder)
      : b(builder), f32(builder.getF32Type()), loc(mlir::UnknownLoc::get(builder.getContext())) {}

  template <typename Op> mlir::Value unary(mlir::Value x, mlir::Type type = {}) {
    return b.create<Op>(loc, withElement(x.getType(), type ? type : f32), x);
  }
  template <typename Op> mlir::Value binary(mlir::Value x, mlir::Value y, mlir::Type type = {}) {
    return b.create<Op>(loc, broadcastType({x, y}, type ? type : f32), x, y);
  }
  mlir::Value constant(double value) {
    return b.create<model::ConstantOp>(loc, namedTensor({}, {}, f32), b.getF64FloatAttr(value));
  }
  /// Reduces the last dimensions.
  template <typename Op> mlir::Value reduceLast(mlir::Value x, size_t count = 1) {
    auto type = mlir::cast<mlir::RankedTensorType>(x.getType());
    return b.create<Op>(loc, namedTensor(type.getShape().drop_back(count), dimNames(type).drop_back(count), f32), x);
  }
  /// Returns exp(x) / sum(exp(x)) over the last dimension.
  mlir::Value softmax(mlir::Value x) {
    mlir::Value powers = unary<model::ExpOp>(binary<model::SubOp>(x, reduceLast<model::ReduceMaxOp>(x)));
    return binary<model::DivOp>(powers, reduceLast<model::ReduceSumOp>(powers));
  }
  mlir::Value sumAll(mlir::Value x) { return b.create<model::ReduceSumOp>(loc, namedTensor({}, {}, f32), x); }
  mlir::Value converted(mlir::Value x, mlir::Type type) {
    return mlir::cast<mlir::RankedTensorType>(x.getType()).getElementType() == type ? x
                                                                                    : unary<model::ConvertOp>(x, type);
  }

  mlir::OpBuilder &b;
  const mlir::Type f32;
  mlir::Location loc;
};

/// Builds an op of the vocabulary from primitives; `element` is the type of its result.
using ComposedOp = mlir::FailureOr<mlir::Value> (*)(PrimitiveBuilder &p, const OpDescription &op,
                                                    mlir::ArrayRef<mlir::Value> in, mlir::Type element);

} // namespace espalier
