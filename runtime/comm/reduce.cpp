// Sums block by block in a small f32 buffer on the stack, so that every source is read once and in order.
#include "runtime/comm/reduce.h"

#include "runtime/kernels/dtype.h"

#include <algorithm>
#include <cstring>

namespace espalier::rt {
namespace {

constexpr int64_t blockElements = 1024;

struct Bf16 {
  uint16_t bits;
  explicit operator float() const { return bf16ToFloat(bits); }
  static Bf16 round(float value) { return {floatToBf16(value)}; }
};

struct F16 {
  uint16_t bits;
  explicit operator float() const { return f16ToFloat(bits); }
  static F16 round(float value) { return {floatToF16(value)}; }
};

struct F32 {
  float value;
  explicit operator float() const { return value; }
  static F32 round(float value) { return {value}; }
};

template <typename T> void combine(float *sum, const T *from, int64_t count, bool isMax) {
  if (!isMax) {
    for (int64_t i = 0; i < count; ++i)
      sum[i] += static_cast<float>(from[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    float value = static_cast<float>(from[i]);
    sum[i] = value > sum[i] || value != value ? value : sum[i];
  }
}

template <typename T>
void reduceTyped(bool isMax, std::span<const void *const> from, std::span<void *const> to, int64_t begin, int64_t end) {
  float sum[blockElements];
  for (int64_t base = begin; base < end; base += blockElements) {
    int64_t count = std::min(blockElements, end - base);
    const T *first = static_cast<const T *>(from[0]) + base;
    for (int64_t i = 0; i < count; ++i)
      sum[i] = static_cast<float>(first[i]);
    for (const void *source : from.subspan(1))
      combine(sum, static_cast<const T *>(source) + base, count, isMax);
    T *rounded = static_cast<T *>(to[0]) + base;
    for (int64_t i = 0; i < count; ++i)
      rounded[i] = T::round(sum[i]);
    for (void *place : to.subspan(1))
      std::memcpy(static_cast<T *>(place) + base, rounded, count * sizeof(T));
  }
}

} // namespace

void reduceInOrder(pb::DataType type, pb::Reduction reduction, std::span<const void *const> from,
                   std::span<void *const> to, int64_t begin, int64_t end) {
  bool isMax = reduction == pb::MAX;
  switch (type) {
  case pb::BF16:
    return reduceTyped<Bf16>(isMax, from, to, begin, end);
  case pb::F16:
    return reduceTyped<F16>(isMax, from, to, begin, end);
  default:
    return reduceTyped<F32>(isMax, from, to, begin, end);
  }
}

} // namespace espalier::rt
