// Builds the routing of a mixture of experts from primitives: the scores that choose experts, the weights of the chosen
// experts, and what balances the experts. Scores are [batch, seq, router], ids are [choice, batch, seq].
#pragma once

#include "compiler/import/model/primitives.h"

namespace espalier {

/// Returns the scores by which `op`, a route, chooses experts: `scores`; with a bias or groups, the probabilities plus
/// the bias. `bias` is [router] or null.
mlir::Value choiceScores(PrimitiveBuilder &p, const OpDescription &op, mlir::Value scores, mlir::Value bias);

/// Returns the weights [choice, batch, seq] of the chosen experts: their probabilities, divided by the sum over these
/// experts if `op`, a gate, says so, times its scale.
mlir::Value expertWeights(PrimitiveBuilder &p, const OpDescription &op, mlir::Value scores, mlir::Value ids);

/// Returns the sum over tokens of weight * factor * experts * sum over experts of (fraction of its sample's choices) *
/// (its probability). Probabilities sum to 1.
mlir::Value balanceLoss(PrimitiveBuilder &p, const OpDescription &op, mlir::Value scores, mlir::Value ids,
                        mlir::Value weights);

/// Returns a loss whose derivative with respect to the bias [router] is experts * (tokens that chose the expert) -
/// choices * tokens. The other operands get no gradient from it.
mlir::Value balanceBias(PrimitiveBuilder &p, mlir::Value ids, mlir::Value bias);

/// How the tokens of a micro-batch spread over the experts.
struct ExpertLoads {
  mlir::Value chosen;  ///< [router]: tokens that chose the expert
  mlir::Value dropped; ///< no dimensions: choices that found no slot; null if every choice has a slot
};

/// Counts the choices in `ids`. An expert has `capacity` slots for each sample.
ExpertLoads expertLoads(PrimitiveBuilder &p, mlir::Value ids, mlir::Value scores, int64_t capacity);

/// Returns the sum over tokens of weight * factor * (log sum exp(scores))^2.
mlir::Value zLoss(PrimitiveBuilder &p, const OpDescription &op, mlir::Value scores, mlir::Value weights);

} // namespace espalier
