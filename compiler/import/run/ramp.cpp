#include "compiler/import/run/ramp.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/ranges.h>
#include <optional>
#include <sstream>
#include <utility>

namespace espalier {
namespace {

constexpr int64_t mostSamples = int64_t(1) << 50;

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

} // namespace

Ramp linearRamp(const std::vector<std::string> &words, int64_t globalBatch) {
  std::vector<int64_t> numbers;
  for (const std::string &word : words) {
    int64_t number = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error == std::errc() && end == word.data() + word.size() && number >= 1 && number < mostSamples)
      numbers.push_back(number);
  }
  if (numbers.size() != 3 || words.size() != 3)
    return {{},
            fmt::format("must be [start, increment, samples], three whole numbers of at least 1, got [{}]",
                        fmt::join(words, ", "))};
  int64_t start = numbers[0], increment = numbers[1], samples = numbers[2], growth = globalBatch - start;
  if (growth < 0 || growth % increment != 0)
    return {{},
            fmt::format("grows from {} by {} and misses the global batch of {}; start: {} → the global batch minus a "
                        "multiple of the increment",
                        start, increment, globalBatch, start)};
  int64_t count = growth / increment;
  if (count > mostBatchSizes)
    return {{},
            fmt::format("has {} batch sizes before the global batch, a plan holds at most {}; increment: {} → {} or "
                        "more",
                        count, mostBatchSizes, increment, (growth + mostBatchSizes - 1) / mostBatchSizes)};
  Ramp ramp;
  for (int64_t i = 0; i < count; ++i) {
    // Megatron divides in floating point: size i ends at the first sample from (i + 1) samples / count on.
    auto end = static_cast<int64_t>(
        std::ceil(static_cast<double>(samples) / static_cast<double>(count) * static_cast<double>(i + 1)));
    ramp.steps.push_back({end, start + i * increment});
  }
  return ramp;
}

Ramp steppedRamp(const std::string &text, int64_t sequence, int64_t globalBatch) {
  std::vector<std::pair<int64_t, int64_t>> parts; // tokens, batch
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    size_t colon = word.find(':');
    std::optional<int64_t> tokens = colon == std::string::npos ? std::nullopt : countOf(word.substr(0, colon));
    std::optional<int64_t> batch = colon == std::string::npos ? std::nullopt : countOf(word.substr(colon + 1));
    if (!tokens || !batch || *batch < 1)
      return {{}, fmt::format("is a list of TOKENS:BATCH such as \"0:768 250B:1536\", got '{}'", word)};
    if (parts.empty() ? *tokens != 0 : *tokens / sequence <= parts.back().first / sequence)
      return {{},
              fmt::format("begins with 0 tokens and ascends by at least one sample of {} tokens, got '{}'", sequence,
                          word)};
    parts.emplace_back(*tokens, *batch);
  }
  if (parts.empty() || parts.back().second != globalBatch)
    return {{},
            fmt::format("must end with the global batch of {}, got {}", globalBatch,
                        parts.empty() ? "nothing" : fmt::format("{}", parts.back().second))};
  if (parts.size() - 1 > static_cast<size_t>(mostBatchSizes))
    return {{},
            fmt::format("has {} batch sizes before the last, a plan holds at most {}; leave some out", parts.size() - 1,
                        mostBatchSizes)};
  Ramp ramp;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i + 1].first / sequence > mostSamples)
      return {{}, fmt::format("has more than {} samples before its last batch", mostSamples)};
    if (parts[i].second > globalBatch)
      return {{},
              fmt::format("has a batch of {}, the last one of {} must be the largest", parts[i].second, globalBatch)};
    ramp.steps.push_back({parts[i + 1].first / sequence, parts[i].second});
  }
  return ramp;
}

int64_t stepsOf(int64_t samples, const std::vector<BatchStep> &ramp, int64_t globalBatch) {
  int64_t steps = 0, consumed = 0;
  for (const BatchStep &part : ramp) {
    int64_t toEnd = std::max<int64_t>(0, (part.samples - consumed + part.globalBatch - 1) / part.globalBatch);
    int64_t here = std::min(toEnd, (samples - consumed) / part.globalBatch);
    steps += here;
    consumed += here * part.globalBatch;
    if (here < toEnd) // the samples end within this part
      return steps;
  }
  return steps + (samples - consumed) / globalBatch;
}

} // namespace espalier
