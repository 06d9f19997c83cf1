// Fills in the parts of the run plan that depend only on the run file and the planner's plan: mesh, settings,
// provenance.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/plan.h"

#include "format/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// The Espalier version that a plan records.
inline constexpr const char *espalierVersion = "0.1";

/// Fills in version, mesh, settings, identity, weights and input files of `out`. `flopsPerStep` is the model's cost per
/// step, as stepFlops counts it.
void describeRun(const RunConfig &run, const planner::Plan &plan, double flopsPerStep, rt::pb::Plan &out);

/// Returns the floating-point operations of the joint functions for one micro-batch over all replicas, on global
/// shapes. Counts matrix products and attention, forward and backward, without recomputation, as is usual for MFU.
double stepFlops(mlir::ModuleOp joint);

} // namespace espalier
