// Compares recurrences and causal convolutions with the definition, computed position by position in doubles.
#include "test/runtime/kernels/harness.h"

#include <algorithm>
#include <functional>

namespace espalier::rt {
namespace {

struct Shape {
  int64_t batch, seq, heads = 1, group = 1, keyDim = 1, valueDim = 1, chunk = 1;
  bool byColumn = false, delta = false, documents = false;

  int64_t rows() const { return batch * seq * heads * group; }
};

std::vector<int32_t> documents(const Shape &s) {
  std::vector<int32_t> from;
  for (int64_t i = 0; i < s.batch * s.seq; ++i)
    from.push_back(static_cast<int32_t>(i % s.seq / 13 * 13));
  return from;
}

/// Returns a call with its operands; decays are negative and step sizes between 0 and 1.
CallUnderTest make(const Shape &s, pb::DataType type, bool isBackward) {
  CallUnderTest call(isBackward ? pb::LibraryCall::RECURRENCE_GRADIENT : pb::LibraryCall::RECURRENCE,
                     {s.batch, s.seq, s.heads, s.group, s.keyDim, s.valueDim, s.chunk, s.byColumn, s.delta});
  double small = 1 / std::sqrt(static_cast<double>(s.keyDim));
  for (int i = 0; i < 2; ++i)
    call.add(type, s.batch * s.seq * s.heads * s.keyDim, small);
  call.add(type, s.rows() * s.valueDim);
  for (int64_t count : {s.rows() * (s.byColumn ? s.keyDim : 1), s.rows()}) {
    int index = call.add(pb::F32, count);
    for (int64_t i = 0; i < count; ++i) {
      double value = call.at(index, i);
      setValue(call.buffers.back(), pb::F32, i,
               static_cast<float>(index == 3 ? -std::abs(value) / 4 : 1 / (1 + std::exp(-value))));
    }
  }
  if (isBackward)
    call.add(type, s.rows() * s.valueDim);
  if (s.documents)
    call.addIds(documents(s));
  int results = isBackward ? 3 : 1;
  for (int i = 0; i < results; ++i)
    call.add(type, isBackward && i < 2 ? s.rows() / s.group * s.keyDim : s.rows() * s.valueDim);
  if (isBackward)
    for (int64_t count : {s.rows() * (s.byColumn ? s.keyDim : 1), s.rows()})
      call.add(pb::F32, count);
  return call;
}

/// The recurrence of one head, in doubles.
class Head {
public:
  Head(const Shape &s, const CallUnderTest &call, int64_t b, int64_t h) : s(s), call(call), b(b), h(h) {
    std::vector<double> state(s.keyDim * s.valueDim);
    for (int64_t t = 0; t < s.seq; ++t) {
      for (int64_t n = 0; n < s.keyDim; ++n)
        for (int64_t p = 0; p < s.valueDim; ++p)
          state[n * s.valueDim + p] *= fade(t, n);
      faded.push_back(state);
      errors.emplace_back();
      for (int64_t p = 0; p < s.valueDim; ++p) {
        double error = call.at(2, row(t) * s.valueDim + p);
        for (int64_t n = 0; s.delta && n < s.keyDim; ++n)
          error -= state[n * s.valueDim + p] * key(1, t, n);
        errors.back().push_back(error);
      }
      for (int64_t n = 0; n < s.keyDim; ++n)
        for (int64_t p = 0; p < s.valueDim; ++p)
          state[n * s.valueDim + p] += key(1, t, n) * beta(t) * errors.back()[p];
      after.push_back(state);
    }
  }

  int64_t row(int64_t t) const { return (b * s.seq + t) * s.heads * s.group + h; }
  double key(int operand, int64_t t, int64_t n) const {
    return call.at(operand, ((b * s.seq + t) * s.heads + h / s.group) * s.keyDim + n);
  }
  double beta(int64_t t) const { return call.at(4, row(t)); }
  double fade(int64_t t, int64_t n) const {
    return s.documents && t % 13 == 0 ? 0 : std::exp(call.at(3, s.byColumn ? row(t) * s.keyDim + n : row(t)));
  }

  std::vector<double> outputs() const {
    std::vector<double> all;
    for (int64_t t = 0; t < s.seq; ++t)
      for (int64_t p = 0; p < s.valueDim; ++p) {
        all.push_back(0);
        for (int64_t n = 0; n < s.keyDim; ++n)
          all.back() += after[t][n * s.valueDim + p] * key(0, t, n);
      }
    return all;
  }

  /// Computes dq, dk, dv, ddecay and dbeta of each position.
  std::array<std::vector<double>, 5> gradients() const {
    int64_t N = s.keyDim, P = s.valueDim, W = s.byColumn ? N : 1;
    std::array<std::vector<double>, 5> all = {std::vector<double>(s.seq * N), std::vector<double>(s.seq * N),
                                              std::vector<double>(s.seq * P), std::vector<double>(s.seq * W),
                                              std::vector<double>(s.seq)};
    std::vector<double> d(N * P);
    for (int64_t t = s.seq - 1; t >= 0; --t) {
      for (int64_t n = 0; n < N; ++n)
        for (int64_t p = 0; p < P; ++p) {
          double upstream = call.at(5, row(t) * P + p);
          all[0][t * N + n] += after[t][n * P + p] * upstream;
          d[n * P + p] += key(0, t, n) * upstream;
        }
      for (int64_t p = 0; p < P; ++p) {
        double du = 0;
        for (int64_t n = 0; n < N; ++n) {
          du += d[n * P + p] * key(1, t, n);
          all[1][t * N + n] += d[n * P + p] * beta(t) * errors[t][p];
        }
        all[4][t] += du * errors[t][p];
        all[2][t * P + p] = beta(t) * du;
        for (int64_t n = 0; s.delta && n < N; ++n) {
          d[n * P + p] -= key(1, t, n) * beta(t) * du;
          all[1][t * N + n] -= faded[t][n * P + p] * beta(t) * du;
        }
      }
      for (int64_t n = 0; n < N; ++n)
        for (int64_t p = 0; p < P; ++p) {
          all[3][t * W + (s.byColumn ? n : 0)] += d[n * P + p] * faded[t][n * P + p];
          d[n * P + p] *= fade(t, n);
        }
    }
    return all;
  }

private:
  const Shape &s;
  const CallUnderTest &call;
  int64_t b, h;
  std::vector<std::vector<double>> faded, after, errors;
};

/// Compares rows of positions in buffer `index`, relative to the largest element.
void expectRows(const CallUnderTest &call, int index, const std::function<int64_t(int64_t)> &rowOf,
                const std::vector<double> &expected, int64_t columns, double tolerance) {
  double largest = 0.1, difference = 0;
  for (double value : expected)
    largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    auto t = static_cast<int64_t>(i) / columns, column = static_cast<int64_t>(i) % columns;
    difference = std::max(difference, std::abs(call.at(index, rowOf(t) * columns + column) - expected[i]));
  }
  EXPECT_LE(difference, tolerance * largest) << "buffer " << index;
}

void expectDefinition(const Shape &s, pb::DataType type) {
  double tolerance = type == pb::F32 ? 2e-5 : 4 * roundoff(type);
  forEachLevel([&](const cpu::Loops &loops) {
    for (bool isBackward : {false, true}) {
      CallUnderTest call = make(s, type, isBackward);
      int first = static_cast<int>(call.buffers.size()) - (isBackward ? 5 : 1);
      call.run(2, loops);
      for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t group = 0; group < s.heads; ++group) {
          std::vector<double> sums[2];
          for (int64_t h = group * s.group; h < (group + 1) * s.group; ++h) {
            Head head(s, call, b, h);
            auto rowOf = [&](int64_t t) { return head.row(t); };
            if (!isBackward) {
              expectRows(call, first, rowOf, head.outputs(), s.valueDim, tolerance);
              continue;
            }
            std::array<std::vector<double>, 5> expected = head.gradients();
            for (int i = 0; i < 2; ++i) {
              sums[i].resize(expected[i].size());
              std::ranges::transform(sums[i], expected[i], sums[i].begin(), std::plus());
            }
            int64_t columns[] = {0, 0, s.valueDim, s.byColumn ? s.keyDim : 1, 1};
            for (int i = 2; i < 5; ++i)
              expectRows(call, first + i, rowOf, expected[static_cast<size_t>(i)], columns[i],
                         i == 2 ? tolerance : std::max(tolerance, 4e-5));
          }
          for (int i = 0; i < 2 && isBackward; ++i)
            expectRows(
                call, first + i, [&](int64_t t) { return (b * s.seq + t) * s.heads + group; }, sums[i], s.keyDim,
                tolerance);
        }
    }
  });
}

TEST(RecurrenceKernel, FollowsTheDefinition) {
  for (bool delta : {false, true})
    for (bool byColumn : {false, true})
      for (bool documents : {false, true}) {
        SCOPED_TRACE(testing::Message() << "delta " << delta << " by column " << byColumn << " documents "
                                        << documents);
        expectDefinition({2, 50, 2, 1, 8, 12, 16, byColumn, delta, documents}, pb::F32);
      }
}

TEST(RecurrenceKernel, SharesKeysInAGroupAndRoundsOnce) {
  expectDefinition({1, 70, 2, 3, 20, 9, 32, false, true, true}, pb::BF16);
  expectDefinition({1, 33, 1, 2, 5, 33, 32, true, false, false}, pb::F16);
  expectDefinition({1, 1, 1, 1, 1, 1, 64, false, true, false}, pb::F32);
}

TEST(RecurrenceKernel, DoesNotDependOnTheNumberOfThreads) {
  Shape s{2, 40, 3, 1, 16, 16, 16, false, true, false};
  CallUnderTest one = make(s, pb::F32, true), four = make(s, pb::F32, true);
  one.run(1);
  four.run(4);
  EXPECT_EQ(one.buffers, four.buffers);
}

/// Copies rows [from, from + count) of `bytes` each to rows from `to` on.
void copyRows(const std::vector<char> &source, int64_t from, int64_t count, int64_t bytes, std::vector<char> &target,
              int64_t to) {
  std::memcpy(target.data() + to * bytes, source.data() + from * bytes, static_cast<size_t>(count * bytes));
}

/// Computes the second text of `whole`, a call of two texts, in pieces with at most `most` rows per text, and returns
/// the last buffer but one. The first text has one token, at position 3, unless the rows are padded. Positions are the
/// buffer before the results, and what is carried is the last buffer.
std::vector<char> inPieces(const CallUnderTest &whole, CallUnderTest call, int positions, int64_t seq, int64_t most,
                           std::initializer_list<int> perPosition, const cpu::Loops &loops, bool isPacked) {
  int out = positions + 1;
  auto bytesOf = [&](int buffer) { return static_cast<int64_t>(whole.call.buffers(buffer).bytes()) / (2 * seq); };
  std::vector<char> made(whole.buffers[static_cast<size_t>(out)].size());
  for (int64_t first = 0; first < seq; first += most) {
    int64_t count = std::min(most, seq - first), row = isPacked ? 1 : most;
    std::vector<int32_t> at(2 * most, -1);
    at[0] = isPacked ? 3 : -1;
    for (int64_t t = 0; t < count; ++t)
      at[row + t] = static_cast<int32_t>(first + t);
    std::memcpy(call.buffers[static_cast<size_t>(positions)].data(), at.data(), at.size() * 4);
    for (int buffer : perPosition)
      copyRows(whole.buffers[static_cast<size_t>(buffer)], seq + first, count, bytesOf(buffer),
               call.buffers[static_cast<size_t>(buffer)], row);
    if (isPacked)
      call.starts = {0, 1, static_cast<int32_t>(1 + count)};
    call.run(2, loops);
    copyRows(call.buffers[static_cast<size_t>(out)], row, count, bytesOf(out), made, seq + first);
  }
  return made;
}

TEST(RecurrenceKernel, ContinuesFromTheState) {
  for (bool delta : {false, true})
    for (bool isPacked : {false, true})
      forEachLevel([&](const cpu::Loops &loops) {
        Shape s{2, 37, 2, 2, 8, 12, 8, false, delta, false}, piece = s;
        piece.seq = 16;
        auto carried = [&](const Shape &shape) {
          CallUnderTest call = make(shape, pb::F32, false);
          call.buffers.pop_back();
          call.types.pop_back();
          call.call.mutable_buffers()->RemoveLast();
          call.call.add_sizes(1);
          std::vector<int32_t> at;
          for (int64_t i = 0; i < shape.batch * shape.seq; ++i)
            at.push_back(static_cast<int32_t>(i % shape.seq));
          call.addIds(at);
          call.add(pb::F32, shape.rows() * shape.valueDim);
          call.add(pb::F32, shape.batch * shape.heads * shape.group * shape.keyDim * shape.valueDim);
          return call;
        };
        CallUnderTest whole = carried(s);
        whole.run(1, loops);
        std::vector<char> made = inPieces(whole, carried(piece), 5, s.seq, piece.seq, {0, 1, 2, 3, 4}, loops, isPacked);
        for (int64_t i = s.rows() * s.valueDim / 2; i < s.rows() * s.valueDim; ++i)
          ASSERT_NEAR(valueAt(made, pb::F32, i), whole.at(6, i), 1e-5) << "delta " << delta << " element " << i;
      });
}

TEST(CausalConvKernel, ReadsTheLastInputs) {
  const int64_t seq = 23, channels = 70, taps = 4;
  for (bool isPacked : {false, true})
    forEachLevel([&](const cpu::Loops &loops) {
      auto carried = [&](int64_t rows) {
        CallUnderTest call(pb::LibraryCall::CAUSAL_CONV, {2, rows, channels, taps, 0, 1, taps - 1});
        call.add(pb::F32, 2 * rows * channels);
        call.add(pb::F32, channels * taps);
        std::vector<int32_t> at;
        for (int64_t i = 0; i < 2 * rows; ++i)
          at.push_back(static_cast<int32_t>(i % rows));
        call.addIds(at);
        call.add(pb::F32, 2 * rows * channels);
        call.add(pb::F32, 2 * (taps - 1) * channels);
        return call;
      };
      CallUnderTest whole = carried(seq);
      whole.run(1, loops);
      for (int64_t most : {int64_t{2}, int64_t{8}}) {
        std::vector<char> made = inPieces(whole, carried(most), 2, seq, most, {0}, loops, isPacked);
        for (int64_t i = seq * channels; i < 2 * seq * channels; ++i)
          ASSERT_EQ(valueAt(made, pb::F32, i), whole.at(3, i)) << "pieces of " << most << ", element " << i;
      }
    });
}

TEST(CausalConvKernel, FollowsTheDefinition) {
  const int64_t batch = 2, seq = 30, channels = 70, taps = 4;
  Shape s{.batch = batch, .seq = seq};
  std::vector<int32_t> from = documents(s);
  forEachLevel([&](const cpu::Loops &loops) {
    for (bool isTransposed : {false, true}) {
      CallUnderTest call(pb::LibraryCall::CAUSAL_CONV, {batch, seq, channels, taps, isTransposed});
      call.add(pb::F32, batch * seq * channels);
      call.add(pb::F32, channels * taps);
      call.addIds(from);
      call.add(pb::F32, batch * seq * channels);
      call.run(2, loops);
      std::vector<double> expected(batch * seq * channels);
      for (int64_t row = 0; row < batch * seq; ++row)
        for (int64_t i = 0; i < taps && row % seq - i >= from[row]; ++i)
          for (int64_t c = 0; c < channels; ++c)
            expected[(isTransposed ? row - i : row) * channels + c] +=
                call.at(1, c * taps + taps - 1 - i) * call.at(0, (isTransposed ? row : row - i) * channels + c);
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(call.at(3, static_cast<int64_t>(i)), expected[i], 1e-5) << i;
    }
  });
}

TEST(CausalConvKernel, SumsTheGradientOfItsWeight) {
  const int64_t batch = 2, seq = 30, channels = 70, taps = 4;
  Shape s{.batch = batch, .seq = seq};
  std::vector<int32_t> from = documents(s);
  forEachLevel([&](const cpu::Loops &loops) {
    for (bool adds : {false, true}) {
      CallUnderTest call(pb::LibraryCall::CAUSAL_CONV_GRADIENT, {batch, seq, channels, taps});
      for (int i = 0; i < 2; ++i)
        call.add(pb::BF16, batch * seq * channels);
      call.addIds(from);
      int result = call.add(pb::F32, channels * taps);
      call.adds = adds;
      std::vector<double> expected(channels * taps);
      for (size_t i = 0; adds && i < expected.size(); ++i)
        expected[i] = call.at(result, static_cast<int64_t>(i));
      for (int64_t row = 0; row < batch * seq; ++row)
        for (int64_t i = 0; i < taps && row % seq - i >= from[row]; ++i)
          for (int64_t c = 0; c < channels; ++c)
            expected[c * taps + taps - 1 - i] += call.at(0, (row - i) * channels + c) * call.at(1, row * channels + c);
      call.run(2, loops);
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(call.at(result, static_cast<int64_t>(i)), expected[i], 1e-4) << i;
    }
  });
}

} // namespace
} // namespace espalier::rt
