// Trains one model under one plan, compiled or interpreted, on the same data, for comparison.
#pragma once

#include "compiler/driver.h"
#include "compiler/import/run/import_run.h"
#include "runtime/dataset/dataset.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace espalier {

/// A plan as the suite varies it. The global batch has 8 samples.
struct SplitCase {
  std::string name;
  int dp = 1, tp = 1, pp = 1, cp = 1;
  int ep = 1;
  bool splitsExperts = true, expertsOverContext = false;
  int64_t microBatches = 1;
  int zero = 0, zeroGroup = 0;
  bool sequenceParallel = false;
  bool vocabParallel = true;
  planner::Recompute recompute = planner::Recompute::None;
  std::vector<int> stageLayers; ///< empty: spread evenly
  planner::Schedule schedule = planner::Schedule::OneFOneB;
  int virtualStages = 1;        ///< chunks per stage; with several, `stageLayers` lists layers per chunk
  bool keepCollectives = false; ///< mp_comm_recompute: False
  bool sliceInputs = false;     ///< recompute_slice_activation
  std::vector<planner::Recompute> layerRecompute; ///< one per layer; empty: `recompute` for all layers
  bool zigzag = false;                            ///< cp ranks hold two chunks of a sequence each
};

/// The results of a training run. Every run: loss and norm per step, mean gradients by global parameter name. Compiled
/// runs: the loss scale after each step. All runs: whether the update was applied. Interpreted runs: the number of
/// bucket collectives. All runs with experts: for each step, the choices of each expert, and last the dropped choices,
/// by layer.
struct TrainingRecord {
  std::vector<double> losses, norms, lossScales;
  std::vector<bool> applied;
  std::vector<std::map<std::string, std::vector<double>>> gradients;
  std::vector<std::map<std::string, int64_t>> exchanges;
  std::vector<std::map<std::string, std::vector<int64_t>>> loads;
};

/// Reads test/equivalence/<model>.yaml with overrides ("section.key=value").
RunConfig equivalenceRun(const std::string &model, const std::vector<std::string> &sets = {});

/// Returns the plan of a split.
planner::Plan planOf(const RunConfig &run, const SplitCase &split);

/// The samples that all runs train on.
std::shared_ptr<const rt::Dataset> equivalenceData(const RunConfig &run);

/// Trains with the compiled plan, on equivalenceData() unless `data` is given.
TrainingRecord trainCompiled(const RunConfig &run, const planner::Plan &plan, int64_t steps, int threads = 1,
                             const std::string &target = "cpu", std::shared_ptr<const rt::Dataset> data = nullptr);
/// Trains in the interpreter, on equivalenceData() unless `data` is given.
TrainingRecord trainInterpreted(const RunConfig &run, const planner::Plan &plan, int64_t steps,
                                std::shared_ptr<const rt::Dataset> data = nullptr);

/// Compares gradients. A gradient g' of n out of N elements passes if
/// |g - g'| <= relative |g| + 1e-2 relative |all gradients| sqrt(n / N). Returns an empty string when all pass.
std::string compareGradients(const std::map<std::string, std::vector<double>> &expected,
                             const std::map<std::string, std::vector<double>> &actual, double relative = 1e-4);

} // namespace espalier
