// Structure is checked first, because the other rules use indices and sizes without checks.
#include "runtime/verify_plan.h"

#include "runtime/verify/rules.h"

namespace espalier::rt {

std::vector<std::string> verifyPlan(const pb::Plan &plan) {
  using namespace verify;
  PlanErrors errors;
  verifyStructure(plan, errors);
  if (errors.empty())
    verifyStages(plan, errors);
  if (!errors.empty())
    return errors.list;
  Mesh mesh(plan.mesh());
  verifyBounds(plan, mesh, errors);
  verifyKernels(plan, errors);
  if (!errors.empty())
    return errors.list;
  verifyLayout(plan, mesh, errors);
  verifyShardings(plan, mesh, errors);
  verifyShapes(plan, mesh, errors);
  verifyTerms(plan, mesh, errors);
  verifyDerivatives(plan, mesh, errors);
  if (!errors.empty())
    return errors.list;
  verifyData(plan, mesh, errors);
  verifyOrder(plan, mesh, errors);
  verifyUses(plan, errors);
  return errors.list;
}

} // namespace espalier::rt
