// Builds IR from the model description: one function per segment kind, on global shapes with named dimensions.
#pragma once

#include "compiler/import/model/model_description.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace espalier {

/// Sizes that a plan adds to the model description.
struct ModelSizes {
  int64_t batch = 1;              ///< samples of one micro-batch over all data-parallel replicas
  int64_t vocabularyMultiple = 1; ///< vocab is padded to a multiple of this; cross entropy masks the padding
};

/// A phase of generation. It takes `tokens` new tokens of each sequence and returns the logits of one token per
/// sequence.
struct GenerationPhase {
  std::string name; ///< "prefill" or "decode"
  int64_t tokens = 1;
};

/// Builds a function `@<kind>` for each segment kind. The arguments are the stream (except in the first segment), the
/// inputs that the segment reads, its parameters and, in the segment with the loss, the statistics loss_sum and
/// token_count. Each argument has the attributes `model.role` and `model.name`, frozen parameters have
/// `model.frozen`, and the function has `model.segment`. The module has `model.gradient_type` if gradients are not f32,
/// and `model.document_tokens` if the mean length of documents is known. The first result is the stream or the loss.
/// Reports errors at the model file's lines.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(mlir::MLIRContext &context, const ModelDescription &model,
                                             const DTypePolicy &dtypes, const ModelSizes &sizes);

/// Builds the functions `@<kind>.<phase>` of generation. They have no dropout and no losses, and each expert has a slot
/// for every token that selects it. Attention uses caches, which are arguments and results of role `cache` with as many
/// positions as the model's sequence. Recurrences and convolutions have their states and last inputs there. The last
/// segment returns f32 `logits` of one token of each sequence. If there are several tokens, the input `rows` selects
/// the token. Parameters that are read in one type only are stored in it (build_types.h).
mlir::OwningOpRef<mlir::ModuleOp> buildGeneration(mlir::MLIRContext &context, const ModelDescription &model,
                                                  const DTypePolicy &dtypes, const ModelSizes &sizes,
                                                  llvm::ArrayRef<GenerationPhase> phases);

} // namespace espalier
