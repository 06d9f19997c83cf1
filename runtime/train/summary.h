// The last words of a run.
#pragma once

#include "runtime/train/run.h"

#include <string>

namespace espalier::rt {

/// "stopped by SIGTERM after step 12 of 100: 12 steps in 3.4 s; checkpoint ckpt/step-00000012, --resume goes on from
/// it".
std::string closingSummary(const RunResult &result, const RunOptions &options);

/// Why the run diverged, what good checkpoint there is, and what may help.
std::string divergenceSentence(const RunResult &result, const RunOptions &options, const pb::Settings &settings);

} // namespace espalier::rt
