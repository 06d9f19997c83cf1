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

#define GET_OP_CLASSES
#include "dialects/model/ops.h.inc"

namespace espalier::model {

/// Returns to how many keys a query attends on average. `queries` are the last ones of `keys` positions, because under
/// the causal mask the rank with the last part of a split sequence has the most work. A window of 0 is none. Example: 4
/// queries, 4 keys, causal, window 2: 1.5.
double keysSeen(double queries, double keys, bool isCausal, double window);

} // namespace espalier::model
