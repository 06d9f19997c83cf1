// One call registers all dialects of Espalier and those upstream dialects that its IR mixes with.
#pragma once

#include "mlir/IR/DialectRegistry.h"

namespace espalier {

void registerDialects(mlir::DialectRegistry &registry);

} // namespace espalier
