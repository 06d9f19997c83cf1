// A row is processed in tiles of `vectors` loads per thread. If one tile is the whole row, loaded values stay in
// registers, and LLVM merges equal computations of two passes. Otherwise later passes load and compute again.
#include "compiler/codegen/cuda/shape_kernels.h"

#include "dialects/model/dialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

class RowKernel {
public:
  explicit RowKernel(const ShapeBuilder &builder)
      : shape(builder.shape), policy(builder.policy), function(builder.function), lanes(builder.lanes),
        evaluator(builder.evaluator), b(builder.function.b), held(policy.vectors) {}

  void build();

private:
  void setRow();
  void emitOnce(int pass);
  void emitPass(const PassWork &work, int pass);
  struct Place {
    Value column;
    Value isInside, canStore; ///< null: always true
  };
  SmallVector<Place> placesFrom(Value base, bool isWhole);
  SmallVector<Value> emitVector(const PassWork &work, int pass, int index, const Place &place,
                                SmallVector<Value> &running);
  SmallVector<Value> emitTile(const PassWork &work, int pass, Value base, bool isWhole, SmallVector<Value> running);
  Value firstColumn();
  SmallVector<Value> emitTiles(const PassWork &work, int pass);
  Value compare(arith::CmpIPredicate predicate, Value a, Value x) { return b.create<arith::CmpIOp>(predicate, a, x); }
  /// Synchronizes all threads of a row.
  void holdRow();
  Value reduceThreads(Operation *reduction, Value value);

  const KernelShape &shape;
  const Policy &policy;
  KernelFunction &function;
  CudaLanes &lanes;
  Evaluator &evaluator;
  ImplicitLocOpBuilder &b;
  Value columns;      ///< per row, i32
  Value first;        ///< column of the thread's first vector, i32
  Value hasRow;       ///< whether the thread has a row; null: always true
  int reductions = 0; ///< emitted so far
  /// Full operands as loaded, per vector of the tile.
  SmallVector<llvm::MapVector<Value, Value>> held;
};

void RowKernel::setRow() {
  Value thread = function.threadIndex(), row = function.blockBegin();
  columns = lanes.toColumn(evaluator.scalar(0));
  if (policy.extentPerBlock > 1) {
    Value group = b.create<arith::ShRUIOp>(thread, function.integer(llvm::Log2_32(policy.rowThreads)));
    row = b.create<arith::AddIOp>(row, b.create<arith::ExtUIOp>(b.getI64Type(), group));
    hasRow = compare(arith::CmpIPredicate::slt, row, function.extent());
    // Threads without a row process the last row and discard the result, because shuffles need the whole warp.
    Value last = b.create<arith::SubIOp>(function.extent(), function.integer(1, 64));
    row = b.create<arith::MinSIOp>(row, last);
    thread = b.create<arith::AndIOp>(thread, function.integer(policy.rowThreads - 1));
  }
  first = b.create<arith::MulIOp>(thread, function.integer(policy.vector));
  evaluator.setRow(row);
}

void RowKernel::holdRow() {
  if (policy.rowThreads > 32)
    function.barrier();
  else
    function.intrinsic("llvm.nvvm.bar.warp.sync", {}, function.integer(-1));
}

/// Computes and stores the values of a whole row. A store may overwrite an input, so all threads read first.
void RowKernel::emitOnce(int pass) {
  emitRowValues(evaluator, shape, pass);
  Operation *yield = shape.body->getTerminator();
  bool stores = llvm::any_of(yield->getOperands(), [&](Value value) {
    return shape.levels.lookup(value) != Level::Full && shape.passes.lookup(value) == pass;
  });
  bool picks = llvm::any_of(shape.body->without_terminator(), [&](Operation &op) {
    return isa<model::PickOp>(op) && shape.passes.lookup(op.getResult(0)) == pass;
  });
  if (stores || (picks && !workOf(shape, pass).outputs.empty()))
    holdRow();
  if (!stores)
    return;
  Value isFirst = compare(arith::CmpIPredicate::eq, first, function.integer(0));
  lanes.mask = hasRow ? Value(b.create<arith::AndIOp>(isFirst, hasRow)) : isFirst;
  storeRowValues(evaluator, shape, pass);
  lanes.mask = {};
}

/// Returns the thread's vectors of the columns base + [0, threads * vectors). Vectors beyond the end of the row read
/// column 0; their values are ignored and not stored.
SmallVector<RowKernel::Place> RowKernel::placesFrom(Value base, bool isWhole) {
  SmallVector<Place> places(policy.vectors);
  for (auto [i, place] : llvm::enumerate(places)) {
    Value offset = function.integer(int64_t(i) * policy.rowThreads * policy.vector);
    // Columns stay far below 2^31, so constants can be folded into the addresses of loads and stores.
    auto flags = arith::IntegerOverflowFlags::nuw | arith::IntegerOverflowFlags::nsw;
    place.column = b.create<arith::AddIOp>(b.create<arith::AddIOp>(base, first, flags), offset, flags);
    place.canStore = hasRow;
    if (isWhole)
      continue;
    place.isInside = compare(arith::CmpIPredicate::slt, place.column, columns);
    place.column = b.create<arith::SelectOp>(place.isInside, place.column, function.integer(0));
    place.canStore = hasRow ? Value(b.create<arith::AndIOp>(place.isInside, hasRow)) : place.isInside;
  }
  return places;
}

/// Emits the work of a pass at one vector without its stores; returns the outputs' values.
SmallVector<Value> RowKernel::emitVector(const PassWork &work, int pass, int index, const Place &place,
                                         SmallVector<Value> &running) {
  evaluator.setCursor({place.column, policy.vector, pass});
  for (auto [argument, known] : held[index])
    evaluator.setAt(argument, known);
  for (auto [reduction, sum] : llvm::zip_equal(work.reductions, running)) {
    Value x = lanes.asFloat(evaluator.at(reduction->getOperand(0)));
    if (place.isInside)
      x = b.create<arith::SelectOp>(place.isInside, x, neutral(lanes, reduction, policy.vector));
    sum = sum ? combine(lanes, reduction, sum, x) : x;
  }
  SmallVector<Value> outputs;
  for (unsigned output : work.outputs)
    outputs.push_back(evaluator.at(shape.body->getTerminator()->getOperand(output)));
  if (policy.isHeld)
    for (BlockArgument argument : shape.body->getArguments())
      if (Value known = evaluator.knownAt(argument))
        held[index][argument] = known;
  return outputs;
}

/// All loads precede the stores, because an output may alias an input.
SmallVector<Value> RowKernel::emitTile(const PassWork &work, int pass, Value base, bool isWhole,
                                       SmallVector<Value> running) {
  SmallVector<Place> places = placesFrom(base, isWhole);
  SmallVector<SmallVector<Value>> outputs;
  for (auto [i, place] : llvm::enumerate(places))
    outputs.push_back(emitVector(work, pass, i, place, running));
  for (auto [place, values] : llvm::zip_equal(places, outputs)) {
    evaluator.setCursor({place.column, policy.vector, pass});
    lanes.mask = place.canStore;
    for (auto [output, value] : llvm::zip_equal(work.outputs, values))
      evaluator.storeOutput(output, value);
  }
  lanes.mask = {};
  return running;
}

Value RowKernel::reduceThreads(Operation *reduction, Value value) {
  Reduction kind = isa<model::ReduceSumOp>(reduction) ? Reduction::Add : Reduction::Max;
  value = combineLanes(lanes, reduction, value);
  if (policy.rowThreads <= 32)
    return function.reduceWarp(value, kind, policy.rowThreads);
  int warps = policy.threads / 32;
  Value offset = function.integer(int64_t(reductions++) * warps);
  return function.reduceWarps(value, kind, warps, function.address(function.shared(), offset, b.getF32Type()));
}

/// Returns the first column of the block's tile if blocks share a row.
Value RowKernel::firstColumn() {
  if (policy.columnsPerBlock == 0)
    return function.integer(0);
  return b.create<arith::MulIOp>(function.blockY(), function.integer(policy.columnsPerBlock));
}

/// Loops over the tiles of a row that is not kept in registers: whole tiles, then the rest.
SmallVector<Value> RowKernel::emitTiles(const PassWork &work, int pass) {
  SmallVector<Value> running;
  for (Operation *reduction : work.reductions)
    running.push_back(neutral(lanes, reduction, policy.vector));
  Value step = function.integer(int64_t(policy.rowThreads) * policy.vectors * policy.vector), end = columns;
  if (!policy.isWhole)
    end = b.create<arith::SubIOp>(columns, b.create<arith::RemUIOp>(columns, step));
  auto loop = b.create<scf::ForOp>(function.integer(0), end, step, running);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> carried(loop.getRegionIterArgs());
    running = emitTile(work, pass, loop.getInductionVar(), /*isWhole=*/true, carried);
    if (!running.empty())
      b.create<scf::YieldOp>(running);
  }
  running = SmallVector<Value>(loop.getResults());
  return policy.isWhole ? running : emitTile(work, pass, end, /*isWhole=*/false, running);
}

void RowKernel::emitPass(const PassWork &work, int pass) {
  SmallVector<Value> running(work.reductions.size());
  running = policy.isHeld ? emitTile(work, pass, firstColumn(), policy.isWhole, running) : emitTiles(work, pass);
  for (auto [reduction, value] : llvm::zip_equal(work.reductions, running))
    evaluator.setOnce(reduction->getResult(0), reduceThreads(reduction, value));
}

void RowKernel::build() {
  evaluator.emitScalars();
  for (auto [index, value] : llvm::enumerate(shape.body->getTerminator()->getOperands()))
    if (!policy.isHeld && shape.levels.lookup(value) == Level::Full && shape.outputs[index].isDense &&
        !isa<BlockArgument>(value))
      evaluator.setStored(value, index);
  setRow();
  for (int pass = 0; pass <= shape.lastPass; ++pass) {
    emitOnce(pass);
    if (PassWork work = workOf(shape, pass); !work.isEmpty())
      emitPass(work, pass);
  }
}

} // namespace

void buildRowKernel(const ShapeBuilder &builder) { RowKernel(builder).build(); }

} // namespace espalier::codegen::cuda
