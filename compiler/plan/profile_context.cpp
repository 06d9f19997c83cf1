#include "compiler/plan/profile_context.h"

#include "planner/model/segment.h"

namespace espalier {

using planner::Axis;
using planner::Phase;

namespace {

/// Returns the terms of `whole` for which `isKept` holds, and those of `split` for which it does not.
template <typename Term, typename IsKept>
std::vector<Term> replaced(const std::vector<Term> &whole, const std::vector<Term> &split, IsKept isKept) {
  std::vector<Term> terms;
  for (const Term &term : whole)
    if (isKept(term))
      terms.push_back(term);
  for (const Term &term : split)
    if (!isKept(term))
      terms.push_back(term);
  return terms;
}

} // namespace

planner::PatternTerms splitOverContext(const planner::PatternTerms &whole, const planner::PatternTerms &split) {
  planner::PatternTerms terms = whole;
  terms.pattern.cp = true;
  if (terms.pattern.zero.value_or(0) > 0)
    terms.pattern.dp = std::nullopt; // context ranks are replicas too
  auto isOfStep = [](const auto &term) { return term.phase == Phase::Step; };
  terms.compute = replaced(whole.compute, split.compute, isOfStep);
  // Under ZeRO 3 the step's collectives run for every micro-batch.
  terms.collectives = replaced(whole.collectives, split.collectives, [&](const planner::CollectiveTerm &term) {
    return isOfStep(term) || term.axis == Axis::Dp;
  });
  terms.savedBytes = split.savedBytes;
  terms.workspaceBytes = split.workspaceBytes;
  terms.oneSampleWorkspaceBytes = split.oneSampleWorkspaceBytes;
  terms.weight = split.weight;
  planner::orderTerms(terms);
  return terms;
}

planner::PatternTerms withStep(const planner::PatternTerms &whole, planner::PatternTerms step) {
  auto isOfMicroBatch = [](const auto &term) { return term.phase != Phase::Step; };
  planner::PatternTerms terms = whole;
  terms.pattern = step.pattern;
  terms.compute = replaced(whole.compute, step.compute, isOfMicroBatch);
  terms.collectives = replaced(whole.collectives, step.collectives, isOfMicroBatch);
  terms.parameters = std::move(step.parameters);
  terms.stepPeakBytes = std::move(step.stepPeakBytes);
  return terms;
}

} // namespace espalier
