// The planner's problem, read off the compiler's own IR: the model is built, differentiated and partitioned once per
// pattern (number of tensor ranks, sequence parallelism, split sequence, ZeRO), and what the IR holds becomes terms.
#pragma once

#include "compiler/import/run_config.h"
#include "planner/problem.h"

#include "mlir/IR/MLIRContext.h"

#include <optional>

namespace espalier {

/// Profiles the model of a run for all numbers of tensor ranks that divide it and up to 64 times the cluster's devices.
/// Batch and axes stay symbols. Workspaces are those of the planned buffers at several batch sizes, piecewise affine in
/// between. Patterns of a split sequence are left out where cp is pinned to 1. Failures are diagnostics of `context`.
/// `target`, cpu or cuda, is whose programs are planned; of cuda their kernels are priced by what they move, one by
/// one.
std::optional<planner::Problem> profileModel(mlir::MLIRContext &context, const RunConfig &run,
                                             const std::string &target = "cpu");

/// The problem of another reading of the run file that `known` was profiled from for this target: its machine,
/// software, batch and pins with the same terms. Nothing where it needs other terms.
std::optional<planner::Problem> withRun(const planner::Problem &known, const RunConfig &before, const RunConfig &run,
                                        const std::string &target);

} // namespace espalier
