// Row kernels: for each row as many passes over its columns as reductions depend on each other. Pass p holds the
// reductions whose operands need p earlier ones; cheap expressions are computed again in every pass, values that an
// earlier pass stored are read back.
// Flat kernels are one row without reductions, cut anywhere.
#include "compiler/codegen/cpu/kernel_builder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

/// One loop over columns [from, to) in steps of `width`; returns the running reductions.
SmallVector<Value> columnLoop(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, const PassWork &work,
                              int pass, Value from, Value to, int width, ValueRange initial) {
  auto &b = lanes.b;
  auto loop = b.create<scf::ForOp>(from, to, lanes.integer(width), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  evaluator.setCursor({loop.getInductionVar(), width, pass});
  SmallVector<Value> running;
  for (auto [reduction, sum] : llvm::zip_equal(work.reductions, loop.getRegionIterArgs()))
    running.push_back(combine(lanes, reduction, sum, lanes.asFloat(evaluator.at(reduction->getOperand(0)))));
  // Everything is read before anything is stored: an output may lie in the place of an input.
  SmallVector<Value> outputs;
  for (unsigned output : work.outputs)
    outputs.push_back(evaluator.at(shape.body->getTerminator()->getOperand(output)));
  for (auto [output, value] : llvm::zip_equal(work.outputs, outputs))
    evaluator.storeOutput(output, value);
  if (!running.empty()) // a loop without results has its terminator already
    b.create<scf::YieldOp>(running);
  return SmallVector<Value>(loop.getResults());
}

/// Vectors over the columns that fill them, then one by one; leaves the reductions with the evaluator.
void emitPass(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, const PassWork &work, int pass,
              Value from, Value to) {
  auto &b = lanes.b;
  int width = lanes.target.lanes;
  SmallVector<Value> initial;
  for (Operation *reduction : work.reductions)
    initial.push_back(neutral(lanes, reduction, width));
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

} // namespace

void buildRowKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, Value begin, Value end) {
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
    storeRowValues(evaluator, shape, pass);
    PassWork work = workOf(shape, pass);
    if (!work.isEmpty())
      emitPass(evaluator, shape, lanes, work, pass, lanes.integer(0), evaluator.scalar(0));
  }
}

void buildFlatKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, Value begin, Value end) {
  evaluator.emitScalars();
  storeRowValues(evaluator, shape, 0);
  emitPass(evaluator, shape, lanes, workOf(shape, 0), 0, begin, end);
}

} // namespace espalier::codegen
