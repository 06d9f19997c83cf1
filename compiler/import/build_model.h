// From the model description to IR: one function per segment kind, on global shapes with named dimensions.
#pragma once

#include "compiler/import/run_config.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace espalier {

/// Sizes that a plan adds to the description.
struct ModelSizes {
  int64_t batch = 1;              ///< samples of one micro-batch over all data-parallel replicas
  int64_t vocabularyMultiple = 1; ///< vocab is padded to a multiple of this; cross entropy masks the padding
};

/// What a model does in generation: it takes `tokens` new ones of each sequence and gives the logits of one.
struct GenerationPhase {
  std::string name; ///< prefill | decode
  int64_t tokens = 1;
};

/// Builds a function `@<kind>` for each segment kind. Arguments: stream (not in the first segment), the inputs that
/// the segment reads, its parameters and, where the loss is, the statistics loss_sum and token_count. Each has the
/// attributes `model.role` and `model.name`; the function has `model.segment`. The first result is the stream or the
/// loss. Fails with diagnostics at the model file's lines.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(mlir::MLIRContext &context, const ModelDescription &model,
                                             const DTypePolicy &dtypes, const ModelSizes &sizes);

/// Functions `@<kind>.<phase>` of generation: without dropout and losses, and with a slot of an expert for each token
/// that chooses it. Attention works on caches, which are arguments and results of role `cache`, of as many positions as
/// the model's sequence has; the last segment gives f32 `logits` of one token of each sequence, the one that the input
/// `rows` says where there are several.
mlir::OwningOpRef<mlir::ModuleOp> buildGeneration(mlir::MLIRContext &context, const ModelDescription &model,
                                                  const DTypePolicy &dtypes, const ModelSizes &sizes,
                                                  llvm::ArrayRef<GenerationPhase> phases);

} // namespace espalier
