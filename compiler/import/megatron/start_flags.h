// Converts a Megatron script's checkpoint, data and mode flags to keys of a run file and to a start command. Omits
// paths that only the shell knows, because `espalier run` takes them.
#pragma once

#include "compiler/import/megatron/given_flags.h"
#include "compiler/import/run/run_file_writer.h"

namespace espalier {

/// Writes run_mode, load_checkpoint and resume_training. If a script loads from the folder that it saves to, it resumes
/// its own run, for which there is `espalier run --resume`.
void writeStart(GivenFlags &given, RunFileWriter &yaml);

/// Writes the data paths, their split, and the handling of the end-of-document token, if it is known.
void writeData(GivenFlags &given, RunFileWriter &yaml, std::optional<int64_t> endOfDocument);

/// Returns an `espalier run` command with the script's steps, evaluations and checkpoints, or an empty string if the
/// script sets none of them.
std::string startLine(GivenFlags &given, int64_t globalBatch, int64_t microBatches);

} // namespace espalier
