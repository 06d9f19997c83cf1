// Translates the run files of MindFormers' newest trainer, whose sections are training_args, checkpoint_config,
// distribute_parallel_config and model_config, to the sections of the other releases.
#pragma once

#include "compiler/import/yaml/yaml.h"

namespace espalier {

/// Returns the run file with the keys of the newest trainer moved to the keys of the same meaning. Values keep their
/// locations. A value that asks for a feature that is not implemented is reported. In any run file, a model without a
/// seq_length has that of the data.
YamlPtr translateTrainerFormat(const YamlPtr &root, Diagnostics &diagnostics);

} // namespace espalier
