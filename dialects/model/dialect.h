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
