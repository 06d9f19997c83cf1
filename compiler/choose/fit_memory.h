// Chooses the plan of a run, and explains why a plan does not fit the device.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/search.h"

#include "format/plan.pb.h"

#include "mlir/IR/MLIRContext.h"

#include <optional>
#include <string>

namespace espalier {

/// Returns "; fits with max_device_memory=78.00GB, without a margin" if `bytes` exceed the plan's limit but not the
/// device memory. Else returns an empty string.
std::string fitWithoutMargin(const ClusterConfig &cluster, double bytes);

/// Returns the bytes of the largest stage arena after compilation for `target`, or nothing if the plan does not
/// compile.
std::optional<uint64_t> arenaBytes(mlir::MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                                   const std::string &target);

/// The result of choosing a plan.
struct ChosenPlan {
  std::optional<planner::Plan> plan;
  std::string reason;                            ///< why there is no plan, or why it is this one
  bool isInputError = false;                     ///< whether the run file contradicts itself; false if no plan fits
  std::optional<planner::Prediction> prediction; ///< of the plan, if it trains and the planner has priced it
};

/// Searches for plans and compiles the best one for `target` to check that its arena fits. If the estimate was too low,
/// tries the next plans, then repeats the search with a lower memory limit. Plans that cannot be executed are not
/// compiled.
planner::SearchResult searchCompiled(mlir::MLIRContext &context, const RunConfig &run, const planner::Problem &problem,
                                     const planner::SearchOptions &options, const std::string &target);

/// Returns the pinned plan, or the fastest plan of the planner's search that fits.
ChosenPlan choosePlan(mlir::MLIRContext &context, const RunConfig &run, const std::string &target = "cpu");

/// Returns the planner's prediction for a plan of a run that trains or evaluates; nothing for a plan that generates.
std::optional<planner::Prediction> predictionOf(mlir::MLIRContext &context, const RunConfig &run,
                                                const planner::Plan &plan, const std::string &target);

/// Returns an empty string if every stage's arena fits the device. Else returns the largest stage's bytes by class, the
/// limit, and the cheapest pins to free (`planner::freePins`), with a plan that then fits. That plan has been compiled.
std::string memoryExcess(mlir::MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                         const rt::pb::Plan &compiled);

} // namespace espalier
