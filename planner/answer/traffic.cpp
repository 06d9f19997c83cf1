#include "planner/answer/traffic.h"

#include "planner/model/segment.h"

#include <algorithm>

namespace espalier::planner {

namespace {

// Sums the collectives of segments.
class TrafficSum {
public:
  TrafficSum(const Problem &problem, const Plan &plan)
      : problem(problem), plan(plan), symbols(symbolValues(problem, plan)) {}

  // Adds one segment of the model.
  void add(int kind, Recompute recompute) {
    if (kind < 0)
      return;
    const std::vector<PatternTerms> &patterns = problem.kinds[kind].patterns;
    auto terms = std::ranges::find_if(patterns, [&](const PatternTerms &one) { return matches(one.pattern, plan); });
    if (terms == patterns.end())
      return;
    for (const CollectiveTerm &term : terms->collectives)
      add(term, timesOf(term, recompute));
  }

  void add(Axis axis, double bytes, double seconds) {
    traffic[axis].bytes += bytes / plan.pp;
    traffic[axis].seconds += seconds / plan.pp;
  }

  PerAxis<AxisTraffic> traffic;

private:
  // Returns how often a step runs a collective of one segment.
  double timesOf(const CollectiveTerm &term, Recompute recompute) const {
    double times = term.phase == Phase::Step ? 1 : term.phase == Phase::Recompute ? 0 : plan.microBatches;
    bool isRepeated = recompute == Recompute::Selective
                          ? term.recomputedSelective
                          : recompute == Recompute::Full && term.recomputedFull && !plan.keepTensorParallelResults;
    return times + (isRepeated ? plan.microBatches : 0);
  }

  void add(const CollectiveTerm &term, double times) {
    double bytes = evaluate(term.bytes, symbols);
    bool isScatter = term.axis == Axis::Dp && term.kind == CollectiveKind::ReduceScatter;
    bool isOfShards = isScatter || term.kind == CollectiveKind::AllGather;
    Group group =
        groupOf(term.axis, plan, problem.machine, term.overExperts, isOfShards ? DataRanks::Shards : DataRanks::All);
    if (group.ranks > 1)
      add(term.axis, times * bytes, times * collectiveSeconds(term.kind, bytes, term.calls, group));
    if (isScatter && plan.zeroReplicas() > 1) // once per step
      add(term.axis, bytes / group.ranks, replicaSumSeconds(term, bytes, plan, problem.machine));
  }

  const Problem &problem;
  const Plan &plan;
  const std::vector<double> symbols;
};

} // namespace

std::vector<AxisTraffic> axisTraffic(const Problem &problem, const PricedPlan &priced) {
  const Plan &plan = priced.plan;
  TrafficSum sum(problem, plan);
  std::vector<int> kinds;
  for (const LayerRun &run : problem.layers)
    kinds.insert(kinds.end(), run.count, run.kind);
  sum.add(problem.embed, Recompute::None);
  for (const StagePlan &stage : plan.stages)
    for (int layer = 0; layer < stage.layers; ++layer)
      sum.add(kinds[stage.firstLayer + layer], stage.recompute[layer]);
  sum.add(problem.head, Recompute::None);
  if (plan.pp > 1) {
    // Each border between chunks passes an activation forward and a gradient backward.
    double borders = static_cast<double>(plan.stages.size()) - 1;
    double times = 2 * borders * static_cast<double>(plan.microBatches);
    double bytes = evaluate(problem.boundaryBytes, symbolValues(problem, plan));
    sum.add(Axis::Pp, times * bytes, times * boundarySeconds(problem, plan));
    sum.add(Axis::Pp, problem.tiedEmbedding ? evaluate(problem.tiedBytes, symbolValues(problem, plan)) : 0,
            tiedEmbeddingSeconds(problem, plan));
  }
  std::vector<AxisTraffic> list;
  for (Axis axis : {Axis::Dp, Axis::Tp, Axis::Cp, Axis::Ep, Axis::Pp})
    if (double exposed = priced.prediction.time.communication[axis]; sum.traffic[axis].bytes > 0 || exposed > 0)
      list.push_back({axis, sum.traffic[axis].bytes, sum.traffic[axis].seconds, exposed});
  return list;
}

} // namespace espalier::planner
