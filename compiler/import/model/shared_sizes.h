// The names of model_config that every model file knows: those of MindFormers for properties that a model either has or
// has not. A model file states only the sizes that its architecture computes with.
#pragma once

#include "compiler/import/model/architecture.h"

namespace espalier {

/// Adds the shared names that the model file does not define. A name of a property, such as gated_linear_unit, takes
/// only the value that the architecture has. A name of another implementation's choice, such as qkv_concat, takes any.
void addSharedSizes(Architecture &architecture);

} // namespace espalier
