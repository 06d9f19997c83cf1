// Compares the GPU kernels for generation, run in the emulator, with the runtime's CPU kernels.
#include "test/compiler/codegen/cuda/call_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace espalier::test {

namespace {

using testing::ElementsAre;

void fill(std::vector<double> &values, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (double &value : values)
    value = normal(random);
}

std::string role(const std::string &name) { return " {model.role = \"saved\", model.name = \"" + name + "\"}"; }

/// Two sequences with `tokens` new tokens each, and a context of 70 positions.
struct Cache {
  int64_t tokens = 1, group = 1, headDim = 16;
  std::string type = "f32";
  std::vector<int> positions; ///< positions of all tokens
  std::string options = {};
  int64_t valueDim = 0; ///< columns of values, if they are not those of keys
  bool hasSums = false; ///< log_sum_exp is a result

  std::string tensor(const std::string &sizes, const std::string &dims) const {
    return "tensor<2x" + sizes + "x" + type + ", #model.dims<batch, " + dims + ">>";
  }

  std::string text() const {
    std::string count = std::to_string(tokens) + "x3x", depth = std::to_string(headDim);
    std::string q = tensor(count + std::to_string(group) + "x" + depth, "seq, kv_heads, group, head_dim");
    std::string k = tensor(count + depth, "seq, kv_heads, head_dim");
    std::string cache = tensor("3x70x" + depth, "kv_heads, context, head_dim");
    std::string valueDepth = valueDim > 0 ? std::to_string(valueDim) : depth;
    std::string last = valueDim > 0 ? "value_dim" : "head_dim";
    std::string v = tensor(count + valueDepth, "seq, kv_heads, " + last);
    std::string out = tensor(count + std::to_string(group) + "x" + valueDepth, "seq, kv_heads, group, " + last);
    std::string values = tensor("3x70x" + valueDepth, "kv_heads, context, " + last);
    std::string places = "tensor<2x" + std::to_string(tokens) + "xi32, #model.dims<batch, seq>>";
    std::string sums = tensor(count + std::to_string(group), "seq, kv_heads, group");
    sums.replace(sums.find("x" + type + ","), type.size() + 1, "xf32");
    std::string more = hasSums ? ", " + sums : "";
    std::string results = "(" + out + ", " + cache + ", " + values + more + ")";
    return "func.func @block.decode(%q: " + q + role("q") + ", %k: " + k + role("k") + ", %v: " + v + role("v") +
           ", %p: " + places + role("positions") + ", %a: " + cache + role("keys") + ", %b: " + values +
           role("values") + ") -> (" + out + role("out") + ", " + cache + role("keys") + ", " + values +
           role("values") + (hasSums ? more + role("sums") : "") + ") {\n %y:" + (hasSums ? "4" : "3") +
           " = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 0.25 : f64" + options + "} : (" + q + ", " + k +
           ", " + v + ", " + places + ", " + cache + ", " + values + ") -> " + results + "\n return %y#0, %y#1, %y#2" +
           (hasSums ? ", %y#3" : "") + " : " + results.substr(1, results.size() - 2) + "\n}";
  }
};

void checkCache(const Cache &cache) {
  CallMachine machine(cache.text());
  unsigned seed = 1;
  for (const char *name : {"q", "k", "v", "keys", "values"})
    fill(machine.values(name), seed++);
  ASSERT_EQ(machine.values("positions").size(), cache.positions.size());
  for (size_t i = 0; i < cache.positions.size(); ++i)
    machine.values("positions")[i] = cache.positions[i];
  EXPECT_THAT(machine.kernels(), ElementsAre("keep_rows", "attend_cache"));
  machine.run({});
  EXPECT_EQ(machine.cuda("keys"), machine.cpu("keys"));
  EXPECT_EQ(machine.cuda("values"), machine.cpu("values"));
  double bound = cache.type == "f32" ? 1e-6 : 0x1p-7; // for values of about 1
  for (size_t i = 0; i < machine.cpu("out").size(); ++i)
    ASSERT_NEAR(machine.cuda("out")[i], machine.cpu("out")[i], bound * (1 + std::abs(machine.cpu("out")[i]))) << i;
  for (size_t i = 0; cache.hasSums && i < machine.cpu("sums").size(); ++i)
    ASSERT_NEAR(machine.cuda("sums")[i], machine.cpu("sums")[i], 1e-5) << i;
}

TEST(CacheKernels, OneTokenOfEachSequence) { checkCache({.positions = {0, 69}}); }
TEST(CacheKernels, PromptsOfUnequalLength) { checkCache({.tokens = 3, .positions = {4, 5, -1, 66, 67, 68}}); }
TEST(CacheKernels, PositionsOutsideOfTheContextArePadding) {
  checkCache({.tokens = 2, .positions = {70, 3, -1, 1000}});
}
TEST(CacheKernels, GroupsOfHeads) { checkCache({.tokens = 2, .group = 3, .headDim = 24, .positions = {7, 8, 30, 31}}); }
TEST(CacheKernels, LongHeads) { checkCache({.headDim = 136, .positions = {40, 3}}); }
TEST(CacheKernels, WindowAndCappedScores) {
  checkCache({.positions = {40, 3}, .options = ", window = 6 : i64"});
  checkCache({.tokens = 3, .positions = {4, 5, 6, 66, 67, -1}, .options = ", window = 2 : i64, soft_cap = 0.5 : f64"});
}
TEST(CacheKernels, InBf16) { checkCache({.group = 2, .headDim = 64, .type = "bf16", .positions = {40, 3}}); }
TEST(CacheKernels, ValuesOfAnotherLength) {
  checkCache({.tokens = 2, .group = 2, .headDim = 24, .positions = {7, 8, 30, 31}, .valueDim = 16});
  checkCache({.headDim = 192, .type = "bf16", .positions = {40, 3}, .valueDim = 128});
  checkCache({.headDim = 16, .positions = {40, 3}, .options = ", window = 6 : i64", .valueDim = 136});
}
TEST(CacheKernels, SumsOfExponentials) {
  checkCache({.tokens = 3, .group = 2, .positions = {4, 5, -1, 66, 67, 70}, .hasSums = true});
  checkCache({.group = 3,
              .headDim = 64,
              .type = "bf16",
              .positions = {40, 3},
              .options = ", window = 6 : i64",
              .hasSums = true});
}
TEST(CacheKernels, InF16WithRowsOfOddLength) { checkCache({.headDim = 9, .type = "f16", .positions = {40, 3}}); }

/// Three tokens of two samples with two heads of `a` and `b` columns.
struct Columns {
  int64_t a = 16, b = 8;
  std::string type = "f32";

  std::string tensor(int64_t columns, const std::string &name, bool hasHeads = true) const {
    return std::string("tensor<2x3x") + (hasHeads ? "2x" : "") + std::to_string(columns) + "x" + type +
           ", #model.dims<batch, seq, " + (hasHeads ? "heads, " : "") + name + ">>";
  }
};

void checkColumns(const Columns &sizes, bool hasHeads) {
  std::string a = sizes.tensor(sizes.a, "a"), b = sizes.tensor(sizes.b, "b", hasHeads);
  std::string whole = sizes.tensor(sizes.a + sizes.b, "ab");
  CallMachine concat("func.func @block.forward(%a: " + a + role("a") + ", %b: " + b + role("b") + ") -> (" + whole +
                     role("y") + ") {\n %y = model.concat %a, %b : (" + a + ", " + b + ") -> " + whole +
                     "\n return %y : " + whole + "\n}");
  fill(concat.values("a"), 1);
  fill(concat.values("b"), 2);
  EXPECT_THAT(concat.kernels(), ElementsAre("concat"));
  concat.run({});
  EXPECT_EQ(concat.cuda("y"), concat.cpu("y"));
  CallMachine columns("func.func @block.forward(%x: " + whole + role("x") + ") -> (" + b + role("y") +
                      ") {\n %y = model.columns %x {first = " + std::to_string(sizes.a) + " : i64} : (" + whole +
                      ") -> " + b + "\n return %y : " + b + "\n}");
  columns.values("x") = concat.cpu("y");
  EXPECT_THAT(columns.kernels(), ElementsAre("columns"));
  columns.run({});
  EXPECT_EQ(columns.cuda("y"), columns.cpu("y"));
}

TEST(ColumnKernels, MoveAndSumAsTheRuntimeDoes) {
  for (bool hasHeads : {false, true}) {
    checkColumns({}, hasHeads);
    checkColumns({.a = 6, .b = 4}, hasHeads);
    checkColumns({.a = 128, .b = 64, .type = "bf16"}, hasHeads);
    checkColumns({.a = 7, .b = 3, .type = "f16"}, hasHeads);
    checkColumns({.a = 301, .b = 2}, hasHeads);
  }
}

TEST(TakeRowKernel, TakesARowOfEachSequenceOrZeros) {
  for (std::string sizes : {"40xbf16", "37xf32"}) {
    std::string dims = ", #model.dims<batch, seq, hidden>>", x = "tensor<4x5x" + sizes + dims;
    std::string y = "tensor<4x1x" + sizes + dims, rows = "tensor<4xi32, #model.dims<batch>>";
    CallMachine machine("func.func @head.prefill(%x: " + x + role("x") + ", %r: " + rows + role("rows") + ") -> (" + y +
                        role("y") + ") {\n %y = model.take_row %x, %r : (" + x + ", " + rows + ") -> " + y +
                        "\n return %y : " + y + "\n}");
    fill(machine.values("x"), 1);
    machine.values("rows") = {4, -1, 0, 5};
    EXPECT_THAT(machine.kernels(), ElementsAre("take_row"));
    machine.run({});
    EXPECT_EQ(machine.cuda("y"), machine.cpu("y"));
  }
}

} // namespace
} // namespace espalier::test
