// Products with one to four rows, as in a decoding step. b is read once, in its stored layout, and nothing is packed,
// so the time is the time to load b from memory. If b is stored as [k, n], the sums have the order of the packed tiles,
// so that a row has the same bits in a product with more rows. Included by gemm_loops.cpp.
#pragma once

#include "runtime/kernels/cpu/gemm_tile.h"
#include "runtime/kernels/cpu/level.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

constexpr int64_t kFewUnits = 4;  // units of k that are added together
constexpr int64_t kFewAhead = 16; // prefetch distance in rows of b
constexpr int64_t kLineBytes = 64;

template <bool Paired> struct Steps {
  typedef FloatStep Step;
};
template <> struct Steps<true> {
  typedef PairStep Step;
};
/// One multiply-add of units of depth.
template <bool Paired> using StepOf = typename Steps<Paired>::Step;

/// Adds the products of the elements [range.begin, range.end) of k, whose b is stored as [k, n]. The sums stay in the
/// L1 cache while rows of b stream through. A row of `a` has `units` units of depth: floats, or pairs of bf16.
template <Storage B, bool Paired, int Rows>
void addFewRows(const GemmTask &task, Span range, const float *a, int64_t units, float *sums, int64_t stride) {
  constexpr int64_t kElements = Paired ? 2 : 1, kRows = kFewUnits * kElements;
  using Stored = Element<B>;
  const auto *b = static_cast<const Stored *>(task.b.data);
  constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(Stored));
  for (int64_t k = range.begin; k < range.end; k += kRows) {
    const Stored *row[kFewUnits];
    Floats factor[Rows][kFewUnits];
    bool hasSecond[kFewUnits];
    for (int64_t j = 0; j < kFewUnits; ++j) {
      bool isInside = k + j * kElements < range.end;
      row[j] = b + (isInside ? k + j * kElements : k) * task.b.stride;
      hasSecond[j] = k + j * kElements + 1 < range.end;
      for (int r = 0; r < Rows; ++r)
        factor[r][j] = splat(isInside ? a[r * units + k / kElements + j] : 0.0f);
    }
    const Stored *ahead = k + kFewAhead + kRows <= task.k ? b + (k + kFewAhead) * task.b.stride : nullptr;
    for (int64_t n = 0; n < task.n; n += kWidth) {
      if (ahead && n % kLine == 0)
        for (int64_t j = 0; j < kRows; ++j)
          __builtin_prefetch(ahead + j * task.b.stride + n);
      int64_t columns = minimum(kWidth, task.n - n);
      Floats part[kFewUnits];
      for (int64_t j = 0; j < kFewUnits; ++j)
        part[j] = Reader<B, Paired>::across(row[j] + n, task.b.stride, columns, hasSecond[j]);
      for (int r = 0; r < Rows; ++r) {
        Floats sum = loadFirst<Storage::F32>(sums + r * stride + n, columns);
        for (int64_t j = 0; j < kFewUnits; ++j)
          sum = StepOf<Paired>::add(sum, factor[r][j], part[j]);
        storeFirst<Storage::F32>(sums + r * stride + n, sum, columns);
      }
    }
  }
}

/// Adds the sums of a block to those of the blocks before, and clears them.
inline void addBlock(float *sums, int64_t rows, int64_t columns, float *c, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t n = 0; n < columns; n += kWidth) {
      float *from = sums + r * roundUp(columns, kWidth) + n, *to = c + r * stride + n;
      int64_t count = minimum(kWidth, columns - n);
      storeFirst<Storage::F32>(to, loadFloats(from) + loadFirst<Storage::F32>(to, count), count);
      storeFloats(from, Floats{});
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

/// Returns the scratch floats for a, with rows padded with zeros to whole vectors.
inline int64_t fewRowsFloats(const GemmTask &task) { return task.m * roundUp(task.k, kWidth); }

/// Returns the scratch floats for the sums of a block of depth.
inline int64_t fewRowsSums(const GemmTask &task) { return task.m * roundUp(task.n, kWidth); }

/// Copies a as rows of units of depth, `units` per row.
template <Storage A, bool Paired> void copyFewRows(const GemmTask &task, int64_t units, float *to) {
  const auto *a = static_cast<const Element<A> *>(task.a.data);
  auto element = [&](int64_t r, int64_t k) {
    return k >= task.k ? Element<A>{} : task.a.transposed ? a[k * task.a.stride + r] : a[r * task.a.stride + k];
  };
  for (int64_t r = 0; r < task.m; ++r)
    for (int64_t unit = 0; unit < units; ++unit) {
      if constexpr (Paired) {
        uint32_t pair = element(r, 2 * unit) | static_cast<uint32_t>(element(r, 2 * unit + 1)) << 16;
        to[r * units + unit] = __builtin_bit_cast(float, pair);
      } else {
        Element<A> one[kWidth] = {element(r, unit)};
        to[r * units + unit] = load<A>(one)[0];
      }
    }
}

/// Computes c += a b in blocks of `depth` elements of k, where `scratch` has fewRowsFloats() and then fewRowsSums()
/// floats. If `isClear`, c is zero.
template <Storage A, Storage B, bool Paired>
void addFewRows(const GemmTask &task, int64_t depth, float *scratch, float *c, int64_t stride, bool isClear) {
  int64_t units = roundUp(Paired ? ceilDivide(task.k, 2) : task.k, kWidth);
  float *sums = scratch + fewRowsFloats(task);
  int64_t sumsStride = roundUp(task.n, kWidth);
  copyFewRows<A, Paired>(task, units, scratch);
  for (int64_t i = 0; i < task.m * sumsStride; ++i)
    sums[i] = 0;
  auto rows = [&]<int Rows>(int64_t first) {
    const float *from = scratch + first * units;
    if constexpr (!Paired)
      if (task.b.transposed)
        return addFewRowsTransposed<B, Rows>(task, from, units, c + first * stride, stride);
    for (int64_t k = 0; k < task.k; k += depth) {
      Span range = {k, minimum(task.k, k + depth)};
      if (isClear && k == 0) {
        addFewRows<B, Paired, Rows>(task, range, from, units, c + first * stride, stride);
        continue;
      }
      addFewRows<B, Paired, Rows>(task, range, from, units, sums, sumsStride);
      addBlock(sums, Rows, task.n, c + first * stride, stride);
    }
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
