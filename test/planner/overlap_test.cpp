// Overlap of compute and communication: programs of a few terms whose seconds are known.
#include "planner/model/segment.h"

#include <gtest/gtest.h>

#include <random>

using namespace espalier::planner;

namespace {

constexpr int tp = static_cast<int>(Axis::Tp);

/// Returns two ranks; a kernel moves 1,000 bytes a second, a link 100.
Machine twoRanks() {
  Machine machine;
  machine.devicesPerHost = 2;
  machine.peakFlops = 1;
  machine.memoryBytesPerSecond = 1000;
  machine.link = machine.network = {100, 0};
  return machine;
}

ComputeTerm kernel(int position, double seconds, Phase phase = Phase::Forward) {
  ComputeTerm term;
  term.phase = phase;
  term.bytes = {{1000 * seconds, {}}};
  term.position = position;
  return term;
}

CollectiveTerm gather(int start, int wait, double seconds, Phase phase = Phase::Forward) {
  CollectiveTerm term;
  term.kind = CollectiveKind::AllGather;
  term.phase = phase;
  term.bytes = {{200 * seconds, {}}}; // half of it comes from the other rank
  term.start = start;
  term.wait = wait;
  return term;
}

SegmentCost costOf(PatternTerms terms, Schedule schedule = Schedule::OneFOneB, const Machine &machine = twoRanks()) {
  Problem problem;
  problem.machine = machine;
  orderTerms(terms);
  problem.kinds = {{"segment", {terms}}};
  Plan plan;
  plan.tp = 2;
  plan.schedule = schedule;
  return segmentCost(problem, 0, plan).value();
}

/// Returns the seconds of a forward program.
double forwardSeconds(std::vector<ComputeTerm> compute, std::vector<CollectiveTerm> collectives) {
  PatternTerms terms;
  terms.compute = std::move(compute);
  terms.collectives = std::move(collectives);
  return costOf(terms).forward.total();
}

TEST(Overlap, OnlyWorkBetweenStartAndWaitOverlaps) {
  std::vector<ComputeTerm> kernels = {kernel(0, 1), kernel(2, 2), kernel(4, 4)};
  EXPECT_DOUBLE_EQ(forwardSeconds(kernels, {gather(1, 1, 3)}), 7 + 3);
  EXPECT_DOUBLE_EQ(forwardSeconds(kernels, {gather(1, 4, 3)}), 1 + overlappedSeconds(2, 3) + 4);
  EXPECT_DOUBLE_EQ(forwardSeconds(kernels, {gather(1, 5, 3)}), 1 + overlappedSeconds(6, 3));
  EXPECT_DOUBLE_EQ(forwardSeconds(kernels, {gather(0, 9, 8)}), overlappedSeconds(7, 8));
}

TEST(Overlap, NoComputeHidesTwoCollectives) {
  // Both are in flight beside 2 seconds of compute, like a single one of 3 seconds.
  EXPECT_DOUBLE_EQ(forwardSeconds({kernel(1, 2)}, {gather(0, 2, 1), gather(0, 2, 2)}), overlappedSeconds(2, 3));
  // The one with the earlier wait is transferred first, so that the other overlaps only with the second kernel.
  EXPECT_DOUBLE_EQ(forwardSeconds({kernel(2, 2), kernel(4, 2)}, {gather(0, 5, 2), gather(1, 3, 2)}),
                   overlappedSeconds(4, 4));
  // A transfer with a later wait yields to one that stalls compute.
  EXPECT_DOUBLE_EQ(forwardSeconds({kernel(1, 2), kernel(4, 2)}, {gather(0, 9, 4), gather(3, 3, 1)}),
                   overlappedSeconds(4, 4) + 1);
}

TEST(Overlap, SeparateWeightGradientsDoNotOverlapWithBackward) {
  PatternTerms terms;
  terms.compute = {kernel(0, 1, Phase::Backward), kernel(2, 2, Phase::Weight), kernel(4, 1, Phase::Backward)};
  terms.collectives = {gather(1, 4, 2, Phase::Backward)};
  SegmentCost joint = costOf(terms), split = costOf(terms, Schedule::ZeroBubbleH1);
  EXPECT_DOUBLE_EQ(joint.backward.total() + joint.weight.total(), 2 + overlappedSeconds(2, 2));
  EXPECT_DOUBLE_EQ(split.backward.total(), 2 + 2);
  EXPECT_DOUBLE_EQ(split.weight.total(), 2);
  // A collective beside the input gradient overlaps in both.
  terms.collectives = {gather(0, 2, 2, Phase::Backward)};
  for (Schedule schedule : {Schedule::OneFOneB, Schedule::ZeroBubbleH1})
    EXPECT_DOUBLE_EQ(costOf(terms, schedule).backward.total(), overlappedSeconds(1, 2) + 1);
}

TEST(Overlap, RecomputeOverlapsWithRecompute) {
  PatternTerms terms;
  terms.compute = {kernel(0, 1, Phase::Recompute), kernel(2, 2, Phase::Recompute), kernel(2, 8, Phase::Backward)};
  terms.compute[0].recomputedFull = terms.compute[1].recomputedFull = true;
  terms.collectives = {gather(1, 9, 3, Phase::Recompute)};
  terms.collectives[0].recomputedFull = true;
  SegmentCost cost = costOf(terms);
  EXPECT_DOUBLE_EQ(cost.recompute[2].total(), 1 + overlappedSeconds(2, 3));
  EXPECT_DOUBLE_EQ(cost.recompute[1].total(), 0);
  EXPECT_DOUBLE_EQ(cost.backward.total(), 8);
}

TEST(Overlap, NothingOverlapsIfTheLinkIsTheMemory) {
  PatternTerms terms;
  terms.compute = {kernel(0, 3), kernel(0, 5, Phase::Step)};
  terms.collectives = {gather(0, 1, 2), gather(0, 0, 4, Phase::Step)};
  terms.collectives[1].besideLastBackward = true;
  Machine copies = twoRanks();
  copies.memoryBytesPerSecond = 2 * copies.link.bytesPerSecond;
  SegmentCost cost = costOf(terms, Schedule::OneFOneB, copies);
  EXPECT_DOUBLE_EQ(cost.forward.communication[tp], 2);
  EXPECT_DOUBLE_EQ(cost.step.communication[tp], 4);
  EXPECT_DOUBLE_EQ(cost.hideableStep[tp], 0);
  EXPECT_DOUBLE_EQ(costOf(terms).hideableStep[tp], 4);
}

/// A program of kernels and collectives at random positions.
PatternTerms randomProgram(std::mt19937 &random) {
  auto below = [&](int limit) { return static_cast<int>(random() % limit); };
  PatternTerms terms;
  for (int i = 1 + below(8); i > 0; --i)
    terms.compute.push_back(kernel(below(20), below(50) / 10.0, below(2) ? Phase::Backward : Phase::Weight));
  for (int i = below(6); i > 0; --i) {
    int start = below(20);
    terms.collectives.push_back(gather(start, start + below(10), below(50) / 10.0, Phase::Backward));
  }
  orderTerms(terms);
  return terms;
}

double backwardSeconds(const PatternTerms &terms, Schedule schedule = Schedule::OneFOneB) {
  SegmentCost cost = costOf(terms, schedule);
  return cost.backward.total() + cost.weight.total();
}

TEST(Overlap, IsBetweenTheLongerAndTheSumAndMonotonic) {
  std::mt19937 random(7);
  int hidden = 0;
  for (int i = 0; i < 2000; ++i) {
    PatternTerms terms = randomProgram(random), exposed = terms;
    for (CollectiveTerm &term : exposed.collectives)
      term.wait = term.start;
    double compute = 0, sum = backwardSeconds(exposed), seconds = backwardSeconds(terms);
    for (const ComputeTerm &term : terms.compute)
      compute += term.bytes[0].coefficient / 1000;
    hidden += seconds < sum - 1e-9;
    ASSERT_LE(seconds, sum + 1e-9) << "program " << i;
    ASSERT_GE(seconds, std::max(compute, sum - compute) - 1e-9) << "program " << i;
    ASSERT_LE(seconds, backwardSeconds(terms, Schedule::ZeroBubbleH1) + 1e-9) << "program " << i;
    // A longer term or an earlier wait never helps. The bounds of the search rely on this.
    PatternTerms slower = terms;
    slower.compute[random() % terms.compute.size()].bytes[0].coefficient += 700;
    ASSERT_GE(backwardSeconds(slower), seconds - 1e-9) << "program " << i;
    if (terms.collectives.empty())
      continue;
    slower = terms;
    CollectiveTerm &changed = slower.collectives[random() % terms.collectives.size()];
    (i % 2 ? changed.bytes[0].coefficient : slower.collectives[0].bytes[0].coefficient) += 100;
    changed.wait = std::max(changed.start, changed.wait - 3);
    ASSERT_GE(backwardSeconds(slower), seconds - 1e-9) << "program " << i;
  }
  EXPECT_GT(hidden, 500);
}

} // namespace
