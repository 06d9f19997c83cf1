// What both kinds of tiles share: copies from global memory by cp.async, 16 bytes at a time.
#include "compiler/codegen/cuda/tiles.h"

using namespace mlir;

namespace espalier::codegen::cuda {

Value Tiles::placeOf(Expr offset, int64_t constant) {
  Value place = sharedAt(f, offset).get();
  return constant == 0 ? place : f.address(place, f.integer(constant), f.b.getI8Type());
}

void Tiles::startCopy(const TileSource &source, int64_t count, Expr to) {
  int64_t perPiece = 16 / sizes.elementBytes(), pieces = sizes.paddedDim() / perPiece;
  int64_t stored = sizes.headDim / perPiece, threads = sizes.threads();
  Expr thread(f, f.threadIndex());
  for (int64_t first = 0; first < count * pieces; first += threads) {
    // Where whole rows are copied at once the division is the same for all pieces of a thread.
    bool isWhole = threads % pieces == 0;
    Expr index = isWhole ? thread : thread + first;
    Expr row = isWhole ? index / pieces + first / pieces : index / pieces, piece = index % pieces;
    auto copy = [&] {
      Expr isThere = row < source.count;
      if (stored < pieces)
        isThere = isThere & (piece < stored);
      Expr from = wide(row) * source.stride + wide(piece * perPiece); // not read where nothing is there
      Value place = placeOf(to + row * sizes.pitch() + piece * 16);
      f.intrinsic("llvm.nvvm.cp.async.cg.shared.global.16.s", {},
                  {place, elementAt(source.base, from, sizes.element).get(), select(isThere, integer(16), 0).get()});
    };
    if (count * pieces - first >= threads)
      copy();
    else
      when(index < count * pieces - (isWhole ? first : 0), copy);
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
