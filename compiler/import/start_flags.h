// What a Megatron script starts from, what it reads and whether it trains, as keys of a run file, and the line that
// starts it. Paths that the shell alone knows are left out: `espalier run` takes them.
#pragma once

#include "compiler/import/given_flags.h"
#include "compiler/import/run_file_writer.h"

namespace espalier {

/// run_mode, load_checkpoint and resume_training. A script that loads where it saves says how it is started again:
/// `espalier run --resume` does so.
void writeStart(GivenFlags &given, RunFileWriter &yaml);

/// Data, their split, and what happens at the token that ends a document, where that is known.
void writeData(GivenFlags &given, RunFileWriter &yaml, std::optional<int64_t> endOfDocument);

/// `espalier run` with steps, evaluations and checkpoints of the script; empty where it says nothing of them.
std::string startLine(GivenFlags &given, int64_t globalBatch, int64_t microBatches);

} // namespace espalier
