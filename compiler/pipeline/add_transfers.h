// What every plan says by name and once: queues, the values that pass between programs, the transfers
// that a list of actions starts, entries, communicators.
#pragma once

#include "compiler/codegen/plan_tables.h"
#include "compiler/pipeline/lay_out_regions.h"
#include "dialects/exec/dialect.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Streams and cotangents between stages, of chunks whose stream goes to the next stage, or back to the one before.
struct StreamTransfers {
  int64_t out = -1, in = -1, dIn = -1, dOut = -1;
};

/// Transfers by number in the plan; -1 where no rank has them.
struct StepTransfers {
  StreamTransfers forth, back;    ///< back: of the second chunks of a V
  int64_t inputs = -1;            ///< from the host, of a micro-batch
  int64_t set = -1, metrics = -1; ///< scalars from the host, and to it
  int64_t agree = -1;             ///< sums of all ranks
};

/// Lists the queues that occur, and the entries: a step where the module trains, and an evaluation. `module` has its
/// programs.
void addNames(mlir::ModuleOp module, const planner::Plan &plan, rt::pb::Plan &out);

/// Bytes of a value in a region.
rt::pb::Buffer bufferAt(exec::Region region, uint64_t offset, uint64_t bytes, int64_t value, int32_t layer = 0);

/// A transfer without buffers. It stands on no line of the model file.
rt::pb::Transfer transferNamed(const std::string &name, rt::pb::Transfer::Kind kind, const std::string &queue,
                               PlanTables &tables);

/// Adds the values that lay-out-regions has listed in the module.
void addPassingValues(mlir::ModuleOp module, PlanTables &tables);

/// Adds the module's values and those of the scalars, and the transfers.
StepTransfers addStepTransfers(mlir::ModuleOp module, const RegionSizes &regions, const planner::Plan &plan,
                               PlanTables &tables);

/// Lists the communicators of all transfers, line by line and group by group. Stages are there, with their lists.
void addCommunicators(rt::pb::Plan &out);

} // namespace espalier
