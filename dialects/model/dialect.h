// The model dialect's classes.
#pragma once

#include "dialects/interfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/model/dialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/model/attrs.h.inc"

namespace mlir {
class PatternRewriter;
}

#define GET_OP_CLASSES
#include "dialects/model/ops.h.inc"

namespace espalier::model {

/// Returns to how many keys a query attends on average. `queries` are the last ones of `keys` positions, because under
/// the causal mask the rank with the last part of a split sequence has the most work. A window of 0 is none. Example: 4
/// queries, 4 keys, causal, window 2: 1.5.
///
/// With `documentTokens` L above 0, a query attends to keys of its own document. A sample of S tokens begins with a
/// document and has S / L documents on average: each further token begins a document with the same probability r =
/// 1 / L - 1 / S, so that lengths are geometric. The query at position t then sees (1 - exp(-r min(t, window))) / r
/// keys on average. The mean over all positions is about L for L far below S, and S / 2 for L >= S, as without
/// documents.
double keysSeen(double queries, double keys, bool isCausal, double window, double documentTokens = 0);

/// Returns the mean length of documents that limits an attention or its derivative: `model.document_tokens` of its
/// module if the op has visible_from, else 0.
double documentTokensOf(mlir::Operation *attention);

/// Returns the number of positions that a recurrence or its derivative computes together with products of matrices. A
/// decay per column has no such products of positions, so its chunks are shorter.
int64_t recurrenceChunk(mlir::Operation *recurrence);

/// Returns the type of the states of a recurrence: f32 [batch, heads, group.., key_dim, value_dim].
mlir::RankedTensorType stateType(mlir::Value k, mlir::Value v);
/// Returns the type of the last inputs of a convolution: [batch, earlier, channels..].
mlir::RankedTensorType haloType(mlir::Value x, mlir::Value weight);

} // namespace espalier::model
