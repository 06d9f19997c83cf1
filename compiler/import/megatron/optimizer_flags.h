// Converts Megatron-LM's flags of the optimizer, its schedule and the loss scale to keys of a run file.
#pragma once

#include "compiler/import/megatron/model_flags.h"
#include "compiler/import/megatron/parallel_flags.h"

namespace espalier {

/// Writes optimizer, lr_schedule and runner_wrapper. `hasBase`: the base's optimizer applies if no flag concerns it.
/// Converts samples to steps of the script's global batch.
void writeOptimizer(GivenFlags &given, RunFileWriter &yaml, const ScriptDType &dtype, const ScriptSizes &sizes,
                    bool hasBase);

} // namespace espalier
