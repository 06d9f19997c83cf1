// Adds modules that predict further tokens to a model description (multi-token prediction, DeepSeek-V3, section 2.2, in
// the form of Megatron-LM). Module k = 1 .. depth computes, for each position i,
//   h_k = norm_k(layer_k(W_k [norm(embedding of token i + k), norm(h_{k-1})]))
// and predicts token i + k + 1 by the model's own head. h_0 is what the model's head reads, after its norm; layer_k has
// the kind of the model's last layer. Embedding and head are shared. The loss of a module is added to what is trained,
// with the weight factor / depth, and not to the reported loss.
#pragma once

#include "compiler/import/model/adapters.h"

namespace espalier {

/// Adds `depth` modules to the segment of the head. Reports an error at `where` if the model's head has no norm, or if
/// its embedding reads positions.
void addFurtherTokens(int depth, double factor, const SourceLocation &where, ModelDescription &model,
                      Diagnostics &diagnostics);

/// Returns the names of the modules' parameters in the files of a system, "hf" or "mcore", as rules of a model file.
/// They follow from the names of the layers, `rules`. Other systems have none.
NamedParameters furtherNames(int depth, const ModelDescription &model, const std::string &system,
                             const NamedParameters &rules);

} // namespace espalier
