// Which plan a run gets, and what to say when it does not fit the device.
#pragma once

#include "compiler/import/run_config.h"
#include "planner/search.h"

#include "runtime/plan.pb.h"

#include "mlir/IR/MLIRContext.h"

#include <optional>
#include <string>

namespace espalier {

/// "; fits with max_device_memory=78.00GB, without a margin" where `bytes` of a device are more than a plan may take,
/// but no more than there are; else empty.
std::string fitWithoutMargin(const ClusterConfig &cluster, double bytes);

/// Bytes of the fullest stage's arena once the plan is compiled for `target`; nothing when it does not compile.
std::optional<uint64_t> arenaBytes(mlir::MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                                   const std::string &target);

struct ChosenPlan {
  std::optional<planner::Plan> plan;
  std::string reason;        ///< why there is none
  bool isInputError = false; ///< the run file contradicts itself, as against: nothing fits
};

/// The search, with its best plan compiled for `target` to see that its arena fits: where the estimate was too low, the
/// next plans are tried, then a search with less memory. Plans that cannot be executed are not compiled.
planner::SearchResult searchCompiled(mlir::MLIRContext &context, const RunConfig &run, const planner::Problem &problem,
                                     const planner::SearchOptions &options, const std::string &target);

/// The pinned plan, or the fastest one of the planner's search that fits.
ChosenPlan choosePlan(mlir::MLIRContext &context, const RunConfig &run, const std::string &target = "cpu");

/// Empty when every stage's arena fits the device. Otherwise the fullest stage's bytes by class, the limit, and the
/// cheapest pins to give up (`planner::freePins`) with the plan that fits then, as compiling it shows.
std::string memoryExcess(mlir::MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                         const rt::pb::Plan &compiled);

} // namespace espalier
