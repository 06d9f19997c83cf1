// Ops on shards of sequences: recurrences and causal convolutions under context parallelism.
#pragma once

#include "dialects/model/dialect.h"

#define GET_OP_CLASSES
#include "dialects/model/shards.h.inc"

namespace espalier::model {

/// Localizes a recurrence or a convolution whose sequence is sharded: adds what the ranks pass to each other. Returns
/// nothing for other ops.
llvm::SmallVector<mlir::Value> localizeOnShard(mlir::Operation *op, LocalizeContext &context);

/// Returns the type of shard_states of a sequence with this number of runs.
mlir::RankedTensorType bordersType(mlir::Value k, mlir::Value v, int64_t runs, bool delta, bool backward);

} // namespace espalier::model
