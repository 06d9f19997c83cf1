#include "test/compiler/codegen/bare_plan.h"

#include "compiler/codegen/program_builder.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace espalier::test {

void addQueues(rt::pb::Plan &plan) {
  for (const char *name : {"compute", "collectives"})
    plan.add_queues()->set_name(name);
}

int64_t BareLayout::place(func::FuncOp function, DictionaryAttr attributes, Type type) {
  StringRef role = attributes.getAs<StringAttr>("model.role"), name = attributes.getAs<StringAttr>("model.name");
  if (role == "stream" || role == "cotangent" || role == "statistic") // the only value of its region, or a scalar slot
    return 0;
  auto &[end, offsets] = regions[(function.getSymName().split('.').first + ":" + role).str()];
  auto [entry, isNew] = offsets.try_emplace(name.str(), end);
  if (isNew)
    end += llvm::alignTo(codegen::tensorBytes(type), 64);
  return entry->second;
}

void BareLayout::layOut(func::FuncOp function) {
  OpBuilder b(function);
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    function.setArgAttr(
        i, "exec.offset",
        b.getI64IntegerAttr(place(function, function.getArgAttrDict(i), function.getArgument(i).getType())));
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    function.setResultAttr(
        i, "exec.offset",
        b.getI64IntegerAttr(place(function, function.getResultAttrDict(i), function.getResultTypes()[i])));
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
