// Builds activations, caps and bounds from primitives, for in = {x}.
#pragma once

#include "compiler/import/model/primitives.h"

namespace espalier {

/// Returns the activation `kind` of x. With `alpha` a, silu is x sigmoid(a x). Reports an unknown kind.
mlir::FailureOr<mlir::Value> activation(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in,
                                        mlir::Type element);

/// Returns c tanh(x / c) for the attribute `cap` c, or x if the cap is 0.
mlir::FailureOr<mlir::Value> softCap(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in,
                                     mlir::Type element);

/// Returns x within the bounds `least` and `most`. The derivative is 0 outside of them.
mlir::FailureOr<mlir::Value> clamp(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in,
                                   mlir::Type element);

/// Returns x + `by`.
mlir::FailureOr<mlir::Value> shift(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in,
                                   mlir::Type element);

} // namespace espalier
