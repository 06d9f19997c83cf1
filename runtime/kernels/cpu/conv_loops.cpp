// Causal convolutions of channels over the sequence. A task has a range of channels of all samples, so that the sums of
// the weight's gradient have one order.
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/vector.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

namespace {

/// Returns the first position that the convolution reads at `t`.
int64_t beginOf(const ConvTask &task, int64_t sample, int64_t t) {
  if (!task.visibleFrom)
    return 0;
  int64_t begin = minimum(task.visibleFrom[sample * task.sequence + t], t);
  return begin > 0 ? begin : 0;
}

/// Calls visit(output, input, distance) for the rows of all terms: the output at t reads the input at t - distance.
template <class Visit> void forEachTerm(const ConvTask &task, Visit visit) {
  for (int64_t sample = 0; sample < task.batch; ++sample)
    for (int64_t t = 0; t < task.sequence; ++t)
      for (int64_t i = 0; i < task.taps && t - i >= beginOf(task, sample, t); ++i)
        visit(sample * task.sequence + t, sample * task.sequence + t - i, i);
}

template <Storage From, Storage To>
void convolve(const ConvTask &task, const Element<From> *x, const float *weight, int64_t padded, bool isTransposed,
              Element<To> *y) {
  for (int64_t sample = 0; sample < task.batch; ++sample)
    for (int64_t t = 0; t < task.sequence; ++t) {
      int64_t terms = 0, step = isTransposed ? 1 : -1, row = sample * task.sequence + t;
      auto isRead = [&](int64_t i) {
        return isTransposed ? t + i < task.sequence && t >= beginOf(task, sample, t + i)
                            : t - i >= beginOf(task, sample, t);
      };
      while (terms < task.taps && isRead(terms))
        ++terms;
      for (int64_t c = 0; c < task.count; c += kWidth) {
        Floats sum{};
        for (int64_t i = 0; i < terms; ++i)
          sum += loadFloats(weight + (task.taps - 1 - i) * padded + c) *
                 loadFirst<From>(x + (row + step * i) * task.channels + task.first + c, task.count - c);
        storeFirst<To>(y + row * task.channels + task.first + c, sum, task.count - c);
      }
    }
}

} // namespace

void causalConv(const ConvTask &task, const void *weight, Storage ofWeight, bool isTransposed, void *y) {
  int64_t padded = roundUp(task.count, kWidth);
  withStorage(ofWeight, [&]<Storage S>() {
    const auto *from = static_cast<const Element<S> *>(weight) + task.first * task.taps;
    for (int64_t c = 0; c < padded; ++c)
      for (int64_t tap = 0; tap < task.taps; ++tap)
        task.scratch[tap * padded + c] = c < task.count ? loadFirst<S>(from + c * task.taps + tap, 1)[0] : 0;
  });
  withStorage(task.from, [&]<Storage From>() {
    withStorage(task.to, [&]<Storage To>() {
      convolve<From, To>(task, static_cast<const Element<From> *>(task.x), task.scratch, padded, isTransposed,
                         static_cast<Element<To> *>(y));
    });
  });
}

void causalConvGradient(const ConvTask &task, const void *dy, void *gradient, Storage ofGradient, bool adds) {
  int64_t padded = roundUp(task.count, kWidth);
  for (int64_t i = 0; i < padded * task.taps; ++i)
    task.scratch[i] = 0;
  withStorage(task.from, [&]<Storage From>() {
    withStorage(task.to, [&]<Storage To>() {
      forEachTerm(task, [&](int64_t output, int64_t input, int64_t distance) {
        float *sums = task.scratch + (task.taps - 1 - distance) * padded;
        for (int64_t c = 0; c < task.count; c += kWidth)
          storeFloats(sums + c, loadFloats(sums + c) + loadFirst<From>(static_cast<const Element<From> *>(task.x) +
                                                                           input * task.channels + task.first + c,
                                                                       task.count - c) *
                                                           loadFirst<To>(static_cast<const Element<To> *>(dy) +
                                                                             output * task.channels + task.first + c,
                                                                         task.count - c));
      });
    });
  });
  withStorage(ofGradient, [&]<Storage S>() {
    auto *to = static_cast<Element<S> *>(gradient) + task.first * task.taps;
    for (int64_t c = 0; c < task.count; ++c)
      for (int64_t tap = 0; tap < task.taps; ++tap) {
        Element<S> *element = to + c * task.taps + tap;
        float before = adds ? loadFirst<S>(element, 1)[0] : 0;
        storeFirst<S>(element, splat(before + task.scratch[tap * padded + c]), 1);
      }
  });
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
