// Single elements of arrays in the storage types of a plan.
#pragma once

#include "format/plan.pb.h"

#include <cstdint>

namespace espalier::rt {

/// Load or store element i of an array of `type` as f32; storing rounds once.
float loadElement(pb::DataType type, const void *values, int64_t i);
void storeElement(pb::DataType type, void *values, int64_t i, float value);

} // namespace espalier::rt
