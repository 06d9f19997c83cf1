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

/// The rows of one sample of a convolution.
template <Storage From> struct Sample {
  Sample(const ConvTask &task, int64_t number) : task(task), number(number) {
    begin = task.starts ? task.starts[number] : number * task.sequence;
    rows = task.starts ? task.starts[number + 1] - begin : task.sequence;
    while (task.positions && tokens < rows && task.positions[begin + tokens] >= 0)
      ++tokens;
  }

  /// Returns whether the output at t reads the input at t - i, or in the transposed convolution that at t + i.
  bool isRead(int64_t t, int64_t i, bool isTransposed) const {
    if (task.positions)
      return t < tokens && i <= task.positions[begin + t];
    return isTransposed ? t + i < rows && t >= beginOf(task, number, t + i) : t - i >= beginOf(task, number, t);
  }
  /// Returns the channels of an input; those before the rows are in the halo.
  Element<From> *input(int64_t t) const {
    int64_t row = t < 0 ? (number + 1) * (task.taps - 1) + t : begin + t;
    return static_cast<Element<From> *>(t < 0 ? task.halo : const_cast<void *>(task.x)) + row * task.channels +
           task.first;
  }
  /// Moves the last inputs to the halo.
  void keep() const {
    for (int64_t t = 1 - task.taps; t < 0 && tokens > 0; ++t)
      for (int64_t c = 0; c < task.count; ++c)
        input(t)[c] = input(t + tokens)[c];
  }

  const ConvTask &task;
  int64_t number, begin = 0, rows = 0, tokens = 0; ///< `tokens` of a carried convolution; padding follows them
};

template <Storage From, Storage To>
void convolve(const ConvTask &task, const float *weight, int64_t padded, bool isTransposed, Element<To> *y) {
  for (int64_t number = 0; number < task.batch; ++number) {
    Sample<From> sample(task, number);
    for (int64_t t = 0; t < sample.rows; ++t) {
      int64_t terms = 0, step = isTransposed ? 1 : -1;
      while (terms < task.taps && sample.isRead(t, terms, isTransposed))
        ++terms;
      for (int64_t c = 0; c < task.count; c += kWidth) {
        Floats sum{};
        for (int64_t i = 0; i < terms; ++i)
          sum += loadFloats(weight + (task.taps - 1 - i) * padded + c) *
                 loadFirst<From>(sample.input(t + step * i) + c, task.count - c);
        storeFirst<To>(y + (sample.begin + t) * task.channels + task.first + c, sum, task.count - c);
      }
    }
    sample.keep();
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
      convolve<From, To>(task, task.scratch, padded, isTransposed, static_cast<Element<To> *>(y));
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
