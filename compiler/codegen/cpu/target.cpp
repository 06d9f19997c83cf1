// The processor of a host: kernels as ELF shared objects, one per instruction set level of x86-64.
#include "compiler/codegen/target.h"

#include "compiler/codegen/cpu/emit_cpu.h"

#include <algorithm>

using namespace mlir;

namespace espalier::codegen {

namespace {

/// Largest number of row blocks of a column kernel, and smallest number of rows of a block.
constexpr int64_t maximalBlocks = 64, minimalBlockRows = 16;

class CpuTarget : public Target {
public:
  StringRef name() const override { return "cpu"; }
  StringRef objectExtension() const override { return ".so"; }
  bool isHost() const override { return true; }

  LogicalResult emitObjects(ModuleOp module, rt::pb::Plan &plan, StringRef onlyLevel) const override {
    auto objects = emitCpuObjects(module, onlyLevel);
    if (failed(objects))
      return failure();
    for (CpuObject &object : *objects) {
      rt::pb::Object *message = plan.add_objects();
      message->set_level(object.level);
      message->set_code(std::move(object.bytes));
    }
    return success();
  }

  int64_t columnBlocks(const KernelShape &shape) const override {
    return std::clamp<int64_t>(shape.rows / minimalBlockRows, 1, maximalBlocks);
  }

  bool hasEpilogue(StringRef epilogue) const override { return epilogue == "bias"; }
};

} // namespace

const Target &cpuTarget() {
  static const CpuTarget target;
  return target;
}

} // namespace espalier::codegen
