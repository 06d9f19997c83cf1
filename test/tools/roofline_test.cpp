// Counts the instructions and bytes of PTX by simulating some of its lanes.
#include "tools/roofline/ptx_player.h"

#include <gmock/gmock.h>

namespace espalier {
namespace {

using testing::ElementsAre;

/// Parameters: two buffers, one scalar, the extent. Each block of 64 threads processes `scalar` rows of 128 f32 values.
constexpr const char *walk = R"(
.version 8.0
.target sm_80
.visible .entry walk_0(
	.param .u64 walk_0_param_0,
	.param .u64 walk_0_param_1,
	.param .u64 walk_0_param_2,
	.param .u64 walk_0_param_3
)
.maxntid 64, 1, 1
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<4>;
	.reg .f32 	%f<4>;
	.reg .b64 	%rd<9>;

	ld.param.u64 	%rd1, [walk_0_param_0];
	ld.param.u64 	%rd2, [walk_0_param_1];
	ld.param.u64 	%rd3, [walk_0_param_2];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd4, %r1, 8;     // of the first column
	add.s64 	%rd5, %rd1, %rd4;
	mov.u64 	%rd6, 0;
	setp.lt.s64 	%p1, %rd3, 1;
	@%p1 bra 	$L__BB0_2;
$L__BB0_1:
	ld.global.v2.f32 	{%f1, %f2}, [%rd5+16];
	fma.rn.f32 	%f3, %f1, %f2, %f3;
	ex2.approx.ftz.f32 	%f3, %f3;
	add.s64 	%rd5, %rd5, 512;
	add.s64 	%rd6, %rd6, 1;
	setp.lt.s64 	%p2, %rd6, %rd3;
	@%p2 bra 	$L__BB0_1;
$L__BB0_2:
	add.s64 	%rd7, %rd2, %rd4;
	st.global.f32 	[%rd7], %f3;
	ret;
}
)";

PtxCounts countWalk(int64_t rows, int64_t blocks) {
  return countLaunch(readPtx(walk).at("walk_0"), {blocks, 1, 64, 2, {rows, blocks}});
}

TEST(PtxPlayer, CountsRoundsOfLoops) {
  // One lane executes 1 + 2 + 2 + 1 instructions before the loop, 1 + 1 + 1 + 2 + 2 + 2 + 1 in it, and 2 + 1 + 1 after
  // it.
  for (int64_t rows : {0, 1, 7}) {
    PtxCounts counts = countWalk(rows, 1);
    EXPECT_EQ(counts.slots, 64.0 * (6 + 10 * rows + 4)) << rows;
    EXPECT_EQ(counts.special, 64.0 * rows);
    EXPECT_EQ(counts.flops, 64.0 * 2 * rows);
    EXPECT_THAT(counts.read, ElementsAre(64.0 * 8 * rows, 0));
    EXPECT_THAT(counts.written, ElementsAre(0, 64.0 * 4));
  }
}

// A 64-bit division by a constant uses the high half of a product. The loop has 21 / 5 rounds.
TEST(PtxPlayer, HighHalvesOfWideProductsCountRounds) {
  std::string text = walk;
  std::string_view bound = "setp.lt.s64 \t%p1, %rd3, 1;";
  text.insert(text.find(bound), "mul.hi.u64 \t%rd8, %rd3, -3689348814741910323;\n\tshr.u64 \t%rd3, %rd8, 2;\n\t");
  PtxCounts counts = countLaunch(readPtx(text).at("walk_0"), {1, 1, 64, 2, {21, 1}});
  EXPECT_THAT(counts.read, ElementsAre(64.0 * 4 * 8, 0.0));
}

TEST(PtxPlayer, SampledBlocksRepresentAllBlocks) {
  PtxCounts one = countWalk(3, 1), many = countWalk(3, 1000);
  EXPECT_NEAR(many.slots, 1000 * one.slots, 1e-9 * many.slots);
  EXPECT_NEAR(many.read[0], 1000 * one.read[0], 1e-9 * many.read[0]);
}

/// Returns the text with one part replaced.
std::string changed(const std::string &from, const std::string &to) {
  std::string text = walk;
  return text.replace(text.find(from), from.size(), to);
}

TEST(PtxPlayer, LoopsThatDependOnMemoryEnd) {
  std::string text = changed("add.s64 \t%rd6, %rd6, 1;", "ld.global.u64 \t%rd6, [%rd1];");
  PtxCounts counts = countLaunch(readPtx(text).at("walk_0"), {1, 1, 64, 2, {100, 1}});
  EXPECT_EQ(counts.special, 64.0); // one round of the loop
}

TEST(PtxPlayer, RejectsAnEndlessLoop) {
  std::string text = changed("add.s64 \t%rd6, %rd6, 1;", "");
  PtxKernel kernel = readPtx(text).at("walk_0");
  EXPECT_THROW(countLaunch(kernel, {1, 1, 64, 2, {100, 1}}), std::invalid_argument);
}

TEST(PtxReader, RejectsInvalidStatements) {
  EXPECT_THROW(readPtx(changed("ret;", "@%p1;")), std::invalid_argument);
  EXPECT_THROW(readPtx(changed("bra \t$L__BB0_2;", "bra \t$L__BB0_9;")), std::invalid_argument);
  EXPECT_THROW(readPtx(".visible .entry cut_0() {\n ret;\n"), std::invalid_argument);
}

} // namespace
} // namespace espalier
