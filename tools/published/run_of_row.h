// Converts a row of a table of published runs to a run file with overrides: `espalier plan BASE --set ... --pin ...`.
#pragma once

#include "tools/published/table.h"

#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

/// One row as a run. If the row cannot be priced, `reason` says why and the other fields are empty.
struct PublishedRun {
  std::string reason;
  std::string base;              ///< run file of configs/ whose model is used, without .yaml
  std::vector<std::string> sets; ///< sizes, dtypes and batch
  std::string cluster, system, pin;
  std::vector<int64_t> microBatchSizes; ///< one, or all possible ones if the row has none
  int replicas = 1;                     ///< dp * ep
  int64_t globalBatch = 1;              ///< samples
  bool fillsFirstStages = false;        ///< remaining layers go to the first stages (DeepSpeed until 2023)
  bool withoutPlan = false;             ///< the row has model, devices and batch but no plan
  bool isAnalytic = false;              ///< memory is a formula: parameters, optimizer and activations of layers
  bool outOfMemory = false, countsRecompute = false; ///< countsRecompute: published TFLOP/s include recomputed work
  std::vector<std::string> assumed;                  ///< unpublished parts of the shape or plan
  double seconds = 0, tokensPerSecond = 0, mfu = 0, teraflops = 0; ///< measured, per device; 0 when not published
  double gibibytes = 0;
};

/// Returns the run of a row. The gpu column selects the file of configs/clusters, source and gpu that of
/// configs/systems.
PublishedRun runOf(const PublishedRow &row);

} // namespace espalier
