// Prices published runs with the import, profile and cost model of `espalier plan`.
#pragma once

#include "planner/price.h"
#include "tools/published/run_of_row.h"

#include "mlir/IR/MLIRContext.h"

#include <map>
#include <string>
#include <vector>

namespace espalier {

/// The prediction for one run.
struct PricedRun {
  std::string reason; ///< why the run cannot be priced; else empty
  planner::Plan plan;
  double seconds = 0, leastSeconds = 0, mostSeconds = 0; ///< least and most over the possible micro-batches
  double timeError = 0;                                  ///< planner::Prediction::timeError
  std::vector<std::string> contents;                     ///< planner::Content
  double measuredSeconds = 0;                            ///< 0 when not published
  double gibibytes = 0;                                  ///< of the fullest device
  bool fits = false;
  double flops = 0; ///< per step and device, with recompute
};

class RunPricer {
public:
  RunPricer();
  /// Imports the run and prices its plan, or searches for one if the run has none.
  PricedRun price(const PublishedRun &run);

private:
  /// Returns the problem of a run. Runs with equal sizes and equal pins that matter to terms share a profile.
  const planner::Problem *profile(const PublishedRun &run, const struct RunConfig &config);

  std::string folder; ///< configs/
  mlir::MLIRContext context;
  std::map<std::string, planner::Problem> profiles;
  planner::Problem problem; ///< of the latest run
};

} // namespace espalier
