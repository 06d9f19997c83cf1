// Tests the result of each opcode, with numbers at the limits of formats and at rounding boundaries.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "test/emulator/kernel_text.h"

namespace espalier::emulator {
namespace {

using testing::ElementsAre;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
using Ints = std::vector<int32_t>;
using Words = std::vector<uint32_t>;
using Floats = std::vector<float>;

TEST(PtxIntegers, WrapAround) {
  EXPECT_THAT(mapped<int32_t>("add.s32 %r3, %r2, 1;", Ints{1, 2147483647}, "%r2", "%r3"), ElementsAre(2, -2147483648));
  EXPECT_THAT(mapped<int32_t>("sub.s32 %r3, %r2, 3;", Ints{1, -2147483647}, "%r2", "%r3"), ElementsAre(-2, 2147483646));
  EXPECT_THAT(mapped<int32_t>("mul.lo.s32 %r3, %r2, 65536;", Ints{3, 65537}, "%r2", "%r3"), ElementsAre(196608, 65536));
  EXPECT_THAT(mapped<int32_t>("neg.s32 %r4, %r2;\nabs.s32 %r3, %r4;", Ints{5, -7}, "%r2", "%r3"), ElementsAre(5, 7));
}

TEST(PtxIntegers, MultiplyKeepsLowHighOrAllBits) {
  EXPECT_THAT(mapped<int32_t>("mul.hi.s32 %r3, %r2, -2;", Ints{1 << 30, -1}, "%r2", "%r3"), ElementsAre(-1, 0));
  EXPECT_THAT(mapped<uint32_t>("mul.hi.u32 %r3, %r2, -2;", Words{1u << 31, 1}, "%r2", "%r3"),
              ElementsAre(2147483647, 0));
  EXPECT_THAT(mapped<int64_t>("mul.wide.s32 %rd5, %r2, -3;", Ints{1 << 30, -1}, "%r2", "%rd5"),
              ElementsAre(-3ll << 30, 3));
  EXPECT_THAT(mapped<int32_t>("mad.lo.s32 %r3, %r2, %r2, 5;", Ints{4, -3}, "%r2", "%r3"), ElementsAre(21, 14));
}

TEST(PtxIntegers, DivideTowardsZero) {
  EXPECT_THAT(mapped<int32_t>("div.s32 %r3, %r2, 4;", Ints{-7, 7}, "%r2", "%r3"), ElementsAre(-1, 1));
  EXPECT_THAT(mapped<int32_t>("rem.s32 %r3, %r2, 4;", Ints{-7, 7}, "%r2", "%r3"), ElementsAre(-3, 3));
  EXPECT_THAT(mapped<uint64_t>("div.u64 %rd6, %rd5, 3;", std::vector<uint64_t>{~0ull, 8}, "%rd5", "%rd6"),
              ElementsAre(6148914691236517205ull, 2));
}

TEST(PtxIntegers, MinMaxDependOnSignedness) {
  EXPECT_THAT(mapped<int32_t>("max.s32 %r3, %r2, 1;", Ints{-7, 7}, "%r2", "%r3"), ElementsAre(1, 7));
  EXPECT_THAT(mapped<int32_t>("max.u32 %r3, %r2, 1;", Ints{-7, 7}, "%r2", "%r3"), ElementsAre(-7, 7));
  EXPECT_THAT(mapped<int32_t>("min.s32 %r3, %r2, 1;", Ints{-7, 7}, "%r2", "%r3"), ElementsAre(-7, 1));
}

TEST(PtxBits, ShiftsClampAtTheWidth) {
  EXPECT_THAT(mapped<int32_t>("shl.b32 %r3, 1, %r2;", Ints{0, 31, 32, 255}, "%r2", "%r3"),
              ElementsAre(1, -2147483648, 0, 0));
  EXPECT_THAT(mapped<int32_t>("shr.s32 %r3, -8, %r2;", Ints{1, 40}, "%r2", "%r3"), ElementsAre(-4, -1));
  EXPECT_THAT(mapped<int32_t>("shr.u32 %r3, -8, %r2;", Ints{29, 40}, "%r2", "%r3"), ElementsAre(7, 0));
  EXPECT_THAT(mapped<uint32_t>("shf.l.wrap.b32 %r3, %r2, 1, 36;", Words{0xf0000001u}, "%r2", "%r3"),
              ElementsAre(0x1fu));
  EXPECT_THAT(mapped<uint32_t>("shf.r.clamp.b32 %r3, %r2, 1, 40;", Words{7}, "%r2", "%r3"), ElementsAre(1u));
}

TEST(PtxBits, LogicFieldsAndCounts) {
  EXPECT_THAT(mapped<uint32_t>("and.b32 %r3, %r2, 12;\nor.b32 %r4, %r3, 1;\nxor.b32 %r5, %r4, 4;\nnot.b32 %r6, %r5;",
                               Words{0xff}, "%r2", "%r6"),
              ElementsAre(~9u));
  EXPECT_THAT(mapped<uint32_t>("bfe.u32 %r3, %r2, 4, 8;", Words{0xabcdef}, "%r2", "%r3"), ElementsAre(0xdeu));
  EXPECT_THAT(mapped<int32_t>("bfe.s32 %r3, %r2, 4, 4;", Words{0xe0, 0x70}, "%r2", "%r3"), ElementsAre(-2, 7));
  EXPECT_THAT(mapped<int32_t>("bfe.s32 %r3, %r2, 28, 8;", Words{0xe0000000u}, "%r2", "%r3"), ElementsAre(-2));
  EXPECT_THAT(mapped<uint32_t>("popc.b32 %r3, %r2;\nclz.b32 %r4, %r2;\nmad.lo.u32 %r5, %r3, 100, %r4;", Words{0xf0, 0},
                               "%r2", "%r5"),
              ElementsAre(424u, 32u));
  EXPECT_THAT(mapped<uint32_t>("brev.b32 %r3, %r2;", Words{1, 0x80000002u}, "%r2", "%r3"),
              ElementsAre(0x80000000u, 0x40000001u));
  EXPECT_THAT(mapped<uint32_t>("prmt.b32 %r3, %r2, 0x77665544, 0x4183;", Words{0x83828180u}, "%r2", "%r3"),
              ElementsAre(0x4481ff83u));
  // 0xe8 is the truth table of the majority function.
  EXPECT_THAT(mapped<uint32_t>("lop3.b32 %r3, %r2, 12, 10, 0xe8;", Words{9}, "%r2", "%r3"), ElementsAre(8u));
}

TEST(PtxBits, MovesPackAndUnpack) {
  EXPECT_THAT(mapped<uint32_t>("mov.b32 {%h1, %h2}, %r2;\nmov.b32 %r3, {%h2, %h1};", Words{0x12345678}, "%r2", "%r3"),
              ElementsAre(0x56781234u));
  EXPECT_THAT(mapped<uint32_t>("mov.b64 %rd5, {%r2, 7};\nmov.b64 {_, %r3}, %rd5;", Words{3}, "%r2", "%r3"),
              ElementsAre(7u));
}

TEST(PtxFloats, AreIeee) {
  EXPECT_THAT(mapped<float>("add.rn.f32 %f2, %f1, 0f33800000;", Floats{1, 1.00000011920929f}, "%f1", "%f2"),
              ElementsAre(1.0f, 1.00000023841858f)); // ties to even
  EXPECT_THAT(mapped<float>("fma.rn.f32 %f2, %f1, %f1, 0fBF800000;", Floats{1.000244140625f}, "%f1", "%f2"),
              ElementsAre(std::fma(1.000244140625f, 1.000244140625f, -1.0f)));
  EXPECT_THAT(mapped<float>("div.rn.f32 %f2, 0f3F800000, %f1;", Floats{3, 0}, "%f1", "%f2"),
              ElementsAre(1 / 3.0f, infinity));
  EXPECT_THAT(mapped<float>("sqrt.rn.f32 %f2, %f1;", Floats{2}, "%f1", "%f2"), ElementsAre(std::sqrt(2.0f)));
}

TEST(PtxFloats, CopySignUsesTheFirstOperand) {
  EXPECT_THAT(
      mapped<float>("copysign.f32 %f2, %f1, 0f40000000;\nneg.f32 %f3, %f2;\nabs.f32 %f4, %f2;\nsub.f32 %f5, %f4, %f3;",
                    Floats{-3, 3}, "%f1", "%f5"),
      ElementsAre(0, 4));
}

TEST(PtxFloats, FlushAndSaturateIfRequested) {
  EXPECT_THAT(mapped<float>("add.ftz.f32 %f2, %f1, %f1;", Floats{1e-39f, 1}, "%f1", "%f2"), ElementsAre(0, 2));
  EXPECT_THAT(mapped<float>("add.f32 %f2, %f1, %f1;", Floats{1e-39f, 1}, "%f1", "%f2"), ElementsAre(2e-39f, 2));
  EXPECT_THAT(mapped<float>("mul.sat.f32 %f2, %f1, 0f40000000;", Floats{-1, 0.25, 4, nan}, "%f1", "%f2"),
              ElementsAre(0, 0.5, 1, 0));
}

TEST(PtxFloats, NanIsReplacedUnlessKept) {
  EXPECT_THAT(mapped<float>("max.f32 %f2, %f1, 0f3F800000;", Floats{nan, 0, 2}, "%f1", "%f2"), ElementsAre(1, 1, 2));
  auto kept = mapped<float>("max.NaN.f32 %f2, %f1, 0f3F800000;", Floats{nan, 0}, "%f1", "%f2");
  EXPECT_TRUE(std::isnan(kept[0]));
  EXPECT_EQ(kept[1], 1);
  auto zero = mapped<float>("min.f32 %f2, %f1, 0f00000000;", Floats{-0.0f}, "%f1", "%f2");
  EXPECT_TRUE(std::signbit(zero[0]));
}

TEST(PtxFloats, ApproximationsAreTheRoundedValues) {
  EXPECT_THAT(mapped<float>("ex2.approx.ftz.f32 %f2, %f1;", Floats{0.5f, -200}, "%f1", "%f2"),
              ElementsAre(static_cast<float>(std::exp2(0.5)), 0));
  EXPECT_THAT(mapped<float>("lg2.approx.f32 %f2, %f1;", Floats{3, 0}, "%f1", "%f2"),
              ElementsAre(static_cast<float>(std::log2(3.0)), -infinity));
  EXPECT_THAT(mapped<float>("rcp.approx.ftz.f32 %f2, %f1;", Floats{3}, "%f1", "%f2"), ElementsAre(1 / 3.0f));
  EXPECT_THAT(mapped<float>("rsqrt.approx.f32 %f2, %f1;", Floats{3}, "%f1", "%f2"),
              ElementsAre(static_cast<float>(1 / std::sqrt(3.0))));
  EXPECT_THAT(mapped<float>("tanh.approx.f32 %f2, %f1;", Floats{0.3f}, "%f1", "%f2"),
              ElementsAre(static_cast<float>(std::tanh(static_cast<double>(0.3f)))));
  EXPECT_THAT(mapped<float>("sin.approx.f32 %f2, %f1;\ncos.approx.f32 %f3, %f1;\nadd.f32 %f4, %f2, %f3;", Floats{0},
                            "%f1", "%f4"),
              ElementsAre(1));
}

TEST(PtxHalves, RoundOnce) {
  // 1 + 2^-8 is halfway between two bf16 values, and 2^-20 decides the rounding; 0x3f80 is 1.
  uint32_t tie = std::bit_cast<uint32_t>(1.00390625f), above = tie + 1, odd = std::bit_cast<uint32_t>(1.01171875f);
  EXPECT_THAT(mapped<uint16_t>("cvt.rn.bf16.f32 %h1, %f1;", Words{tie, above, odd, 0x7fc12345}, "%f1", "%h1"),
              ElementsAre(0x3f80, 0x3f81, 0x3f82, 0x7fff));
  EXPECT_THAT(mapped<uint16_t>("cvt.rz.bf16.f32 %h1, %f1;", Words{tie, above, odd}, "%f1", "%h1"),
              ElementsAre(0x3f80, 0x3f80, 0x3f81));
  EXPECT_THAT(mapped<uint16_t>("cvt.rn.f16.f32 %h1, %f1;", Floats{1, 65520, 5.96e-8f, -2}, "%f1", "%h1"),
              ElementsAre(0x3c00, 0x7c00, 1, 0xc000));
  // 1.03125 * 1.125 is a tie, which 2^-60 decides.
  std::string sum = "mov.b16 %h2, 0x3f90;\nmov.b16 %h3, 0x2180;\nmov.b16 %h5, 0;\nfma.rn.bf16 %h4, %h1, %h2, ";
  EXPECT_THAT(mapped<uint16_t>(sum + "%h5;", std::vector<uint16_t>{0x3f84}, "%h1", "%h4"), ElementsAre(0x3f94));
  EXPECT_THAT(mapped<uint16_t>(sum + "%h3;", std::vector<uint16_t>{0x3f84}, "%h1", "%h4"), ElementsAre(0x3f95));
}

TEST(PtxHalves, PairsAreComputedHalfByHalf) {
  // {1, 2} * {3, 4} + {1, 1} in bf16 and in f16.
  EXPECT_THAT(mapped<uint32_t>("mov.b32 %r4, 0x40804040;\nmov.b32 %r5, 0x3f803f80;\nfma.rn.bf16x2 %r3, %r2, %r4, %r5;",
                               Words{0x40003f80}, "%r2", "%r3"),
              ElementsAre(0x41104080u));
  EXPECT_THAT(mapped<uint32_t>("mov.b32 %r4, 0x44004200;\nmul.f16x2 %r3, %r2, %r4;", Words{0x40003c00}, "%r2", "%r3"),
              ElementsAre(0x48004200u));
  // The first source becomes the high half.
  EXPECT_THAT(mapped<uint32_t>("cvt.rn.bf16x2.f32 %r3, %f1, 0f40000000;", Floats{1}, "%f1", "%r3"),
              ElementsAre(0x3f804000u));
}

TEST(PtxConversions, OfIntegersExtendOrTruncate) {
  EXPECT_THAT(mapped<int64_t>("cvt.s64.s32 %rd5, %r2;", Ints{-5}, "%r2", "%rd5"), ElementsAre(-5));
  EXPECT_THAT(mapped<int64_t>("cvt.u64.u32 %rd5, %r2;", Ints{-5}, "%r2", "%rd5"), ElementsAre(4294967291ll));
  EXPECT_THAT(mapped<int32_t>("cvt.s32.s8 %r3, %r2;", Ints{0x1ff, 0x7f}, "%r2", "%r3"), ElementsAre(-1, 127));
  EXPECT_THAT(mapped<int32_t>("cvt.sat.s16.s32 %r3, %r2;", Ints{70000, -70000}, "%r2", "%r3"),
              ElementsAre(32767, -32768));
}

TEST(PtxConversions, BetweenFloatsAndIntegersUseTheRoundingMode) {
  EXPECT_THAT(mapped<int32_t>("cvt.rzi.s32.f32 %r3, %f1;", Floats{-2.7f, 3e9f, nan}, "%f1", "%r3"),
              ElementsAre(-2, 2147483647, 0));
  EXPECT_THAT(mapped<int32_t>("cvt.rni.s32.f32 %r3, %f1;", Floats{2.5f, 3.5f}, "%f1", "%r3"), ElementsAre(2, 4));
  EXPECT_THAT(mapped<int32_t>("cvt.rmi.s32.f32 %r3, %f1;", Floats{-2.5f}, "%f1", "%r3"), ElementsAre(-3));
  EXPECT_THAT(mapped<int32_t>("cvt.rpi.s32.f32 %r3, %f1;", Floats{-2.5f, 2.1f}, "%f1", "%r3"), ElementsAre(-2, 3));
  EXPECT_THAT(mapped<float>("cvt.rn.f32.u32 %f1, %r2;", Words{16777217, 0xffffffff}, "%r2", "%f1"),
              ElementsAre(16777216, 4294967296.0f));
  EXPECT_THAT(mapped<float>("cvt.rz.f32.u32 %f1, %r2;", Words{0xffffffff}, "%r2", "%f1"), ElementsAre(4294967040.0f));
  EXPECT_THAT(mapped<float>("cvt.rni.f32.f32 %f2, %f1;", Floats{0.5f, -1.5f}, "%f1", "%f2"), ElementsAre(0, -2));
  EXPECT_THAT(mapped<double>("cvt.f64.f32 %d1, %f1;", Floats{0.1f}, "%f1", "%d1"),
              ElementsAre(static_cast<double>(0.1f)));
  EXPECT_THAT(mapped<float>("cvt.f32.bf16 %f1, %h1;", std::vector<uint16_t>{0x3fc0}, "%h1", "%f1"), ElementsAre(1.5f));
}

TEST(PtxComparisons, AreOrderedOrUnordered) {
  auto chosen = [](const std::string &comparison, float x) {
    return mapped<int32_t>("setp." + comparison + ".f32 %p1, %f1, 0f3F800000;\nselp.b32 %r3, 1, 0, %p1;", Floats{x},
                           "%f1", "%r3")[0];
  };
  struct Row {
    const char *name;
    int below, same, above, unordered;
  };
  for (Row row : {Row{"eq", 0, 1, 0, 0},
                  {"ne", 1, 0, 1, 0},
                  {"lt", 1, 0, 0, 0},
                  {"le", 1, 1, 0, 0},
                  {"gt", 0, 0, 1, 0},
                  {"ge", 0, 1, 1, 0},
                  {"equ", 0, 1, 0, 1},
                  {"neu", 1, 0, 1, 1},
                  {"ltu", 1, 0, 0, 1},
                  {"leu", 1, 1, 0, 1},
                  {"gtu", 0, 0, 1, 1},
                  {"geu", 0, 1, 1, 1},
                  {"num", 1, 1, 1, 0},
                  {"nan", 0, 0, 0, 1}}) {
    EXPECT_EQ(chosen(row.name, 0), row.below) << row.name;
    EXPECT_EQ(chosen(row.name, 1), row.same) << row.name;
    EXPECT_EQ(chosen(row.name, 2), row.above) << row.name;
    EXPECT_EQ(chosen(row.name, nan), row.unordered) << row.name;
  }
}

TEST(PtxComparisons, JoinPredicatesAndWriteBoth) {
  std::string body = "setp.gt.s32 %p1, %r2, 0;\nsetp.lt.and.s32 %p2|%p3, %r2, 10, %p1;\nselp.b32 %r3, 1, 0, %p2;\n"
                     "selp.b32 %r4, 2, 0, %p3;\nadd.s32 %r5, %r3, %r4;";
  // The second predicate is (not less) and %p1.
  EXPECT_THAT(mapped<int32_t>(body, Ints{-1, 5, 11}, "%r2", "%r5"), ElementsAre(0, 1, 2));
  EXPECT_THAT(mapped<int32_t>("setp.eq.s32 %p1, %r2, 0;\nsetp.eq.or.s32 %p2, %r2, 2, !%p1;\nselp.b32 %r3, 1, 0, %p2;",
                              Ints{0, 1}, "%r2", "%r3"),
              ElementsAre(0, 1));
  EXPECT_THAT(mapped<int32_t>("setp.lo.u32 %p1, %r2, 7;\nselp.b32 %r3, 1, 0, %p1;", Ints{-1, 3}, "%r2", "%r3"),
              ElementsAre(0, 1));
  EXPECT_THAT(mapped<int32_t>("set.lt.u32.s32 %r3, %r2, 7;", Ints{-1, 30}, "%r2", "%r3"), ElementsAre(-1, 0));
}

} // namespace
} // namespace espalier::emulator
