#include "compiler/profile/profile_context.h"

#include "planner/model/segment.h"

#include <limits>

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
  terms.pattern.expertsOverContext = split.pattern.expertsOverContext;
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

namespace {

/// Removes the gathers of frozen parameters, which ZeRO 1 and 2 do not shard.
void leaveFrozenWhole(planner::PatternTerms &pattern) {
  std::erase_if(pattern.collectives, [](const planner::CollectiveTerm &term) { return term.ofFrozen; });
}

/// Derives ZeRO 2 and 3 from ZeRO 1. Collectives of the step now run for every micro-batch, beside compute. Gradients
/// are scattered after the backward pass. Under ZeRO 3, parameters of layers are gathered for the forward and again
/// for the backward pass. The first and the last segment have their own buffers, so their parameters are gathered
/// once.
planner::PatternTerms movedOften(planner::PatternTerms pattern, int zero, bool isLayer) {
  pattern.pattern.zero = zero;
  if (zero < 3)
    leaveFrozenWhole(pattern);
  std::vector<planner::CollectiveTerm> moved;
  for (planner::CollectiveTerm term : pattern.collectives) {
    bool isGather = term.kind == planner::CollectiveKind::AllGather,
         isMoved = isGather ? zero == 3 && isLayer : term.kind == planner::CollectiveKind::ReduceScatter;
    if (term.phase == planner::Phase::Step && term.axis == Axis::Dp && isMoved) {
      term.besideLastBackward = false;
      term.start = -1; // before the first kernel, for this or another layer
      term.wait = std::numeric_limits<int>::max();
      term.phase = planner::Phase::Backward;
      if (isGather) {
        moved.push_back(term);
        term.phase = planner::Phase::Forward;
      }
    }
    moved.push_back(term);
  }
  pattern.collectives = std::move(moved);
  planner::orderTerms(pattern);
  return pattern;
}

} // namespace

void addZeroPatterns(planner::PatternTerms pattern, const ProfilePoint &point, bool isLayer,
                     std::vector<planner::PatternTerms> &patterns) {
  pattern.pattern.zero = point.zero;
  bool hasReplicas = point.ep > 1 || point.expertsOverContext; // for any dp
  if (point.zero > 0) {
    if (!hasReplicas)
      pattern.pattern.dp = true;
    for (int zero : {2, 3})
      patterns.push_back(movedOften(pattern, zero, isLayer));
    leaveFrozenWhole(pattern);
  } else if (!hasReplicas) {
    for (int zero : {1, 2, 3}) {
      planner::PatternTerms alone = pattern;
      alone.pattern.zero = zero;
      alone.pattern.dp = false;
      patterns.push_back(std::move(alone));
    }
  }
  patterns.push_back(std::move(pattern));
}

} // namespace espalier
