// What two pieces of one tensor have in common, whatever the splits they come from.
#pragma once

#include "runtime/checkpoint/pieces.h"

#include <functional>

namespace espalier::rt {

/// `count` elements that lie side by side in both: from element `from` of one piece on, and `to` of the other.
struct SharedRun {
  int64_t from = 0, to = 0, count = 0;

  bool operator==(const SharedRun &) const = default;
};

/// The elements of the tensor, not of its padding, that are in both pieces, in ascending order of `from` and of `to`.
/// Rows 0-1 of a [4, 6] tensor and its columns 2-3 share two runs: {2, 0, 2}, {8, 2, 2}.
void visitShared(const Piece &one, const Piece &other, const std::function<void(const SharedRun &)> &visit);

/// The elements of a piece that are none of the padding.
int64_t realElements(const Piece &piece);

} // namespace espalier::rt
