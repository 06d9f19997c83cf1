// The types in which generation stores parameters.
#pragma once

#include "compiler/import/model/model_description.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Stores each parameter that the functions of generation read in one other type only, as matrix products do, in that
/// type. A checkpoint's values are then converted once while they are loaded, instead of for each token. Results keep
/// their bits. Tied parameters keep one type.
void storeAsRead(mlir::ModuleOp module, const ModelDescription &model);

} // namespace espalier
