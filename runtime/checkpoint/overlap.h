// Intersects two pieces of one tensor, which may come from different splits.
#pragma once

#include "runtime/checkpoint/pieces.h"

#include <functional>

namespace espalier::rt {

/// `count` elements that are contiguous in both pieces: from element `from` of one piece and element `to` of the other.
struct SharedRun {
  int64_t from = 0, to = 0, count = 0;

  bool operator==(const SharedRun &) const = default;
};

/// Visits the elements in both pieces, without padding, in ascending order of `from` and of `to`. Example: rows 0-1 and
/// columns 2-3 of a [4, 6] tensor share two runs: {2, 0, 2}, {8, 2, 2}.
void visitShared(const Piece &one, const Piece &other, const std::function<void(const SharedRun &)> &visit);

/// Returns the number of elements of a piece that are not padding.
int64_t realElements(const Piece &piece);

} // namespace espalier::rt
