// Tests order and memory: divergence, barriers, shuffles, bounds, races, asynchronous copies, matrices. Each check has
// a kernel that it accepts and a minimally different kernel that it reports.
#include <gmock/gmock.h>

#include <bit>
#include <numeric>

#include "test/emulator/kernel_text.h"
#include "test/emulator/numbers.h"

namespace espalier::emulator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Check = Fault::Check;

/// Runs a kernel with one output array of 32-bit words.
std::vector<uint32_t> outputs(const std::string &body, uint32_t words, Launch launch = {}) {
  std::vector<uint32_t> out(words);
  Memory memory;
  launch.entry = "k";
  launch.arguments = {memory.add(out.data(), words * 4, "out")};
  Module::parse(kernelText(body, 1)).launch(launch, memory);
  return out;
}

Fault faultIn(const std::string &body, Launch launch = {}, uint32_t words = 64) {
  return faultOf([&] { outputs(body, words, launch); });
}

const std::string storeOwn = "mad.wide.u32 %rd2, %r1, 4, %rd1;\nst.global.b32 [%rd2], %r2;";

TEST(PtxDivergence, LanesMeetAgainAfterBranches) {
  // Odd lanes take 100, even lanes 200. The ballot after the branches includes all lanes.
  std::string body = R"(and.b32 %r3, %r1, 1;
setp.eq.s32 %p1, %r3, 0;
@%p1 bra $EVEN;
mov.b32 %r2, 100;
bra.uni $JOIN;
$EVEN:
mov.b32 %r2, 200;
$JOIN:
activemask.b32 %r4;
popc.b32 %r5, %r4;
add.s32 %r2, %r2, %r5;
)" + storeOwn;
  auto out = outputs(body, 32, {.block = {32}});
  EXPECT_EQ(out[0], 232u);
  EXPECT_EQ(out[1], 132u);
}

TEST(PtxDivergence, LanesLoopIndependently) {
  std::string body = R"(mov.b32 %r2, 0;
mov.b32 %r3, 0;
$LOOP:
setp.ge.u32 %p1, %r3, %r1;
@%p1 bra $DONE;
add.s32 %r3, %r3, 1;
add.s32 %r2, %r2, %r3;
bra.uni $LOOP;
$DONE:
)" + storeOwn;
  auto out = outputs(body, 40, {.block = {40}});
  for (uint32_t i = 0; i < 40; ++i)
    EXPECT_EQ(out[i], i * (i + 1) / 2);
}

TEST(PtxDivergence, GuardsHoldPerLane) {
  std::string body =
      "setp.gt.u32 %p1, %r1, 2;\nmov.b32 %r2, 1;\n@%p1 mov.b32 %r2, 5;\n@!%p1 add.s32 %r2, %r2, 1;\n" + storeOwn;
  EXPECT_THAT(outputs(body, 5, {.block = {5}}), ElementsAre(2, 2, 2, 5, 5));
}

TEST(PtxLaunch, SpecialRegistersHoldIndices) {
  std::string body = R"(mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ntid.x;
mov.u32 %r5, %ctaid.y;
mov.u32 %r6, %nctaid.x;
mad.lo.s32 %r7, %r5, %r6, %r3;
mad.lo.s32 %r1, %r7, %r4, %r1;
mov.u32 %r8, %laneid;
mov.u32 %r9, %warpid;
mad.lo.s32 %r2, %r9, 1000, %r8;
mad.lo.s32 %r2, %r7, 100000, %r2;
)" + storeOwn;
  auto out = outputs(body, 6 * 40, {.grid = {3, 2}, .block = {40}});
  EXPECT_EQ(out[0], 0u);
  EXPECT_EQ(out[39], 1007u);
  EXPECT_EQ(out[5 * 40 + 33], 501001u);
}

TEST(PtxLaunch, RefusesWhatADeviceRefuses) {
  EXPECT_THAT(faultIn("", {.block = {1025}}).what(), HasSubstr("1025 threads, a device has 1024"));
  EXPECT_THAT(faultIn("", {.grid = {0}}).what(), HasSubstr("empty grid"));
  EXPECT_THAT(faultIn("", {.sharedBytes = 300000}).what(), HasSubstr("bytes of shared memory, a device has 232448"));
  EXPECT_THAT(faultIn("", {.grid = {1, 70000}}).what(), HasSubstr("a device has 65535"));
  Memory memory;
  Module bounded = Module::parse(kernelText("", 0, ".maxntid 64, 1, 1"));
  EXPECT_EQ(bounded.entries()[0].maxThreads, 64u);
  EXPECT_THAT(faultOf([&] { bounded.launch({.entry = "k", .block = {65}}, memory); }).what(),
              HasSubstr(".maxntid is 64"));
  EXPECT_THAT(faultOf([&] { bounded.launch({.entry = "k", .arguments = {1}}, memory); }).what(),
              HasSubstr("1 arguments, the kernel has 0"));
  EXPECT_THAT(faultOf([&] { bounded.launch({.entry = "j"}, memory); }).what(), HasSubstr("no such kernel"));
}

const std::string reverseThroughShared = R"(.shared .align 4 .b8 buffer[256];
mov.u32 %r3, buffer;
shl.b32 %r4, %r1, 2;
add.s32 %r5, %r3, %r4;
st.shared.b32 [%r5], %r1;
bar.sync 0;
sub.s32 %r6, %r3, %r4;
ld.shared.b32 %r2, [%r6+252];
)" + storeOwn;

TEST(PtxBarriers, MakeWritesVisibleToOtherWarps) {
  auto out = outputs(reverseThroughShared, 64, {.block = {64}, .reportsUndefined = true});
  for (uint32_t i = 0; i < 64; ++i)
    EXPECT_EQ(out[i], 63 - i);
}

TEST(PtxBarriers, AMissingOneIsARace) {
  std::string body = reverseThroughShared;
  body.erase(body.find("bar.sync 0;"), 11);
  Fault fault = faultIn(body, {.block = {64}});
  EXPECT_EQ(fault.check, Check::race);
  EXPECT_EQ(fault.kernel, "k");
  EXPECT_EQ(fault.line, lineOf(kernelText(body, 1), "st.shared.b32"));
  EXPECT_THAT(fault.what(), HasSubstr("was read by another warp without a barrier since"));
  // The second warp reads bytes that the first warp has written.
  body = "shl.b32 %r3, %r1, 2;\nmov.u32 %r4, dynamic;\nadd.s32 %r4, %r4, %r3;\nld.shared.b32 %r2, [%r4];\n"
         "xor.b32 %r3, %r3, 128;\nmov.u32 %r4, dynamic;\nadd.s32 %r4, %r4, %r3;\nst.shared.b32 [%r4], %r2;";
  EXPECT_THAT(faultIn(body, {.block = {64}, .sharedBytes = 256}).what(),
              HasSubstr("was written by another warp without a barrier since"));
}

TEST(PtxBarriers, MustBeReachedByAllThreads) {
  Fault divergent =
      faultIn("setp.lt.u32 %p1, %r1, 7;\n@%p1 bra $SKIP;\nbar.sync 0;\n$SKIP:\nmov.b32 %r2, 0;", {.block = {32}});
  EXPECT_EQ(divergent.check, Check::barrier);
  EXPECT_THAT(divergent.what(), HasSubstr("barrier in divergent code: lane 0 of the warp is at line"));
  Fault left = faultIn("setp.lt.u32 %p1, %r1, 7;\n@%p1 ret;\nbar.sync 0;", {.block = {32}});
  EXPECT_THAT(left.what(), HasSubstr("barrier waits for lane 0 of the warp, which has exited"));
  Fault warp = faultIn("setp.lt.u32 %p1, %r1, 32;\n@%p1 ret;\nbar.sync 0;", {.block = {64}});
  EXPECT_THAT(warp.what(), HasSubstr("barrier 0 waits for warp 0, which has exited"));
  Fault other =
      faultIn("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $B;\nbar.sync 0;\nret;\n$B:\nbar.sync 1;", {.block = {64}});
  EXPECT_THAT(other.what(), HasSubstr("which waits at barrier"));
  Fault many = faultIn("bar.sync 1, 96;", {.block = {64}});
  EXPECT_THAT(many.what(), HasSubstr("is for 96 threads, more than the block has"));
}

TEST(PtxShuffles, MoveValuesBetweenLanes) {
  auto shuffled = [](const std::string &mode, const std::string &by, const std::string &clamp) {
    return outputs("shfl.sync." + mode + ".b32 %r2|%p1, %r1, " + by + ", " + clamp +
                       ", -1;\n@!%p1 add.s32 %r2, %r2, 100;\n" + storeOwn,
                   32, {.block = {32}});
  };
  auto butterfly = shuffled("bfly", "5", "31"), up = shuffled("up", "3", "0"), down = shuffled("down", "3", "31"),
       eighths = shuffled("idx", "1", "6175"); // 0x181f: segments of 8 lanes
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(butterfly[lane], lane ^ 5);
    EXPECT_EQ(up[lane], lane < 3 ? lane + 100 : lane - 3);
    EXPECT_EQ(down[lane], lane > 28 ? lane + 100 : lane + 3);
    EXPECT_EQ(eighths[lane], lane / 8 * 8 + 1);
  }
}

TEST(PtxShuffles, WaitForTheirMembers) {
  // Lanes below 16 reach the shuffle later, by a longer path at lower lines.
  std::string late = "setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra $LATE;\nadd.s32 %r3, %r1, 0;\nbra.uni "
                     "$JOIN;\n$LATE:\nadd.s32 %r3, %r1, 0;\n"
                     "$JOIN:\nshfl.sync.bfly.b32 %r2, %r3, 16, 31, -1;\n" +
                     storeOwn;
  EXPECT_EQ(outputs(late, 32, {.block = {32}})[0], 16u);
  std::string apart =
      "setp.lt.u32 %p1, %r1, 16;\n@%p1 bra $LOW;\nshfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\nbra.uni $END;\n$LOW:\n"
      "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\n$END:\n" +
      storeOwn;
  EXPECT_THAT(faultIn(apart, {.block = {32}}).what(), HasSubstr("waits for lanes of its warp that wait elsewhere"));
  std::string halves = apart;
  halves.replace(halves.find("-1"), 2, "0xffff0000");
  halves.replace(halves.find("-1"), 2, "0xffff");
  EXPECT_EQ(outputs(halves, 32, {.block = {32}})[17], 16u);
  EXPECT_THAT(faultIn("shfl.sync.bfly.b32 %r2, %r1, 1, 31, 1;", {.block = {32}}).what(),
              HasSubstr("that its member mask leaves out"));
  EXPECT_THAT(faultIn("shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1;", {.block = {20}}).what(),
              HasSubstr("which does not take part"));
}

TEST(PtxVotes, IncludeAllLanes) {
  std::string body = "setp.lt.u32 %p1, %r1, 3;\nvote.sync.ballot.b32 %r2, %p1, -1;\nvote.sync.any.pred %p2, %p1, -1;\n"
                     "vote.sync.all.pred %p3, %p1, -1;\n@%p2 add.s32 %r2, %r2, 100;\n@%p3 add.s32 %r2, %r2, 1000;\n" +
                     storeOwn;
  EXPECT_EQ(outputs(body, 32, {.block = {32}})[9], 107u);
}

TEST(PtxMemory, VectorsAndNarrowTypes) {
  std::string body = "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1];\nst.global.v2.b32 [%rd1+16], {%r4, %r5};\n"
                     "ld.global.s8 %r6, [%rd1+3];\nst.global.b32 [%rd1+24], %r6;\nld.global.u16 %r7, "
                     "[%rd1+2];\nst.global.b16 [%rd1+28], %r7;\n"
                     "ld.global.s32 %rd5, [%rd1+4];\nshr.u64 %rd6, %rd5, 32;\nst.global.b32 [%rd1+32], %rd6;";
  std::vector<uint32_t> data = {0x80123456, 0xfffffffe, 3, 4, 0, 0, 0, 0, 0};
  Memory memory;
  Module::parse(kernelText(body, 1)).launch({.entry = "k", .arguments = {memory.add(data.data(), 36)}}, memory);
  EXPECT_THAT(data, ElementsAre(0x80123456, 0xfffffffe, 3, 4, 3, 4, 0xffffff80, 0x8012, 0xffffffff));
}

TEST(PtxMemory, EveryAccessLiesInAnAllocationAndIsAligned) {
  Fault behind = faultIn("ld.global.b32 %r2, [%rd1+256];");
  EXPECT_EQ(behind.check, Check::bounds);
  EXPECT_THAT(behind.what(), HasSubstr("reads 4 bytes at"));
  EXPECT_THAT(behind.what(), HasSubstr("0 bytes behind out (256 bytes)"));
  EXPECT_THAT(faultIn("st.global.v2.b32 [%rd1+256], {%r1, %r1};").what(), HasSubstr("writes 8 bytes at"));
  EXPECT_EQ(faultIn("ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1+248];").check, Check::alignment);
  EXPECT_EQ(faultIn("ld.global.b32 %r2, [%rd1+2];").check, Check::alignment);
  EXPECT_EQ(faultIn("mov.b64 %rd3, 0;\nld.global.b32 %r2, [%rd3];").check, Check::bounds);
  EXPECT_EQ(faultIn("ld.shared.b32 %r2, [dynamic+64];", {.sharedBytes = 64}).check, Check::bounds);
  EXPECT_EQ(faultIn("ld.local.b32 %r2, [%rd1];").check, Check::bounds);
}

TEST(PtxMemory, ReportsAccessedBytes) {
  std::vector<uint32_t> data(64);
  Memory memory;
  uint64_t at = memory.add(data.data(), 256);
  std::string body = "mad.wide.u32 %rd2, %r1, 8, %rd1;\nld.global.b32 %r2, [%rd2+4];\nmad.wide.u32 %rd3, %r1, 4, "
                     "%rd1;\nst.global.b32 [%rd3+128], %r2;";
  Report report = Module::parse(kernelText(body, 1)).launch({.entry = "k", .block = {3}, .arguments = {at}}, memory);
  EXPECT_EQ(report.reads, (Ranges{{at + 4, at + 8}, {at + 12, at + 16}, {at + 20, at + 24}}));
  EXPECT_EQ(report.writes, (Ranges{{at + 128, at + 140}}));
  EXPECT_EQ(report.instructions, 7u);
}

TEST(PtxMemory, NonCoherentLoadsOfWrittenBytesAreReported) {
  std::string body = "ld.global.nc.b32 %r2, [%rd1+8];\nst.global.b32 [%rd1+4], %r2;";
  EXPECT_EQ(outputs(body, 4)[1], 0u);
  body.replace(body.find("+4"), 2, "+8");
  Fault fault = faultIn(body);
  EXPECT_EQ(fault.check, Check::race);
  EXPECT_THAT(fault.what(), HasSubstr("ld.global.nc reads memory that the kernel writes: byte 8 of out"));
}

// Blocks run in any order, so a block must not access bytes that another block writes.
TEST(PtxMemory, BlocksMustNotAccessBytesThatOthersWrite) {
  std::string own = "mov.u32 %r3, %ctaid.x;\nmad.lo.s32 %r1, %r3, 4, %r1;\n" + storeOwn;
  EXPECT_EQ(outputs(own, 12, {.grid = {3}, .block = {4}}).size(), 12u);
  Fault same = faultIn(storeOwn, {.grid = {3}, .block = {4}});
  EXPECT_EQ(same.check, Check::race);
  EXPECT_THAT(same.what(), HasSubstr("(block 1,0,0, thread 3) writes byte 0 of out (256 bytes), which block 0 writes"));
  EXPECT_THAT(faultIn("ld.global.b32 %r2, [%rd1+128];\n" + own +
                          "mov.b32 %r4, 2;\nsetp.eq.s32 %p1, %r3, %r4;\n"
                          "@%p1 st.global.b32 [%rd1+128], %r4;",
                      {.grid = {3}, .block = {4}})
                  .what(),
              HasSubstr("writes byte 128 of out (256 bytes), which other blocks read"));
  EXPECT_THAT(faultIn("ld.global.b32 %r2, [%rd1];\n" + own, {.grid = {2}, .block = {4}}).what(),
              HasSubstr("reads byte 0 of out (256 bytes), which block 0 writes"));
}

TEST(PtxMemory, UndefinedReadsAreReportedIfRequested) {
  EXPECT_EQ(outputs("mov.b32 %r2, %r7;\n" + storeOwn, 1).size(), 1u);
  EXPECT_EQ(faultIn("mov.b32 %r2, %r7;", {.reportsUndefined = true}).check, Check::undefined);
  EXPECT_EQ(
      faultIn("setp.eq.s32 %p1, %r1, 9;\n@%p1 mov.b32 %r7, 1;\nmov.b32 %r2, %r7;", {.reportsUndefined = true}).check,
      Check::undefined);
  Fault shared = faultIn("ld.shared.b32 %r2, [dynamic];", {.sharedBytes = 64, .reportsUndefined = true});
  EXPECT_EQ(shared.check, Check::undefined);
  EXPECT_THAT(shared.what(), HasSubstr("is read but was never written"));
}

TEST(PtxMemory, LocalMemoryIsOfAThread) {
  std::string body = R"(.local .align 8 .b8 depot[8];
mov.b64 %rd3, depot;
cvta.local.u64 %rd4, %rd3;
st.b32 [%rd4+4], %r1;
ld.local.b32 %r2, [%rd3+4];
)" + storeOwn;
  EXPECT_THAT(outputs(body, 3, {.block = {3}}), ElementsAre(0, 1, 2));
}

TEST(PtxMemory, GenericAddressesOfSharedMemory) {
  std::string body =
      "mov.u64 %rd3, dynamic;\ncvta.shared.u64 %rd4, %rd3;\nmad.wide.u32 %rd5, %r1, 4, %rd4;\nst.b32 [%rd5], %r1;\n"
      "cvta.to.shared.u64 %rd6, %rd5;\nld.shared.b32 %r2, [%rd6];\n" +
      storeOwn;
  EXPECT_THAT(outputs(body, 3, {.block = {3}, .sharedBytes = 12}), ElementsAre(0, 1, 2));
}

TEST(PtxAtomics, AreDoneLaneByLane) {
  EXPECT_EQ(outputs("atom.global.add.u32 %r2, [%rd1], %r1;\nred.global.max.u32 [%rd1+4], %r1;", 2,
                    {.grid = {2}, .block = {40}})[0],
            2u * 780);
  EXPECT_EQ(outputs("add.s32 %r3, %r1, 1;\natom.global.cas.b32 %r2, [%rd1], 0, %r3;", 1, {.block = {8}})[0], 1u);
  EXPECT_THAT(faultOf([] { Module::parse(kernelText("atom.global.add.f32 %f1, [%rd1], %f2;")); }).what(),
              HasSubstr("not deterministic"));
}

TEST(PtxAsynchronousCopies, CompleteWhenWaitedFor) {
  std::string body = R"(mov.u32 %r4, dynamic;
shl.b32 %r5, %r1, 4;
add.s32 %r4, %r4, %r5;
mad.wide.u32 %rd3, %r1, 16, %rd1;
cp.async.cg.shared.global [%r4], [%rd3], 16;
cp.async.commit_group;
cp.async.ca.shared.global [%r4+512], [%rd3+4], 4, 0;
cp.async.commit_group;
cp.async.wait_group 1;
ld.shared.b32 %r2, [%r4+8];
cp.async.wait_all;
ld.shared.b32 %r6, [%r4+512];
add.s32 %r2, %r2, %r6;
st.global.b32 [%rd3], %r2;
)";
  std::vector<uint32_t> data(128);
  std::iota(data.begin(), data.end(), 0);
  Memory memory;
  Launch launch{.entry = "k", .block = {32}, .sharedBytes = 1024, .arguments = {memory.add(data.data(), 512)}};
  Module::parse(kernelText(body, 1)).launch(launch, memory);
  for (uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(data[i * 4], i * 4 + 2);
  body.replace(body.find("wait_group 1"), 12, "wait_group 2");
  Fault fault = faultOf([&] { Module::parse(kernelText(body, 1)).launch(launch, memory); });
  EXPECT_EQ(fault.check, Check::race);
  EXPECT_THAT(fault.what(), HasSubstr("is read before its asynchronous copy was waited for"));
}

} // namespace
} // namespace espalier::emulator
