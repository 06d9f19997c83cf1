// Builds the losses of tokens from primitives.
#pragma once

#include "compiler/import/model/primitives.h"

namespace espalier {

/// Returns the sum over tokens of weight * (log sum exp(logits) - logits[label]) for in = {logits, labels, weights}.
/// Columns from `vocabulary` on are padding.
mlir::Value summedLosses(PrimitiveBuilder &p, mlir::ArrayRef<mlir::Value> in, int64_t vocabulary);

} // namespace espalier
