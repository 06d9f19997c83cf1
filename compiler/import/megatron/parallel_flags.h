// Converts Megatron-LM's flags of the parallel split, of recomputation and of offloading to keys of a run file.
#pragma once

#include "compiler/import/megatron/given_flags.h"
#include "compiler/import/run/run_file_writer.h"

namespace espalier {

/// Sizes of a script's run that several parts of the import need.
struct ScriptSizes {
  int64_t layers = 0; ///< 0 if neither the script nor its base states them
  int64_t globalBatch = 1, microBatches = 1, tensorRanks = 1;
};

/// Writes parallel, parallel_config, recompute_config and the pins of the planner. `devices` is 0 if their number is
/// not known, and `baseLayers` the number of layers of the base's model.
ScriptSizes writeParallel(GivenFlags &given, RunFileWriter &yaml, int64_t devices, int64_t baseLayers);

} // namespace espalier
