#include "test/compiler/codegen/bare_plan.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace espalier::test {

void addQueues(rt::pb::Plan &plan) {
  for (const char *name : {"compute", "collectives"})
    plan.add_queues()->set_name(name);
}

void putInBuckets(func::FuncOp function) {
  auto isAccumulator = [](DictionaryAttr attributes) {
    return attributes && attributes.getAs<StringAttr>("model.role") == "accumulator";
  };
  IntegerAttr bucket = OpBuilder(function).getI64IntegerAttr(1);
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (isAccumulator(function.getArgAttrDict(i)))
      function.setArgAttr(i, "exec.bucket", bucket);
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (isAccumulator(function.getResultAttrDict(i)))
      function.setResultAttr(i, "exec.bucket", bucket);
}

} // namespace espalier::test
