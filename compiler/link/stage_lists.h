// Writes the actions of a stage: its expanded schedule with calls, slots and buckets filled in, plus the start and the
// end of an entry.
#pragma once

#include "compiler/link/add_buckets.h"
#include "compiler/link/add_transfers.h"
#include "compiler/link/expand_schedule.h"
#include "compiler/link/gradient_terms.h"

#include "runtime/plan.pb.h"

namespace espalier {

/// The tables that schedules of all stages read.
struct ListInputs {
  const StepTransfers &transfers;
  const std::vector<BucketTransfers> &buckets;         ///< by bucket number
  const std::vector<std::vector<GradientTerm>> &terms; ///< by subprogram
  const rt::pb::Plan &plan;                            ///< must already contain its buckets
  bool vShape = false; ///< whether second chunks send their stream to the previous stage
};

/// Appends the training entry to `stage`. The calls, chunks and live ranges of `stage` must be complete: one chunk per
/// chunk of `list`, then the chunk of the call `step`.
void addTraining(const ListInputs &inputs, const StageList &list, rt::pb::Stage &stage);
/// Appends the evaluation entry to `stage`, under the same conditions.
void addEvaluation(const ListInputs &inputs, const StageList &list, rt::pb::Stage &stage);

} // namespace espalier
