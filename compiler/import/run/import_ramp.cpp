// Imports the ramp of the batch size: rampup_batch_size and step_batch_size_schedule, as in Megatron.
#include "compiler/import/run/ramp.h"
#include "compiler/import/run/run_reader.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace espalier {
namespace {

constexpr const char *rampKey = "runner_config.rampup_batch_size",
                     *scheduleKey = "runner_config.step_batch_size_schedule";

/// Reads [start, increment, samples].
Ramp readLinear(const RunReader &reader) {
  std::vector<std::string> words;
  for (const YamlPtr &item : reader.find(rampKey)->items)
    words.push_back(flowText(*item));
  return linearRamp(words, reader.config().globalBatch);
}

/// Reads "TOKENS:BATCH TOKENS:BATCH ...", as in Megatron.
Ramp readStepped(const RunReader &reader) {
  const RunConfig &config = reader.config();
  int64_t sequence = std::max<int64_t>(1, config.model.dims.contains("seq") ? config.model.dims.at("seq") : 1);
  return steppedRamp(reader.text(scheduleKey).value_or(""), sequence, config.globalBatch);
}

} // namespace

void importRamp(const RunReader &reader) {
  RunConfig &config = reader.config();
  bool isLinear = reader.has(rampKey), isSchedule = reader.has(scheduleKey);
  if (isLinear && isSchedule)
    return reader.error(scheduleKey, "rampup_batch_size and step_batch_size_schedule contradict each other, give one");
  if (!isLinear && !isSchedule)
    return;
  const char *key = isLinear ? rampKey : scheduleKey;
  if (config.runMode == "eval" || config.runMode == "predict")
    return reader.report(key, KeyAction::Accepted, "the plan does not train");
  if (config.data.pack_balanced())
    return reader.error(key, "pack: balanced packs samples for steps of the global batch: leave pack or the ramp out");
  Ramp ramp = isLinear ? readLinear(reader) : readStepped(reader);
  if (!ramp.fault.empty())
    return reader.error(key, std::string(key).substr(std::strlen("runner_config.")) + " " + ramp.fault);
  config.batchRamp = ramp.steps;
  std::string text;
  for (const BatchStep &step : config.batchRamp)
    text += fmt::format("{} until {} samples, ", step.globalBatch, step.samples);
  if (!config.batchRamp.empty())
    reader.derive("batch ramp", fmt::format("{}then {}, which the planner prices", text, config.globalBatch),
                  "samples per optimizer step while the batch grows");
}

} // namespace espalier
