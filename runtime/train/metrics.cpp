// Tests and tools rely on the JSON keys.
#include "runtime/train/metrics.h"

#include "runtime/counted.h"
#include "runtime/status.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr int barWidth = 30;

/// Returns a JSON number, or null if the value is not finite, because JSON has no infinities.
nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr); }

/// The first keys of the two kinds of lines.
constexpr const char *stepKey = "step", *evaluationKey = "evaluation_after_step";

/// Returns whether a line of the file belongs to a step after `step`. A partial line, which a killed run may leave,
/// does.
bool isOfLaterStep(std::string_view line, int64_t step) {
  nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  for (const char *key : {stepKey, evaluationKey}) {
    if (json.is_discarded() && line.starts_with(fmt::format("{{\"{}\":", key)))
      return true;
    if (json.is_object() && json.contains(key) && json[key].is_number_integer())
      return json[key].get<int64_t>() > step;
  }
  return false;
}

/// Replaces "-nan" by "nan", because the sign of a NaN depends on the hardware.
double unsignedNaN(double number) { return std::isnan(number) ? std::abs(number) : number; }

} // namespace

std::string logLine(const StepRecord &record, int64_t steps) {
  std::string result = record.labels > 0 ? fmt::format("loss {:.5f}  grad norm {:.4f}", unsignedNaN(record.loss),
                                                       unsignedNaN(record.gradNorm))
                                         : std::string("no labels in the batch: no update");
  std::string line = fmt::format("step {:>{}}/{}  {}  lr {:.3e}  {:.1f} ms  {:.0f} tokens/s", record.step,
                                 fmt::formatted_size("{}", steps), steps, result, record.learningRate,
                                 record.seconds * 1e3, record.tokensPerSecond);
  if (record.mfu > 0)
    line += fmt::format("  mfu {:.1f} %", record.mfu * 100);
  if (!record.isApplied && record.labels > 0)
    line += fmt::format("  skipped: overflow, loss scale {:g}", record.lossScale);
  return line;
}

Metrics::Metrics(const RunOptions &options) : options(options), isTerminal(options.log && isatty(STDOUT_FILENO)) {
  if (!options.metrics.empty())
    file.open(options.metrics, /*isContinued=*/options.resume);
}

void Metrics::show(const std::string &line, int64_t step) {
  if (!options.log)
    return;
  if (!isTerminal)
    return print(line + "\n");
  int done = static_cast<int>(barWidth * step / std::max<int64_t>(1, options.steps));
  hasBar = step < options.steps;
  print(fmt::format("\r\x1b[K{}\n[{:#<{}}{:.<{}}] {}/{}{}", line, "", done, "", barWidth - done, step, options.steps,
                    hasBar ? "" : "\n"));
}

void Metrics::say(const std::string &line, int64_t step) { show(line, step); }

void Metrics::continueAfter(int64_t step) {
  int64_t dropped = file.dropLast([step](std::string_view line) { return isOfLaterStep(line, step); });
  if (dropped > 0)
    fmt::print(stderr, "{}: note: {} of steps after {}, where the run goes on, dropped\n", options.metrics.string(),
               counted(dropped, "line"), step);
}

void Metrics::close(const std::string &line) {
  if (options.log)
    print((hasBar ? "\n" : "") + line + "\n");
}

/// Writes to standard output. If the reader has closed the pipe (`| head`), a run that writes other files continues
/// silently; another run ends with SIGPIPE.
void Metrics::print(const std::string &text) {
  if (isSilent || (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0))
    return;
  int reason = errno;
  bool leavesFiles =
      !options.metrics.empty() || !options.checkpoint.empty() || options.keepGradients || options.keepParameters;
  isSilent = true;
  if (leavesFiles && reason != EPIPE)
    fmt::print(stderr, "standard output cannot be written: {}; the run goes on without\n", std::strerror(reason));
  if (leavesFiles)
    return;
  if (reason != EPIPE)
    throw std::runtime_error(fmt::format("standard output cannot be written: {}", std::strerror(reason)));
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
}

std::string metricsLine(const StepRecord &record) {
  nlohmann::ordered_json line = {{stepKey, record.step},
                                 {"loss", number(record.loss)},
                                 {"grad_norm", number(record.gradNorm)},
                                 {"lr", record.learningRate},
                                 {"step_seconds", record.seconds},
                                 {"tokens_per_second", record.tokensPerSecond},
                                 {"peak_bytes", record.peakBytes},
                                 {"mfu", record.mfu},
                                 {"loss_scale", record.lossScale},
                                 {"labels", record.labels},
                                 {"applied", record.isApplied}};
  return line.dump();
}

std::string metricsLine(const EvaluationRecord &record) {
  nlohmann::ordered_json line = {{evaluationKey, record.step},
                                 {"evaluation_loss", number(record.loss)},
                                 {"evaluation_perplexity", number(std::exp(record.loss))},
                                 {"evaluation_tokens", record.tokens}};
  return line.dump();
}

void Metrics::add(const StepRecord &record) {
  if (options.log)
    show(logLine(record, options.steps), record.step);
  if (!options.metrics.empty())
    file.add(metricsLine(record));
}

void Metrics::add(const EvaluationRecord &record) {
  show(fmt::format("evaluation after step {}: loss {:.5f}, perplexity {:.5g}, over {:.0f} tokens", record.step,
                   unsignedNaN(record.loss), unsignedNaN(std::exp(record.loss)), record.tokens),
       record.step);
  if (!options.metrics.empty())
    file.add(metricsLine(record));
}

} // namespace espalier::rt
