// Compiles whole functions and compares the results of their kernels with an op-by-op evaluation.
#include "dialects/exec/dialect.h"
#include "test/compiler/codegen/harness.h"

#include <gtest/gtest.h>

namespace espalier::test {
namespace {

const char *layerNorm = R"(
!x = tensor<2x3x37x%T, #model.dims<batch, seq, hidden>>
!f = tensor<2x3x37xf32, #model.dims<batch, seq, hidden>>
!r = tensor<2x3xf32, #model.dims<batch, seq>>
!h = tensor<37x%T, #model.dims<hidden>>
!s = tensor<f32>
func.func @block.forward(%x: !x {model.role = "stream", model.name = "x"},
                         %w: !h {model.role = "parameter", model.name = "w"},
                         %b: !h {model.role = "parameter", model.name = "b"})
    -> (!x {model.role = "stream", model.name = "x"}, !r {model.role = "saved", model.name = "mean"},
        !r {model.role = "saved", model.name = "rstd"}) {
  %n = model.constant 0.02702702702702703 : !s
  %e = model.constant 1.0e-5 : !s
  %sum = model.reduce_sum %x : (!x) -> !r
  %mean = model.mul %sum, %n : (!r, !s) -> !r
  %d = model.sub %x, %mean : (!x, !r) -> !f
  %d2 = model.mul %d, %d : (!f, !f) -> !f
  %v = model.reduce_sum %d2 : (!f) -> !r
  %var = model.mul %v, %n : (!r, !s) -> !r
  %ve = model.add %var, %e : (!r, !s) -> !r
  %rstd = model.rsqrt %ve : (!r) -> !r
  %xh = model.mul %d, %rstd : (!f, !r) -> !f
  %xw = model.mul %xh, %w : (!f, !h) -> !f
  %y = model.add %xw, %b : (!f, !h) -> !x
  return %y, %mean, %rstd : !x, !r, !r
}
)";

std::string withType(std::string text, const std::string &type) {
  for (size_t at; (at = text.find("%T")) != std::string::npos;)
    text.replace(at, 2, type);
  return text;
}

TEST(Codegen, LayerNormIsOneRowKernel) {
  Compiled compiled(withType(layerNorm, "f32"));
  EXPECT_EQ(compiled.instructions("block.forward"), "row_0");
  compiled.check("block.forward", {}, 2e-6);
}

TEST(Codegen, LayerNormInBf16RoundsAtTheStore) {
  Compiled(withType(layerNorm, "bf16")).check("block.forward", {}, 5e-3);
}

TEST(Codegen, LayerNormInF16RoundsAtTheStore) { Compiled(withType(layerNorm, "f16")).check("block.forward", {}, 6e-4); }

// The derivative of bias and GELU. The kernel stores d for matrix products and also sums d over the tokens.
TEST(Codegen, BiasGradientIsAColumnKernelAndItsSecondPhaseAccumulates) {
  Compiled compiled(R"(
!x = tensor<4x25x70xf32, #model.dims<batch, seq, ffn>>
!f = tensor<70xf32, #model.dims<ffn>>
!s = tensor<f32>
func.func @block.backward(%dy: !x {model.role = "cotangent", model.name = "x"},
                          %x: !x {model.role = "saved", model.name = "x"},
                          %acc: !f {model.role = "accumulator", model.name = "b"})
    -> (!x {model.role = "cotangent", model.name = "x"}, !f {model.role = "accumulator", model.name = "b"}) {
  %c = model.constant 0.7071067811865476 : !s
  %xs = model.mul %x, %c : (!x, !s) -> !x
  %e = model.erf %xs : (!x) -> !x
  %d = model.mul %dy, %e : (!x, !x) -> !x
  %g = model.reduce_sum %d : (!x) -> !f
  %a = model.accumulate %acc, %g : (!f, !f) -> !f
  return %d, %a : !x, !f
}
)");
  EXPECT_EQ(compiled.instructions("block.backward"), "column_0 reduce_parts");
  Surroundings first;
  first.microBatch = 0;
  compiled.check("block.backward", first, 2e-6);
  Surroundings second;
  second.microBatch = 1;
  compiled.check("block.backward", second, 2e-6);
}

// A gradient that is only converted is accumulated in place. The accumulator and the sum are one operand, which the
// kernel overwrites if `first` of the RUN lists the bucket.
TEST(Codegen, KernelsAccumulateInPlace) {
  Compiled compiled(R"(
!g = tensor<33x70xbf16, #model.dims<hidden, ffn>>
!f = tensor<33x70xf32, #model.dims<hidden, ffn>>
func.func @block.backward(%g: !g {model.role = "saved", model.name = "g"},
                          %acc: !f {model.role = "accumulator", model.name = "w"})
    -> (!f {model.role = "accumulator", model.name = "w"}) {
  %a = model.accumulate %acc, %g : (!f, !g) -> !f
  return %a : !f
}
)");
  EXPECT_EQ(compiled.instructions("block.backward"), "flat_0");
  const rt::pb::Kernel &kernel = compiled.plan().kernels(0);
  ASSERT_EQ(kernel.operands_size(), 2);
  EXPECT_EQ(kernel.operands(0).access(), rt::pb::Operand::READ);
  EXPECT_EQ(kernel.operands(1).access(), rt::pb::Operand::ADD);
  EXPECT_EQ(kernel.operands(1).unless(), 1U);
  for (uint32_t microBatch : {0U, 1U})
    compiled.check("block.backward", {.microBatch = microBatch}, 1e-6);
}

// If the accumulator is read again later, it is not overwritten: the kernel accumulates into a copy.
TEST(Codegen, AccumulatorsThatAreReadLaterAreCopied) {
  Compiled compiled(R"(
!g = tensor<33x70xf32, #model.dims<hidden, ffn>>
!w = tensor<70x5xf32, #model.dims<ffn, out>>
!y = tensor<33x5xf32, #model.dims<hidden, out>>
func.func @block.backward(%g: !g {model.role = "saved", model.name = "g"},
                          %w: !w {model.role = "parameter", model.name = "v"},
                          %acc: !g {model.role = "accumulator", model.name = "w"})
    -> (!g {model.role = "accumulator", model.name = "w"}, !y {model.role = "saved", model.name = "y"}) {
  %t = model.tanh %g : (!g) -> !g
  %a = model.accumulate %acc, %t : (!g, !g) -> !g
  %y = model.contract %acc, %w : (!g, !w) -> !y
  return %a, %y : !g, !y
}
)");
  EXPECT_EQ(compiled.instructions("block.backward"), "copy flat_0 matmul copy");
  for (uint32_t microBatch : {0U, 1U})
    compiled.check("block.backward", {.microBatch = microBatch}, 1e-5);
}

const char *crossEntropy = R"(
!l = tensor<3x7x50xf32, #model.dims<batch, seq, vocab>>
!r = tensor<3x7xf32, #model.dims<batch, seq>>
!i = tensor<3x7xi32, #model.dims<batch, seq>>
!s = tensor<f32>
func.func @head.forward(%x: !l {model.role = "stream", model.name = "x"},
                        %labels: !i {model.role = "input", model.name = "labels"},
                        %weights: !r {model.role = "input", model.name = "loss_weights"},
                        %loss: !s {model.role = "statistic", model.name = "loss_sum"})
    -> (!s {model.role = "statistic", model.name = "loss_sum"}, !l {model.role = "cotangent", model.name = "x"}) {
  %m = model.mask_tail %x {valid = 47 : i64, fill = -3.0e38 : f64} : (!l) -> !l
  %max = model.reduce_max %m : (!l) -> !r
  %d = model.sub %m, %max : (!l, !r) -> !l
  %e = model.exp %d : (!l) -> !l
  %sum = model.reduce_sum %e : (!l) -> !r
  %log = model.log %sum : (!r) -> !r
  %at = model.pick %d, %labels : (!l, !i) -> !r
  %ce = model.sub %log, %at : (!r, !r) -> !r
  %w = model.mul %ce, %weights : (!r, !r) -> !r
  %all = model.reduce_sum %w : (!r) -> !s
  %new = model.accumulate %loss, %all {always} : (!s, !s) -> !s
  %scale = model.scalar "loss_scale" : !s
  %dw = model.mul %weights, %scale : (!r, !s) -> !r
  %p = model.div %e, %sum : (!l, !r) -> !l
  %dp = model.mul %p, %dw : (!l, !r) -> !l
  %neg = model.neg %dw : (!r) -> !r
  %one = model.pick_grad %labels, %neg, %x : (!i, !r, !l) -> !l
  %dx = model.add %dp, %one : (!l, !l) -> !l
  return %new, %dx : !s, !l
}
)";

TEST(Codegen, CrossEntropyIsOnePassPerReductionAndASumOfTheLoss) {
  Compiled compiled(crossEntropy);
  EXPECT_EQ(compiled.instructions("head.forward"), "row_0 row_1");
  Surroundings surroundings;
  surroundings.slots[3] = 64;
  compiled.check("head.forward", surroundings, 2e-6);
}

// One kernel updates parameters, moments and the f32 master copy in place, in one pass.
TEST(Codegen, AdamWIsOneFlatKernelInPlace) {
  Compiled compiled(R"(
!p = tensor<33x41xbf16, #model.dims<hidden, ffn>>
!f = tensor<33x41xf32, #model.dims<hidden, ffn>>
!s = tensor<f32>
func.func @block.optimizer(%p: !p {model.role = "parameter", model.name = "w"},
    %g: !f {model.role = "accumulator", model.name = "w"}, %master: !f {model.role = "state", model.name = "w.master"},
    %m: !f {model.role = "state", model.name = "w.m"}, %v: !f {model.role = "state", model.name = "w.v"})
    -> (!p {model.role = "parameter", model.name = "w"}, !f {model.role = "state", model.name = "w.master"},
        !f {model.role = "state", model.name = "w.m"}, !f {model.role = "state", model.name = "w.v"}) {
  %gs = model.scalar "gradient_scale" : !s
  %lr = model.scalar "learning_rate" : !s
  %c1 = model.scalar "bias_correction1" : !s
  %c2 = model.scalar "bias_correction2" : !s
  %apply = model.scalar "apply" : !s
  %b1 = model.constant 0.9 : !s
  %b1c = model.constant 0.1 : !s
  %b2 = model.constant 0.95 : !s
  %b2c = model.constant 0.05 : !s
  %eps = model.constant 1.0e-8 : !s
  %wd = model.constant 0.1 : !s
  %gg = model.mul %g, %gs : (!f, !s) -> !f
  %m1 = model.mul %m, %b1 : (!f, !s) -> !f
  %m2 = model.mul %gg, %b1c : (!f, !s) -> !f
  %mn = model.add %m1, %m2 : (!f, !f) -> !f
  %g2 = model.mul %gg, %gg : (!f, !f) -> !f
  %v1 = model.mul %v, %b2 : (!f, !s) -> !f
  %v2 = model.mul %g2, %b2c : (!f, !s) -> !f
  %vn = model.add %v1, %v2 : (!f, !f) -> !f
  %mh = model.mul %mn, %c1 : (!f, !s) -> !f
  %vh = model.mul %vn, %c2 : (!f, !s) -> !f
  %root = model.sqrt %vh : (!f) -> !f
  %den = model.add %root, %eps : (!f, !s) -> !f
  %dir = model.div %mh, %den : (!f, !f) -> !f
  %decay = model.mul %master, %wd : (!f, !s) -> !f
  %total = model.add %dir, %decay : (!f, !f) -> !f
  %step = model.mul %total, %lr : (!f, !s) -> !f
  %next = model.sub %master, %step : (!f, !f) -> !f
  %pn = model.select %apply, %next, %master : (!s, !f, !f) -> !f
  %mo = model.select %apply, %mn, %m : (!s, !f, !f) -> !f
  %vo = model.select %apply, %vn, %v : (!s, !f, !f) -> !f
  %pc = model.convert %pn : (!f) -> !p
  return %pc, %pn, %mo, %vo : !p, !f, !f, !f
}
)");
  EXPECT_EQ(compiled.instructions("block.optimizer"), "flat_0");
  for (const rt::pb::Instruction &instruction : compiled.plan().subprograms(0).instructions())
    for (const rt::pb::Buffer &buffer : instruction.launch().buffers())
      EXPECT_NE(buffer.region(), static_cast<uint32_t>(exec::Region::Workspace));
  Surroundings surroundings;
  surroundings.slots[4] = 0.01f;
  surroundings.slots[5] = 0.5f;
  Numbers squares(33 * 41, 0.04);
  compiled.check("block.optimizer", surroundings, 5e-3, {{"w.v", squares}});
  surroundings.slots[8] = 0;
  compiled.check("block.optimizer", surroundings, 5e-3, {{"w.v", squares}});
}

// Random bits depend on the position of the local tensor in the unsharded tensor. Positions are broadcast over the
// batch.
TEST(Codegen, DropoutUsesTheRuntimesRandomBits) {
  Compiled compiled(R"(
!x = tensor<2x6x20xf32, #model.dims<batch, seq, hidden>>
!p = tensor<6x20xf32, #model.dims<seq, hidden>>
func.func @embed.forward(%x: !x {model.role = "stream", model.name = "x"},
                         %p: !p {model.role = "parameter", model.name = "positions"})
    -> (!x {model.role = "stream", model.name = "x"}) {
  %s = model.add %x, %p : (!x, !p) -> !x
  %d = model.dropout %s {rate = 0.3 : f64, id = 5 : i64, origins = [#dist.origin<dp * 2, micro_batch * 4>,
      #dist.origin<cp * 6>, unit], unsplit = array<i64: 16, 12, 20>} : (!x) -> !x
  %y = model.add %d, %x : (!x, !x) -> !x
  return %y : !x
}
)");
  EXPECT_EQ(compiled.instructions("embed.forward"), "row_0");
  compiled.check("embed.forward", {}, 1e-6);
}

TEST(Codegen, MatrixProductsCollapseNamedDimensionsAndAccumulate) {
  Compiled compiled(R"(
!x = tensor<2x3x8xf32, #model.dims<batch, seq, hidden>>
!w = tensor<8x2x5xf32, #model.dims<hidden, heads, head_dim>>
!q = tensor<2x3x2x5xf32, #model.dims<batch, seq, heads, head_dim>>
func.func @block.backward(%x: !x {model.role = "saved", model.name = "x"},
    %dq: !q {model.role = "saved", model.name = "dq"}, %w: !w {model.role = "parameter", model.name = "w"},
    %acc: !w {model.role = "accumulator", model.name = "w"})
    -> (!x {model.role = "cotangent", model.name = "x"}, !w {model.role = "accumulator", model.name = "w"},
        !q {model.role = "saved", model.name = "q"}) {
  %dx = model.contract %dq, %w : (!q, !w) -> !x
  %dw = model.contract %x, %dq : (!x, !q) -> !w
  %a = model.accumulate %acc, %dw : (!w, !w) -> !w
  %q = model.contract %w, %x : (!w, !x) -> !q
  return %dx, %a, %q : !x, !w, !q
}
)");
  EXPECT_EQ(compiled.instructions("block.backward"), "matmul matmul matmul");
  compiled.check("block.backward", {}, 1e-6);
}

} // namespace
} // namespace espalier::test
