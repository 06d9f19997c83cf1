// Compares attention over a cache with a plain softmax.
#include "test/runtime/kernels/harness.h"

namespace espalier::rt {
namespace {

struct Shape {
  int64_t batch, tokens, kvHeads, group, headDim, context;
  int64_t window = 0;
  double softCap = 0;
};

/// Returns a call with the buffers q, k, v, positions, out, keys, values.
CallUnderTest attend(const Shape &s, pb::DataType type, const std::vector<int32_t> &positions) {
  CallUnderTest call(pb::LibraryCall::ATTEND_CACHE, {s.batch, s.tokens, s.kvHeads, s.group, s.headDim, s.context},
                     {0.5});
  if (s.window > 0)
    call.call.add_sizes(s.window);
  if (s.softCap > 0)
    call.call.add_floats(s.softCap);
  call.add(type, s.batch * s.tokens * s.kvHeads * s.group * s.headDim);
  for (int i = 0; i < 2; ++i)
    call.add(type, s.batch * s.tokens * s.kvHeads * s.headDim);
  call.addIds(positions);
  call.add(type, s.batch * s.tokens * s.kvHeads * s.group * s.headDim);
  for (int i = 0; i < 2; ++i)
    call.add(type, s.batch * s.kvHeads * s.context * s.headDim);
  return call;
}

/// Compares the output and the caches of the call with the definition.
void expectDefinition(const Shape &s, pb::DataType type, const std::vector<int32_t> &positions) {
  CallUnderTest before = attend(s, type, positions);
  forEachLevel([&](const cpu::Loops &loops) {
    CallUnderTest call = attend(s, type, positions);
    call.run(2, loops);
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.kvHeads; ++h) {
        std::vector<std::vector<double>> kept[2];
        for (int part = 0; part < 2; ++part)
          for (int64_t row = 0; row < s.context; ++row)
            for (int64_t i = 0; i < s.headDim; ++i) {
              kept[part].resize(static_cast<size_t>(s.context));
              kept[part][static_cast<size_t>(row)].push_back(
                  before.at(5 + part, ((b * s.kvHeads + h) * s.context + row) * s.headDim + i));
            }
        for (int64_t t = 0; t < s.tokens; ++t) {
          int32_t position = positions[static_cast<size_t>(b * s.tokens + t)];
          bool isPadding = position < 0 || position >= s.context;
          for (int part = 0; part < 2 && !isPadding; ++part)
            for (int64_t i = 0; i < s.headDim; ++i)
              kept[part][static_cast<size_t>(position)][static_cast<size_t>(i)] =
                  before.at(1 + part, ((b * s.tokens + t) * s.kvHeads + h) * s.headDim + i);
          for (int64_t g = 0; g < s.group; ++g) {
            int64_t row = (((b * s.tokens + t) * s.kvHeads + h) * s.group + g) * s.headDim;
            std::vector<double> out(static_cast<size_t>(s.headDim), 0.0);
            double sum = 0;
            int64_t first = s.window > 0 ? std::max<int64_t>(0, position + 1 - s.window) : 0;
            for (int64_t key = first; key <= position && !isPadding; ++key) {
              double score = 0;
              for (int64_t i = 0; i < s.headDim; ++i)
                score += 0.5 * before.at(0, row + i) * kept[0][static_cast<size_t>(key)][static_cast<size_t>(i)];
              score = s.softCap > 0 ? s.softCap * std::tanh(score / s.softCap) : score;
              sum += std::exp(score);
              for (int64_t i = 0; i < s.headDim; ++i)
                out[static_cast<size_t>(i)] +=
                    std::exp(score) * kept[1][static_cast<size_t>(key)][static_cast<size_t>(i)];
            }
            for (int64_t i = 0; i < s.headDim; ++i)
              ASSERT_NEAR(call.at(4, row + i), isPadding ? 0 : out[static_cast<size_t>(i)] / sum,
                          2e-5 + 8 * roundoff(type))
                  << "sequence " << b << ", head " << h << ", token " << t << ", element " << i;
          }
        }
        for (int part = 0; part < 2; ++part)
          for (int64_t row = 0; row < s.context; ++row)
            for (int64_t i = 0; i < s.headDim; ++i)
              ASSERT_EQ(call.at(5 + part, ((b * s.kvHeads + h) * s.context + row) * s.headDim + i),
                        kept[part][static_cast<size_t>(row)][static_cast<size_t>(i)]);
      }
  });
}

// One sequence continues at its end, one begins, and one has padding after its tokens.
const std::vector<int32_t> kPositions = {30, 31, 32, 0, 1, 2, 7, -1, 40};

TEST(AttendCache, EqualsSoftmaxOverTheCache) {
  for (pb::DataType type : {pb::F32, pb::BF16, pb::F16})
    expectDefinition({3, 3, 2, 3, 20, 40}, type, kPositions);
}

TEST(AttendCache, HandlesOneTokenAndOneHead) { expectDefinition({2, 1, 1, 1, 64, 17}, pb::F32, {16, 0}); }

TEST(AttendCache, HandlesHeadsSmallerThanAVector) { expectDefinition({3, 3, 1, 2, 3, 40}, pb::F32, kPositions); }

TEST(AttendCache, HandlesAWindowAndCappedScores) {
  for (pb::DataType type : {pb::F32, pb::BF16})
    expectDefinition({3, 3, 2, 3, 20, 40, 5, 0.7}, type, kPositions);
  expectDefinition({3, 3, 1, 1, 8, 40, 1}, pb::F32, kPositions);
}

/// The sequences have 2, 0 and 1 tokens. Side by side they give the bits that they give with padding.
TEST(AttendCache, TakesTokensSideBySide) {
  const Shape shape = {3, 2, 2, 3, 20, 40};
  CallUnderTest padded = attend(shape, pb::F32, {30, 31, -1, -1, 7, -1});
  CallUnderTest packed = attend(shape, pb::F32, {30, 31, 7, -1, -1, -1});
  packed.starts = {0, 2, 2, 3};
  const int64_t places[3][2] = {{0, 0}, {1, 1}, {4, 2}}; // rows of the tokens with padding and without
  for (int buffer = 0; buffer < 3; ++buffer) {
    std::vector<char> &from = padded.buffers[static_cast<size_t>(buffer)];
    int64_t row = shape.kvHeads * (buffer == 0 ? shape.group : 1) * shape.headDim;
    for (auto [before, after] : places)
      for (int64_t i = 0; i < row; ++i)
        setValue(packed.buffers[static_cast<size_t>(buffer)], pb::F32, after * row + i,
                 static_cast<float>(valueAt(from, pb::F32, before * row + i)));
  }
  padded.run(2);
  packed.run(2);
  int64_t row = shape.kvHeads * shape.group * shape.headDim;
  for (auto [before, after] : places)
    for (int64_t i = 0; i < row; ++i)
      ASSERT_EQ(packed.at(4, after * row + i), padded.at(4, before * row + i));
  EXPECT_EQ(packed.buffers[5], padded.buffers[5]);
  EXPECT_EQ(packed.buffers[6], padded.buffers[6]);
}

TEST(AttendCache, SameBitsForAnyNumberOfThreads) {
  expectSameBitsForAnyThreads([] { return attend({3, 3, 2, 3, 20, 40}, pb::F32, kPositions); });
}

TEST(AttendCache, RejectsInvalidSizes) {
  auto faultOf = [](int64_t headDim, int64_t context) {
    CallUnderTest call = attend({3, 3, 2, 3, 20, 40}, pb::F32, kPositions);
    for (pb::Buffer &buffer : *call.call.mutable_buffers())
      buffer.set_bytes(buffer.bytes() * (headDim > 20 ? 20 : 1)); // enough for the larger head
    call.call.set_sizes(4, headDim);
    call.call.set_sizes(5, context);
    try {
      call.run(1);
    } catch (const std::invalid_argument &error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(faultOf(20, 41), "library call ATTEND_CACHE: buffer 5 has 19200 bytes, needs 19680");
  EXPECT_EQ(faultOf(385, 40), "library call ATTEND_CACHE: head_dim is 385, needs to be at most 384");
}

TEST(TakeRow, TakesOneRowOrZeros) {
  CallUnderTest call(pb::LibraryCall::TAKE_ROW, {3, 2, 20});
  int from = call.add(pb::F32, 3 * 2 * 5);
  call.addIds({1, 0, -1});
  int to = call.add(pb::F32, 3 * 5);
  call.run(2);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(call.at(to, i), call.at(from, 5 + i));
    EXPECT_EQ(call.at(to, 5 + i), call.at(from, 10 + i));
    EXPECT_EQ(call.at(to, 10 + i), 0);
  }
}

TEST(TakeRow, TakesRowsOfTokensSideBySide) {
  CallUnderTest call(pb::LibraryCall::TAKE_ROW, {3, 2, 20});
  int from = call.add(pb::F32, 3 * 2 * 5);
  call.addIds({1, 0, 0});
  int to = call.add(pb::F32, 3 * 5);
  call.starts = {0, 2, 2, 3};
  call.run(2);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(call.at(to, i), call.at(from, 5 + i));
    EXPECT_EQ(call.at(to, 5 + i), 0); // no token
    EXPECT_EQ(call.at(to, 10 + i), call.at(from, 10 + i));
  }
}

} // namespace
} // namespace espalier::rt
