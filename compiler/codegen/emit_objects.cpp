#include "compiler/codegen/emit_objects.h"

#include "compiler/codegen/cpu/emit_cpu.h"
#include "compiler/codegen/cuda/emit_cuda.h"
#include "dialects/exec/dialect.h"

using namespace mlir;

namespace espalier::codegen {

namespace pb = rt::pb;

namespace {

/// Adds the launch geometry of each kernel.
void addGeometry(ModuleOp module, pb::Object &object) {
  for (auto kernel : module.getOps<exec::KernelOp>()) {
    pb::Geometry &geometry = *object.add_geometry();
    geometry.set_threads(kernel.getGeometry()->getThreads());
    geometry.set_extent_per_block(kernel.getGeometry()->getExtentPerBlock());
    geometry.set_columns_per_block(kernel.getGeometry()->getColumnsPerBlock());
    geometry.set_shared_bytes(kernel.getGeometry()->getSharedBytes());
  }
}

LogicalResult emitCuda(ModuleOp module, pb::Plan &plan) {
  auto text = cuda::emitPtx(module);
  if (failed(text))
    return failure();
  pb::Object *message = plan.add_objects();
  message->set_level(cuda::architecture);
  message->set_code(std::move(*text));
  addGeometry(module, *message);
  return success();
}

LogicalResult emitCpu(ModuleOp module, pb::Plan &plan, StringRef onlyLevel) {
  auto objects = emitCpuObjects(module, onlyLevel);
  if (failed(objects))
    return failure();
  for (CpuObject &object : *objects) {
    pb::Object *message = plan.add_objects();
    message->set_level(object.level);
    message->set_code(std::move(object.bytes));
  }
  return success();
}

} // namespace

LogicalResult emitObjects(ModuleOp module, pb::Plan &plan, StringRef onlyLevel) {
  if (module.getOps<exec::KernelOp>().empty())
    return success();
  return exec::isCuda(module) ? emitCuda(module, plan) : emitCpu(module, plan, onlyLevel);
}

} // namespace espalier::codegen
