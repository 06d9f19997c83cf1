#include "compiler/codegen/target.h"

#include "dialects/attributes.h"

using namespace mlir;

namespace espalier::codegen {

void Call::add(exec::BufferAttr buffer, Type element) {
  buffers.push_back(buffer);
  elements.push_back(element);
}

std::span<const Target *const> targets() {
  static const Target *const all[] = {&cpuTarget(), &cudaTarget()};
  return all;
}

const Target *findTarget(StringRef name) {
  for (const Target *target : targets())
    if (target->name() == name)
      return target;
  return nullptr;
}

const Target &targetOf(ModuleOp module) {
  auto name = exec::targetAttr.of(module);
  const Target *target = name ? findTarget(name) : nullptr;
  return target ? *target : cpuTarget();
}

} // namespace espalier::codegen
