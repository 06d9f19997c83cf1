// Declarations and registration of all passes; passes.td lists them in pipeline order.
#pragma once

#include "dialects/dist/dialect.h"
#include "dialects/exec/dialect.h"
#include "dialects/model/dialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace espalier {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/passes.h.inc"

} // namespace espalier
