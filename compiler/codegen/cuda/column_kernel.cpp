// Sums over rows, the first of two phases: each block of rows gives one row of partial sums. Groups of threads take the
// rows of a block in turn, and each thread has the same columns of all its rows. The split depends on sizes alone.
// Besides sums, a kernel can do the work of row kernels, with rows kept in registers.
#include "compiler/codegen/cuda/shape_kernels.h"

#include "dialects/model/dialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// Rows that a group loads before adding them; fewer if rows also have results.
constexpr int rowsInFlight = 4, fullRowsInFlight = 2;

class ColumnKernel {
public:
  explicit ColumnKernel(const ShapeBuilder &builder)
      : shape(builder.shape), policy(builder.policy), function(builder.function), lanes(builder.lanes),
        evaluator(builder.evaluator), b(builder.function.b), groups(policy.threads / policy.rowThreads),
        reductions(
            llvm::count_if(shape.body->without_terminator(), [](Operation &op) { return reducesTrailing(&op); })) {
    for (unsigned output = 0; output < shape.outputs.size(); ++output)
      if (shape.isSummed(output))
        sums.push_back(output);
  }

  void build();

private:
  /// A full result at one vector of a row.
  struct Result {
    unsigned output, vector;
    int pass;
    Value value;
  };
  /// A row of a group. `exists` is null if the row always exists.
  struct Row {
    Value number, exists;
  };
  void setColumns();
  void holdWarp();
  void emitPass(const Row &row, int pass, SmallVector<Value> &running, SmallVector<Result> &results);
  SmallVector<Value> addRows(ArrayRef<Row> rows, SmallVector<Value> running);
  Value reduceThreads(Operation *reduction, int number, Value value);
  SmallVector<Value> sumInTurns(Value begin, Value end);
  SmallVector<Value> sumTogether(Value begin, Value end);
  SmallVector<Value> loopOverRows(Value first, Value from, Value to, int count, ValueRange initial);
  void addGroups(ArrayRef<Value> running);
  Value index(Value wide) { return b.create<arith::ExtUIOp>(b.getI64Type(), wide); }
  Value compare(arith::CmpIPredicate predicate, Value a, Value x) { return b.create<arith::CmpIOp>(predicate, a, x); }
  int64_t tile() const { return int64_t(policy.rowThreads) * policy.vectors * policy.vector; }

  const KernelShape &shape;
  const Policy &policy;
  KernelFunction &function;
  CudaLanes &lanes;
  Evaluator &evaluator;
  ImplicitLocOpBuilder &b;
  const int groups, reductions;
  SmallVector<unsigned> sums;        ///< indices of the summed outputs
  Value group, firstColumn, columns; ///< the thread's group; first column of the block; number of all columns; i32
  SmallVector<Value> place, column;  ///< first column of each of the thread's vectors, within the block's tile and
                                     ///< among all columns; 0 after the last column
  SmallVector<Value> isInside;       ///< whether the vector is within the columns; null: always
  /// Full operands as loaded, per vector of the current row.
  SmallVector<llvm::MapVector<Value, Value>> held;
};

void ColumnKernel::setColumns() {
  columns = lanes.toColumn(evaluator.scalar(0));
  Value thread = function.threadIndex();
  group = b.create<arith::DivUIOp>(thread, function.integer(policy.rowThreads));
  Value lane = b.create<arith::RemUIOp>(thread, function.integer(policy.rowThreads));
  firstColumn = policy.columnsPerBlock == 0
                    ? function.integer(0)
                    : Value(b.create<arith::MulIOp>(function.blockY(), function.integer(policy.columnsPerBlock)));
  Value first = b.create<arith::MulIOp>(lane, function.integer(policy.vector));
  for (int i = 0; i < policy.vectors; ++i) {
    Value offset = function.integer(int64_t(i) * policy.rowThreads * policy.vector);
    place.push_back(b.create<arith::AddIOp>(first, offset));
    Value own = b.create<arith::AddIOp>(firstColumn, place.back());
    isInside.push_back(policy.isWhole ? Value() : compare(arith::CmpIPredicate::slt, own, columns));
    column.push_back(policy.isWhole ? own
                                    : Value(b.create<arith::SelectOp>(isInside.back(), own, function.integer(0))));
  }
}

/// Reconverges the warp before a barrier, because lanes that store diverge from lanes that do not.
void ColumnKernel::holdWarp() { function.intrinsic("llvm.nvvm.bar.warp.sync", {}, function.integer(-1)); }

Value ColumnKernel::reduceThreads(Operation *reduction, int number, Value value) {
  Reduction kind = isa<model::ReduceSumOp>(reduction) ? Reduction::Add : Reduction::Max;
  value = combineLanes(lanes, reduction, value);
  if (policy.rowThreads == 32)
    return function.reduceWarp(value, kind);
  Value offset = function.integer(int64_t(number) * policy.threads / 32);
  Value scratch = function.address(function.shared(), offset, b.getF32Type());
  // With two alternating scratch buffers, a barrier already separates a read from the next write.
  if (reductions == 1)
    function.barrier();
  return function.reduceWarps(value, kind, policy.rowThreads / 32, scratch);
}

/// Emits a pass over a row without its stores.
void ColumnKernel::emitPass(const Row &row, int pass, SmallVector<Value> &running, SmallVector<Result> &results) {
  PassWork work = workOf(shape, pass);
  SmallVector<Value> reduced(work.reductions.size());
  for (int i = 0; i < policy.vectors; ++i) {
    evaluator.setCursor({column[i], policy.vector, pass});
    for (auto [argument, known] : held[i])
      evaluator.setAt(argument, known);
    for (auto [reduction, value] : llvm::zip_equal(work.reductions, reduced)) {
      Value x = lanes.asFloat(evaluator.at(reduction->getOperand(0)));
      if (isInside[i])
        x = b.create<arith::SelectOp>(isInside[i], x, neutral(lanes, reduction, policy.vector));
      value = value ? combine(lanes, reduction, value, x) : x;
    }
    for (unsigned output : work.outputs)
      results.push_back({output, unsigned(i), pass, evaluator.at(shape.body->getTerminator()->getOperand(output))});
    for (unsigned output : work.sums) {
      Value x = evaluator.termOf(output);
      if (row.exists)
        x = b.create<arith::SelectOp>(row.exists, x, lanes.number(0, policy.vector));
      Value &sum = running[(llvm::find(sums, output) - sums.begin()) * policy.vectors + i];
      sum = b.create<arith::AddFOp>(sum, x);
    }
    for (BlockArgument argument : shape.body->getArguments())
      if (Value known = evaluator.knownAt(argument))
        held[i][argument] = known;
  }
  int number = 0;
  for (Operation &op : shape.body->without_terminator()) {
    auto found = llvm::find(work.reductions, &op);
    if (found != work.reductions.end())
      evaluator.setOnce(op.getResult(0), reduceThreads(&op, number, reduced[found - work.reductions.begin()]));
    number += reducesTrailing(&op);
  }
}

/// Adds rows to the running sums and stores their results. All loads precede the stores, because an output may alias an
/// input.
SmallVector<Value> ColumnKernel::addRows(ArrayRef<Row> rows, SmallVector<Value> running) {
  SmallVector<SmallVector<Result>> results(rows.size());
  for (auto [row, found] : llvm::zip_equal(rows, results)) {
    evaluator.setRow(row.number);
    held.assign(policy.vectors, {});
    for (int pass = 0; pass <= shape.lastPass; ++pass) {
      emitRowValues(evaluator, shape, pass);
      emitPass(row, pass, running, found);
    }
  }
  for (auto [row, found] : llvm::zip_equal(rows, results)) {
    evaluator.setRow(row.number);
    for (const Result &result : found) {
      evaluator.setCursor({column[result.vector], policy.vector, result.pass});
      Value inside = isInside[result.vector];
      lanes.mask = inside && row.exists ? Value(b.create<arith::AndIOp>(inside, row.exists))
                   : inside             ? inside
                                        : row.exists;
      evaluator.storeOutput(result.output, result.value);
    }
  }
  lanes.mask = {};
  if (reductions > 0)
    holdWarp();
  return running;
}

/// Adds the rows `first + i * groups` for i in [from, to), `count` rows per iteration.
SmallVector<Value> ColumnKernel::loopOverRows(Value first, Value from, Value to, int count, ValueRange initial) {
  auto loop = b.create<scf::ForOp>(from, to, function.integer(count, 64), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Row> rows;
  for (int i = 0; i < count; ++i) {
    Value number = b.create<arith::AddIOp>(loop.getInductionVar(), function.integer(i, 64));
    Value offset = b.create<arith::MulIOp>(number, function.integer(groups, 64));
    rows.push_back({b.create<arith::AddIOp>(first, offset), {}});
  }
  b.create<scf::YieldOp>(addRows(rows, SmallVector<Value>(loop.getRegionIterArgs())));
  return SmallVector<Value>(loop.getResults());
}

/// Sums the rows of each group in order.
SmallVector<Value> ColumnKernel::sumInTurns(Value begin, Value end) {
  int inFlight = shape.hasRowWork() ? fullRowsInFlight : rowsInFlight;
  Value first = b.create<arith::AddIOp>(begin, index(group)), zero = function.integer(0, 64);
  Value left = b.create<arith::MaxSIOp>(b.create<arith::SubIOp>(end, first), zero);
  Value count = b.create<arith::DivUIOp>(b.create<arith::AddIOp>(left, function.integer(groups - 1, 64)),
                                         function.integer(groups, 64));
  Value most = b.create<arith::AndIOp>(count, function.integer(-int64_t(inFlight), 64));
  SmallVector<Value> running(sums.size() * policy.vectors, lanes.number(0, policy.vector));
  running = loopOverRows(first, zero, most, inFlight, running);
  return loopOverRows(first, most, count, 1, running);
}

/// Like sumInTurns(), for kernels that reduce rows, which needs all threads in every iteration. In the last iteration,
/// groups without a row process the last row again and discard the result.
SmallVector<Value> ColumnKernel::sumTogether(Value begin, Value end) {
  Value first = b.create<arith::AddIOp>(begin, index(group)), zero = function.integer(0, 64);
  Value blockRows = b.create<arith::SubIOp>(end, begin), each = function.integer(groups, 64);
  Value rounds = b.create<arith::DivUIOp>(blockRows, each);
  SmallVector<Value> running(sums.size() * policy.vectors, lanes.number(0, policy.vector));
  running = loopOverRows(first, zero, rounds, 1, running);
  if (groups == 1)
    return running;
  Value done = b.create<arith::MulIOp>(rounds, each);
  auto rest = b.create<scf::IfOp>(ValueRange(running).getTypes(), compare(arith::CmpIPredicate::slt, done, blockRows),
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(rest.elseBlock());
  b.create<scf::YieldOp>(running);
  b.setInsertionPointToStart(rest.thenBlock());
  Value row = b.create<arith::AddIOp>(first, done), exists = compare(arith::CmpIPredicate::slt, row, end);
  Value last = b.create<arith::SubIOp>(end, function.integer(1, 64));
  b.create<scf::YieldOp>(addRows({{b.create<arith::MinSIOp>(row, last), exists}}, running));
  return SmallVector<Value>(rest.getResults());
}

/// For each sum, one thread per column adds the partial sums of the groups, [group, column] in shared memory.
void ColumnKernel::addGroups(ArrayRef<Value> running) {
  Type number = b.getF32Type();
  Value memory = function.shared(), thread = function.threadIndex();
  Value row = b.create<arith::MulIOp>(function.blockBegin(), evaluator.scalar(0));
  Value groupBegin = b.create<arith::MulIOp>(group, function.integer(tile()));
  holdWarp();
  auto pieces = static_cast<int>(llvm::divideCeil(tile(), policy.threads));
  for (auto [position, output] : llvm::enumerate(sums)) {
    if (position > 0 || reductions > 0)
      function.barrier(); // earlier values have been read
    for (int i = 0; i < policy.vectors; ++i)
      lanes.store(running[position * policy.vectors + i], memory, b.create<arith::AddIOp>(groupBegin, place[i]),
                  number);
    function.barrier();
    for (int piece = 0; piece < pieces; ++piece) {
      Value own = b.create<arith::AddIOp>(thread, function.integer(int64_t(piece) * policy.threads));
      Value at = b.create<arith::AddIOp>(firstColumn, own);
      Value isMine = compare(arith::CmpIPredicate::ult, own, function.integer(tile()));
      Value isColumn = compare(arith::CmpIPredicate::slt, at, columns);
      auto guarded = b.create<scf::IfOp>(b.create<arith::AndIOp>(isMine, isColumn), /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(guarded.thenBlock());
      Value sum = function.load(memory, own, number);
      for (int i = 1; i < groups; ++i)
        sum = function.add(sum,
                           function.load(memory, b.create<arith::AddIOp>(own, function.integer(i * tile())), number));
      function.store(sum, evaluator.outputBase(output), b.create<arith::AddIOp>(row, index(at)), number);
    }
  }
}

void ColumnKernel::build() {
  evaluator.emitScalars();
  setColumns();
  Value begin = b.create<arith::MulIOp>(function.blockBegin(), evaluator.scalar(2));
  Value end = b.create<arith::MinSIOp>(b.create<arith::AddIOp>(begin, evaluator.scalar(2)), evaluator.scalar(1));
  addGroups(reductions > 0 ? sumTogether(begin, end) : sumInTurns(begin, end));
}

} // namespace

void buildColumnKernel(const ShapeBuilder &builder) { ColumnKernel(builder).build(); }

} // namespace espalier::codegen::cuda
