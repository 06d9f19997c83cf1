// Checkpoints are read from their folder, which may contain those of earlier runs.
#include "runtime/run/summary.h"

#include "messages/counted.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/train/divergence.h"
#include "runtime/train/stop.h"

#include <fmt/format.h>

namespace espalier::rt {

std::string closingSummary(const RunResult &result, const RunOptions &options) {
  std::string text = !result.divergence.empty() ? std::string("diverged")
                     : result.stopSignal        ? fmt::format("stopped by {}", signalName(result.stopSignal))
                                                : std::string("done");
  if (result.steps.empty() && !result.evaluations.empty())
    return text;
  std::string checkpoint = options.checkpoint.empty() ? "" : latestCheckpoint(options.checkpoint);
  if (options.resume && result.steps.empty() && text == "done" && !checkpoint.empty())
    return fmt::format("nothing to do: {} is not before step {}; --steps N sets the last step", checkpoint,
                       options.steps);
  if (!result.steps.empty())
    text += fmt::format(" after step {} of {}", result.steps.back().step, options.steps);
  text += fmt::format(": {} in {:.1f} s", counted(result.stepCount, "step"), result.stepSeconds);
  if (!checkpoint.empty())
    return text + fmt::format("; checkpoint {}{}", checkpoint, result.stopSignal ? ", --resume continues from it" : "");
  if (!result.stopSignal)
    return text;
  return text + (options.checkpoint.empty() ? "; nothing is saved without --checkpoint" : "; no checkpoint yet");
}

std::string divergenceSentence(const RunResult &result, const RunOptions &options, const pb::Settings &settings) {
  std::string checkpoint = options.checkpoint.empty() ? "" : latestCheckpoint(options.checkpoint);
  std::string kept = !checkpoint.empty()          ? "the last good checkpoint is " + checkpoint
                     : options.checkpoint.empty() ? std::string("nothing is saved without --checkpoint")
                                                  : "there is no good checkpoint in " + options.checkpoint.string();
  double lossScale = result.steps.empty() ? 1 : result.steps.back().lossScale;
  return fmt::format("the run diverged: {}; {}; {}{}", result.divergence, kept,
                     divergenceAdvice(settings, result.isAnyApplied, lossScale),
                     checkpoint.empty() ? "" : ", with --resume --accept-changes");
}

} // namespace espalier::rt
