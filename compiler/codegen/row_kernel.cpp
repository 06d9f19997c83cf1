// Row kernels: for each row as many passes over its columns as reductions depend on each other. Pass p holds the
// reductions whose operands need p earlier ones; cheap expressions are computed again in every pass, values that an
// earlier pass stored are read back.
// Flat kernels are one row without reductions, cut anywhere.
#include "compiler/codegen/kernel_builder.h"

#include "dialects/model/dialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <limits>

using namespace mlir;

namespace espalier::codegen {

namespace {

/// What one pass over the columns does.
struct PassWork {
  SmallVector<Operation *> reductions;
  SmallVector<unsigned> outputs;
};

PassWork workOf(const KernelShape &shape, int pass) {
  PassWork work;
  for (Operation &op : shape.body->without_terminator())
    if (isa<model::ReduceSumOp, model::ReduceMaxOp>(op) && shape.passes.lookup(op.getOperand(0)) == pass)
      work.reductions.push_back(&op);
  for (auto [index, value] : llvm::enumerate(shape.body->getTerminator()->getOperands()))
    if (shape.levels.lookup(value) == Level::Full && shape.passes.lookup(value) == pass)
      work.outputs.push_back(index);
  return work;
}

Value combine(Lanes &lanes, Operation *reduction, Value a, Value x) {
  if (isa<model::ReduceSumOp>(reduction))
    return lanes.b.create<arith::AddFOp>(a, x);
  return lanes.b.create<arith::MaximumFOp>(a, x);
}

/// All lanes into one number, in a fixed tree order.
Value combineLanes(Lanes &lanes, Operation *reduction, Value vector) {
  auto &b = lanes.b;
  for (int width = cast<VectorType>(vector.getType()).getDimSize(0); width > 1; width /= 2) {
    SmallVector<int32_t> low, high;
    for (int i = 0; i < width / 2; ++i) {
      low.push_back(i);
      high.push_back(width / 2 + i);
    }
    Value a = b.create<LLVM::ShuffleVectorOp>(vector, vector, low);
    Value x = b.create<LLVM::ShuffleVectorOp>(vector, vector, high);
    vector = combine(lanes, reduction, a, x);
  }
  return b.create<LLVM::ExtractElementOp>(vector, lanes.integer(0));
}

/// One loop over columns [from, to) in steps of `width`; returns the running reductions.
SmallVector<Value> columnLoop(Evaluator &evaluator, const KernelShape &shape, Lanes &lanes, const PassWork &work,
                              int pass, Value from, Value to, int width, ValueRange initial) {
  auto &b = lanes.b;
  auto loop = b.create<scf::ForOp>(from, to, lanes.integer(width), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  evaluator.setCursor({loop.getInductionVar(), width, pass});
  SmallVector<Value> running;
  for (auto [reduction, sum] : llvm::zip_equal(work.reductions, loop.getRegionIterArgs()))
    running.push_back(combine(lanes, reduction, sum, lanes.asFloat(evaluator.at(reduction->getOperand(0)))));
  // All values first: an output may lie in the place of an operand that the next one still reads.
  SmallVector<Value> values;
  for (unsigned output : work.outputs)
    values.push_back(evaluator.at(shape.body->getTerminator()->getOperand(output)));
  for (auto [output, value] : llvm::zip_equal(work.outputs, values))
    evaluator.storeOutput(output, value);
  if (!running.empty()) // a loop without results has its terminator already
    b.create<scf::YieldOp>(running);
  return SmallVector<Value>(loop.getResults());
}

/// Vectors over the columns that fill them, then one by one; leaves the reductions with the evaluator.
void emitPass(Evaluator &evaluator, const KernelShape &shape, Lanes &lanes, const PassWork &work, int pass, Value from,
              Value to) {
  auto &b = lanes.b;
  int width = lanes.target.lanes;
  SmallVector<Value> initial;
  for (Operation *reduction : work.reductions)
    initial.push_back(
        lanes.number(isa<model::ReduceSumOp>(reduction) ? 0.0 : -std::numeric_limits<double>::infinity(), width));
  Value count = b.create<arith::SubIOp>(to, from);
  Value tail = b.create<arith::AndIOp>(count, lanes.integer(width - 1));
  Value middle = b.create<arith::SubIOp>(to, tail);
  SmallVector<Value> running = columnLoop(evaluator, shape, lanes, work, pass, from, middle, width, initial);
  for (auto [reduction, value] : llvm::zip_equal(work.reductions, running))
    value = combineLanes(lanes, reduction, value);
  running = columnLoop(evaluator, shape, lanes, work, pass, middle, to, 1, running);
  for (auto [reduction, value] : llvm::zip_equal(work.reductions, running))
    evaluator.setOnce(reduction->getResult(0), value);
}

/// Values of the row that exist once the reductions before `pass` are done, and their stores.
void emitRowValues(Evaluator &evaluator, const KernelShape &shape, int pass) {
  for (Operation &op : shape.body->without_terminator()) {
    Value result = op.getResult(0);
    if (shape.levels.lookup(result) == Level::Row && shape.passes.lookup(result) == pass)
      (void)evaluator.once(result);
  }
  for (auto [index, value] : llvm::enumerate(shape.body->getTerminator()->getOperands()))
    if (shape.levels.lookup(value) != Level::Full && shape.passes.lookup(value) == pass)
      evaluator.storeOutput(index, evaluator.once(value));
}

} // namespace

void buildRowKernel(Evaluator &evaluator, const KernelShape &shape, Lanes &lanes, Value begin, Value end) {
  auto &b = lanes.b;
  evaluator.emitScalars();
  for (auto [index, value] : llvm::enumerate(shape.body->getTerminator()->getOperands()))
    if (shape.levels.lookup(value) == Level::Full && shape.outputs[index].isDense && !isa<BlockArgument>(value))
      evaluator.setStored(value, index);
  auto rows = b.create<scf::ForOp>(begin, end, lanes.integer(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(rows.getBody());
  evaluator.setRow(rows.getInductionVar());
  for (int pass = 0; pass <= shape.lastPass; ++pass) {
    emitRowValues(evaluator, shape, pass);
    PassWork work = workOf(shape, pass);
    if (!work.reductions.empty() || !work.outputs.empty())
      emitPass(evaluator, shape, lanes, work, pass, lanes.integer(0), evaluator.scalar(0));
  }
}

void buildFlatKernel(Evaluator &evaluator, const KernelShape &shape, Lanes &lanes, Value begin, Value end) {
  evaluator.emitScalars();
  for (auto [index, value] : llvm::enumerate(shape.body->getTerminator()->getOperands()))
    if (shape.levels.lookup(value) != Level::Full)
      evaluator.storeOutput(index, evaluator.once(value));
  emitPass(evaluator, shape, lanes, workOf(shape, 0), 0, begin, end);
}

} // namespace espalier::codegen
