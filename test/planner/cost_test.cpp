// Checks cost formulas at known limits.
#include "planner/model/cost.h"
#include "planner/model/memory.h"
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

using namespace espalier::planner;

TEST(Cost, SizesAreSumsOfMonomials) {
  // 2 batch seq / tp + 3
  Size size = {{2, {{kBatchSymbol, 1}, {kFirstDimension, 1}, {static_cast<int>(Axis::Tp), -1}}}, {3, {}}};
  std::vector<double> symbols = {1, 1, 1, 1, 4, 8, 10};
  EXPECT_DOUBLE_EQ(evaluate(size, symbols), 2 * 8 * 10 / 4.0 + 3);
  EXPECT_DOUBLE_EQ(evaluate({}, symbols), 0);
}

TEST(Cost, RingAllReduceMovesTwiceTheBufferWhenManyRanks) {
  Group group{1024, 1, 1e9, 0};
  EXPECT_NEAR(collectiveSeconds(CollectiveKind::AllReduce, 1e9, 1, group), 2, 0.01);
  EXPECT_NEAR(collectiveSeconds(CollectiveKind::AllGather, 1e9, 1, group), 1, 0.01);
  group.ranks = 1;
  EXPECT_EQ(collectiveSeconds(CollectiveKind::AllReduce, 1e9, 1, group), 0);
}

TEST(Cost, LatencyGrowsWithTheRanks) {
  Group group{8, 8, 1e12, 1e-5};
  EXPECT_NEAR(collectiveSeconds(CollectiveKind::ReduceScatter, 8, 1, group), 7e-5, 1e-9);
}

TEST(Cost, OneTileMoreThanAWaveCostsAWholeWave) {
  EXPECT_DOUBLE_EQ(tileEfficiency(256 * 12, 128 * 9, 1, 108), 1);
  EXPECT_LT(tileEfficiency(256 * 12, 128 * 9 + 1, 1, 108), 0.9);
  EXPECT_DOUBLE_EQ(tileEfficiency(7, 7, 1, 0), 1); // no quantisation
}

// Weight gradients of GPT-2 124M on an H200, 32 samples of 1,024 tokens: 281 TF/s without split-k.
TEST(Cost, FewTilesOfALongProductUseSplitK) {
  Machine machine;
  machine.peakFlops = 9.89e14, machine.matmulEfficiency = 0.635, machine.memoryBytesPerSecond = 3.7e12;
  machine.multiprocessors = 132;
  auto rate = [&](double m, double n, double k) {
    return 2 * m * n * k / matmulSeconds(m, n, k, 1, 0, machine) / 1e12;
  };
  EXPECT_NEAR(rate(768, 768, 32768), 527, 5);
  EXPECT_NEAR(rate(3072, 768, 32768), 527, 5);
  EXPECT_LT(rate(768, 768, 1024), 290);    // too short for split-k
  EXPECT_GT(rate(8192, 2048, 16384), 600); // fills its waves without split-k
}

TEST(Cost, SeveralProductsThatDoNotDivideByEightLoseTensorCores) {
  EXPECT_DOUBLE_EQ(alignmentEfficiency(4096, 1792, 14336, 96), 1);
  EXPECT_LT(alignmentEfficiency(4096, 1800, 14400, 96), 0.9);
  EXPECT_LT(alignmentEfficiency(2048, 2048, 108, 96), 0.2);
}

TEST(Cost, OneProductLosesWideLoads) {
  EXPECT_DOUBLE_EQ(alignmentEfficiency(4096, 1792, 14336, 1), 1);
  EXPECT_DOUBLE_EQ(alignmentEfficiency(4096, 1800, 14400, 1), 0.8);
  for (int64_t width : {1, 2, 4}) // doubling the width multiplies the rate by the cube root of 2
    EXPECT_NEAR(alignmentEfficiency(4096, 4096, 2 * width, 1) / alignmentEfficiency(4096, 4096, width, 1), std::cbrt(2),
                0.002);
}

// nanoGPT: a step of GPT-2 124M on an A100 takes 1.25 x as long with 50,257 tokens as with 50,304, at 12 samples.
TEST(Cost, AnOddVocabularyTakesAQuarterMore) {
  auto seconds = [](int64_t words) {
    Problem problem = shapeProblem(gpt(12, 768, 12, words, 1024), System{}, testMachine(1, 1), 12);
    Plan plan;
    plan.microBatchSize = 12;
    plan.stages = {{0, 12, std::vector<Recompute>(12, Recompute::None)}};
    return pricePlan(problem, plan).prediction.stepSeconds;
  };
  EXPECT_NEAR(seconds(50257) / seconds(50304), 1.25, 0.07);
}

// One program needs more for many samples, the other for long sequence shards.
TEST(Cost, AWorkspaceIsTheLargestSumOfLiveBytes) {
  constexpr int dp = static_cast<int>(Axis::Dp), cp = static_cast<int>(Axis::Cp);
  Problem problem = shapeProblem(gpt(4, 64, 4), System{}, testMachine(1, 8), 16);
  for (PatternTerms &terms : problem.kinds[1].patterns) {
    terms.workspaceBytes.fill({{{10, {{dp, -1}, {kBatchSymbol, 1}}}}, {{40, {{cp, -1}}}, {5, {}}}});
    terms.oneSampleWorkspaceBytes[2] = {{{3, {}}}};
  }
  auto workspaces = [&](int64_t samples, int contextRanks) {
    Plan plan;
    plan.dp = 2, plan.cp = contextRanks, plan.microBatchSize = samples;
    return segmentCost(problem, 1, plan).value().workspaceBytes;
  };
  EXPECT_EQ(workspaces(2, 1), (std::array<double, 3>{45, 45, 45}));
  EXPECT_EQ(workspaces(2, 4), (std::array<double, 3>{20, 20, 20}));
  EXPECT_EQ(workspaces(1, 8), (std::array<double, 3>{10, 10, 3}));
}

// The last of n contiguous shards takes (2 n - 1) / n of the mean time of causal attention; zigzag order balances it.
TEST(Cost, ZigzagOrderBalancesCausalAttention) {
  constexpr int cp = static_cast<int>(Axis::Cp);
  Problem problem = shapeProblem(gpt(4, 64, 4), System{}, testMachine(1, 8), 16);
  problem.machine.launchSeconds = 0;
  for (PatternTerms &terms : problem.kinds[1].patterns) {
    ComputeTerm attention;
    attention.kind = ComputeClass::Attention;
    attention.operations = {{8e12, {{cp, -1}}}, {-4e12, {{cp, -2}}}};
    terms.compute = {attention};
    terms.collectives.clear();
  }
  auto seconds = [&](bool zigzag, int ranks) {
    Plan plan;
    plan.cp = ranks, plan.zigzag = zigzag;
    return segmentCost(problem, 1, plan).value().forward.compute;
  };
  EXPECT_DOUBLE_EQ(seconds(true, 1), seconds(false, 1));
  EXPECT_DOUBLE_EQ(seconds(true, 8), seconds(true, 1) / 8);
  EXPECT_DOUBLE_EQ(seconds(false, 8), seconds(true, 8) * 15 / 8);
  problem.software.contextOrders = ContextOrders::Zigzag; // balanced by any plan
  EXPECT_DOUBLE_EQ(seconds(false, 8), seconds(true, 8));
}

// Zigzag order, and several samples, copy gathered keys and values: 160 MB at 1.6 TB/s, read and written.
TEST(Cost, GatheredKeysAndValuesAreRearranged) {
  Problem problem = shapeProblem(gpt(4, 64, 4), System{}, testMachine(1, 8), 16);
  problem.machine.launchSeconds = 0;
  for (PatternTerms &terms : problem.kinds[1].patterns) {
    terms.compute.clear();
    CollectiveTerm gather;
    gather.kind = CollectiveKind::AllGather, gather.axis = Axis::Cp, gather.bytes = {{160e6, {}}};
    CollectiveTerm scatter = gather;
    scatter.kind = CollectiveKind::ReduceScatter, scatter.phase = Phase::Backward;
    terms.collectives = {gather, scatter};
  }
  auto cost = [&](bool zigzag, int64_t samples, int ranks = 4) {
    Plan plan;
    plan.cp = ranks, plan.zigzag = zigzag, plan.microBatchSize = samples;
    return segmentCost(problem, 1, plan).value();
  };
  EXPECT_EQ(cost(false, 1).forward.compute, 0);
  EXPECT_EQ(cost(true, 2, 1).forward.compute, 0);
  EXPECT_DOUBLE_EQ(cost(true, 1).forward.compute, 2e-4);
  EXPECT_DOUBLE_EQ(cost(true, 1).backward.compute, 2e-4);
  EXPECT_DOUBLE_EQ(cost(false, 2).forward.compute, 2e-4);
  problem.software.contextOrders = ContextOrders::Zigzag; // whose attention reads the parts in any order
  EXPECT_EQ(cost(true, 2).forward.compute, 0);
}

// Seconds and bytes of one layer under a system, four tensor ranks.
static SegmentCost layerOf(const System &system, bool gated = true) {
  ModelShape shape = gpt(4, 4096, 32);
  shape.gated = gated;
  Problem problem = shapeProblem(shape, system, testMachine(1, 8), 16);
  Plan plan;
  plan.tp = 4, plan.dp = 2, plan.microBatchSize = 2, plan.microBatches = 4, plan.zero = 1;
  return segmentCost(problem, problem.layers[0].kind, plan).value();
}

TEST(Published, AccumulationInASeparateKernelMovesBytes) {
  System fused, apart;
  apart.accumulationBytes = 10;
  double elements = layerOf(fused).elements, more = layerOf(apart).weight.total() - layerOf(fused).weight.total();
  EXPECT_NEAR(more, 10 * elements / 1.6e12, 4 * 4e-6 + 1e-6); // norms have no product; four launches
}

TEST(Published, GradientsAreReducedInTheirOwnType) {
  System wide, narrow;
  narrow.reducedBytes = 2;
  int dp = static_cast<int>(Axis::Dp);
  SegmentCost four = layerOf(wide), two = layerOf(narrow);
  EXPECT_LT(two.step.communication[dp], four.step.communication[dp]);
  EXPECT_EQ(two.gradientBytes, four.gradientBytes);
}

TEST(Published, InputsInEightBitsAndAllocatorsChangeMemory) {
  System plain, narrow, held;
  narrow.productInputBytes = 1;
  held.allocatedShare = 1.5;
  EXPECT_LT(layerOf(narrow).savedBytes[0], layerOf(plain).savedBytes[0]);
  EXPECT_EQ(layerOf(narrow).savedBytes[2], layerOf(plain).savedBytes[2]); // the layer's input keeps its type
  EXPECT_DOUBLE_EQ(layerOf(held).savedBytes[0], 1.5 * layerOf(plain).savedBytes[0]);
}

// Projection and the second ffn matrix are 5 of the 16 hidden^2 multiplications of a gated layer of width 4 hidden.
TEST(Published, RepeatingEverySecondProductTradesTimeForBytes) {
  System plain, second;
  second.repeatsSecondProducts = true;
  SegmentCost kept = layerOf(plain), repeated = layerOf(second);
  EXPECT_LT(repeated.savedBytes[1], kept.savedBytes[1]);
  double share = (repeated.recompute[1].compute - kept.recompute[1].compute) / kept.forward.compute;
  EXPECT_GT(share, 0.2);
  EXPECT_LT(share, 0.45);
  EXPECT_EQ(kept.recompute[2].communication, repeated.recompute[2].communication);
}

TEST(Cost, MatmulIsBoundByMemoryWhenThin) {
  Machine machine = testMachine(1, 1);
  double bytes = 2.0 * (4096.0 * 4096 + 2 * 4096);
  EXPECT_NEAR(matmulSeconds(64, 4096, 4096, 1, bytes * 100, machine), bytes * 100 / 1.6e12 + 4e-6, 1e-9);
  EXPECT_GE(matmulSeconds(1, 1, 1, 1, 4, machine), 4e-6); // the launch floor
}

TEST(Cost, GroupsOfInnerAxesStayOnTheHost) {
  Machine machine = testMachine(4, 8);
  Plan plan;
  plan.tp = 8, plan.dp = 2, plan.pp = 2;
  Group tensor = groupOf(Axis::Tp, plan, machine), data = groupOf(Axis::Dp, plan, machine);
  EXPECT_EQ(tensor.bytesPerSecond, machine.link.bytesPerSecond);
  EXPECT_EQ(data.perHost, 1);
  EXPECT_EQ(data.bytesPerSecond, machine.network.bytesPerSecond);
  plan.tp = 2,
  plan.dp = 8; // 4 members on a host: 2 groups share 8 ports
  EXPECT_EQ(groupOf(Axis::Dp, plan, machine).bytesPerSecond, 4 * machine.network.bytesPerSecond);
}

TEST(Cost, GradientsOfExpertsUseOtherGroups) {
  Machine machine = testMachine(4, 8);
  Plan plan;
  plan.tp = 2, plan.ep = 4, plan.dp = 4;
  Group experts = groupOf(Axis::Dp, plan, machine), others = groupOf(Axis::Dp, plan, machine, /*overExperts=*/true);
  EXPECT_EQ(experts.ranks, 4);
  EXPECT_EQ(experts.perHost, 1);
  EXPECT_EQ(others.ranks, 16);
  EXPECT_EQ(others.perHost, 4);
}

// 4 hosts of 8 devices: shards stay on a host, and the replicas of a shard are one device of each host.
TEST(Cost, HybridShardingKeepsShardsOnAHost) {
  Machine machine = testMachine(4, 8);
  Plan plan;
  plan.tp = 2, plan.dp = 16, plan.zero = 1, plan.zeroGroup = 4;
  Group shards = groupOf(Axis::Dp, plan, machine, /*overExperts=*/false, DataRanks::Shards),
        replicas = groupOf(Axis::Dp, plan, machine, /*overExperts=*/false, DataRanks::Replicas);
  EXPECT_EQ(shards.ranks, 4);
  EXPECT_EQ(shards.bytesPerSecond, machine.link.bytesPerSecond);
  EXPECT_EQ(replicas.ranks, 4);
  EXPECT_EQ(replicas.perHost, 1);
  EXPECT_LE(replicas.bytesPerSecond, machine.network.bytesPerSecond);
  CollectiveTerm scatter;
  scatter.axis = Axis::Dp, scatter.kind = CollectiveKind::ReduceScatter, scatter.calls = 1;
  EXPECT_DOUBLE_EQ(replicaSumSeconds(scatter, 1e9, plan, machine),
                   collectiveSeconds(CollectiveKind::AllReduce, 1e9 / 4, 1, replicas));
}

// With 8 choices among 8 hosts, a token is needed on 5.25 hosts. Groups of experts bound them.
TEST(Cost, TokensCrossTheNetworkOncePerHost) {
  Problem problem;
  problem.machine = testMachine(8, 8);
  problem.routing.choices = 8;
  ParallelConfig plan;
  plan.ep = 64;
  CollectiveTerm term;
  term.kind = CollectiveKind::AllToAll, term.axis = Axis::Ep;
  auto seconds = [&] { return collectiveSeconds(term.kind, 64e6, 0, groupOf(term, plan, problem)); };
  double each = seconds(), network = problem.machine.network.bytesPerSecond;
  EXPECT_NEAR(each, 56e6 / network, 1e-9 * each);
  problem.software.dispatch.oncePerHost = true;
  EXPECT_NEAR(seconds(), each * (1 - std::pow(7.0 / 8, 8)), 1e-9 * each);
  problem.routing.groups = 8, problem.routing.keptGroups = 4;
  EXPECT_NEAR(seconds(), each * (1 - std::pow(3.0 / 4, 8)) / 2, 1e-9 * each);
  plan.ep = 8; // inside a host
  EXPECT_NEAR(seconds(), 56e6 / problem.machine.link.bytesPerSecond, 1e-12);
}

TEST(Cost, AllToAllKeepsOnePartAndSendsTheOthers) {
  Machine machine = testMachine(2, 8);
  machine.link.latencySeconds = machine.network.latencySeconds = 0;
  Plan plan;
  plan.ep = 8, plan.dp = 2;
  double bytes = 1e9;
  EXPECT_DOUBLE_EQ(collectiveSeconds(CollectiveKind::AllToAll, bytes, 1, groupOf(Axis::Ep, plan, machine)),
                   7.0 / 8 * bytes / machine.link.bytesPerSecond);
  plan.ep = 16, plan.dp = 1; // half goes to the other host, at each rank's own network share
  EXPECT_DOUBLE_EQ(collectiveSeconds(CollectiveKind::AllToAll, bytes, 1, groupOf(Axis::Ep, plan, machine)),
                   8.0 / 16 * bytes / machine.network.bytesPerSecond);
  plan.ep = 1;
  EXPECT_EQ(collectiveSeconds(CollectiveKind::AllToAll, bytes, 1, groupOf(Axis::Ep, plan, machine)), 0);
}

TEST(Cost, OverlapNeverCostsMoreThanBothNorLessThanTheLonger) {
  EXPECT_DOUBLE_EQ(overlappedSeconds(2, 0), 2);
  EXPECT_GE(overlappedSeconds(2, 1), 2);
  EXPECT_LE(overlappedSeconds(2, 1), 3);
}

TEST(Memory, KorthikantiTable2PerLayer) {
  // s b h (10 + 24 / t + 5 a s / (h t)) for 22B: t = 8, b = 4; with sequence parallelism all over
  // t.
  Problem problem = shapeProblem(
      gpt(48, 6144, 64),
      [] {
        System system;
        system.fusedAttention = false;
        return system;
      }(),
      testMachine(1, 8), 4);
  Plan plan;
  plan.tp = 8, plan.microBatchSize = 4;
  double sbh = 2048.0 * 4 * 6144, scores = 5.0 * 64 * 2048 / 6144;
  CostTable table = buildCostTable(problem, plan);
  EXPECT_NEAR(table.kinds[1].savedBytes[0], sbh * (10 + 24 / 8.0 + scores / 8), 1);
  EXPECT_NEAR(table.kinds[1].savedBytes[1], sbh * (10 + 24 / 8.0), 1);
  EXPECT_NEAR(table.kinds[1].savedBytes[2], sbh * 2, 1);
  plan.sequenceParallel = true;
  table = buildCostTable(problem, plan);
  EXPECT_NEAR(table.kinds[1].savedBytes[0], sbh * (34 + scores) / 8, 1);
}

TEST(Memory, ExpertsAreSharedOverFewerRanksThanTheRest) {
  Problem problem = withExperts(shapeProblem(gpt(2, 256, 4), System{}, testMachine(1, 8), 8), 4);
  Plan plan;
  plan.dp = 2, plan.ep = 4;
  SegmentCost layer = segmentCost(problem, 1, plan).value(), head = segmentCost(problem, 2, plan).value();
  plan.zero = 1;
  EXPECT_DOUBLE_EQ(segmentCost(problem, 1, plan).value().optimizerBytes, layer.optimizerBytes / 2);
  EXPECT_DOUBLE_EQ(segmentCost(problem, 2, plan).value().optimizerBytes, head.optimizerBytes / 8);
  Plan dense;
  dense.dp = 8;
  EXPECT_DOUBLE_EQ(layer.parameterBytes, segmentCost(problem, 1, dense).value().parameterBytes / 4);
  EXPECT_DOUBLE_EQ(layer.savedBytes[0], segmentCost(problem, 1, dense).value().savedBytes[0]);
}

TEST(Memory, ZeroShardsTheStatedClasses) {
  Problem problem = shapeProblem(gpt(2, 256, 4), System{}, testMachine(1, 4), 4);
  Plan plan;
  plan.dp = 4;
  SegmentCost none = segmentCost(problem, 1, plan).value();
  plan.zero = 3;
  SegmentCost all = segmentCost(problem, 1, plan).value();
  EXPECT_DOUBLE_EQ(all.parameterBytes, none.parameterBytes / 4);
  EXPECT_DOUBLE_EQ(all.gradientBytes, none.gradientBytes / 4);
  EXPECT_DOUBLE_EQ(all.optimizerBytes, none.optimizerBytes / 4);
  plan.zero = 1;
  EXPECT_DOUBLE_EQ(segmentCost(problem, 1, plan).value().gradientBytes, none.gradientBytes);
}
