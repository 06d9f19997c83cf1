// The actions of a stage: its list of the schedule with calls, slots and buckets put in, and what begins and ends an
// entry.
#pragma once

#include "compiler/pipeline/add_buckets.h"
#include "compiler/pipeline/add_transfers.h"
#include "compiler/pipeline/expand_schedule.h"
#include "compiler/pipeline/gradient_terms.h"

#include "runtime/plan.pb.h"

namespace espalier {

struct ListInputs {
  const StepTransfers &transfers;
  const std::vector<BucketTransfers> &buckets;         ///< by number
  const std::vector<std::vector<GradientTerm>> &terms; ///< by subprogram
  const rt::pb::Plan &plan;                            ///< has its buckets
  bool vShape = false;                                 ///< streams of second chunks go back
};

/// Appends the entry of a step to `stage`, whose calls, chunks and lifetimes are there: a chunk of the stage per chunk
/// of the list, and behind them that of the call `step`.
void addTraining(const ListInputs &inputs, const StageList &list, rt::pb::Stage &stage);
/// The same of an evaluation.
void addEvaluation(const ListInputs &inputs, const StageList &list, rt::pb::Stage &stage);

} // namespace espalier
