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

  std::string tensor(const std::string &sizes, const std::string &dims) const {
    return "tensor<2x" + sizes + "x" + type + ", #model.dims<batch, " + dims + ">>";
  }

  std::string text() const {
    std::string count = std::to_string(tokens) + "x3x", depth = std::to_string(headDim);
    std::string q = tensor(count + std::to_string(group) + "x" + depth, "seq, kv_heads, group, head_dim");
    std::string k = tensor(count + depth, "seq, kv_heads, head_dim");
    std::string cache = tensor("3x70x" + depth, "kv_heads, context, head_dim");
    std::string places = "tensor<2x" + std::to_string(tokens) + "xi32, #model.dims<batch, seq>>";
    std::string results = "(" + q + ", " + cache + ", " + cache + ")";
    return "func.func @block.decode(%q: " + q + role("q") + ", %k: " + k + role("k") + ", %v: " + k + role("v") +
           ", %p: " + places + role("positions") + ", %a: " + cache + role("keys") + ", %b: " + cache + role("values") +
           ") -> (" + q + role("out") + ", " + cache + role("keys") + ", " + cache + role("values") +
           ") {\n %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 0.25 : f64" + options + "} : (" + q + ", " +
           k + ", " + k + ", " + places + ", " + cache + ", " + cache + ") -> " + results +
           "\n return %y#0, %y#1, %y#2 : " + results.substr(1, results.size() - 2) + "\n}";
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
TEST(CacheKernels, InF16WithRowsOfOddLength) { checkCache({.headDim = 9, .type = "f16", .positions = {40, 3}}); }

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
