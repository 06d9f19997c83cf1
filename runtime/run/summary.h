// The closing message of a run.
#pragma once

#include "runtime/run/run.h"

#include <string>

namespace espalier::rt {

/// Returns the closing message, for example "stopped by SIGTERM after step 12 of 100: 12 steps in 3.4 s; checkpoint
/// ckpt/step-00000012, --resume continues from it".
std::string closingSummary(const RunResult &result, const RunOptions &options);

/// Returns why the run diverged, which good checkpoint exists, and what may help.
std::string divergenceSentence(const RunResult &result, const RunOptions &options, const pb::Settings &settings);

} // namespace espalier::rt
