// Reduces a range over several sources in their order, in f32, and rounds once. Shared by all communicators that move
// bytes themselves.
#pragma once

#include "format/plan.pb.h"

#include <cstdint>
#include <span>

namespace espalier::rt {

/// Computes to[m][i] = reduction over s of from[s][i] for i in [begin, end) and every m. Entries of `to` may equal
/// entries of `from`. Types: F32, BF16 and F16. A maximum propagates NaN.
void reduceInOrder(pb::DataType type, pb::Reduction reduction, std::span<const void *const> from,
                   std::span<void *const> to, int64_t begin, int64_t end);

} // namespace espalier::rt
