// NVIDIA GPUs: kernels as PTX text, products and copies as calls of libraries.
#include "compiler/codegen/target.h"

#include "compiler/codegen/cuda/emit_cuda.h"
#include "compiler/codegen/cuda/launch_calls.h"
#include "compiler/codegen/cuda/policy.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

class CudaTarget : public Target {
public:
  StringRef name() const override { return "cuda"; }
  StringRef objectExtension() const override { return ".ptx"; }
  bool isHost() const override { return false; }

  LogicalResult emitObjects(ModuleOp module, rt::pb::Plan &plan, StringRef) const override {
    auto text = cuda::emitPtx(module);
    if (failed(text))
      return failure();
    rt::pb::Object *object = plan.add_objects();
    object->set_level(cuda::architecture);
    object->set_code(std::move(*text));
    for (auto kernel : module.getOps<exec::KernelOp>()) {
      rt::pb::Geometry &geometry = *object->add_geometry();
      geometry.set_threads(kernel.getGeometry()->getThreads());
      geometry.set_extent_per_block(kernel.getGeometry()->getExtentPerBlock());
      geometry.set_columns_per_block(kernel.getGeometry()->getColumnsPerBlock());
      geometry.set_shared_bytes(kernel.getGeometry()->getSharedBytes());
    }
    return success();
  }

  int64_t columnBlocks(const KernelShape &shape) const override { return cuda::columnBlocks(shape); }

  KernelLayout layoutFor(const KernelShape &shape, ArrayRef<exec::BufferAttr> operands,
                         ArrayRef<exec::BufferAttr> outputs, MLIRContext *context) const override {
    cuda::Policy policy = cuda::choosePolicy(shape, operands, outputs);
    return {policy.geometry(context), policy.parameters(context)};
  }

  SmallVector<SpecialLaunch> launchesOf(const Call &call, MLIRContext *context,
                                        function_ref<exec::BufferAttr(Type)> newBuffer) const override {
    return cuda::launchesOf(call, context, newBuffer);
  }

  bool hasEpilogue(StringRef) const override { return true; }
  bool hasMatmulAlgorithms() const override { return true; }
  bool addsManySums() const override { return true; }
  bool pricesPrograms() const override { return true; }

  std::string headFault(int64_t columns) const override {
    return columns % 8 != 0 || columns > 256 ? "heads whose sizes are multiples of 8, up to 256" : "";
  }
};

} // namespace

const Target &cudaTarget() {
  static const CudaTarget target;
  return target;
}

} // namespace espalier::codegen
