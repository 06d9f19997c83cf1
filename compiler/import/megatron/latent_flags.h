// Converts Megatron-LM's flags of multi-head latent attention to keys of a run file.
#pragma once

#include "compiler/import/megatron/given_flags.h"
#include "compiler/import/run/run_file_writer.h"

namespace espalier {

/// Returns whether the script has multi-head latent attention, whose architecture is deepseek_v3 here.
bool hasLatents(const GivenFlags &given);

/// Writes model.arch and the sizes of latent attention: ranks, widths of heads and YaRN. Flags that contradict the
/// architecture are errors.
void writeLatents(GivenFlags &given, RunFileWriter &yaml, int64_t layers);

} // namespace espalier
