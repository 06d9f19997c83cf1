#include "compiler/codegen/cuda/policy.h"

#include "compiler/codegen/evaluator.h"

#include "dialects/dist/dialect.h"
#include "dialects/model/dialect.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

constexpr int64_t warp = 32, mostRowThreads = 1024;
/// The most bytes that one access moves.
constexpr int64_t accessBytes = 16;
/// The registers of a thread for values of the row that are kept between passes.
constexpr int64_t heldElements = 32;
/// The loads in flight per thread if the row is not kept in registers.
constexpr int64_t loadsInFlight = 4, narrowLoadsInFlight = 8;
/// The threads per block for small rows, for flat kernels, and for rows that are looped over.
constexpr int64_t blockThreads = 128, flatThreads = 256, longRowThreads = 512;
/// Column kernels: threads per block, whose groups take the block's rows in turn; minimum rows per block; maximum
/// blocks. If rows are reduced, a block has whole rows, and the second line of constants applies.
constexpr int64_t columnThreads = 256, leastRows = 32, mostBlocks = 128;
constexpr int64_t reducedRowThreads = 512, leastReducedRows = 8, mostReducedBlocks = 256;

int64_t elementBytes(Type type) { return cast<RankedTensorType>(type).getElementType().getIntOrFloatBitWidth() / 8; }

/// Returns the widest access that all full buffers allow.
int chooseVector(const KernelShape &shape, ArrayRef<exec::BufferAttr> operands, ArrayRef<exec::BufferAttr> outputs) {
  int64_t largest = 2;
  auto visit = [&](auto use) {
    for (auto [argument, access, buffer] : llvm::zip(shape.body->getArguments(), shape.operands, operands))
      if (shape.levels.lookup(argument) == Level::Full)
        use(elementBytes(argument.getType()), buffer);
    // Sums over rows are stored one by one, or in f32 at multiples of the vector size, so they set no limit.
    for (auto [index, value, buffer] : llvm::enumerate(shape.body->getTerminator()->getOperands(), outputs))
      if (shape.levels.lookup(value) == Level::Full && !shape.isSummed(index))
        use(elementBytes(value.getType()), buffer);
  };
  visit([&](int64_t bytes, exec::BufferAttr) { largest = std::max(largest, bytes); });
  int64_t vector = accessBytes / largest;
  for (; vector > 1; vector /= 2) {
    bool fits = shape.kind == "flat" || shape.columns % vector == 0;
    visit([&](int64_t bytes, exec::BufferAttr buffer) { fits &= isAligned(buffer, vector * bytes); });
    if (fits)
      break;
  }
  return vector;
}

/// Returns the full values kept in registers between passes: values of an earlier pass that a later pass uses.
int64_t countHeld(const KernelShape &shape) {
  llvm::DenseMap<Value, int> firstPass;
  SmallVector<llvm::SmallDenseSet<Value>> needed(shape.lastPass + 1);
  auto visit = [&](auto &self, Value value, int pass) -> void {
    if (shape.levels.lookup(value) != Level::Full)
      return;
    auto [entry, isNew] = firstPass.try_emplace(value, pass);
    if (entry->second < pass)
      needed[pass].insert(value);
    if (isNew && value.getDefiningOp())
      for (Value operand : value.getDefiningOp()->getOperands())
        self(self, operand, pass);
  };
  for (int pass = 0; pass <= shape.lastPass; ++pass) {
    PassWork work = workOf(shape, pass);
    for (Operation *reduction : work.reductions)
      visit(visit, reduction->getOperand(0), pass);
    for (unsigned output : work.outputs)
      visit(visit, shape.body->getTerminator()->getOperand(output), pass);
  }
  int64_t most = 0;
  for (int pass = 1; pass <= shape.lastPass; ++pass) {
    llvm::SmallDenseSet<Value> live;
    for (int later = pass; later <= shape.lastPass; ++later)
      for (Value value : needed[later])
        if (firstPass.lookup(value) < pass)
          live.insert(value);
    most = std::max<int64_t>(most, live.size());
  }
  return most;
}

int64_t countReductions(const KernelShape &shape) {
  return llvm::count_if(shape.body->without_terminator(), [](Operation &op) { return reducesTrailing(&op); });
}

/// Returns whether several blocks can share a row: no value depends on the whole row, and no block overwrites a picked
/// column before another block reads it.
bool isCutAnywhere(const KernelShape &shape) {
  bool picks = llvm::any_of(shape.body->without_terminator(), [](Operation &op) { return isa<model::PickOp>(op); });
  return countReductions(shape) == 0 && !picks && !workOf(shape, 0).outputs.empty();
}

/// Uses the fewest warps that hold the row, without idle threads if possible; a part of a warp if that is enough.
void chooseRow(const KernelShape &shape, Policy &policy) {
  bool isCut = isCutAnywhere(shape);
  int64_t loads = llvm::divideCeil(shape.columns, policy.vector);
  int64_t held = countHeld(shape), mostThreads = isCut ? flatThreads : mostRowThreads;
  int64_t most = loads <= warp ? 1 : std::max<int64_t>(1, held ? heldElements / (held * policy.vector) : loadsInFlight);
  int64_t best = INT64_MAX;
  for (int64_t vectors = most; vectors >= 1; --vectors) {
    int64_t threads = llvm::divideCeil(loads, vectors);
    threads = loads <= warp ? llvm::PowerOf2Ceil(threads) : llvm::alignTo(threads, warp);
    if (threads > mostThreads || threads * vectors >= best)
      continue;
    best = threads * vectors;
    policy.vectors = vectors;
    policy.rowThreads = threads;
  }
  policy.isHeld = isCut || best != INT64_MAX;
  if (best == INT64_MAX) {
    policy.vectors = policy.vector == 1 ? narrowLoadsInFlight : loadsInFlight;
    policy.rowThreads = isCut ? flatThreads : longRowThreads;
  }
  int64_t tile = int64_t(policy.rowThreads) * policy.vectors * policy.vector;
  policy.isWhole = shape.columns % tile == 0;
  policy.columnsPerBlock = policy.isHeld && tile < shape.columns ? tile : 0;
  policy.threads = policy.rowThreads > warp ? policy.rowThreads : blockThreads;
  policy.extentPerBlock = policy.threads / policy.rowThreads;
  if (policy.rowThreads > warp)
    policy.sharedBytes = countReductions(shape) * policy.threads / warp * 4;
}

/// Uses neighbouring warps; if rows are reduced, whole rows with as few vectors per thread as possible.
void chooseColumn(const KernelShape &shape, Policy &policy) {
  int64_t reductions = countReductions(shape), loads = llvm::divideCeil(shape.columns, policy.vector);
  policy.rowThreads = warp;
  policy.threads = columnThreads;
  if (reductions > 0) {
    policy.vectors = llvm::divideCeil(loads, mostRowThreads);
    policy.rowThreads = llvm::alignTo(llvm::divideCeil(loads, policy.vectors), warp);
    policy.threads = std::max(1, int(reducedRowThreads) / policy.rowThreads) * policy.rowThreads;
  }
  int64_t tile = int64_t(policy.rowThreads) * policy.vectors * policy.vector;
  int64_t groups = policy.threads / policy.rowThreads;
  policy.isWhole = shape.columns % tile == 0;
  policy.columnsPerBlock = reductions > 0 ? 0 : tile;
  policy.sharedBytes = std::max(groups * tile * 4, reductions * policy.threads / warp * 4);
}

} // namespace

bool isAligned(exec::BufferAttr buffer, int64_t bytes) {
  auto origin = dyn_cast_or_null<dist::OriginAttr>(buffer.getCoordinates());
  // Virtual buffers are placed at multiples of 64; their offset is an index. Shards are contiguous.
  bool isPlaced = buffer.isVirtual() || buffer.getOffset() % bytes == 0;
  bool arePartsPlaced = buffer.getPart() == 0 || buffer.getBytes() % bytes == 0;
  return isPlaced && arePartsPlaced && buffer.getWithin() % bytes == 0 &&
         (!origin || llvm::all_of(origin.getStrides(), [&](int64_t stride) { return stride % bytes == 0; }));
}

int64_t columnBlocks(const KernelShape &shape) {
  bool isReduced = countReductions(shape) > 0;
  int64_t blocks = llvm::divideCeil(shape.rows, isReduced ? leastReducedRows : leastRows);
  return std::min<int64_t>(blocks, isReduced ? mostReducedBlocks : mostBlocks);
}

Policy choosePolicy(const KernelShape &shape, ArrayRef<exec::BufferAttr> operands, ArrayRef<exec::BufferAttr> outputs) {
  Policy policy;
  policy.vector = chooseVector(shape, operands, outputs);
  if (shape.kind == "row") {
    chooseRow(shape, policy);
  } else if (shape.kind == "flat") {
    policy.threads = flatThreads;
    policy.vectors = policy.vector == 1 ? loadsInFlight : 1;
    policy.extentPerBlock = int64_t(policy.threads) * policy.vector * policy.vectors;
  } else {
    chooseColumn(shape, policy);
  }
  return policy;
}

exec::GeometryAttr Policy::geometry(MLIRContext *context) const {
  return exec::GeometryAttr::get(context, threads, extentPerBlock, columnsPerBlock, sharedBytes);
}

DictionaryAttr Policy::parameters(MLIRContext *context) const {
  Builder b(context);
  return b.getDictionaryAttr({b.getNamedAttr("vector", b.getI64IntegerAttr(vector)),
                              b.getNamedAttr("row_threads", b.getI64IntegerAttr(rowThreads)),
                              b.getNamedAttr("vectors", b.getI64IntegerAttr(vectors)),
                              b.getNamedAttr("is_held", b.getBoolAttr(isHeld)),
                              b.getNamedAttr("is_whole", b.getBoolAttr(isWhole))});
}

Policy Policy::of(exec::KernelOp kernel) {
  DictionaryAttr parameters = *kernel.getParameters();
  exec::GeometryAttr geometry = *kernel.getGeometry();
  auto number = [&](StringRef name) { return static_cast<int>(parameters.getAs<IntegerAttr>(name).getInt()); };
  Policy policy;
  policy.vector = number("vector");
  policy.rowThreads = number("row_threads");
  policy.vectors = number("vectors");
  policy.isHeld = parameters.getAs<BoolAttr>("is_held").getValue();
  policy.isWhole = parameters.getAs<BoolAttr>("is_whole").getValue();
  policy.threads = geometry.getThreads();
  policy.extentPerBlock = geometry.getExtentPerBlock();
  policy.columnsPerBlock = geometry.getColumnsPerBlock();
  policy.sharedBytes = geometry.getSharedBytes();
  return policy;
}

} // namespace espalier::codegen::cuda
