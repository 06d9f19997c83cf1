// Code shared by both kinds of tiles: copies from global memory by cp.async, 16 bytes at a time.
#include "compiler/codegen/cuda/tiles.h"

using namespace mlir;

namespace espalier::codegen::cuda {

Value Tiles::placeOf(Expr offset, int64_t constant) {
  Value place = sharedAt(f, offset).get();
  return constant == 0 ? place : f.address(place, f.integer(constant), f.b.getI8Type());
}

void Tiles::copyPiece(Expr from, Expr to, Expr isThere) {
  f.intrinsic("llvm.nvvm.cp.async.cg.shared.global.16.s", {},
              {placeOf(to), from.get(), select(isThere, integer(16), 0).get()});
}

void Tiles::startCopy(const TileSource &source, int64_t count, Expr to, TileDepth depth) {
  int64_t perPiece = 16 / sizes.elementBytes(), pieces = depth.padded() / perPiece, threads = sizes.threads();
  Expr thread(f, f.threadIndex());
  auto isStored = [&](Expr row, Expr piece, Expr count) {
    Expr isRow = row < count;
    return depth.elements < depth.padded() ? isRow & (piece < depth.elements / perPiece) : isRow;
  };
  if (threads % pieces != 0 || count * pieces % threads != 0) {
    for (int64_t first = 0; first < count * pieces; first += threads)
      when(thread + first < count * pieces, [&] {
        Expr row = (thread + first) / pieces, piece = (thread + first) % pieces;
        Expr from = elementAt(source.base, wide(row) * source.stride + wide(piece * perPiece), sizes.element);
        copyPiece(from, to + row * depth.pitch() + piece * 16, isStored(row, piece, source.count));
      });
    return;
  }
  // Whole rows at once, so that one pointer advances from row to row. Separate addresses per piece would each occupy
  // registers throughout the loop over tiles.
  int64_t rowsAtOnce = threads / pieces;
  Expr row = thread / pieces, piece = thread % pieces, step = source.stride * rowsAtOnce;
  Expr from = elementAt(source.base, wide(row) * source.stride + wide(piece * perPiece), sizes.element);
  Expr place = to + row * depth.pitch() + piece * 16;
  for (int64_t first = 0; first < count; first += rowsAtOnce) {
    copyPiece(from, place + first * depth.pitch(), isStored(row, piece, source.count - first));
    from = elementAt(from, step, sizes.element);
  }
}

void Tiles::startFloats(const TileSource &source, int64_t count, Expr to) {
  Expr thread(f, f.threadIndex());
  for (int64_t first = 0; first < count; first += sizes.threads())
    when(thread + first < count, [&] {
      Expr row = thread + first, isThere = row < source.count;
      Expr from = wide(row) * source.stride;
      f.intrinsic("llvm.nvvm.cp.async.ca.shared.global.4.s", {},
                  {placeOf(to + row * 4), elementAt(source.base, from, f.b.getF32Type()).get(),
                   select(isThere, integer(4), 0).get()});
    });
}

void Tiles::waitForCopies() { f.intrinsic("llvm.nvvm.cp.async.wait.all", {}, {}); }

} // namespace espalier::codegen::cuda
