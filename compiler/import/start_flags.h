// What a Megatron script starts from and whether it trains, as keys of a run file.
#pragma once

#include "compiler/import/given_flags.h"
#include "compiler/import/run_file_writer.h"

namespace espalier {

/// run_mode, load_checkpoint and resume_training. A script that loads where it saves says how it is started again:
/// `espalier run --resume` does so.
void writeStart(GivenFlags &given, RunFileWriter &yaml);

} // namespace espalier
