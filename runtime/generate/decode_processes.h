// Generation by ranks that are processes: all go through the same requests, and hear the same logits at each step, so
// that each chooses the same tokens.
#pragma once

#include "runtime/generate/decode.h"
#include "runtime/train/run.h"

#include <functional>

namespace espalier::rt {

/// What the process of a rank does with its decoder; `speaks` in one of them.
using DecodingWork = std::function<void(Decoder &decoder, bool speaks)>;

/// Starts a process of this host for each rank and watches them to their end. Of the options it takes threads and what is
/// said of failures. Throws RankFailure, MemoryError.
void decodeInProcesses(const Program &program, const StartingWeights &weights, const RunOptions &options,
                       const DecodingWork &work);

/// The same as one of the processes that mpirun or srun started. Throws ReportedElsewhere where another rank failed.
void decodeOverMpi(const Program &program, const StartingWeights &weights, const RunOptions &options,
                   const DecodingWork &work);

} // namespace espalier::rt
