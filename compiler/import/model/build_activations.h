// Builds activations, caps and bounds from primitives, for in = {x} unless it is said otherwise.
#pragma once

#include "compiler/import/model/primitives.h"

namespace espalier {

/// Returns the activation `kind` of x. With `alpha` a, silu is x sigmoid(a x). Reports an unknown kind.
mlir::FailureOr<mlir::Value> activation(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in,
                                        mlir::Type element);

/// Returns xIELU (Huang and Schlag, 2024) for in = {x, alpha_p, alpha_n, beta, eps}, with p = softplus(alpha_p) and n =
/// beta + softplus(alpha_n): p x^2 + beta x where x > 0, else n (exp(min(x, eps)) - 1 - x) + beta x.
mlir::FailureOr<mlir::Value> xielu(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in,
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
