// Loops that pass over memory once: conversion, addition, sums of squares, rotary embedding (RoPE).
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/vector.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

namespace {

template <Storage S> const Element<S> *elements(const void *p) { return static_cast<const Element<S> *>(p); }
template <Storage S> Element<S> *elements(void *p) { return static_cast<Element<S> *>(p); }

/// Writes cosines to [0, half) and sines to [half, 2 half) of position * frequencies, which are in turns. Quarter turns
/// are removed in double precision, so large positions lose no precision. The remainder, at most an eighth of a turn,
/// uses the Taylor series.
void fillRotation(int32_t position, const double *frequencies, int64_t half, bool inverse, float *out) {
  constexpr double kRound = 6755399441055744.0; // 1.5 * 2^52: adding it rounds to an integer
  for (int64_t i = 0; i < half; ++i) {
    double turns = position * frequencies[i];
    double quarters = turns * 4;
    double whole = (quarters + kRound) - kRound;
    float x = static_cast<float>((quarters - whole) * 1.5707963267948966); // |x| <= pi / 4
    int32_t quadrant = static_cast<int32_t>(static_cast<int64_t>(whole) & 3);
    float s = x * x;
    float sine = x + x * s * (-1.0f / 6 + s * (1.0f / 120 + s * (-1.0f / 5040 + s * (1.0f / 362880))));
    float cosine = 1 + s * (-0.5f + s * (1.0f / 24 + s * (-1.0f / 720 + s * (1.0f / 40320 - s * (1.0f / 3628800)))));
    float c = quadrant & 1 ? sine : cosine;
    float n = quadrant & 1 ? cosine : sine;
    out[i] = quadrant == 1 || quadrant == 2 ? -c : c;
    float signedSine = quadrant >= 2 ? -n : n;
    out[half + i] = inverse ? -signedSine : signedSine;
  }
}

/// Computes y = x rotated pair by pair. x and y may be the same.
template <Storage From, Storage To>
void rotateHead(const Element<From> *x, Element<To> *y, const float *rotation, int64_t half) {
  for (int64_t i = 0; i < half; i += kWidth) {
    int64_t count = minimum(kWidth, half - i);
    Floats low = loadFirst<From>(x + i, count), high = loadFirst<From>(x + half + i, count);
    Floats cosine = loadFirst<Storage::F32>(rotation + i, count);
    Floats sine = loadFirst<Storage::F32>(rotation + half + i, count);
    storeFirst<To>(y + i, low * cosine - high * sine, count);
    storeFirst<To>(y + half + i, high * cosine + low * sine, count);
  }
}

} // namespace

void convert(const void *from, Storage fromStorage, void *to, Storage toStorage, int64_t count) {
  withStorage(fromStorage, [&]<Storage From>() {
    withStorage(toStorage, [&]<Storage To>() {
      for (int64_t i = 0; i < count; i += kWidth)
        storeFirst<To>(elements<To>(to) + i, loadFirst<From>(elements<From>(from) + i, count - i), count - i);
    });
  });
}

void add(const void *from, Storage fromStorage, float *to, int64_t count) {
  withStorage(fromStorage, [&]<Storage From>() {
    for (int64_t i = 0; i < count; i += kWidth) {
      Floats sum = loadFirst<Storage::F32>(to + i, count - i) + loadFirst<From>(elements<From>(from) + i, count - i);
      storeFirst<Storage::F32>(to + i, sum, count - i);
    }
  });
}

void addScaled(const void *from, Storage fromStorage, float factor, float *to, int64_t count) {
  withStorage(fromStorage, [&]<Storage From>() {
    for (int64_t i = 0; i < count; i += kWidth) {
      Floats term = loadFirst<From>(elements<From>(from) + i, count - i) * factor;
      storeFirst<Storage::F32>(to + i, loadFirst<Storage::F32>(to + i, count - i) + term, count - i);
    }
  });
}

double squaredSum(const float *x, int64_t count) {
  Doubles sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kWidth <= count; i += 4 * kWidth)
    for (int j = 0; j < 4; ++j) {
      Doubles v = __builtin_convertvector(loadFloats(x + i + j * kWidth), Doubles);
      sums[j] += v * v;
    }
  Doubles sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double total = 0;
  for (int lane = 0; lane < kWidth; ++lane)
    total += sum[lane];
  for (; i < count; ++i)
    total += static_cast<double>(x[i]) * x[i];
  return total;
}

void rope(const RopeTask &task) {
  withStorage(task.from, [&]<Storage From>() {
    withStorage(task.to, [&]<Storage To>() {
      for (int64_t token = 0; token < task.tokens; ++token) {
        fillRotation(task.positions[token], task.frequencies, task.headDim / 2, task.inverse, task.scratch);
        for (int64_t head = 0; head < task.heads; ++head) {
          int64_t offset = (token * task.heads + head) * task.headDim;
          rotateHead<From, To>(elements<From>(task.x) + offset, elements<To>(task.y) + offset, task.scratch,
                               task.headDim / 2);
        }
      }
    });
  });
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
