// Builds row kernels. Each row is processed in as many passes over its columns as reductions depend on each other. Pass
// p computes the reductions whose operands need p earlier ones. Cheap expressions are recomputed in every pass, and
// values that an earlier pass stored are read back.
// A flat kernel is one row without reductions that can be split at any column. A column kernel with row work is a row
// kernel over the rows of a block, where each row adds to the block's sums.
#include "compiler/codegen/cpu/kernel_builder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

/// The row of partial sums that the current rows add to, and whether the current row is the first of its block. Null if
/// there are no sums.
struct RowOfSums {
  Value number, isFirst;
};

/// Adds a row's terms to the sums of its block.
void addTerms(Evaluator &evaluator, CpuLanes &lanes, const RowOfSums &row, ArrayRef<unsigned> sums, Value column,
              ArrayRef<Value> terms) {
  auto &b = lanes.b;
  for (auto [sum, term] : llvm::zip_equal(sums, terms)) {
    Value place = b.create<arith::AddIOp>(b.create<arith::MulIOp>(row.number, evaluator.scalar(0)), column);
    int width = widthOf(term);
    Value before = lanes.load(evaluator.outputBase(sum), place, b.getF32Type(), width);
    before = b.create<arith::SelectOp>(lanes.splat(row.isFirst, width), lanes.number(0, width), before);
    lanes.store(b.create<arith::AddFOp>(before, term), evaluator.outputBase(sum), place, b.getF32Type());
  }
}

/// Emits one loop over columns [from, to) in steps of `width`. Returns the reductions so far.
SmallVector<Value> columnLoop(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, const PassWork &work,
                              int pass, const RowOfSums &sums, Value from, Value to, int width, ValueRange initial) {
  auto &b = lanes.b;
  auto loop = b.create<scf::ForOp>(from, to, lanes.integer(width), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  evaluator.setCursor({loop.getInductionVar(), width, pass});
  SmallVector<Value> running;
  for (auto [reduction, sum] : llvm::zip_equal(work.reductions, loop.getRegionIterArgs()))
    running.push_back(combine(lanes, reduction, sum, lanes.asFloat(evaluator.at(reduction->getOperand(0)))));
  // All loads come before all stores, because an output may overwrite an input in place.
  SmallVector<Value> outputs, terms;
  for (unsigned output : work.outputs)
    outputs.push_back(evaluator.at(shape.body->getTerminator()->getOperand(output)));
  for (unsigned output : work.sums)
    terms.push_back(evaluator.termOf(output));
  for (auto [output, value] : llvm::zip_equal(work.outputs, outputs))
    evaluator.storeOutput(output, value);
  addTerms(evaluator, lanes, sums, work.sums, loop.getInductionVar(), terms);
  if (!running.empty()) // a loop without results already has its terminator
    b.create<scf::YieldOp>(running);
  return SmallVector<Value>(loop.getResults());
}

/// Emits a pass: full vectors first, then the remaining columns one by one. Sets the reductions in the evaluator.
void emitPass(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, const PassWork &work, int pass,
              const RowOfSums &sums, Value from, Value to) {
  auto &b = lanes.b;
  int width = lanes.target.lanes;
  SmallVector<Value> initial;
  for (Operation *reduction : work.reductions)
    initial.push_back(neutral(lanes, reduction, width));
  Value count = b.create<arith::SubIOp>(to, from);
  Value tail = b.create<arith::AndIOp>(count, lanes.integer(width - 1));
  Value middle = b.create<arith::SubIOp>(to, tail);
  SmallVector<Value> running = columnLoop(evaluator, shape, lanes, work, pass, sums, from, middle, width, initial);
  for (auto [reduction, value] : llvm::zip_equal(work.reductions, running))
    value = combineLanes(lanes, reduction, value);
  running = columnLoop(evaluator, shape, lanes, work, pass, sums, middle, to, 1, running);
  for (auto [reduction, value] : llvm::zip_equal(work.reductions, running))
    evaluator.setOnce(reduction->getResult(0), value);
}

/// Makes later passes read back the values that an earlier pass stored.
void setStored(Evaluator &evaluator, const KernelShape &shape) {
  for (auto [index, value] : llvm::enumerate(shape.body->getTerminator()->getOperands()))
    if (shape.levels.lookup(value) == Level::Full && shape.outputs[index].isDense && !isa<BlockArgument>(value))
      evaluator.setStored(value, index);
}

/// Emits the rows [begin, end). `block` is the block whose sums they add to; null if there are no sums.
void emitRows(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, Value begin, Value end, Value block) {
  auto &b = lanes.b;
  auto rows = b.create<scf::ForOp>(begin, end, lanes.integer(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(rows.getBody());
  evaluator.setRow(rows.getInductionVar());
  RowOfSums sums{block, block ? Value(b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, rows.getInductionVar(), begin))
                              : Value()};
  for (int pass = 0; pass <= shape.lastPass; ++pass) {
    emitRowValues(evaluator, shape, pass);
    storeRowValues(evaluator, shape, pass);
    PassWork work = workOf(shape, pass);
    if (!work.isEmpty())
      emitPass(evaluator, shape, lanes, work, pass, sums, lanes.integer(0), evaluator.scalar(0));
  }
}

} // namespace

void buildRowKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, Value begin, Value end) {
  evaluator.emitScalars();
  setStored(evaluator, shape);
  emitRows(evaluator, shape, lanes, begin, end, /*block=*/{});
}

void buildSummingRowKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, Value begin, Value end) {
  auto &b = lanes.b;
  evaluator.emitScalars();
  setStored(evaluator, shape);
  auto blocks = b.create<scf::ForOp>(begin, end, lanes.integer(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(blocks.getBody());
  auto [first, last] = rowsOfBlock(evaluator, lanes, blocks.getInductionVar());
  emitRows(evaluator, shape, lanes, first, last, blocks.getInductionVar());
}

void buildFlatKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, Value begin, Value end) {
  evaluator.emitScalars();
  storeRowValues(evaluator, shape, 0);
  emitPass(evaluator, shape, lanes, workOf(shape, 0), 0, /*sums=*/{}, begin, end);
}

} // namespace espalier::codegen
