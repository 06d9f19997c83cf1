#include "runtime/kernels/element.h"

#include "runtime/kernels/dtype.h"

namespace espalier::rt {

float loadElement(pb::DataType type, const void *values, int64_t i) {
  if (type == pb::BF16)
    return bf16ToFloat(static_cast<const uint16_t *>(values)[i]);
  if (type == pb::F16)
    return f16ToFloat(static_cast<const uint16_t *>(values)[i]);
  return static_cast<const float *>(values)[i];
}

void storeElement(pb::DataType type, void *values, int64_t i, float value) {
  if (type == pb::BF16)
    static_cast<uint16_t *>(values)[i] = floatToBf16(value);
  else if (type == pb::F16)
    static_cast<uint16_t *>(values)[i] = floatToF16(value);
  else
    static_cast<float *>(values)[i] = value;
}

} // namespace espalier::rt
