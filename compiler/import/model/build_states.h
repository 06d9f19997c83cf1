// Builds recurrences, causal convolutions and what belongs to them.
#pragma once

#include "compiler/import/model/primitives.h"

namespace espalier {

/// Returns log(1 + exp(x)).
mlir::Value softplus(PrimitiveBuilder &p, mlir::Value x);

/// Returns x / sqrt(sum(x^2) + epsilon) over the last dimensions, of which x has more; else reports an error.
mlir::FailureOr<mlir::Value> l2Norm(PrimitiveBuilder &p, const OpDescription &op, mlir::Value x, mlir::Type element);

/// Returns the type of what earlier tokens leave for a recurrence or a convolution: a state, or inputs. Reports an
/// error for operands of too few dimensions.
mlir::FailureOr<mlir::Type> carriedType(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in);

/// Returns the recurrence of in = {q, k, v, decay, beta} and perhaps visible_from, or in generation positions and the
/// state; reports an error for shapes that do not fit together.
mlir::FailureOr<mlir::Value> recurrence(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in);

/// Returns the convolution of in = {x, weight} and perhaps visible_from, or in generation positions and the earlier
/// inputs; reports an error for a weight that does not fit.
mlir::FailureOr<mlir::Value> causalConv(PrimitiveBuilder &p, mlir::ArrayRef<mlir::Value> in, mlir::Type element);

} // namespace espalier
