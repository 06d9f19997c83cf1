// Sums over the rows, the first of two phases: each block of rows gives one row of partial sums. How rows are cut
// depends on sizes alone.
#include "compiler/codegen/cuda/shape_kernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// Rows that a warp has loaded before it adds them up.
constexpr int rowsInFlight = 4;

class ColumnKernel {
public:
  explicit ColumnKernel(const ShapeBuilder &builder)
      : shape(builder.shape), policy(builder.policy), function(builder.function), lanes(builder.lanes),
        evaluator(builder.evaluator), b(builder.function.b), warps(policy.threads / 32) {}

  void build();

private:
  SmallVector<Value> sumRows();
  SmallVector<Value> addRows(Value first, Value from, Value to, int count, ValueRange initial);
  SmallVector<Value> addRow(Value row, SmallVector<Value> running);
  void addWarps(ArrayRef<Value> sums);
  Value index(Value wide) { return b.create<arith::ExtUIOp>(b.getI64Type(), wide); }

  const KernelShape &shape;
  const Policy &policy;
  KernelFunction &function;
  CudaLanes &lanes;
  Evaluator &evaluator;
  ImplicitLocOpBuilder &b;
  int warps;
  Value firstColumn, columns; ///< of the block, of all; i32
  Value column;               ///< of the thread; 0, whose sums are dropped, where it is beyond the last
};

SmallVector<Value> ColumnKernel::addRow(Value row, SmallVector<Value> running) {
  evaluator.setRow(row);
  emitRowValues(evaluator, shape, 0);
  evaluator.setCursor({column, policy.vector, 0});
  for (auto [output, sum] : llvm::zip_equal(shape.body->getTerminator()->getOperands(), running)) {
    Value x = lanes.asFloat(evaluator.at(output.getDefiningOp()->getOperand(0)));
    sum = b.create<arith::AddFOp>(sum, x);
  }
  return running;
}

/// Adds the rows `first + i * warps` for i from `from` up to `to`, `count` of them per round.
SmallVector<Value> ColumnKernel::addRows(Value first, Value from, Value to, int count, ValueRange initial) {
  auto loop = b.create<scf::ForOp>(from, to, function.integer(count, 64), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> running(loop.getRegionIterArgs());
  for (int i = 0; i < count; ++i) {
    Value number = b.create<arith::AddIOp>(loop.getInductionVar(), function.integer(i, 64));
    Value offset = b.create<arith::MulIOp>(number, function.integer(warps, 64));
    running = addRow(b.create<arith::AddIOp>(first, offset), running);
  }
  b.create<scf::YieldOp>(running);
  return SmallVector<Value>(loop.getResults());
}

/// The warp's rows of the block, in order.
SmallVector<Value> ColumnKernel::sumRows() {
  Value blockRows = evaluator.scalar(2), rows = evaluator.scalar(1);
  Value begin = b.create<arith::MulIOp>(function.blockBegin(), blockRows);
  Value end = b.create<arith::MinSIOp>(b.create<arith::AddIOp>(begin, blockRows), rows);
  Value first = b.create<arith::AddIOp>(begin, index(function.warpIndex()));
  Value zero = function.integer(0, 64);
  Value left = b.create<arith::MaxSIOp>(b.create<arith::SubIOp>(end, first), zero);
  Value count = b.create<arith::DivUIOp>(b.create<arith::AddIOp>(left, function.integer(warps - 1, 64)),
                                         function.integer(warps, 64));
  Value most = b.create<arith::AndIOp>(count, function.integer(-int64_t(rowsInFlight), 64));
  SmallVector<Value> sums(shape.outputs.size(), lanes.number(0, policy.vector));
  sums = addRows(first, zero, most, rowsInFlight, sums);
  return addRows(first, most, count, 1, sums);
}

/// One thread per column adds up the warps' sums, [output, warp, column] in shared memory.
void ColumnKernel::addWarps(ArrayRef<Value> sums) {
  Type number = b.getF32Type();
  Value memory = function.shared();
  Value warp = b.create<arith::MulIOp>(function.warpIndex(), function.integer(policy.columnsPerBlock));
  Value place =
      b.create<arith::AddIOp>(warp, b.create<arith::MulIOp>(function.laneIndex(), function.integer(policy.vector)));
  auto part = [&](size_t output, int warp, Value at) -> Value {
    int64_t offset = (static_cast<int64_t>(output) * warps + warp) * policy.columnsPerBlock;
    return b.create<arith::AddIOp>(at, function.integer(offset));
  };
  for (auto [output, sum] : llvm::enumerate(sums))
    lanes.store(sum, memory, part(output, 0, place), number);
  function.barrier();
  Value thread = function.threadIndex(), column = b.create<arith::AddIOp>(firstColumn, thread);
  Value isMine = b.create<arith::CmpIOp>(arith::CmpIPredicate::ult, thread, function.integer(policy.columnsPerBlock));
  Value isColumn = b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, column, columns);
  auto guarded = b.create<scf::IfOp>(b.create<arith::AndIOp>(isMine, isColumn), /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&guarded.getThenRegion().front());
  Value row = b.create<arith::MulIOp>(function.blockBegin(), evaluator.scalar(0));
  for (size_t output = 0; output < sums.size(); ++output) {
    Value sum = function.load(memory, part(output, 0, thread), number);
    for (int i = 1; i < warps; ++i)
      sum = function.add(sum, function.load(memory, part(output, i, thread), number));
    function.store(sum, evaluator.outputBase(output), b.create<arith::AddIOp>(row, index(column)), number);
  }
}

void ColumnKernel::build() {
  evaluator.emitScalars();
  columns = lanes.toColumn(evaluator.scalar(0));
  firstColumn = b.create<arith::MulIOp>(function.blockY(), function.integer(policy.columnsPerBlock));
  Value lane = b.create<arith::MulIOp>(function.laneIndex(), function.integer(policy.vector));
  column = b.create<arith::AddIOp>(firstColumn, lane);
  Value isColumn = b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, column, columns);
  column = b.create<arith::SelectOp>(isColumn, column, function.integer(0));
  addWarps(sumRows());
}

} // namespace

void buildColumnKernel(const ShapeBuilder &builder) { ColumnKernel(builder).build(); }

} // namespace espalier::codegen::cuda
