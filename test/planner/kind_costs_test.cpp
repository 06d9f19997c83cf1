// Costs that are partly taken over from the choice before are those of the whole sum.
#include "planner/kind_costs.h"
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

#include <random>

using namespace espalier::planner;

namespace {

void expectSame(const PhaseSeconds &a, const PhaseSeconds &b) {
  EXPECT_EQ(a.compute, b.compute);
  EXPECT_EQ(a.communication, b.communication);
  EXPECT_EQ(a.hostTransfer, b.hostTransfer);
}

void expectSame(const SegmentCost &a, const SegmentCost &b) {
  expectSame(a.forward, b.forward);
  expectSame(a.backward, b.backward);
  expectSame(a.weight, b.weight);
  expectSame(a.step, b.step);
  for (int i = 0; i < 3; ++i)
    expectSame(a.recompute[i], b.recompute[i]);
  EXPECT_EQ(a.parameterBytes, b.parameterBytes);
  EXPECT_EQ(a.gradientBytes, b.gradientBytes);
  EXPECT_EQ(a.optimizerBytes, b.optimizerBytes);
  EXPECT_EQ(a.elements, b.elements);
  EXPECT_EQ(a.savedBytes, b.savedBytes);
  EXPECT_EQ(a.forwardPeakBytes, b.forwardPeakBytes);
  EXPECT_EQ(a.backwardPeakBytes, b.backwardPeakBytes);
  EXPECT_EQ(a.tiedParameterBytes, b.tiedParameterBytes);
  EXPECT_EQ(a.hideableStep, b.hideableStep);
  EXPECT_EQ(a.workspaceBytes, b.workspaceBytes);
  EXPECT_EQ(a.stepBytes, b.stepBytes);
  EXPECT_EQ(a.stepPeakBytes, b.stepPeakBytes);
  EXPECT_EQ(a.gatheredBytes, b.gatheredBytes);
}

} // namespace

TEST(KindCosts, AreThoseOfTheSegment) {
  std::mt19937 random(3);
  System system;
  system.updateBytes = 4;
  Problem problem = withExperts(shapeProblem(gpt(4, 1024, 16), system, testMachine(4, 8), 64), 4);
  KindCosts costs(problem);
  for (int kind : {0, 1, 2}) {
    KindCosts::Last last;
    Plan plan;
    for (int trial = 0; trial < 500; ++trial) {
      if (random() % 4 == 0) {
        plan.tp = 1 << random() % 3, plan.ep = 1 << random() % 3, plan.pp = 1 + static_cast<int>(random() % 2);
        plan.dp = 1 + static_cast<int>(random() % 4);
        plan.microBatchSize = 1 + static_cast<int>(random() % 4);
        plan.sequenceParallel = plan.tp > 1 && random() % 2;
      }
      plan.zero = static_cast<int>(random() % 4);
      bool found = false;
      SegmentCost whole = segmentCost(problem, kind, plan, &found);
      costs.price(kind, plan, last);
      EXPECT_EQ(last.found, found);
      expectSame(last.cost, whole);
    }
  }
}

// No terms for one combination: neither then nor in the choice behind it is anything taken over.
TEST(KindCosts, SayWhatIsNotFound) {
  Problem problem = shapeProblem(gpt(4, 1024, 16), System{}, testMachine(1, 8), 64);
  std::erase_if(problem.kinds[1].patterns, [](const PatternTerms &terms) { return terms.pattern.zero == 2; });
  KindCosts costs(problem);
  KindCosts::Last last;
  Plan plan;
  plan.dp = 8;
  for (int zero : {1, 2, 1, 3, 0}) {
    plan.zero = zero;
    costs.price(1, plan, last);
    EXPECT_EQ(last.found, zero != 2);
    if (zero != 2)
      expectSame(last.cost, segmentCost(problem, 1, plan));
  }
}
