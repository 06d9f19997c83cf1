// Patterns are compared term by term, once per problem.
#include "planner/search/kind_costs.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace espalier::planner {

bool isLocalSize(const Size &size) {
  return std::ranges::all_of(size, [](const Monomial &part) {
    int samples = 0;
    for (const Power &power : part.powers) {
      if (power.symbol == static_cast<int>(Axis::Pp))
        return false;
      if (power.symbol == kBatchSymbol || power.symbol == static_cast<int>(Axis::Dp))
        samples += power.exponent;
    }
    return samples == 0;
  });
}

namespace {

// The terms of micro-batches alone, or those of the step and the parameters alone.
PatternTerms partOf(const PatternTerms &terms, bool step) {
  PatternTerms part = step ? PatternTerms{} : terms;
  part.pattern = step ? terms.pattern : Pattern{};
  auto keep = [&](const auto &from, auto &to) {
    to.clear();
    std::ranges::copy_if(from, std::back_inserter(to), [&](const auto &t) { return (t.phase == Phase::Step) == step; });
  };
  keep(terms.compute, part.compute);
  keep(terms.collectives, part.collectives);
  part.parameters.clear();
  part.stepBytes.clear();
  part.stepPeakBytes.clear();
  if (step) {
    part.parameters = terms.parameters;
    part.stepBytes = terms.stepBytes;
    part.stepPeakBytes = terms.stepPeakBytes;
  }
  return part;
}

bool areLocal(const PatternTerms &terms) {
  auto sizes = [](const auto &...list) { return (isLocalSize(list) && ...); };
  auto arrays = [](const auto &list) { return std::ranges::all_of(list, isLocalSize); };
  return std::ranges::all_of(
             terms.compute,
             [&](const ComputeTerm &t) { return sizes(t.m, t.n, t.k, t.count, t.operations, t.bytes); }) &&
         std::ranges::all_of(
             terms.collectives,
             [&](const CollectiveTerm &t) { return t.axis != Axis::Dp && t.axis != Axis::Pp && sizes(t.bytes); }) &&
         sizes(terms.keptCollectiveBytes) && arrays(terms.savedBytes) && arrays(terms.forwardPeakBytes) &&
         arrays(terms.backwardPeakBytes) && std::ranges::all_of(terms.workspaceBytes, arrays) &&
         std::ranges::all_of(terms.oneSampleWorkspaceBytes, arrays);
}

auto insideReplica(const Plan &plan) {
  return std::tie(plan.tp, plan.cp, plan.ep, plan.microBatchSize, plan.sequenceParallel, plan.vocabParallel,
                  plan.keepTensorParallelResults, plan.sliceRecomputedInputs, plan.schedule);
}

auto replicas(const Plan &plan) { return std::tie(plan.pp, plan.dp); }

} // namespace

KindCosts::KindCosts(const Problem &problem) : problem(problem) {
  once.dimensions = problem.dimensions;
  once.machine = problem.machine;
  for (const SegmentKind &kind : problem.kinds) {
    SegmentKind step{kind.name, {}};
    std::vector<PatternTerms> microBatches;
    std::vector<int> group;
    for (const PatternTerms &terms : kind.patterns) {
      step.patterns.push_back(partOf(terms, /*step=*/true));
      microBatches.push_back(partOf(terms, /*step=*/false));
      group.push_back(static_cast<int>(std::ranges::find(microBatches, microBatches.back()) - microBatches.begin()));
    }
    std::vector<bool> local;
    for (const PatternTerms &terms : microBatches)
      local.push_back(areLocal(terms));
    isLocal.push_back(std::move(local));
    once.kinds.push_back(std::move(step));
    groups.push_back(std::move(group));
  }
}

std::strong_ordering KindCosts::compare(const Plan &a, const Plan &b) {
  return std::tuple_cat(insideReplica(a), std::tie(a.zero), replicas(a)) <=>
         std::tuple_cat(insideReplica(b), std::tie(b.zero), replicas(b));
}

void KindCosts::price(int kind, const Plan &plan, Last &last) const {
  bool isNear = last.plan && insideReplica(*last.plan) == insideReplica(plan);
  bool isSplitAlike = isNear && replicas(*last.plan) == replicas(plan);
  if (isSplitAlike && last.plan->zero == plan.zero)
    return; // offloading is added by others
  const std::vector<PatternTerms> &patterns = problem.kinds[kind].patterns;
  auto terms = std::ranges::find_if(patterns, [&](const PatternTerms &t) { return matches(t.pattern, plan); });
  int group = terms == patterns.end() ? -1 : groups[kind][terms - patterns.begin()];
  if (group < 0 || group != last.group || !isNear || !(isSplitAlike || isLocal[kind][group])) {
    last.cost = segmentCost(problem, kind, plan, &last.found);
  } else {
    SegmentCost cost = segmentCost(once, kind, plan), &before = last.cost;
    cost.forward = before.forward, cost.backward = before.backward, cost.weight = before.weight;
    cost.recompute = before.recompute;
    cost.savedBytes = before.savedBytes;
    cost.forwardPeakBytes = before.forwardPeakBytes, cost.backwardPeakBytes = before.backwardPeakBytes;
    cost.workspaceBytes = before.workspaceBytes;
    last.cost = cost;
  }
  last.plan = plan;
  last.group = group;
}

} // namespace espalier::planner
