// Generation by ranks in separate processes. All ranks process the same requests and receive the same logits at each
// step, so all sample the same tokens.
#pragma once

#include "runtime/generate/decode.h"
#include "runtime/run/run.h"

#include <functional>

namespace espalier::rt {

/// The work of a rank's process with its decoder. `prints` is true in the one process that prints.
using DecodingWork = std::function<void(Decoder &decoder, bool prints)>;

/// Starts a process per rank on this host and waits for them. Uses the options for threads and failure reports. Throws
/// RankFailure, MemoryError.
void decodeInProcesses(const Program &program, const StartingWeights &weights, const RunOptions &options,
                       const DecodingWork &work);

/// Runs as one of the processes that mpirun or srun started. Throws ReportedElsewhere if another rank failed.
void decodeOverMpi(const Program &program, const StartingWeights &weights, const RunOptions &options,
                   const DecodingWork &work);

} // namespace espalier::rt
