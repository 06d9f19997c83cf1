// Adds the named tables that every plan has once: queues, values that pass between programs, transfers that a schedule
// starts, entries and communicators.
#pragma once

#include "compiler/layout/lay_out_regions.h"
#include "compiler/link/plan_tables.h"
#include "dialects/exec/dialect.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Transfers of activations and cotangents between stages in one direction of the pipeline: to the next stage, or to
/// the previous one.
struct StreamTransfers {
  int64_t out = -1, in = -1, dIn = -1, dOut = -1;
};

/// Transfers as indices into the plan's transfers; -1 if no rank has the transfer.
struct StepTransfers {
  StreamTransfers forth, back;    ///< `back` serves the second chunks of a V-shaped schedule
  int64_t inputs = -1;            ///< copies a micro-batch's inputs from the host
  int64_t set = -1, metrics = -1; ///< copy scalars from and to the host
  int64_t agree = -1;             ///< all-reduces scalars over all ranks
};

/// Lists the queues that are in use and the entries: a training step if the module trains, and an evaluation. `module`
/// must already contain its programs.
void addNames(mlir::ModuleOp module, const RegionSizes &regions, const planner::Plan &plan, rt::pb::Plan &out);

/// Returns the axes of several ranks that shard the samples.
uint32_t sampleAxisBits(const planner::Plan &plan);

/// Returns the buffer of a value inside a region.
rt::pb::Buffer bufferAt(exec::Region region, uint64_t offset, uint64_t bytes, int64_t value, int32_t layer = 0);

/// Returns a transfer without buffers. Its location names the transfer and no line of the model file.
rt::pb::Transfer transferNamed(const std::string &name, rt::pb::Transfer::Kind kind, const std::string &queue,
                               PlanTables &tables);

/// Adds the values that pass between programs, in the order in which programs list them. The first use of a name sets
/// its type. Caches and counters are resident, all others belong to a micro-batch.
void addPassingValues(mlir::ModuleOp module, PlanTables &tables);

/// Adds the module's values, the values of the scalars, and the transfers of a step.
StepTransfers addStepTransfers(mlir::ModuleOp module, const RegionSizes &regions, const planner::Plan &plan,
                               PlanTables &tables);

/// Lists the communicators of all transfers: one per group and queue of collectives, and one per pair of stages of each
/// send channel. The stages of `out` must already have their schedules.
void addCommunicators(rt::pb::Plan &out);

} // namespace espalier
