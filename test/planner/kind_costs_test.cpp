// Costs that are partly taken over from the choice before are those of the whole sum.
#include "planner/search/kind_costs.h"
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

using namespace espalier::planner;

namespace {

// But for rounding: batch / dp may be rounded for one dp and not for another.
void expectSame(double a, double b) { EXPECT_NEAR(a, b, 1e-14 * std::abs(b)); }

template <size_t Size> void expectSame(const std::array<double, Size> &a, const std::array<double, Size> &b) {
  for (size_t i = 0; i < Size; ++i)
    expectSame(a[i], b[i]);
}

void expectSame(const PhaseSeconds &a, const PhaseSeconds &b) {
  expectSame(a.compute, b.compute);
  expectSame(a.communication, b.communication);
  expectSame(a.hostTransfer, b.hostTransfer);
}

void expectSame(const SegmentCost &a, const SegmentCost &b) {
  expectSame(a.forward, b.forward);
  expectSame(a.backward, b.backward);
  expectSame(a.weight, b.weight);
  expectSame(a.step, b.step);
  for (int i = 0; i < 3; ++i)
    expectSame(a.recompute[i], b.recompute[i]);
  expectSame(a.parameterBytes, b.parameterBytes);
  expectSame(a.gradientBytes, b.gradientBytes);
  expectSame(a.optimizerBytes, b.optimizerBytes);
  expectSame(a.elements, b.elements);
  expectSame(a.savedBytes, b.savedBytes);
  expectSame(a.forwardPeakBytes, b.forwardPeakBytes);
  expectSame(a.backwardPeakBytes, b.backwardPeakBytes);
  expectSame(a.tiedParameterBytes, b.tiedParameterBytes);
  expectSame(a.hideableStep, b.hideableStep);
  expectSame(a.workspaceBytes, b.workspaceBytes);
  expectSame(a.stepBytes, b.stepBytes);
  expectSame(a.stepPeakBytes, b.stepPeakBytes);
  expectSame(a.gatheredBytes, b.gatheredBytes);
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
      if (random() % 2)
        plan.dp = 1 + static_cast<int>(random() % 6), plan.pp = 1 + static_cast<int>(random() % 3);
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
