// Builds norms from primitives.
#pragma once

#include "compiler/import/model/primitives.h"

namespace espalier {

/// Returns (x - mean) / sqrt(variance + epsilon) * (weight + offset) + bias for in = {x, weight} or {x, weight, bias}.
/// Normalizes over the dimensions of the weight, which must be the last ones of x; else reports an error.
mlir::FailureOr<mlir::Value> layerNorm(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in,
                                       mlir::Type element);

/// Returns x / sqrt(mean(x^2) + epsilon) * (weight + offset) for in = {x, weight}, over the same dimensions.
mlir::FailureOr<mlir::Value> rmsNorm(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in,
                                     mlir::Type element);

/// Returns layerNorm or rmsNorm of in = {x} over its last dimension without a weight, as the op's kind says.
mlir::FailureOr<mlir::Value> plainNorm(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in,
                                       mlir::Type element);

} // namespace espalier
