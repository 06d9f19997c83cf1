// The parts of the run plan that come from the run file and the plan alone: mesh, settings, provenance.
#pragma once

#include "compiler/import/run_config.h"
#include "planner/plan.h"

#include "runtime/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Version of Espalier that a plan names.
inline constexpr const char *espalierVersion = "0.1";

void describeRun(const RunConfig &run, const planner::Plan &plan, double flopsPerStep, rt::pb::Plan &out);

/// Floating-point operations of the joint functions of one micro-batch over all replicas, on global shapes: matrix
/// products and attention, forward and backward, without recomputation (the usual count for MFU).
double stepFlops(mlir::ModuleOp joint);

} // namespace espalier
