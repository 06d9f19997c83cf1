// Derives the planner's problem from the compiler's own IR. The model is built, differentiated and partitioned once per
// pattern (number of tensor ranks, sequence parallelism, sharded sequence, ZeRO), and the resulting IR is read as
// terms.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/problem.h"

#include "mlir/IR/MLIRContext.h"

#include <optional>
#include <string>
#include <utility>

namespace espalier {

/// Profiles the model of a run for all numbers of tensor ranks that divide it, up to 64 times the cluster's devices.
/// Batch and axes stay symbols. Workspace sizes come from the planned buffers at several batch sizes and are piecewise
/// affine in between. If cp is pinned to 1, patterns with a sharded sequence are omitted. Errors are reported as
/// diagnostics of `context`. `target` is cpu or cuda. For cuda, kernels are priced individually by the bytes that they
/// move. With `onlyPinned`, patterns of other tensor ranks and sequence parallelism than the run's pins are omitted,
/// which is enough to price one plan.
std::optional<planner::Problem> profileModel(mlir::MLIRContext &context, const RunConfig &run,
                                             const std::string &target = "cpu", bool onlyPinned = false);

/// Returns `known` with the machine, software, batch and pins of `run`. `known` was profiled from `before`, a reading
/// of the same run file for the same target. Returns nothing if `run` needs other terms.
std::optional<planner::Problem> withRun(const planner::Problem &known, const RunConfig &before, const RunConfig &run,
                                        const std::string &target);

/// Profiles readings of one run file for one target.
class ProfileCache {
public:
  /// Errors are reported as diagnostics of `context`.
  ProfileCache(mlir::MLIRContext &context, std::string target) : context(context), target(std::move(target)) {}

  /// Profiles the model, or reuses the last profile if its terms still hold. Returns nothing if the model cannot be
  /// partitioned.
  std::optional<planner::Problem> profile(const RunConfig &run);

private:
  mlir::MLIRContext &context;
  const std::string target;
  std::optional<std::pair<RunConfig, planner::Problem>> last; ///< the last run that was profiled, and its profile
};

} // namespace espalier
