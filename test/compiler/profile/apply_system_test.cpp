// Applies the storage of other software to a profiled model, and compares the cost of a layer with the unchanged one.
#include "compiler/profile/apply_system.h"

#include "compiler/import/run/import_run.h"
#include "compiler/profile/profile_model.h"
#include "planner/model/segment.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace espalier;
using planner::Recompute;

namespace {

constexpr double positions = 2048, hidden = 12288, heads = 96, samples = 1;

class ApplySystem : public testing::Test {
protected:
  static void SetUpTestSuite() {
    ImportOptions options;
    options.sets = {"model.model_config.num_layers=2", "parallel.parallel_mode=2", "planner.global_batch=64"};
    ImportedRun imported = importRun(ESPALIER_SOURCE_DIR "/configs/gpt3_175b.yaml", options);
    ASSERT_TRUE(imported.ok()) << imported.diagnostics.render();
    imported.config.pins.cp = 1;
    imported.config.pins.tp = 1;
    mlir::MLIRContext context;
    std::optional<planner::Problem> profiled = profileModel(context, imported.config, "cpu", /*onlyPinned=*/true);
    ASSERT_TRUE(profiled);
    own() = *profiled;
  }

  static planner::Problem &own() {
    static planner::Problem problem;
    return problem;
  }

  /// Returns the cost of a layer on one rank, with one sample.
  static planner::SegmentCost layer(const SystemStorage &storage, int dp = 1, int zero = 0) {
    planner::Problem problem = own();
    applySystem(storage, problem);
    planner::ParallelConfig config;
    config.dp = dp;
    config.microBatchSize = static_cast<int64_t>(samples);
    config.zero = zero;
    std::optional<planner::SegmentCost> cost = planner::segmentCost(problem, problem.layers.front().kind, config);
    EXPECT_TRUE(cost);
    return *cost;
  }
};

TEST_F(ApplySystem, StoredScoresAreKeptAndTakeMoreTime) {
  planner::SegmentCost fused = layer({});
  planner::SegmentCost stored =
      layer({.scoreBytes = 5, .dropsScores = true, .selective = SystemStorage::Selective::Attention});
  double scores = samples * heads * positions * positions;
  EXPECT_NEAR(stored.savedBytes[Recompute::None] - fused.savedBytes[Recompute::None], 5 * scores, 1e-6 * scores);
  EXPECT_NEAR(stored.savedBytes[Recompute::Selective], fused.savedBytes[Recompute::None], 1e-6 * scores);
  EXPECT_EQ(stored.savedBytes[Recompute::Full], fused.savedBytes[Recompute::Full]);
  EXPECT_GT(stored.forward.compute, fused.forward.compute);
  EXPECT_GT(stored.backward.compute, fused.backward.compute);
  // Selective recompute repeats the scores, the softmax and the second product: the time of attention in forward.
  EXPECT_GT(stored.recompute[Recompute::Selective].total(), stored.forward.compute - fused.forward.compute);
  EXPECT_LT(stored.recompute[Recompute::Selective].total(), 0.5 * stored.forward.compute);
}

TEST_F(ApplySystem, DroppedScoresTakeMoreTime) {
  EXPECT_GT(layer({.scoreBytes = 5, .dropsScores = true}).forward.compute, layer({.scoreBytes = 5}).forward.compute);
}

TEST_F(ApplySystem, AFlatPartitionIsUpdatedInOnePiece) {
  for (int zero : {0, 1, 2, 3}) {
    double more = layer({.flatUpdateBytes = 4}, 8, zero).stepBytes - layer({}, 8, zero).stepBytes;
    double owned = layer({}, 8, zero).elements / 8;
    EXPECT_NEAR(more, zero == 1 || zero == 2 ? 4 * owned : 0, 1e-6 * owned) << zero;
  }
}

TEST_F(ApplySystem, AWholeLayerIsRepeatedWithItsLastProduct) {
  planner::SegmentCost needed = layer({}), whole = layer({.repeatsWholeLayer = true});
  double last = planner::matmulSeconds(positions * samples, hidden, 4 * hidden, 1, 0, own().machine);
  double more = whole.recompute[Recompute::Full].total() - needed.recompute[Recompute::Full].total();
  EXPECT_NEAR(more, last, 0.05 * last);
  EXPECT_EQ(whole.forward.total(), needed.forward.total());
}

TEST_F(ApplySystem, EverySecondProductIsRepeated) {
  planner::SegmentCost own = layer({}), second = layer({.selective = SystemStorage::Selective::SecondProducts});
  EXPECT_LT(second.savedBytes[Recompute::Selective], own.savedBytes[Recompute::None]);
  EXPECT_GT(second.savedBytes[Recompute::Selective], own.savedBytes[Recompute::Full]);
  EXPECT_GT(second.recompute[Recompute::Selective].total(), own.recompute[Recompute::Selective].total());
  EXPECT_LT(second.recompute[Recompute::Selective].total(), own.recompute[Recompute::Full].total());
}

TEST_F(ApplySystem, GradientsHaveTheirOwnBytes) {
  planner::SegmentCost wide = layer({}, 8);
  planner::SegmentCost half = layer({.gradientBytes = 2, .reducedBytes = 2, .optimizerBytes = 16}, 8);
  EXPECT_NEAR(half.gradientBytes, wide.gradientBytes / 2, 1e-6 * wide.gradientBytes);
  EXPECT_NEAR(half.optimizerBytes, wide.optimizerBytes * 16 / 12, 1e-6 * wide.optimizerBytes);
  constexpr auto dp = planner::Axis::Dp;
  EXPECT_LT(half.hideableStep[dp] + half.step.communication[dp],
            0.6 * (wide.hideableStep[dp] + wide.step.communication[dp]));
  planner::SegmentCost passes = layer({.gradientPasses = 7}), kernel = layer({.accumulationBytes = 6});
  EXPECT_GT(passes.step.compute, layer({}).step.compute);
  double seconds = 6 * wide.elements / own().machine.memoryBytesPerSecond;
  EXPECT_NEAR(kernel.weight.compute - layer({}).weight.compute, seconds, 1e-3 * seconds + 1e-5);
}

// Two products with a gather before the first and a reduction after the second. Each transfer then runs beside its
// product, except for one of its four parts.
TEST(SplitProducts, TransfersRunBesideTheirProduct) {
  using planner::Axis, planner::CollectiveKind, planner::ComputeClass;
  planner::Problem problem;
  problem.dimensions = {{"seq", 4096}};
  problem.machine.peakFlops = 1e12, problem.machine.memoryBytesPerSecond = 1e12;
  problem.machine.link = {1e9, 0};
  problem.machine.devicesPerHost = 4;
  planner::PatternTerms &pattern = problem.kinds.emplace_back().patterns.emplace_back();
  for (int position : {1, 3}) {
    planner::ComputeTerm term;
    term.kind = ComputeClass::MatMul;
    term.m = term.n = term.k = {{4096, {}}}, term.count = {{1, {}}};
    term.position = position;
    pattern.compute.push_back(term);
  }
  auto transfer = [&](CollectiveKind kind, planner::Phase phase, int start, int wait) {
    planner::CollectiveTerm term;
    term.kind = kind, term.phase = phase, term.start = start, term.wait = wait;
    term.bytes = {{4e7, {}}};
    pattern.collectives.push_back(term);
  };
  transfer(CollectiveKind::AllGather, planner::Phase::Forward, 0, 0);
  transfer(CollectiveKind::AllReduce, planner::Phase::Forward, 2, 2);
  transfer(CollectiveKind::ReduceScatter, planner::Phase::Forward, 4, 4);
  transfer(CollectiveKind::AllGather, planner::Phase::Step, 0, 0);
  planner::ParallelConfig config;
  config.tp = 4;
  double whole = planner::segmentCost(problem, 0, config)->forward.communication[Axis::Tp];
  double each = 0.75 * 4e7 / 1e9;
  EXPECT_NEAR(whole, 4 * each, 1e-9); // an all-reduce takes twice as long
  applySystem({.splitsProducts = true}, problem);
  std::vector<bool> inParts;
  for (const planner::CollectiveTerm &term : pattern.collectives)
    inParts.push_back(term.inParts);
  EXPECT_EQ(std::ranges::count(inParts, true), 2);
  double exposed = planner::segmentCost(problem, 0, config)->forward.communication[Axis::Tp];
  EXPECT_NEAR(exposed, (2 + 2 * (0.25 + 0.75 * planner::kCompetition)) * each, 1e-9);
}

} // namespace
