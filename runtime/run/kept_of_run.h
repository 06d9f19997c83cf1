// The files that the checkpoints of a run keep.
#pragma once

#include "runtime/checkpoint/kept_files.h"
#include "runtime/train/run_options.h"

namespace espalier::rt {

/// Returns the run file and the model file of the plan, and the files of the tokenizer: the one of
/// RunOptions::tokenizer, else the one that made the data, else that of the weights that the run starts from, else the
/// bytes of a text. Throws DataError.
std::vector<SideFile> keptOfRun(const pb::Plan &plan, const RunOptions &options);

} // namespace espalier::rt
