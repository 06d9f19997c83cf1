// Both pieces are row-major in boxes of one tensor. If the boxes agree in their last dimensions, runs extend over these
// dimensions.
#include "runtime/checkpoint/overlap.h"

#include <algorithm>

namespace espalier::rt {
namespace {

/// The intersection of the boxes: [low, high) per dimension.
struct CommonBox {
  std::vector<int64_t> low, high;

  CommonBox(const Piece &one, const Piece &other) {
    for (size_t i = 0; i < one.shape.size(); ++i) {
      low.push_back(std::max(one.offsets[i], other.offsets[i]));
      high.push_back(
          std::min({one.offsets[i] + one.sizes[i], other.offsets[i] + other.sizes[i], one.shape[i], other.shape[i]}));
    }
  }

  bool isEmpty() const { return !std::ranges::equal(low, high, std::less()); }
  bool fills(const Piece &piece, size_t dimension) const {
    return low[dimension] == piece.offsets[dimension] &&
           high[dimension] == piece.offsets[dimension] + piece.sizes[dimension];
  }
};

/// Returns the index of a tensor element within a piece's box.
int64_t placeIn(const Piece &piece, const std::vector<int64_t> &element) {
  int64_t place = 0;
  for (size_t i = 0; i < element.size(); ++i)
    place = place * piece.sizes[i] + element[i] - piece.offsets[i];
  return place;
}

} // namespace

void visitShared(const Piece &one, const Piece &other, const std::function<void(const SharedRun &)> &visit) {
  CommonBox box(one, other);
  if (box.isEmpty())
    return;
  size_t outer = one.shape.size(); // number of dimensions to iterate over; a run covers the others
  int64_t run = 1;
  while (outer > 0) {
    --outer;
    run *= box.high[outer] - box.low[outer];
    if (!box.fills(one, outer) || !box.fills(other, outer))
      break;
  }
  std::vector<int64_t> element = box.low;
  for (;;) {
    int64_t from = placeIn(one, element), to = placeIn(other, element);
    int64_t begin = std::max({int64_t(0), one.begin - from, other.begin - to});
    int64_t end = std::min({run, one.end - from, other.end - to});
    if (begin < end)
      visit({from + begin - one.begin, to + begin - other.begin, end - begin});
    size_t dimension = outer;
    while (dimension > 0 && ++element[dimension - 1] == box.high[dimension - 1]) {
      --dimension;
      element[dimension] = box.low[dimension];
    }
    if (dimension == 0)
      return;
  }
}

int64_t realElements(const Piece &piece) {
  Piece whole = piece;
  whole.offsets.assign(piece.shape.size(), 0);
  whole.sizes = piece.shape;
  whole.begin = 0;
  whole.end = whole.boxElements();
  int64_t elements = 0;
  visitShared(whole, piece, [&](const SharedRun &run) { elements += run.count; });
  return elements;
}

} // namespace espalier::rt
