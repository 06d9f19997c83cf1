// Imports the ramp of the batch size: rampup_batch_size and step_batch_size_schedule, as in Megatron.
#include "compiler/import/run/run_reader.h"

#include <cmath>
#include <fmt/format.h>
#include <set>
#include <sstream>

namespace espalier {
namespace {

constexpr const char *rampKey = "runner_config.rampup_batch_size",
                     *scheduleKey = "runner_config.step_batch_size_schedule";
constexpr int64_t mostSamples = int64_t(1) << 50;

/// Reads [start, increment, samples]. The batch grows by `increment` at equal distances in samples.
void importLinearRamp(const RunReader &reader) {
  RunConfig &config = reader.config();
  std::vector<int64_t> numbers;
  for (const YamlPtr &item : reader.find(rampKey)->items)
    if (std::optional<int64_t> number = yamlInteger(*item); number && *number >= 1 && *number < mostSamples)
      numbers.push_back(*number);
  if (numbers.size() != 3 || reader.find(rampKey)->items.size() != 3)
    return reader.error(rampKey,
                        fmt::format("rampup_batch_size must be [start, increment, samples], three whole numbers "
                                    "of at least 1, got {}",
                                    flowText(*reader.find(rampKey))));
  int64_t start = numbers[0], increment = numbers[1], samples = numbers[2], growth = config.globalBatch - start;
  if (growth < 0 || growth % increment != 0)
    return reader.error(rampKey,
                        fmt::format("rampup_batch_size grows from {} by {} and misses the global batch of {}; start: "
                                    "{} → the global batch minus a multiple of the increment",
                                    start, increment, config.globalBatch, start));
  int64_t count = growth / increment;
  if (count > mostBatchSizes)
    return reader.error(rampKey,
                        fmt::format("rampup_batch_size has {} batch sizes before the global batch, a plan holds "
                                    "at most {}; increment: {} → {} or more",
                                    count, mostBatchSizes, increment, (growth + mostBatchSizes - 1) / mostBatchSizes));
  for (int64_t i = 0; i < count; ++i) {
    // Megatron divides in floating point: size i ends at the first sample from (i + 1) samples / count on.
    auto end = static_cast<int64_t>(
        std::ceil(static_cast<double>(samples) / static_cast<double>(count) * static_cast<double>(i + 1)));
    config.batchRamp.push_back({end, start + i * increment});
  }
}

/// Returns a number with a suffix K, M, B or T: "250B" is 250e9.
std::optional<int64_t> countOf(const std::string &text) {
  size_t length = 0;
  double number = 0;
  try {
    number = std::stod(text, &length);
  } catch (const std::exception &) {
    return std::nullopt;
  }
  std::string suffix = text.substr(length);
  double factor = suffix.empty()  ? 1
                  : suffix == "K" ? 1e3
                  : suffix == "M" ? 1e6
                  : suffix == "B" ? 1e9
                  : suffix == "T" ? 1e12
                                  : 0;
  bool isCount = factor > 0 && number >= 0 && number * factor < static_cast<double>(int64_t(1) << 62);
  return isCount ? std::optional(static_cast<int64_t>(number * factor)) : std::nullopt;
}

/// Reads "TOKENS:BATCH TOKENS:BATCH ...", as in Megatron: from TOKENS on, a step has BATCH samples.
void importSchedule(const RunReader &reader) {
  RunConfig &config = reader.config();
  auto fail = [&](const std::string &reason) {
    config.batchRamp.clear();
    reader.error(scheduleKey, "step_batch_size_schedule " + reason);
  };
  int64_t sequence = std::max<int64_t>(1, config.model.dims.contains("seq") ? config.model.dims.at("seq") : 1);
  std::vector<std::pair<int64_t, int64_t>> parts; // tokens, batch
  std::istringstream words(reader.text(scheduleKey).value_or(""));
  for (std::string word; words >> word;) {
    size_t colon = word.find(':');
    std::optional<int64_t> tokens = colon == std::string::npos ? std::nullopt : countOf(word.substr(0, colon));
    std::optional<int64_t> batch = colon == std::string::npos ? std::nullopt : countOf(word.substr(colon + 1));
    if (!tokens || !batch || *batch < 1)
      return fail(fmt::format("is a list of TOKENS:BATCH such as \"0:768 250B:1536\", got '{}'", word));
    if (parts.empty() ? *tokens != 0 : *tokens / sequence <= parts.back().first / sequence)
      return fail(fmt::format("begins with 0 tokens and ascends by at least one sample of {} tokens, got '{}'",
                              sequence, word));
    parts.emplace_back(*tokens, *batch);
  }
  if (parts.empty() || parts.back().second != config.globalBatch)
    return fail(fmt::format("must end with the global batch of {}, got {}", config.globalBatch,
                            parts.empty() ? "nothing" : fmt::format("{}", parts.back().second)));
  if (parts.size() - 1 > static_cast<size_t>(mostBatchSizes))
    return fail(fmt::format("has {} batch sizes before the last, a plan holds at most {}; leave some out",
                            parts.size() - 1, mostBatchSizes));
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i + 1].first / sequence > mostSamples)
      return fail(fmt::format("has more than {} samples before its last batch", mostSamples));
    if (parts[i].second > config.globalBatch)
      return fail(fmt::format("has a batch of {}, the last one of {} must be the largest", parts[i].second,
                              config.globalBatch));
    config.batchRamp.push_back({parts[i + 1].first / sequence, parts[i].second});
  }
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
  isLinear ? importLinearRamp(reader) : importSchedule(reader);
  std::string text;
  for (const BatchStep &step : config.batchRamp)
    text += fmt::format("{} until {} samples, ", step.globalBatch, step.samples);
  if (!config.batchRamp.empty())
    reader.derive("batch ramp", fmt::format("{}then {}, which the planner prices", text, config.globalBatch),
                  "samples per optimizer step while the batch grows");
}

} // namespace espalier
