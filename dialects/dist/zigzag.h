// The attribute of the zigzag order.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace espalier::dist {

/// The zigzag order of a sequence that is split over cp: rank r of n holds chunks r and 2 n - 1 - r of 2 n chunks. A
/// module has this attribute if its plan uses the order. `localize` then sets it on collectives over cp, and on ops
/// whose `origins` depend on cp: the origin of the sequence is that of the first chunk, and its stride on cp is a
/// chunk.
inline constexpr llvm::StringLiteral zigzagName = "dist.zigzag";

} // namespace espalier::dist
