#include "compiler/attributes/batch_ramp.h"

#include "dialects/attributes.h"
#include "planner/model/schedule.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

using namespace mlir;

namespace espalier {

namespace {

/// Entries before those of the ramp: train_step and evaluate.
constexpr uint32_t firstRampEntry = 2;

/// Returns the samples of one micro-batch over all replicas.
int64_t samplesPerMicroBatch(const planner::Plan &plan) { return plan.globalBatch() / plan.microBatches; }

} // namespace

std::vector<int64_t> rampMicroBatches(const RunConfig &run, const planner::Plan &plan) {
  std::set<int64_t> counts;
  for (const BatchStep &step : run.batchRamp)
    if (step.globalBatch != plan.globalBatch())
      counts.insert(std::max<int64_t>(1, step.globalBatch / samplesPerMicroBatch(plan)));
  return {counts.begin(), counts.end()};
}

uint32_t rampEntry(const RunConfig &run, const planner::Plan &plan, int64_t globalBatch) {
  if (globalBatch == plan.globalBatch())
    return 0;
  std::vector<int64_t> counts = rampMicroBatches(run, plan);
  auto found = std::ranges::lower_bound(counts, globalBatch / samplesPerMicroBatch(plan));
  return firstRampEntry + static_cast<uint32_t>(found - counts.begin());
}

std::string whyNoRamp(const RunConfig &run, const planner::Plan &plan) {
  int64_t unit = samplesPerMicroBatch(plan);
  for (const BatchStep &step : run.batchRamp) {
    if (step.globalBatch % unit != 0)
      return fmt::format(
          "a batch of {} samples is no multiple of {} = micro-batch size {} · data-parallel replicas {}; "
          "choose multiples of {}, or pin a smaller planner.pin.micro_batch_size",
          step.globalBatch, unit, plan.microBatchSize, unit / plan.microBatchSize, unit);
    std::string reason = planner::whyNotSchedulable(plan.schedule, plan.pp, static_cast<int>(step.globalBatch / unit),
                                                    plan.virtualStages);
    if (!reason.empty())
      return fmt::format("a batch of {} samples has {} micro-batches: {}", step.globalBatch, step.globalBatch / unit,
                         reason);
  }
  return "";
}

std::vector<int64_t> readRamp(ModuleOp module) {
  DenseI64ArrayAttr counts = exec::batchRampAttr.of(module);
  return counts ? std::vector<int64_t>(counts.asArrayRef()) : std::vector<int64_t>();
}

} // namespace espalier
