#include "compiler/codegen/cuda/shape_kernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// If `condition`, loads all operands at `place`, then stores the results.
void emitElements(const ShapeBuilder &builder, Value condition, Value place, int width) {
  auto &[shape, policy, function, lanes, evaluator] = builder;
  auto guarded = function.b.create<scf::IfOp>(condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(function.b);
  function.b.setInsertionPointToStart(&guarded.getThenRegion().front());
  PassWork work = workOf(shape, 0);
  evaluator.setCursor({place, width, 0});
  SmallVector<Value> values;
  for (unsigned output : work.outputs)
    values.push_back(evaluator.at(shape.body->getTerminator()->getOperand(output)));
  for (auto [output, value] : llvm::zip_equal(work.outputs, values))
    evaluator.storeOutput(output, value);
}

} // namespace

void buildFlatKernel(const ShapeBuilder &builder) {
  auto &[shape, policy, function, lanes, evaluator] = builder;
  auto &b = function.b;
  auto compare = [&](arith::CmpIPredicate predicate, Value a, Value x) -> Value {
    return b.create<arith::CmpIOp>(predicate, a, x);
  };
  Value thread = function.threadIndex(), extent = function.extent();
  evaluator.emitScalars();
  // One thread stores values without dimensions, because they may alias an input.
  Value element = b.create<arith::AddIOp>(function.blockBegin(), b.create<arith::ExtUIOp>(b.getI64Type(), thread));
  lanes.mask = compare(arith::CmpIPredicate::eq, element, function.integer(0, 64));
  storeRowValues(evaluator, shape, 0);
  lanes.mask = {};
  for (int i = 0; i < policy.vectors; ++i) {
    Value offset = b.create<arith::AddIOp>(b.create<arith::MulIOp>(thread, function.integer(policy.vector)),
                                           function.integer(int64_t(i) * policy.threads * policy.vector));
    Value place = b.create<arith::AddIOp>(function.blockBegin(), b.create<arith::ExtUIOp>(b.getI64Type(), offset));
    Value end = b.create<arith::AddIOp>(place, function.integer(policy.vector, 64));
    emitElements(builder, compare(arith::CmpIPredicate::sle, end, extent), place, policy.vector);
  }
  if (policy.vector == 1)
    return;
  // The last block processes the remaining elements one by one.
  Value rest = b.create<arith::AndIOp>(extent, function.integer(policy.vector - 1, 64));
  Value isRest = compare(arith::CmpIPredicate::ult, b.create<arith::ExtUIOp>(b.getI64Type(), thread), rest);
  Value isLast = compare(arith::CmpIPredicate::eq, function.blockEnd(), extent);
  Value first = b.create<arith::SubIOp>(extent, rest);
  Value place = b.create<arith::AddIOp>(first, b.create<arith::ExtUIOp>(b.getI64Type(), thread));
  emitElements(builder, b.create<arith::AndIOp>(isRest, isLast), place, 1);
}

} // namespace espalier::codegen::cuda
