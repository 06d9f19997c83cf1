#include "runtime/train/log_line.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <tuple>
#include <vector>

namespace espalier::rt {
namespace {

/// A part of the line of a step. The progress line leaves out parts of high `order` first.
struct LinePart {
  int order;
  std::string text;
};

constexpr int barOrder = 5; ///< of the shortest bar among the parts

/// Returns the parts of the line in the order in which they are shown.
std::vector<LinePart> partsOf(const StepRecord &record, int64_t steps, double secondsLeft) {
  std::vector<LinePart> parts = {
      {0, fmt::format("step {:>{}}/{}", record.step, fmt::formatted_size("{}", steps), steps)}};
  if (record.labels > 0) {
    parts.push_back({1, fmt::format("loss {:.5f}", unsignedNaN(record.loss))});
    parts.push_back({8, fmt::format("grad norm {:.4f}", unsignedNaN(record.gradNorm))});
  } else {
    parts.push_back({1, "no labels in the batch: no update"});
  }
  parts.push_back({7, fmt::format("lr {:.3e}", record.learningRate)});
  parts.push_back({4, fmt::format("{:.1f} ms", record.seconds * 1e3)});
  parts.push_back({6, fmt::format("{:.0f} tokens/s", record.tokensPerSecond)});
  if (record.mfu > 0)
    parts.push_back({9, fmt::format("mfu {:.1f} %", record.mfu * 100)});
  if (record.batch > 0)
    parts.push_back({10, fmt::format("batch {}", record.batch)});
  if (!record.experts.isEmpty())
    parts.push_back({11, fmt::format("experts {:.2f} x mean, {:.1f} % dropped", record.experts.mostOverMean(),
                                     record.experts.droppedShare() * 100)});
  if (!record.attentionScores.empty())
    parts.push_back({12, fmt::format("attention scores to {:.4g}", largestOf(record.attentionScores))});
  if (record.isSpike)
    parts.push_back({3, fmt::format("skipped: gradient norm above {:.4g}", record.normLimit)});
  else if (!record.isApplied && record.labels > 0)
    parts.push_back({3, fmt::format("skipped: overflow, loss scale {:g}", record.lossScale)});
  if (secondsLeft > 0)
    parts.push_back({2, durationText(secondsLeft) + " left"});
  return parts;
}

std::string joined(const std::vector<LinePart> &parts) {
  std::string line;
  for (const LinePart &part : parts)
    line += (line.empty() ? "" : "  ") + part.text;
  return line;
}

/// Returns a bar of `width` columns with its brackets, and the space behind it.
std::string barOf(const StepRecord &record, int64_t steps, int width) {
  int inner = width - 3, done = static_cast<int>(inner * std::min(record.step, steps) / std::max<int64_t>(1, steps));
  return fmt::format("[{:#<{}}{:.<{}}] ", "", done, "", inner - done);
}

} // namespace

std::string durationText(double seconds) {
  auto whole = static_cast<int64_t>(std::ceil(seconds));
  for (auto [name, length, smaller, part] : {std::tuple("d", int64_t(86400), "h", int64_t(3600)),
                                             {"h", int64_t(3600), "min", int64_t(60)},
                                             {"min", int64_t(60), "s", int64_t(1)}})
    if (whole >= length) {
      int64_t rest = whole % length / part;
      return fmt::format("{} {}{}", whole / length, name, rest > 0 ? fmt::format(" {} {}", rest, smaller) : "");
    }
  return fmt::format("{} s", whole);
}

double unsignedNaN(double number) { return std::isnan(number) ? std::abs(number) : number; }

std::string logLine(const StepRecord &record, int64_t steps, double secondsLeft) {
  return joined(partsOf(record, steps, secondsLeft));
}

std::string progressLine(const StepRecord &record, int64_t steps, double secondsLeft, int columns) {
  constexpr int shortest = 13, longest = 33; // of the bar
  // A terminal wraps the line when its last column is written.
  auto room = static_cast<size_t>(std::max(1, columns - 1));
  std::vector<LinePart> parts = partsOf(record, steps, secondsLeft);
  auto barWidth = [&] {
    return std::min<int>(longest, static_cast<int>(room) - static_cast<int>(joined(parts).size()));
  };
  while (parts.size() > 1) {
    auto least = std::ranges::max_element(parts, {}, &LinePart::order);
    bool hasRoom = least->order > barOrder ? barWidth() >= shortest : joined(parts).size() <= room;
    if (hasRoom)
      break;
    parts.erase(least);
  }
  std::string bar = barWidth() >= shortest ? barOf(record, steps, barWidth()) : "";
  return (bar + joined(parts)).substr(0, room);
}

} // namespace espalier::rt
