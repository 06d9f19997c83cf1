// The plans of an elastic run: X.plan and the plans X.RANKS.plan beside it.
#pragma once

#include <string>
#include <vector>

namespace espalier::rt {

/// A plan of the run.
struct ElasticPlan {
  std::string file;
  int ranks = 0;
};

/// Returns the plan `file` and the plans X.RANKS.plan beside it, those with the most ranks first. Reads and checks all
/// of them. Throws PlanError if there is no other plan, or if a plan trains anything else than `file` does: another
/// model, global batch, sequence, seed, optimizer, schedule, data or target.
std::vector<ElasticPlan> readElasticPlans(const std::string &file);

} // namespace espalier::rt
