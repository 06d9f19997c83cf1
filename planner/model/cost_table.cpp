#include "planner/model/cost_table.h"

namespace espalier::planner {

CostTable buildCostTable(const Problem &problem, const ParallelConfig &config) {
  CostTable table;
  SegmentCosts costs(problem, config);
  auto costOf = [&](int kind, bool isLayer) {
    std::optional<SegmentCost> cost = costs.of(kind);
    if (!cost) {
      table.isProfiled = false;
      return SegmentCost();
    }
    addOffload(*cost, problem.machine, config, isLayer);
    return *cost;
  };
  table.embed = costOf(problem.embed, /*isLayer=*/false);
  table.head = costOf(problem.head, /*isLayer=*/false);
  table.kinds.resize(problem.kinds.size());
  std::vector<bool> isCosted(problem.kinds.size());
  for (const LayerRun &run : problem.layers) {
    if (!isCosted[run.kind])
      table.kinds[run.kind] = costOf(run.kind, /*isLayer=*/true);
    isCosted[run.kind] = true;
    table.layerKinds.insert(table.layerKinds.end(), run.count, run.kind);
  }
  std::vector<double> symbols = symbolValues(problem, config);
  table.boundaryBytes = evaluate(problem.boundaryBytes, symbols) / (config.sequenceParallel ? config.tp : 1);
  table.boundarySeconds = boundarySeconds(problem, config);
  table.inputBytes = evaluate(problem.inputBytes, symbols);
  table.layersReadInputs = problem.layersReadInputs;
  table.microBatches = static_cast<double>(config.microBatches);
  table.passesStream = config.slicesInputs();
  table.tiedSeconds = tiedEmbeddingSeconds(problem, config);
  return table;
}

} // namespace espalier::planner
