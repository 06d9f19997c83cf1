#include "planner/answer/traffic.h"

#include "planner/model/segment.h"

namespace espalier::planner {

namespace {

// Returns how often a step runs a collective of one segment.
double timesOf(const CollectiveTerm &term, Recompute recompute, const Plan &plan) {
  double times = term.phase == Phase::Step ? 1 : term.phase == Phase::Recompute ? 0 : plan.microBatches;
  bool isRepeated = recompute == Recompute::Selective
                        ? term.recomputedSelective
                        : recompute == Recompute::Full && term.recomputedFull && !plan.keepTensorParallelResults;
  return times + (isRepeated ? plan.microBatches : 0);
}

} // namespace

std::vector<AxisTraffic> axisTraffic(const Problem &problem, const PricedPlan &priced) {
  const Plan &plan = priced.plan;
  const std::vector<double> symbols = symbolValues(problem, plan);
  PerAxis<AxisTraffic> traffic;
  auto add = [&](Axis axis, double bytes, double seconds) {
    traffic[axis].bytes += bytes / plan.pp;
    traffic[axis].seconds += seconds / plan.pp;
  };
  auto addSegment = [&](int kind, Recompute recompute) {
    const PatternTerms *terms = kind < 0 ? nullptr : termsOf(problem.kinds[kind], plan);
    if (!terms)
      return;
    for (const CollectiveTerm &term : terms->collectives) {
      double bytes = evaluate(term.bytes, symbols), times = timesOf(term, recompute, plan);
      Group group = groupOf(term, plan, problem);
      if (group.ranks > 1)
        add(term.axis, times * bytes, times * collectiveSeconds(term.kind, bytes, term.calls, group));
      if (double seconds = replicaSumSeconds(term, bytes, plan, problem.machine); seconds > 0) // once per step
        add(term.axis, bytes / group.ranks, seconds);
    }
  };
  std::vector<int> kinds;
  for (const LayerRun &run : problem.layers)
    kinds.insert(kinds.end(), run.count, run.kind);
  addSegment(problem.embed, Recompute::None);
  for (const StagePlan &stage : plan.stages)
    for (int layer = 0; layer < stage.layers; ++layer)
      addSegment(kinds[stage.firstLayer + layer], stage.recompute[layer]);
  addSegment(problem.head, Recompute::None);
  if (plan.pp > 1) {
    // Each border between chunks passes an activation forward and a gradient backward.
    double borders = static_cast<double>(plan.stages.size()) - 1;
    double times = 2 * borders * static_cast<double>(plan.microBatches);
    double bytes = evaluate(problem.boundaryBytes, symbols);
    add(Axis::Pp, times * bytes, times * boundarySeconds(problem, plan));
    add(Axis::Pp, problem.tiedEmbedding ? evaluate(problem.tiedBytes, symbols) : 0,
        tiedEmbeddingSeconds(problem, plan));
  }
  std::vector<AxisTraffic> list;
  for (Axis axis : {Axis::Dp, Axis::Tp, Axis::Cp, Axis::Ep, Axis::Pp})
    if (double exposed = priced.prediction.time.communication[axis]; traffic[axis].bytes > 0 || exposed > 0)
      list.push_back({axis, traffic[axis].bytes, traffic[axis].seconds, exposed});
  return list;
}

} // namespace espalier::planner
