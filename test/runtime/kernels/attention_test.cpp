#include "test/runtime/kernels/harness.h"

#include "format/abi.h"

namespace espalier::rt {

namespace {

struct Shape {
  int64_t batch, sequence, kvHeads, group, headDim;
  bool causal = true;
  double rate = 0;
  pb::DataType type = pb::F32;
  int64_t keys = sequence;   // positions of k and v
  int64_t firstPosition = 0; // of q, if the call holds a part of the queries
  int64_t window = 0;
  double softCap = 0;
  int64_t document = 0; // tokens of a document, if attention ends at their borders
  bool zigzag = false;  // whether the queries are two runs of positions
  bool keepsMaxima = false;

  /// Returns visible_from: a document begins at every multiple of `document`, shifted by the sample. The values before
  /// the first border are negative.
  int64_t visibleFrom(int64_t sample, int64_t query) const {
    int64_t shift = 3 * sample + 1;
    return (positionOf(query) + shift) / document * document - shift;
  }
  int64_t positionOf(int64_t query) const {
    bool isOfSecondRun = zigzag && query >= sequence / 2;
    return isOfSecondRun ? keys - firstPosition - sequence + query : firstPosition + query;
  }
  int64_t heads() const { return kvHeads * group; }
  int64_t queryElements() const { return batch * sequence * heads() * headDim; }
  int64_t keyElements() const { return batch * keys * kvHeads * headDim; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(headDim)); }
};

// A call that holds some heads and samples of a model with 11 heads over sequences of 1000. The dropout mask must not
// depend on the split.
const std::vector<int64_t> kScalars = {/*stream=*/0x305, /*first sample=*/4, /*first head=*/2,
                                       /*sequence=*/1000};
constexpr uint32_t kStep = 0x80000003; // all 32 bits are used

void addVisibleFrom(CallUnderTest &test, const Shape &shape) {
  std::vector<int32_t> from;
  for (int64_t row = 0; shape.document > 0 && row < shape.batch * shape.sequence; ++row)
    from.push_back(static_cast<int32_t>(shape.visibleFrom(row / shape.sequence, row % shape.sequence)));
  if (!from.empty())
    test.addIds(from);
}

void finishCall(CallUnderTest &test, const Shape &shape) {
  test.call.set_causal(shape.causal);
  std::vector<int64_t> scalars = kScalars;
  if (shape.keys != shape.sequence || shape.window > 0) {
    test.call.add_sizes(shape.keys);
    scalars.push_back(shape.firstPosition);
  }
  if (shape.window > 0 || shape.zigzag)
    test.call.add_sizes(shape.window);
  if (shape.zigzag)
    for (int64_t size : {shape.headDim, int64_t{1}})
      test.call.add_sizes(size);
  if (shape.softCap > 0)
    test.call.add_floats(shape.softCap);
  test.setScalars(scalars);
}

CallUnderTest makeForward(const Shape &s) {
  CallUnderTest test(pb::LibraryCall::ATTENTION_FORWARD, {s.batch, s.sequence, s.kvHeads, s.group, s.headDim},
                     {s.scale(), s.rate});
  finishCall(test, s);
  test.add(s.type, s.queryElements(), 2);
  test.add(s.type, s.keyElements());
  test.add(s.type, s.keyElements());
  addVisibleFrom(test, s);
  test.add(s.type, s.queryElements());
  test.add(pb::F32, s.batch * s.sequence * s.heads());
  if (s.keepsMaxima) {
    const std::vector<int64_t> all = {s.keys, s.window, s.headDim, s.zigzag ? 1 : 0, 1};
    for (size_t given = static_cast<size_t>(test.call.sizes_size()) - 5; given < all.size(); ++given)
      test.call.add_sizes(all[given]);
    test.add(pb::F32, s.kvHeads, /*deviation=*/0);
  }
  test.addIds({static_cast<int32_t>(kStep)});
  return test;
}

/// Returns a backward call after its forward call, with the buffers q, k, v, out, lse, dout, step, dq, dk, dv. If the
/// shape has documents, visible_from comes before step.
CallUnderTest makeBackward(const Shape &s, const cpu::Loops &loops = cpu::bestLoops()) {
  CallUnderTest forward = makeForward(s);
  forward.run(1, loops);
  CallUnderTest test(pb::LibraryCall::ATTENTION_BACKWARD, {s.batch, s.sequence, s.kvHeads, s.group, s.headDim},
                     {s.scale(), s.rate});
  finishCall(test, s);
  for (int64_t elements : {s.queryElements(), s.keyElements(), s.keyElements(), s.queryElements()})
    test.add(s.type, elements, 0);
  test.add(pb::F32, s.batch * s.sequence * s.heads(), 0);
  for (size_t i = 0; i < 5; ++i)
    test.buffers[i] = forward.buffers[i < 3 || s.document == 0 ? i : i + 1];
  test.add(s.type, s.queryElements());
  addVisibleFrom(test, s);
  test.addIds({static_cast<int32_t>(kStep)});
  for (int64_t elements : {s.queryElements(), s.keyElements(), s.keyElements()})
    test.add(s.type, elements);
  return test;
}

/// Attention and its gradient in double precision by definition: one (sample, head) at a time, with all scores stored.
class Reference {
public:
  std::vector<double> out, lse, dq, dk, dv;
  std::vector<double> maxima; ///< of key-value heads, at least 0

  Reference(const CallUnderTest &call, const Shape &shape, bool backward)
      : out(size(shape.queryElements())), lse(size(shape.batch * shape.sequence * shape.heads())),
        dq(size(shape.queryElements())), dk(size(shape.keyElements())), dv(size(shape.keyElements())),
        maxima(size(shape.kvHeads)), call_(call), s_(shape) {
    for (int64_t sample = 0; sample < s_.batch; ++sample)
      for (int64_t head = 0; head < s_.heads(); ++head)
        for (int64_t query = 0; query < s_.sequence; ++query)
          addRow(sample, head, query, backward);
  }

private:
  static size_t size(int64_t elements) { return static_cast<size_t>(elements); }
  int64_t queryAt(int64_t sample, int64_t query, int64_t head) const {
    return ((sample * s_.sequence + query) * s_.heads() + head) * s_.headDim;
  }
  int64_t keyAt(int64_t sample, int64_t key, int64_t head) const {
    return ((sample * s_.keys + key) * s_.kvHeads + head / s_.group) * s_.headDim;
  }
  double dot(int a, int64_t aAt, int b, int64_t bAt) const {
    double sum = 0;
    for (int64_t i = 0; i < s_.headDim; ++i)
      sum += call_.at(a, aAt + i) * call_.at(b, bAt + i);
    return sum;
  }
  double factor(int64_t sample, int64_t head, int64_t query, int64_t key) const {
    if (s_.rate == 0)
      return 1;
    int64_t position = s_.positionOf(query);
    uint64_t element = static_cast<uint64_t>(((kScalars[2] + head) * kScalars[3] + position) * kScalars[3] + key);
    uint32_t bits = randomBits(call_.seed, kStep, static_cast<uint32_t>(kScalars[0]),
                               static_cast<uint32_t>(kScalars[1] + sample), element);
    return bits >= dropoutThreshold(s_.rate) ? 1 / (1 - s_.rate) : 0;
  }

  void addRow(int64_t sample, int64_t head, int64_t query, bool backward) {
    int64_t keys = s_.causal ? s_.positionOf(query) + 1 : s_.keys, at = queryAt(sample, query, head);
    int64_t first = s_.window > 0 ? std::max<int64_t>(0, keys - s_.window) : 0;
    if (s_.document > 0)
      first = std::max(first, s_.visibleFrom(sample, query));
    std::vector<double> p(size(keys)), derivative(size(keys), s_.scale());
    double total = 0;
    for (int64_t key = first; key < keys; ++key) {
      double score = s_.scale() * dot(0, at, 1, keyAt(sample, key, head));
      if (s_.softCap > 0) {
        score = s_.softCap * std::tanh(score / s_.softCap);
        derivative[size(key)] *= 1 - std::pow(score / s_.softCap, 2);
      }
      total += p[size(key)] = std::exp(score);
      maxima[size(head / s_.group)] = std::max(maxima[size(head / s_.group)], score);
    }
    lse[size((sample * s_.sequence + query) * s_.heads() + head)] = std::log(total);
    double product = 0; // sum over keys of p r (dout . v)
    for (int64_t key = first; key < keys; ++key) {
      p[size(key)] /= total;
      double kept = p[size(key)] * factor(sample, head, query, key);
      for (int64_t i = 0; i < s_.headDim; ++i)
        out[size(at + i)] += kept * call_.at(2, keyAt(sample, key, head) + i);
      if (backward)
        product += kept * dot(5, at, 2, keyAt(sample, key, head));
    }
    for (int64_t key = first; backward && key < keys; ++key) {
      int64_t k = keyAt(sample, key, head);
      double kept = factor(sample, head, query, key);
      double slope = derivative[size(key)] * p[size(key)] * (kept * dot(5, at, 2, k) - product);
      for (int64_t i = 0; i < s_.headDim; ++i) {
        dv[size(k + i)] += p[size(key)] * kept * call_.at(5, at + i);
        dk[size(k + i)] += slope * call_.at(0, at + i);
        dq[size(at + i)] += slope * call_.at(1, k + i);
      }
    }
  }

  const CallUnderTest &call_;
  Shape s_;
};

void expectNear(const CallUnderTest &test, int buffer, const std::vector<double> &expected, double absolute,
                const char *name) {
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(test.at(buffer, static_cast<int64_t>(i)), expected[i],
                absolute + std::abs(expected[i]) * roundoff(test.types[static_cast<size_t>(buffer)]))
        << name << " " << i;
}

void expectForward(const Shape &shape, const cpu::Loops &loops) {
  CallUnderTest test = makeForward(shape);
  test.run(1, loops);
  Reference reference(test, shape, /*backward=*/false);
  int shift = shape.document > 0 ? 1 : 0;
  expectNear(test, 3 + shift, reference.out, 2e-5, "out");
  expectNear(test, 4 + shift, reference.lse, 2e-5, "lse");
}

void expectBackward(const Shape &shape, const cpu::Loops &loops) {
  CallUnderTest test = makeBackward(shape, loops);
  test.run(1, loops);
  Reference reference(test, shape, /*backward=*/true);
  // The kernel computes D from the stored `out`, so the rounding of `out` affects dq and dk.
  double absolute = shape.type == pb::F32 ? 2e-4 : 50 * roundoff(shape.type);
  int shift = shape.document > 0 ? 1 : 0;
  expectNear(test, 7 + shift, reference.dq, absolute, "dq");
  expectNear(test, 8 + shift, reference.dk, absolute, "dk");
  expectNear(test, 9 + shift, reference.dv, 2e-4, "dv");
}

const std::vector<Shape> kShapes = {
    {2, 7, 2, 3, 3},
    {1, 150, 1, 2, 33},
    {1, 1, 1, 1, 1},
    {1, 129, 2, 1, 64, false},
    {2, 70, 1, 1, 16},
    {1, 300, 1, 1, 8},
    {2, 131, 2, 2, 5, true, 0.3},
    {1, 40, 1, 1, 384, false, 0.2},
    // Parts of the queries: the first, a middle and the last part, which do not align with the blocks of 128 keys.
    {2, 75, 1, 2, 33, true, 0, pb::F32, 150, 0},
    {1, 40, 2, 2, 16, true, 0.3, pb::F32, 300, 120},
    {2, 50, 1, 1, 8, true, 0, pb::F32, 300, 250},
    {1, 33, 1, 1, 24, false, 0.2, pb::F32, 99, 33},
    // Windows within a block of keys, of one key, and over several blocks; of a part of the queries; with capped
    // scores.
    {2, 150, 1, 2, 16, true, 0, pb::F32, 150, 0, 20},
    {1, 140, 2, 1, 8, true, 0, pb::F32, 140, 0, 1},
    {1, 400, 1, 1, 8, true, 0.2, pb::F32, 400, 0, 150},
    {1, 40, 2, 2, 16, true, 0.3, pb::F32, 300, 200, 37},
    {2, 131, 1, 2, 33, true, 0, pb::F32, 131, 0, 64, 1.5},
    {1, 70, 1, 1, 24, false, 0.1, pb::F32, 70, 0, 0, 30},
    // Documents within a block of keys, of one token, and over several blocks; of a part of the queries; in windows.
    {2, 150, 1, 2, 16, true, 0, pb::F32, 150, 0, 0, 0, 20},
    {1, 140, 2, 1, 8, true, 0, pb::F32, 140, 0, 0, 0, 1},
    {2, 400, 1, 1, 8, true, 0.2, pb::F32, 400, 0, 0, 0, 150},
    {2, 40, 2, 2, 16, true, 0.3, pb::F32, 300, 200, 0, 0, 37},
    {1, 300, 1, 2, 33, true, 0, pb::F32, 300, 0, 30, 1.5, 70},
    // Zigzag order: runs that are apart, adjacent, and within a block of queries; with windows and documents.
    {2, 150, 1, 2, 16, true, 0.2, pb::F32, 600, 75, 0, 0, 0, true},
    {1, 200, 2, 1, 8, true, 0, pb::F32, 400, 100, 0, 0, 0, true},
    {1, 6, 1, 1, 24, true, 0, pb::F32, 24, 3, 0, 0, 0, true},
    {2, 150, 1, 2, 16, true, 0.2, pb::F32, 600, 0, 40, 0, 0, true},
    {2, 150, 1, 1, 8, true, 0, pb::F32, 300, 0, 0, 0, 37, true},
    {1, 10, 1, 1, 8, false, 0.3, pb::F32, 40, 5, 0, 0, 0, true},
};

TEST(Attention, ForwardAtEveryLevel) {
  forEachLevel([](const cpu::Loops &loops) {
    for (Shape shape : kShapes)
      for (pb::DataType type : {pb::F32, pb::BF16, pb::F16}) {
        shape.type = type;
        SCOPED_TRACE(testing::Message() << "sequence " << shape.sequence << " head_dim " << shape.headDim << " type "
                                        << type);
        expectForward(shape, loops);
      }
  });
}

TEST(Attention, BackwardAtEveryLevel) {
  forEachLevel([](const cpu::Loops &loops) {
    for (Shape shape : kShapes)
      for (pb::DataType type : {pb::F32, pb::BF16, pb::F16}) {
        shape.type = type;
        SCOPED_TRACE(testing::Message() << "sequence " << shape.sequence << " head_dim " << shape.headDim << " type "
                                        << type);
        expectBackward(shape, loops);
      }
  });
}

// The maxima of key-value heads are over samples, queries and the heads of a group.
TEST(Attention, KeepsTheLargestScores) {
  forEachLevel([](const cpu::Loops &loops) {
    for (Shape shape : kShapes)
      for (pb::DataType type : {pb::F32, pb::BF16}) {
        shape.type = type;
        shape.keepsMaxima = true;
        SCOPED_TRACE(testing::Message() << "sequence " << shape.sequence << " head_dim " << shape.headDim);
        expectForward(shape, loops);
        CallUnderTest test = makeForward(shape);
        test.run(3, loops);
        Reference reference(test, shape, /*backward=*/false);
        int maxima = shape.document > 0 ? 6 : 5;
        expectNear(test, maxima, reference.maxima, 2e-5, "maxima");
        for (int64_t head = 0; head < shape.kvHeads; ++head)
          setValue(test.buffers[static_cast<size_t>(maxima)], pb::F32, head, 1000);
        test.run(1, loops);
        EXPECT_EQ(test.at(maxima, 0), 1000);
      }
  });
}

// An invalid position must not cause reads outside of the buffers. The call then attends to all keys.
TEST(Attention, PositionsAreBoundedByTheKeys) {
  Shape shape{1, 20, 1, 1, 8, true, 0, pb::F32, 60, 40}, beyond = shape, all = shape;
  beyond.firstPosition = int64_t(1) << 40;
  all.causal = false;
  CallUnderTest test = makeForward(beyond), reference = makeForward(all);
  test.run(1);
  reference.run(1);
  for (int64_t i = 0; i < shape.queryElements(); ++i)
    ASSERT_EQ(test.at(3, i), reference.at(3, i));
  makeBackward(beyond).run(1);
}

// Scores are in the thousands. Without the running maximum, the exponentials would overflow.
TEST(Attention, LargeScoresStayFinite) {
  Shape shape{1, 140, 1, 1, 16};
  CallUnderTest test = makeForward(shape);
  for (int64_t i = 0; i < shape.queryElements(); ++i)
    setValue(test.buffers[0], pb::F32, i, static_cast<float>(test.at(0, i) * 1000));
  test.run(1);
  for (int64_t i = 0; i < shape.queryElements(); ++i)
    ASSERT_TRUE(std::isfinite(test.at(3, i)));
}

TEST(Attention, NanInAQueryReachesOnlyItsRow) {
  Shape shape{1, 9, 1, 1, 4};
  CallUnderTest test = makeForward(shape);
  setValue(test.buffers[0], pb::F32, 3 * 4, NAN);
  test.run(1);
  for (int64_t i = 0; i < shape.queryElements(); ++i)
    EXPECT_EQ(std::isnan(test.at(3, i)), i / 4 == 3) << i;
}

// The same global sample and heads drop the same probabilities in one call as in two calls with half of the heads each.
TEST(Attention, DropoutDoesNotDependOnTheSplitOfHeads) {
  Shape whole{1, 20, 4, 1, 8, true, 0.5}, half{1, 20, 2, 1, 8, true, 0.5};
  CallUnderTest all = makeForward(whole), upper = makeForward(half);
  std::vector<int64_t> scalars = kScalars;
  scalars[2] += 2;
  upper.setScalars(scalars);
  for (int buffer : {0, 1, 2})
    for (int64_t position = 0; position < 20; ++position)
      for (int64_t i = 0; i < 16; ++i)
        setValue(upper.buffers[static_cast<size_t>(buffer)], pb::F32, position * 16 + i,
                 static_cast<float>(all.at(buffer, position * 32 + 16 + i)));
  all.run(1);
  upper.run(1);
  for (int64_t position = 0; position < 20; ++position)
    for (int64_t i = 0; i < 16; ++i)
      ASSERT_EQ(upper.at(3, position * 16 + i), all.at(3, position * 32 + 16 + i));
}

// A query attends to itself at least, whatever visible_from is.
TEST(Attention, FirstVisibleKeysAreBoundedByThePosition) {
  Shape shape{1, 150, 1, 1, 8, true, 0, pb::F32, 150, 0, 0, 0, 1000};
  CallUnderTest test = makeForward(shape), alone = makeForward(shape);
  for (int64_t i = 0; i < shape.sequence; ++i) {
    int32_t beyond = i < 75 ? 0 : INT32_MAX, own = i < 75 ? 0 : static_cast<int32_t>(i);
    std::memcpy(test.buffers[3].data() + i * 4, &beyond, 4);
    std::memcpy(alone.buffers[3].data() + i * 4, &own, 4);
  }
  test.run(1);
  alone.run(1);
  EXPECT_EQ(test.buffers, [&] {
    auto expected = alone.buffers;
    expected[3] = test.buffers[3];
    return expected;
  }());
}

TEST(Attention, SameBitsForAnyNumberOfThreads) {
  for (pb::DataType type : {pb::F32, pb::BF16}) {
    Shape shape{2, 300, 3, 2, 24, true, 0.1, type};
    expectSameBitsForAnyThreads([&] { return makeForward(shape); });
    expectSameBitsForAnyThreads([&] { return makeBackward(shape); });
  }
}

} // namespace

} // namespace espalier::rt
