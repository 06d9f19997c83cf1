// Reduces a range over several sources in their order, in f32, and rounds once. Shared by the back
// ends that move bytes themselves.
#pragma once

#include "runtime/plan.pb.h"

#include <cstdint>
#include <span>

namespace espalier::rt {

/// to[m][i] = reduction over s of from[s][i] for i in [begin, end) and every m. Places of `to` may
/// coincide with places of `from`. F32, BF16 and F16; a maximum passes NaN on.
void reduceInOrder(pb::DataType type, pb::Reduction reduction, std::span<const void *const> from,
                   std::span<void *const> to, int64_t begin, int64_t end);

} // namespace espalier::rt
