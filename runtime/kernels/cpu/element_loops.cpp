// Loops that pass over memory once: conversion, addition, sums of squares, rotary embedding (RoPE).
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/vector.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

namespace {

template <Storage S> const Element<S> *elements(const void *p) { return static_cast<const Element<S> *>(p); }
template <Storage S> Element<S> *elements(void *p) { return static_cast<Element<S> *>(p); }

/// Writes cosines to [0, half) and sines to [half, 2 half) of position * frequencies, which are in turns, times the
/// amplitude. Quarter turns are removed in double precision, so large positions lose no precision. The remainder, at
/// most an eighth of a turn, uses the Taylor series.
void fillRotation(int32_t position, const double *frequencies, const RopeForm &form, float *out) {
  int64_t half = form.rotary / 2;
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
    float signedCosine = quadrant == 1 || quadrant == 2 ? -c : c, signedSine = quadrant >= 2 ? -n : n;
    out[i] = signedCosine * form.amplitude;
    out[half + i] = (form.isInverse ? -signedSine : signedSine) * form.amplitude;
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

/// The same with pairs of neighbours.
template <Storage From, Storage To>
void rotateNeighbours(const Element<From> *x, Element<To> *y, const float *rotation, int64_t half) {
  for (int64_t i = 0; i < half; i += kWidth) {
    int64_t count = minimum(kWidth, half - i), lower = minimum(kWidth, 2 * count), upper = 2 * count - lower;
    float pairs[2 * kWidth];
    storeFloats(pairs, loadFirst<From>(x + 2 * i, lower));
    storeFloats(pairs + kWidth, loadFirst<From>(x + 2 * i + lower, upper));
    for (int64_t lane = 0; lane < count; ++lane) {
      float first = pairs[2 * lane], second = pairs[2 * lane + 1];
      float cosine = rotation[i + lane], sine = rotation[half + i + lane];
      pairs[2 * lane] = first * cosine - second * sine;
      pairs[2 * lane + 1] = second * cosine + first * sine;
    }
    storeFirst<To>(y + 2 * i, loadFloats(pairs), lower);
    storeFirst<To>(y + 2 * i + lower, loadFloats(pairs + kWidth), upper);
  }
}

template <Storage From, Storage To> void copyColumns(const Element<From> *x, Element<To> *y, int64_t count) {
  for (int64_t i = 0; i < count; i += kWidth)
    storeFirst<To>(y + i, loadFirst<From>(x + i, count - i), count - i);
}

} // namespace

void convert(const void *from, Storage fromStorage, void *to, Storage toStorage, int64_t count) {
  withStorage(fromStorage, [&]<Storage From>() {
    withStorage(toStorage, [&]<Storage To>() { copyColumns<From, To>(elements<From>(from), elements<To>(to), count); });
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
  const RopeForm &form = task.form;
  withStorage(task.from, [&]<Storage From>() {
    withStorage(task.to, [&]<Storage To>() {
      for (int64_t token = 0; token < task.tokens; ++token) {
        fillRotation(task.positions[token], task.frequencies, form, task.scratch);
        for (int64_t head = 0; head < task.heads; ++head) {
          int64_t offset = (token * task.heads + head) * task.headDim;
          const Element<From> *x = elements<From>(task.x) + offset;
          Element<To> *y = elements<To>(task.y) + offset;
          copyColumns<From, To>(x, y, form.first);
          x += form.first;
          y += form.first;
          if (form.isInterleaved)
            rotateNeighbours<From, To>(x, y, task.scratch, form.rotary / 2);
          else
            rotateHead<From, To>(x, y, task.scratch, form.rotary / 2);
          copyColumns<From, To>(x + form.rotary, y + form.rotary, task.headDim - form.first - form.rotary);
        }
      }
    });
  });
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
