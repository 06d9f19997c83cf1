// Compares attention over a cache, token by token and in pieces, with attention over the whole sequence. Also tests
// take_row.
#include "test/interpret/program.h"

#include <cmath>

namespace espalier {
namespace {

constexpr int64_t seq = 5, group = 3, depth = 4, context = 6;

const std::string query = "kv_heads=2 group=3 head_dim=4", key = "kv_heads=2 head_dim=4";

std::string cacheProgram(int64_t tokens, const std::string &options = "") {
  std::string front = "batch=1 seq=" + std::to_string(tokens) + " ", q = tensorType(front + query),
              k = tensorType(front + key), p = tensorType(front, "i32"),
              cache = tensorType("batch=1 kv_heads=2 context=6 head_dim=4"), types = q + ", " + cache + ", " + cache;
  return "func.func @f(%q: " + q + ", %k: " + k + ", %v: " + k + ", %p: " + p + ", %a: " + cache + ", %b: " + cache +
         ") -> (" + types + ") {\n %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 0.5 : f64" + options +
         "} : (" + q + ", " + k + ", " + k + ", " + p + ", " + cache + ", " + cache + ") -> (" + types +
         ")\n return %y#0, %y#1, %y#2 : " + types + "\n}";
}

std::vector<double> wave(int64_t count, double frequency) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::sin(frequency * static_cast<double>(i + 1)));
  return values;
}

std::vector<double> rows(const std::vector<double> &whole, int64_t first, int64_t count, int64_t width) {
  return {whole.begin() + first * width, whole.begin() + (first + count) * width};
}

struct Inputs {
  std::vector<double> q = wave(seq * 2 * group * depth, 0.7), k = wave(seq * 2 * depth, 1.3),
                      v = wave(seq * 2 * depth, 2.1);
};

/// Returns causal attention of all tokens at once.
std::vector<double> wholeAttention(const Inputs &in, const std::string &options) {
  std::string q = tensorType("batch=1 seq=5 " + query), k = tensorType("batch=1 seq=5 " + key),
              lse = tensorType("batch=1 seq=5 kv_heads=2 group=3");
  Program program("func.func @f(%q: " + q + ", %k: " + k + ", %v: " + k + ") -> " + q +
                  " {\n %y:2 = model.attention %q, %k, %v {scale = 0.5 : f64, rate = 0.0 : f64, id = 0 : i64, " +
                  "causal" + options + "} : (" + q + ", " + k + ", " + k + ") -> (" + q + ", " + lse +
                  ")\n return %y#0 : " + q + "\n}");
  EvalContext exact;
  exact.isExact = true;
  return program.first({program.argument(0, in.q), program.argument(1, in.k), program.argument(2, in.v)}, exact);
}

/// Computes the same in several calls, with the given numbers of tokens. The cache begins with large values that must
/// not be read.
std::vector<double> inPieces(const Inputs &in, const std::vector<int64_t> &pieces, const std::string &options) {
  std::vector<double> out, keys(2 * context * depth, 1e6), values = keys;
  int64_t done = 0;
  for (int64_t tokens : pieces) {
    Program program(cacheProgram(tokens, options));
    std::vector<double> positions;
    for (int64_t t = 0; t < tokens; ++t)
      positions.push_back(static_cast<double>(done + t));
    EvalContext exact;
    exact.isExact = true;
    std::vector<Tensor> results =
        program.evaluate({program.argument(0, rows(in.q, done, tokens, 2 * group * depth)),
                          program.argument(1, rows(in.k, done, tokens, 2 * depth)),
                          program.argument(2, rows(in.v, done, tokens, 2 * depth)), program.argument(3, positions),
                          program.argument(4, keys), program.argument(5, values)},
                         exact);
    out.insert(out.end(), results[0].values.begin(), results[0].values.end());
    keys = results[1].values;
    values = results[2].values;
    done += tokens;
  }
  return out;
}

TEST(AttendCache, EqualsCausalAttentionForAnyPieces) {
  Inputs in;
  for (std::string options : {"", ", window = 2 : i64", ", soft_cap = 0.5 : f64"}) {
    std::vector<double> expected = wholeAttention(in, options);
    for (const std::vector<int64_t> &pieces : {std::vector<int64_t>{5}, {1, 1, 1, 1, 1}, {2, 3}, {4, 1}}) {
      std::vector<double> actual = inPieces(in, pieces, options);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i], 1e-12);
    }
  }
}

TEST(AttendCache, DoesNotCachePadding) {
  Inputs in;
  Program program(cacheProgram(2));
  std::vector<double> empty(2 * context * depth, 7);
  EvalContext exact;
  std::vector<Tensor> results = program.evaluate(
      {program.argument(0, rows(in.q, 0, 2, 2 * group * depth)), program.argument(1, rows(in.k, 0, 2, 2 * depth)),
       program.argument(2, rows(in.v, 0, 2, 2 * depth)), program.argument(3, {-1, 6}), program.argument(4, empty),
       program.argument(5, empty)},
      exact);
  EXPECT_EQ(results[0].values, std::vector<double>(2 * 2 * group * depth, 0.0));
  EXPECT_EQ(results[1].values, empty);
  EXPECT_EQ(results[2].values, empty);
}

TEST(Concat, PlacesColumnsSideBySide) {
  Program program(oneOp({tensorType("seq=1 heads=2 a=2"), tensorType("seq=1 heads=2 b=1")}, "model.concat %x0, %x1",
                        tensorType("seq=1 heads=2 ab=3")));
  EXPECT_THAT(program.first({program.argument(0, {1, 2, 3, 4}), program.argument(1, {5, 6})}),
              testing::ElementsAre(1, 2, 5, 3, 4, 6));
}

TEST(Concat, GivesSharedColumnsToEveryHead) {
  Program program(oneOp({tensorType("seq=2 heads=2 a=1"), tensorType("seq=2 b=1")}, "model.concat %x0, %x1",
                        tensorType("seq=2 heads=2 ab=2")));
  EXPECT_THAT(program.first({program.argument(0, {1, 2, 3, 4}), program.argument(1, {5, 6})}),
              testing::ElementsAre(1, 5, 2, 5, 3, 6, 4, 6));
}

TEST(Columns, AreTakenByHeadOrSummed) {
  for (bool isSummed : {false, true}) {
    std::string result = tensorType(isSummed ? "seq=1 b=2" : "seq=1 heads=2 b=2");
    Program program(oneOp({tensorType("seq=1 heads=2 ab=3")}, "model.columns %x0 {first = 1 : i64}", result));
    std::vector<double> wanted = isSummed ? std::vector<double>{7, 9} : std::vector<double>{2, 3, 5, 6};
    EXPECT_EQ(program.first({program.argument(0, {1, 2, 3, 4, 5, 6})}), wanted);
  }
}

TEST(TakeRow, TakesARowOfEachSequenceOrZeros) {
  Program program(oneOp({tensorType("batch=3 seq=2 hidden=2"), tensorType("batch=3", "i32")}, "model.take_row %x0, %x1",
                        tensorType("batch=3 seq=1 hidden=2")));
  EXPECT_THAT(program.first({program.ramp(0, 1, 1), program.argument(1, {1, 0, 2})}),
              testing::ElementsAre(3, 4, 5, 6, 0, 0));
}

} // namespace
} // namespace espalier
