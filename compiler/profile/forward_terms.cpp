#include "compiler/profile/forward_terms.h"

namespace espalier {

namespace {

template <typename Term> void leaveForward(std::vector<Term> &terms) {
  std::erase_if(terms, [](const Term &term) { return term.phase != planner::Phase::Forward; });
  for (Term &term : terms)
    term.recomputedSelective = term.recomputedFull = false;
}

void leaveForward(planner::PatternTerms &terms) {
  leaveForward(terms.compute);
  leaveForward(terms.collectives);
  for (planner::ParameterTerm &parameter : terms.parameters)
    parameter.gradientBytes = parameter.optimizerBytes = 0;
  terms.savedBytes = {};
  terms.keptCollectiveBytes.clear();
  terms.backwardPeakBytes = {};
  terms.stepBytes.clear();
  terms.stepPeakBytes.clear();
}

} // namespace

void leaveForward(planner::Problem &problem) {
  for (planner::SegmentKind &kind : problem.kinds)
    for (planner::PatternTerms &terms : kind.patterns)
      leaveForward(terms);
  problem.tiedBytes.clear(); // nothing is summed over stages
  // Matches the allocations of assign_stages: two streams that calls use in turn, a received one and a sent one.
  problem.streamBuffers = {.always = 2, .receives = 1, .sends = 1};
}

} // namespace espalier
