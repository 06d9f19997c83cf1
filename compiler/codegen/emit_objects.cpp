#include "compiler/codegen/emit_objects.h"

#include "compiler/codegen/target.h"

using namespace mlir;

namespace espalier::codegen {

LogicalResult emitObjects(ModuleOp module, rt::pb::Plan &plan, StringRef onlyLevel) {
  return module.getOps<exec::KernelOp>().empty() ? success() : targetOf(module).emitObjects(module, plan, onlyLevel);
}

} // namespace espalier::codegen
