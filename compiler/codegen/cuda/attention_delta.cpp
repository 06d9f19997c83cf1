// delta[row] = sum over head_dim of dout * out, for rows of attention's output: what every slope of a row has taken
// off. Groups of lanes have a row each, 16 bytes per lane. Buffers: out, dout, delta. Scalars:
// head_dim.
#include "compiler/codegen/cuda/special_kernels.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

constexpr int rowsPerGroup = 4;

/// Neighbouring lanes that have one row.
int64_t lanesOf(Type element, int64_t headDim) {
  return std::min<int64_t>(llvm::PowerOf2Ceil(headDim * element.getIntOrFloatBitWidth() / 128), 32);
}

} // namespace

exec::GeometryAttr deltaGeometry(MLIRContext *context, Type element, int64_t headDim) {
  int64_t threads = 128;
  return exec::GeometryAttr::get(context, threads, threads / lanesOf(element, headDim) * rowsPerGroup, 0, 0);
}

LogicalResult buildAttentionDelta(KernelFunction &f, exec::KernelOp kernel) {
  DictionaryAttr parameters = *kernel.getParameters();
  Type element = cast<TypeAttr>(parameters.get("type")).getValue();
  int64_t headDim = cast<IntegerAttr>(parameters.get("head_dim")).getInt();
  int64_t lanes = lanesOf(element, headDim), perPiece = 128 / element.getIntOrFloatBitWidth();
  Expr thread(f, f.threadIndex()), end(f, f.blockEnd()), begin(f, f.blockBegin());
  Expr out(f, f.buffer(0)), dout(f, f.buffer(1)), delta(f, f.buffer(2));
  for (int64_t i = 0; i < rowsPerGroup; ++i) {
    Expr row = begin + wide(thread / lanes + i * (f.geometry.getThreads() / lanes)), isRow = row < end;
    Variable sum(Expr(f, f.number(0)));
    for (int64_t first = 0; first < headDim; first += lanes * perPiece) {
      Expr d = thread % lanes * perPiece + first;
      when(isRow & (d < headDim), [&] {
        Expr index = row * headDim + wide(d);
        std::vector<Expr> a = loadElements(elementAt(out, index, element), element, static_cast<int>(perPiece));
        std::vector<Expr> b = loadElements(elementAt(dout, index, element), element, static_cast<int>(perPiece));
        for (int64_t j = 0; j < perPiece; ++j)
          sum.set(sum.get() + a[j] * b[j]);
      });
    }
    Expr total(f, f.reduceWarp(sum.get().get(), Reduction::Add, static_cast<int>(lanes)));
    when(isRow & (thread % lanes == 0), [&] { storeValue(total, elementAt(delta, row, f.b.getF32Type())); });
  }
  return success();
}

} // namespace espalier::codegen::cuda
