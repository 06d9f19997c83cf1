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
  SmallVector<Value> addRow(Value row, Value hasRow, SmallVector<Value> running);
  void addWarps(ArrayRef<Value> sums);
  Value index(Value wide) { return b.create<arith::ExtUIOp>(b.getI64Type(), wide); }

  const KernelShape &shape;
  const Policy &policy;
  KernelFunction &function;
  CudaLanes &lanes;
  Evaluator &evaluator;
  ImplicitLocOpBuilder &b;
  int warps;
  Value firstColumn, columns; ///< of the block; i32
};

SmallVector<Value> ColumnKernel::addRow(Value row, Value hasRow, SmallVector<Value> running) {
  evaluator.setRow(row);
  emitRowValues(evaluator, shape, 0);
  Value lane = b.create<arith::MulIOp>(function.laneIndex(), function.integer(policy.vector));
  Value column = b.create<arith::AddIOp>(firstColumn, lane);
  Value isColumn = b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, column, columns);
  evaluator.setCursor({column, policy.vector, 0});
  lanes.mask = b.create<arith::AndIOp>(isColumn, hasRow);
  for (auto [output, sum] : llvm::zip_equal(shape.body->getTerminator()->getOperands(), running)) {
    Value x = lanes.asFloat(evaluator.at(output.getDefiningOp()->getOperand(0)));
    Value kept = b.create<arith::SelectOp>(lanes.mask, x, lanes.number(0, policy.vector));
    sum = b.create<arith::AddFOp>(sum, kept);
  }
  lanes.mask = {};
  return running;
}

/// The warp's rows of the block, in order.
SmallVector<Value> ColumnKernel::sumRows() {
  Value blockRows = evaluator.scalar(2), rows = evaluator.scalar(1);
  Value begin = b.create<arith::MulIOp>(function.blockBegin(), blockRows);
  Value end = b.create<arith::MinSIOp>(b.create<arith::AddIOp>(begin, blockRows), rows);
  Value last = b.create<arith::SubIOp>(end, function.integer(1, 64));
  Value from = b.create<arith::AddIOp>(begin, index(function.warpIndex()));
  SmallVector<Value> initial(shape.outputs.size(), lanes.number(0, policy.vector));
  auto loop = b.create<scf::ForOp>(from, end, function.integer(int64_t(warps) * rowsInFlight, 64), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> running(loop.getRegionIterArgs());
  for (int i = 0; i < rowsInFlight; ++i) {
    Value row = b.create<arith::AddIOp>(loop.getInductionVar(), function.integer(int64_t(i) * warps, 64));
    Value hasRow = b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, row, end);
    running = addRow(b.create<arith::MinSIOp>(row, last), hasRow, running);
  }
  b.create<scf::YieldOp>(running);
  return SmallVector<Value>(loop.getResults());
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
  addWarps(sumRows());
}

} // namespace

void buildColumnKernel(const ShapeBuilder &builder) { ColumnKernel(builder).build(); }

} // namespace espalier::codegen::cuda
