// Checks the attributes of a model file's ops against its dimensions.
#pragma once

#include "compiler/import/model/architecture.h"

namespace espalier {

/// Reports attributes that have no meaning. `headDimPlace` is the location of the value that head_dim comes from.
void checkOp(const OpDescription &op, const ModelDescription &model, const SizeTable &sizes,
             const SourceLocation &headDimPlace, Diagnostics &diagnostics);

} // namespace espalier
