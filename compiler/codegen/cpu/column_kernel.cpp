// Builds column kernels, which sum over rows. This is the first of two phases: each block of rows gives one row of
// partial sums, and the runtime's reduce_parts adds these in order. The number of blocks depends on the shape and never
// on the number of threads.
#include "compiler/codegen/cpu/kernel_builder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

/// Adjacent vectors that are summed together, which amortizes the per-row work.
constexpr int unrolledVectors = 4;

struct Block {
  Value index, firstRow, lastRow;
};

/// Sums the rows of the block for `count` vectors of `width` columns, starting at `column`, and stores the sums.
void emitTile(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, const Block &block, Value column,
              int width, int count) {
  auto &b = lanes.b;
  ValueRange sums = shape.body->getTerminator()->getOperands();
  SmallVector<Value> initial(sums.size() * count, lanes.number(0, width));
  auto rows = b.create<scf::ForOp>(block.firstRow, block.lastRow, lanes.integer(1), initial);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(rows.getBody());
    evaluator.setRow(rows.getInductionVar());
    for (Operation &op : shape.body->without_terminator())
      if (shape.levels.lookup(op.getResult(0)) == Level::Row)
        (void)evaluator.once(op.getResult(0));
    SmallVector<Value> running;
    for (int i = 0; i < count; ++i) {
      evaluator.setCursor({b.create<arith::AddIOp>(column, lanes.integer(i * width)), width, 0});
      for (Value sum : sums) {
        Value x = lanes.asFloat(evaluator.at(sum.getDefiningOp()->getOperand(0)));
        running.push_back(b.create<arith::AddFOp>(rows.getRegionIterArgs()[running.size()], x));
      }
    }
    b.create<scf::YieldOp>(running);
  }
  unsigned next = 0;
  for (int i = 0; i < count; ++i)
    for (unsigned output = 0; output < sums.size(); ++output) {
      Value position = b.create<arith::AddIOp>(b.create<arith::MulIOp>(block.index, evaluator.scalar(0)),
                                               b.create<arith::AddIOp>(column, lanes.integer(i * width)));
      lanes.store(rows.getResult(next++), evaluator.outputBase(output), position, b.getF32Type());
    }
}

/// Emits tiles from column `from` on, as many as fit completely. Returns the end of the last tile.
Value emitTiles(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, const Block &block, Value from,
                int width, int count) {
  auto &b = lanes.b;
  Value remaining = b.create<arith::SubIOp>(evaluator.scalar(0), from);
  Value tail = b.create<arith::AndIOp>(remaining, lanes.integer(width * count - 1));
  Value end = b.create<arith::SubIOp>(evaluator.scalar(0), tail);
  auto loop = b.create<scf::ForOp>(from, end, lanes.integer(width * count));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  emitTile(evaluator, shape, lanes, block, loop.getInductionVar(), width, count);
  return end;
}

} // namespace

std::pair<Value, Value> rowsOfBlock(Evaluator &evaluator, CpuLanes &lanes, Value block) {
  auto &b = lanes.b;
  Value first = b.create<arith::MulIOp>(block, evaluator.scalar(2));
  return {first, b.create<arith::MinSIOp>(b.create<arith::AddIOp>(first, evaluator.scalar(2)), evaluator.scalar(1))};
}

void buildColumnKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, Value begin, Value end) {
  auto &b = lanes.b;
  evaluator.emitScalars();
  auto blocks = b.create<scf::ForOp>(begin, end, lanes.integer(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(blocks.getBody());
  auto [first, last] = rowsOfBlock(evaluator, lanes, blocks.getInductionVar());
  Block block{blocks.getInductionVar(), first, last};
  Value column = emitTiles(evaluator, shape, lanes, block, lanes.integer(0), lanes.target.lanes, unrolledVectors);
  column = emitTiles(evaluator, shape, lanes, block, column, lanes.target.lanes, 1);
  emitTiles(evaluator, shape, lanes, block, column, 1, 1);
}

} // namespace espalier::codegen
