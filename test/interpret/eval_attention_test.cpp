// Compares attention with a plain softmax written here, and shards with the unsharded result.
#include "format/abi.h"
#include "test/interpret/program.h"

#include <cmath>

namespace espalier {
namespace {

const int64_t batch = 2, seq = 5, heads = 2, group = 3, depth = 4;

std::string attention(const std::string &q, const std::string &kv, const std::string &lse,
                      const std::string &attributes) {
  return "func.func @f(%q: " + q + ", %k: " + kv + ", %v: " + kv + ") -> (" + q + ", " + lse + ") {\n" +
         " %o, %l = model.attention %q, %k, %v {scale = 0.5 : f64, id = 4 : i64, " + attributes + "} : (" + q + ", " +
         kv + ", " + kv + ") -> (" + q + ", " + lse + ")\n return %o, %l : " + q + ", " + lse + "\n}";
}

/// Returns deterministic numbers of both signs.
Tensor wave(mlir::RankedTensorType type, double frequency) {
  Tensor tensor(type);
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = std::sin(frequency * static_cast<double>(i + 1));
  return tensor;
}

EvalContext exact() {
  EvalContext context;
  context.isExact = true;
  context.seed = 5;
  context.step = 2;
  context.layer = 1;
  return context;
}

std::string groupedProgram(const std::string &attributes) {
  return attention(tensorType("batch=2 seq=5 kv_heads=2 group=3 head_dim=4"),
                   tensorType("batch=2 seq=5 kv_heads=2 head_dim=4"), tensorType("batch=2 seq=5 kv_heads=2 group=3"),
                   attributes);
}

/// Returns output element (b, t, h, g, d) by the definition, with attention weights dropped at `rate`.
double expected(const std::vector<Tensor> &x, bool isCausal, double rate, int64_t b, int64_t t, int64_t h, int64_t g,
                int64_t d, int64_t window = seq, double cap = 0) {
  auto q = [&](int64_t i) { return x[0].values[(((b * seq + t) * heads + h) * group + g) * depth + i]; };
  auto k = [&](int64_t s, int64_t i) { return x[1].values[((b * seq + s) * heads + h) * depth + i]; };
  double sum = 0, normalizer = 0;
  for (int64_t s = std::max<int64_t>(0, isCausal ? t + 1 - window : 0); s < (isCausal ? t + 1 : seq); ++s) {
    double score = 0;
    for (int64_t i = 0; i < depth; ++i)
      score += 0.5 * q(i) * k(s, i);
    score = cap > 0 ? cap * std::tanh(score / cap) : score;
    uint64_t element = (static_cast<uint64_t>(h * group + g) * seq + t) * seq + s;
    bool isKept = rate == 0 || rt::randomBits(5, 2, 1 << 8 | 4, b, element) >= rt::dropoutThreshold(rate);
    normalizer += std::exp(score);
    sum += isKept ? std::exp(score) / (1 - rate) * x[2].values[((b * seq + s) * heads + h) * depth + d] : 0;
  }
  return sum / normalizer;
}

void checkGrouped(const std::string &attributes, bool isCausal, double rate, int64_t window = seq, double cap = 0) {
  Program program(groupedProgram(attributes));
  std::vector<Tensor> x = {wave(program.argumentType(0), 0.7), wave(program.argumentType(1), 1.3),
                           wave(program.argumentType(2), 2.1)};
  std::vector<double> y = program.first(x, exact());
  ASSERT_EQ(y.size(), static_cast<size_t>(batch * seq * heads * group * depth));
  size_t at = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < seq; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t g = 0; g < group; ++g)
          for (int64_t d = 0; d < depth; ++d)
            EXPECT_NEAR(y[at++], expected(x, isCausal, rate, b, t, h, g, d, window, cap), 1e-12);
}

TEST(Attention, FollowsTheDefinition) { checkGrouped("rate = 0.0 : f64", false, 0); }
TEST(Attention, CausalRowsSeeOnlyThePast) { checkGrouped("rate = 0.0 : f64, causal", true, 0); }
TEST(Attention, WindowsHideThePast) { checkGrouped("rate = 0.0 : f64, causal, window = 2 : i64", true, 0, 2); }
TEST(Attention, SoftCapsLimitScores) {
  checkGrouped("rate = 0.3 : f64, causal, window = 3 : i64, soft_cap = 0.4 : f64", true, 0.3, 3, 0.4);
}
TEST(Attention, DropsWeightsByRandomBits) { checkGrouped("rate = 0.3 : f64, causal", true, 0.3); }

/// Two documents, of which the second begins at position 2 and 3 of the samples. A window shortens them.
TEST(Attention, DocumentsHideEarlierDocuments) {
  std::string q = tensorType("batch=2 seq=5 kv_heads=2 group=3 head_dim=4"),
              kv = tensorType("batch=2 seq=5 kv_heads=2 head_dim=4"), from = tensorType("batch=2 seq=5", "i32"),
              lse = tensorType("batch=2 seq=5 kv_heads=2 group=3");
  for (int64_t window : {5, 2}) {
    Program program("func.func @f(%q: " + q + ", %k: " + kv + ", %v: " + kv + ", %from: " + from + ") -> " + q +
                    " {\n %o, %l = model.attention %q, %k, %v, %from {scale = 0.5 : f64, id = 4 : i64, rate = 0.0 : "
                    "f64, causal, window = " +
                    std::to_string(window) + " : i64} : (" + q + ", " + kv + ", " + kv + ", " + from + ") -> (" + q +
                    ", " + lse + ")\n return %o : " + q + "\n}");
    std::vector<Tensor> x = {wave(program.argumentType(0), 0.7), wave(program.argumentType(1), 1.3),
                             wave(program.argumentType(2), 2.1), program.argument(3, {0, 0, 2, 2, 2, 0, 0, 0, 3, 3})};
    std::vector<double> y = program.first(x, exact());
    size_t at = 0;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < seq; ++t)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t g = 0; g < group; ++g)
            for (int64_t d = 0; d < depth; ++d) {
              auto own = static_cast<int64_t>(t + 1 - x[3].values[b * seq + t]);
              EXPECT_NEAR(y[at++], expected(x, true, 0, b, t, h, g, d, std::min(own, window)), 1e-12);
            }
  }
}

TEST(Attention, LogSumExpIsTheRowsNormalizer) {
  Program program(attention(tensorType("batch=1 seq=2 heads=1 head_dim=1"),
                            tensorType("batch=1 seq=2 heads=1 head_dim=1"), tensorType("batch=1 seq=2 heads=1"),
                            "rate = 0.0 : f64, causal"));
  EvalContext context = exact();
  std::vector<Tensor> results = program.evaluate(
      {program.argument(0, {2, 4}), program.argument(1, {1, 3}), program.argument(2, {0, 0})}, context);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_DOUBLE_EQ(results[1].values[0], 1);
  EXPECT_DOUBLE_EQ(results[1].values[1], std::log(std::exp(2.0) + std::exp(6.0)));
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Program program(attention(tensorType("batch=1 seq=2 heads=1 head_dim=1"),
                            tensorType("batch=1 seq=2 heads=1 head_dim=1"), tensorType("batch=1 seq=2 heads=1"),
                            "rate = 0.0 : f64"));
  std::vector<double> y =
      program.first({program.argument(0, {2000, -2000}), program.argument(1, {1, 3}), program.argument(2, {5, 7})});
  EXPECT_THAT(y, testing::ElementsAre(7, 5));
}

/// Returns the elements of `whole` [2, 5, 2, group.., 4] of one batch index and one kv head.
std::vector<double> headPart(const std::vector<double> &whole, int64_t b, int64_t h, int64_t inner) {
  std::vector<double> part;
  for (int64_t t = 0; t < seq; ++t)
    for (int64_t i = 0; i < inner; ++i)
      part.push_back(whole[((b * seq + t) * heads + h) * inner + i]);
  return part;
}

TEST(Attention, ShardsOfBatchAndHeadsDropTheSameElements) {
  Program whole(groupedProgram("rate = 0.3 : f64, causal"));
  std::vector<Tensor> x = {wave(whole.argumentType(0), 0.7), wave(whole.argumentType(1), 1.3),
                           wave(whole.argumentType(2), 2.1)};
  std::vector<double> y = whole.first(x, exact());
  Program split(attention(tensorType("batch=1 seq=5 kv_heads=1 group=3 head_dim=4"),
                          tensorType("batch=1 seq=5 kv_heads=1 head_dim=4"),
                          tensorType("batch=1 seq=5 kv_heads=1 group=3"),
                          "rate = 0.3 : f64, causal, origins = [#dist.origin<dp * 1>, unit, #dist.origin<tp * 1>, "
                          "unit, unit], unsplit = array<i64: 2, 5, 2, 3, 4>"));
  for (int64_t dp : {0, 1})
    for (int64_t tp : {0, 1}) {
      EvalContext context = exact();
      context.mesh = {{"dp", 2, dp}, {"tp", 2, tp}};
      std::vector<double> part = split.first({split.argument(0, headPart(x[0].values, dp, tp, group * depth)),
                                              split.argument(1, headPart(x[1].values, dp, tp, depth)),
                                              split.argument(2, headPart(x[2].values, dp, tp, depth))},
                                             context);
      EXPECT_EQ(part, headPart(y, dp, tp, group * depth));
    }
}

} // namespace
} // namespace espalier
