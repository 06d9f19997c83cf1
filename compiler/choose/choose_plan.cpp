#include "compiler/choose/choose_plan.h"

#include "planner/model/schedule.h"

#include <algorithm>

namespace espalier {

std::vector<int> spreadLayers(int layers, int stages) {
  std::vector<int> counts(stages, layers / stages);
  std::vector<int> order;
  for (int stage = 1; stage + 1 < stages; ++stage)
    order.push_back(stage);
  order.push_back(0);
  order.push_back(stages - 1);
  for (int i = 0; i < layers % stages; ++i)
    ++counts[order[i]];
  return counts;
}

namespace {

/// Returns, by chunk, the number of layers that recompute if the run file has a list, see RecomputeConfig. An entry for
/// a stage is distributed over its chunks round-robin, one layer at a time, as in MindFormers.
std::vector<int> repeatedOfChunks(const std::vector<int> &listed, const planner::Plan &plan,
                                  const std::vector<int> &counts) {
  std::vector<int> repeated(counts.size());
  int chunks = planner::chunksOf(plan.schedule, plan.virtualStages);
  bool ofChunks = listed.size() > static_cast<size_t>(plan.pp);
  for (int stage = 0; stage < plan.pp && !listed.empty(); ++stage) {
    std::vector<int> places;
    for (int chunk = 0; chunk < chunks; ++chunk)
      places.push_back(planner::placement(plan).modelChunk(stage, chunk));
    for (int chunk = 0; chunk < chunks && ofChunks; ++chunk)
      repeated[places[chunk]] = std::min(counts[places[chunk]], listed[chunk * plan.pp + stage]);
    bool isFull = false;
    for (int left = ofChunks ? 0 : listed[stage]; left > 0 && !isFull;) {
      isFull = true;
      for (int place : places)
        if (left > 0 && repeated[place] < counts[place]) {
          ++repeated[place], --left;
          isFull = false;
        }
    }
  }
  return repeated;
}

} // namespace

planner::Plan pinnedPlan(const RunConfig &run) {
  const planner::Pins &pins = run.pins;
  planner::Plan plan;
  static_cast<planner::ParallelConfig &>(plan) = pins.config();
  plan.keepTensorParallelResults = !run.recompute.mpCommRecompute;
  plan.sliceRecomputedInputs = run.recompute.recomputeSliceActivation;
  planner::Recompute recompute = pins.recompute.value_or(planner::Recompute::None);
  int chunks = plan.pp * planner::chunksOf(plan.schedule, plan.virtualStages);
  std::vector<int> counts = pins.stageLayers.value_or(spreadLayers(run.model.layerCount(), chunks));
  std::vector<int> full = repeatedOfChunks(run.recompute.fullLayers, plan, counts);
  std::vector<int> selective = repeatedOfChunks(run.recompute.selectiveLayers, plan, counts);
  int first = 0;
  for (int count : counts) {
    planner::StagePlan stage{first, count, std::vector<planner::Recompute>(count, recompute)};
    for (int layer = 0; layer < count; ++layer)
      if (layer < full[plan.stages.size()])
        stage.recompute[layer] = planner::Recompute::Full;
      else if (layer < selective[plan.stages.size()] && recompute == planner::Recompute::None)
        stage.recompute[layer] = planner::Recompute::Selective;
    plan.stages.push_back(std::move(stage));
    first += count;
  }
  return plan;
}

} // namespace espalier
