// Products with one to four rows, as in a decoding step. b is read once, in its stored layout, and nothing is packed,
// so the time is the time to load b from memory. Included by gemm_loops.cpp.
#pragma once

#include "runtime/kernels/cpu/gemm_tile.h"
#include "runtime/kernels/cpu/level.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

constexpr int64_t kFewDepth = 4;  // rows of b that are read together
constexpr int64_t kFewAhead = 16; // prefetch distance in rows of b
constexpr int64_t kLineBytes = 64;

/// Adds a product whose b is stored as [k, n]. c stays in the L1 cache while rows of b stream through.
template <Storage B, int Rows>
void addFewRows(const GemmTask &task, const float *a, int64_t depth, float *c, int64_t stride) {
  using Stored = Element<B>;
  const auto *b = static_cast<const Stored *>(task.b.data);
  constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(Stored));
  for (int64_t k = 0; k < task.k; k += kFewDepth) {
    int64_t count = minimum(kFewDepth, task.k - k);
    const Stored *row[kFewDepth];
    Floats factor[Rows][kFewDepth];
    for (int64_t j = 0; j < kFewDepth; ++j) {
      row[j] = b + (k + (j < count ? j : 0)) * task.b.stride;
      for (int r = 0; r < Rows; ++r)
        factor[r][j] = splat(j < count ? a[r * depth + k + j] : 0.0f);
    }
    const Stored *ahead = k + kFewAhead + kFewDepth <= task.k ? b + (k + kFewAhead) * task.b.stride : nullptr;
    for (int64_t n = 0; n < task.n; n += kWidth) {
      if (ahead && n % kLine == 0)
        for (int64_t j = 0; j < kFewDepth; ++j)
          __builtin_prefetch(ahead + j * task.b.stride + n);
      int64_t columns = minimum(kWidth, task.n - n);
      Floats part[kFewDepth];
      for (int64_t j = 0; j < kFewDepth; ++j)
        part[j] = loadFirst<B>(row[j] + n, columns);
      for (int r = 0; r < Rows; ++r) {
        Floats sum = loadFirst<Storage::F32>(c + r * stride + n, columns);
        for (int64_t j = 0; j < kFewDepth; ++j)
          sum += factor[r][j] * part[j];
        storeFirst<Storage::F32>(c + r * stride + n, sum, columns);
      }
    }
  }
}

/// Adds a product whose b is stored as [n, k]. Each element of c is one pass over a row of b.
template <Storage B, int Rows>
void addFewRowsTransposed(const GemmTask &task, const float *a, int64_t depth, float *c, int64_t stride) {
  const auto *b = static_cast<const Element<B> *>(task.b.data);
  for (int64_t n = 0; n < task.n; ++n) {
    const Element<B> *row = b + n * task.b.stride;
    Floats even[Rows] = {}, odd[Rows] = {};
    int64_t k = 0;
    for (; k + 2 * kWidth <= task.k; k += 2 * kWidth) {
      Floats first = load<B>(row + k), second = load<B>(row + k + kWidth);
      for (int r = 0; r < Rows; ++r) {
        even[r] += loadFloats(a + r * depth + k) * first;
        odd[r] += loadFloats(a + r * depth + k + kWidth) * second;
      }
    }
    for (; k < task.k; k += kWidth) { // a is zero after its row
      Floats part = loadFirst<B>(row + k, task.k - k);
      for (int r = 0; r < Rows; ++r)
        even[r] += loadFloats(a + r * depth + k) * part;
    }
    for (int r = 0; r < Rows; ++r)
      c[r * stride + n] += sumOf(even[r] + odd[r])[0];
  }
}

/// Returns the scratch floats for a in f32, with rows padded with zeros to whole vectors.
inline int64_t fewRowsFloats(const GemmTask &task) { return task.m * roundUp(task.k, kWidth); }

/// Computes c += a b. `scratch` has fewRowsFloats() floats.
template <Storage A, Storage B> void addFewRows(const GemmTask &task, float *scratch, float *c, int64_t stride) {
  int64_t depth = roundUp(task.k, kWidth);
  const auto *a = static_cast<const Element<A> *>(task.a.data);
  for (int64_t r = 0; r < task.m; ++r)
    for (int64_t k = 0; k < depth; ++k) {
      Element<A> one[kWidth] = {};
      if (k < task.k)
        one[0] = task.a.transposed ? a[k * task.a.stride + r] : a[r * task.a.stride + k];
      scratch[r * depth + k] = load<A>(one)[0];
    }
  auto rows = [&]<int Rows>(int64_t first) {
    const float *from = scratch + first * depth;
    float *to = c + first * stride;
    if (task.b.transposed)
      addFewRowsTransposed<B, Rows>(task, from, depth, to, stride);
    else
      addFewRows<B, Rows>(task, from, depth, to, stride);
  };
  int64_t first = 0;
  for (; first + 4 <= task.m; first += 4)
    rows.template operator()<4>(first);
  for (; first + 2 <= task.m; first += 2)
    rows.template operator()<2>(first);
  if (first < task.m)
    rows.template operator()<1>(first);
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
