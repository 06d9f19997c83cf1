// The bound of what layers of many kinds keep and repeat: never above the best plan, and close where memory is scarce.
#include "planner/search/layer_trades.h"
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

using namespace espalier::planner;

namespace {

double boundOf(const Problem &problem, const Plan &plan) {
  MicroBatchTerms terms(problem);
  LayerTrades trades(terms.problem(), plan, buildCostTable(terms.problem(), plan));
  return trades.bound(sumWork(problem, buildCostTable(problem, plan)), problem.machine, plan, leastHeldOf(plan));
}

// The most micro-batches of whichever chunk a stage holds at one of its moments, most first.
std::vector<int> heldAtOnce(const ScheduleTable &table) {
  std::vector<int> held;
  for (int stage = 0; stage < static_cast<int>(table.stages.size()); ++stage) {
    held.push_back(0);
    for (const std::vector<int> &moment : mostHeld(table, stage))
      held.back() = std::max(held.back(), *std::ranges::min_element(moment));
  }
  std::ranges::sort(held, std::greater<>());
  return held;
}

} // namespace

// Whatever is laid on a stage is held so often: of means of two moments at most half a micro-batch more than at one.
TEST(LeastHeld, IsHeldByTheSchedule) {
  for (Schedule schedule : kSchedules)
    for (int stages : {2, 3, 4, 5, 8, 12})
      for (int microBatches = stages; microBatches <= 8 * stages; microBatches += stages) {
        Plan axes;
        axes.pp = stages, axes.microBatches = microBatches, axes.schedule = schedule;
        axes.virtualStages = schedule == Schedule::Interleaved ? 3 : 1;
        std::vector<int> held = heldAtOnce(buildSchedule(schedule, stages, microBatches, axes.virtualStages));
        int first = 0;
        for (const HeldStages &group : leastHeldOf(axes)) {
          first += group.stages;
          double mean = isVShaped(schedule) ? 0.5 : 0;
          EXPECT_LE(group.held, held[first - 1] + mean)
              << scheduleName(schedule) << " stages " << stages << " micro-batches " << microBatches;
        }
        EXPECT_EQ(first, stages);
      }
}

// Small problems are searched without these bounds.
TEST(LayerTrades, AreNeverAboveTheBestPlan) {
  std::mt19937 random(5);
  int solved = 0, raised = 0;
  double closest = 0;
  for (int trial = 0; trial < 160; ++trial) {
    Plan axes;
    axes.pp = 2 + static_cast<int>(random() % 3);
    axes.schedule = kSchedules[random() % std::size(kSchedules)];
    bool isInterleaved = axes.schedule == Schedule::Interleaved;
    axes.virtualStages = isInterleaved ? 2 : isVShaped(axes.schedule) ? 2 : 1;
    int batch = axes.pp * (1 + static_cast<int>(random() % 4)), replicas = 1 + static_cast<int>(random() % 2);
    Machine machine = testMachine(1, axes.pp * replicas);
    if (trial % 2)
      machine = withHost(machine);
    Problem problem = distinctLayers(10 + static_cast<int>(random() % 8), 512, 8, machine, batch * replicas);
    problem.embed = problem.head = -1; // which would take most of the memory
    problem.tiedEmbedding = false;
    pinPipeline(problem, axes);
    if (random() % 4 == 0)
      problem.pins.recompute = static_cast<Recompute>(random() % 3);
    SearchOptions options;
    options.all = true;
    options.relax = false;
    double least = leastBytes(problem, options);
    if (least <= 0)
      continue;
    problem.machine.memoryBytes = least * between(random, 1, 3);
    SearchResult result = search(problem, options);
    if (result.plans.empty())
      continue;
    ++solved;
    for (const PricedPlan &priced : result.plans) {
      double bound = boundOf(problem, priced.plan);
      EXPECT_LE(bound, priced.prediction.stepSeconds) << "trial " << trial << " " << scheduleName(axes.schedule);
      WorkSum work = sumWork(problem, buildCostTable(problem, priced.plan));
      raised += bound > relaxedBound(work, problem.machine, priced.plan, /*chunksAlike=*/false);
      closest = std::max(closest, bound / priced.prediction.stepSeconds);
    }
  }
  EXPECT_GT(solved, 60);
  EXPECT_GT(raised, 10);
  EXPECT_GT(closest, 0.85);
}

// Plans with equal keys have the same micro-batches, but for what is left out of those that are not whole.
TEST(MicroBatchTerms, AreThoseOfAllPlansWithTheirKey) {
  std::mt19937 random(9);
  Problem problem = withExperts(distinctLayers(5, 512, 8, withHost(testMachine(4, 8)), 64), 4);
  MicroBatchTerms terms(problem);
  std::map<std::vector<int64_t>, double> known;
  int again = 0, less = 0;
  for (int trial = 0; trial < 400; ++trial) {
    Plan plan;
    plan.tp = 1 << random() % 2, plan.ep = 1 << random() % 2;
    plan.pp = 2 + static_cast<int>(random() % 3), plan.dp = 1 + static_cast<int>(random() % 4);
    plan.microBatchSize = 1 + static_cast<int>(random() % 2);
    plan.zero = static_cast<int>(random() % 4);
    plan.offloadActivations = random() % 4 == 0;
    plan.offloadParameters = plan.offloadOptimizer = plan.zero == 3 && random() % 2;
    double work = sumWork(terms.problem(), buildCostTable(terms.problem(), plan)).work;
    double whole = sumWork(problem, buildCostTable(problem, plan)).work;
    EXPECT_LE(work, whole * (1 + 1e-12));
    if (terms.isWhole(plan))
      EXPECT_NEAR(work, whole, 1e-12 * whole);
    else
      less += work < whole * (1 - 1e-6);
    auto [place, isNew] = known.try_emplace(terms.keyOf(plan), work);
    EXPECT_NEAR(place->second, work, 1e-12 * work);
    again += !isNew;
  }
  EXPECT_GT(again, 200);
  EXPECT_GT(less, 10);
}
