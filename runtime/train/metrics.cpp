// Tests and tools rely on the JSON keys.
#include "runtime/train/metrics.h"

#include "messages/counted.h"
#include "messages/terminal.h"
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

/// Returns a JSON number, or null if the value is not finite, because JSON has no infinities.
nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr); }

/// The first keys of the kinds of lines.
constexpr const char *stepKey = "step", *evaluationKey = "evaluation_after_step", *savedKey = "saved_by_step",
                     *rollbackKey = "rolled_back_after_step", *slowKey = "slow_after_step",
                     *restartKey = "restarted_after_step";

/// Returns whether a line of the file belongs to a step after `step`. A partial line, which a killed run may leave,
/// does.
bool isOfLaterStep(std::string_view line, int64_t step) {
  nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  for (const char *key : {stepKey, evaluationKey, savedKey, rollbackKey, slowKey, restartKey}) {
    if (json.is_discarded() && line.starts_with(fmt::format("{{\"{}\":", key)))
      return true;
    if (json.is_object() && json.contains(key) && json[key].is_number_integer())
      return json[key].get<int64_t>() > step;
  }
  return false;
}

/// Returns the loads of experts: for each layer, the share of the choices that each expert has.
nlohmann::ordered_json loadsOf(const ExpertLoads &loads) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const ExpertLoad &layer : loads.layers) {
    auto all = static_cast<double>(std::max<int64_t>(1, layer.choices()));
    std::vector<double> shares;
    for (int64_t chosen : layer.chosen)
      shares.push_back(static_cast<double>(chosen) / all);
    layers.push_back({{"layer", layer.layer},
                      {"choices", layer.choices()},
                      {"load", shares},
                      {"dropped", static_cast<double>(layer.dropped) / all}});
  }
  return {{"steps", loads.steps},
          {"max_over_mean", loads.mostOverMean()},
          {"dropped", loads.droppedShare()},
          {"layers", layers}};
}

/// Returns the largest attention score of all layers, and that of each layer.
nlohmann::ordered_json scoresOf(const std::vector<LayerScore> &scores) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const LayerScore &score : scores)
    layers.push_back({{"layer", score.layer}, {"max", score.largest}});
  return {{"max", largestOf(scores)}, {"layers", layers}};
}

/// Formats a duration and the speed of moving `bytes` in this time: "1.21 s (4.812 GB/s)".
std::string withSpeed(double seconds, uint64_t bytes) {
  std::string duration = seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
  return duration + (seconds > 0 ? fmt::format(" ({:.3f} GB/s)", static_cast<double>(bytes) / 1e9 / seconds) : "");
}

} // namespace

Metrics::Metrics(const RunOptions &options) : options(options), isTerminal(options.log && isatty(STDOUT_FILENO)) {
  if (!options.metrics.empty())
    file.open(options.metrics, /*isContinued=*/options.resume);
  if (!options.tensorboard.empty())
    events.open(options.tensorboard);
  if (options.prometheus.empty())
    return;
  endpoint.open(options.prometheus, options.prometheusTokenFile);
  endpoint.change([&](RunGauges &gauges) { gauges.begin(options.steps, options.restarts); });
  show(fmt::format("Prometheus reads {}", endpoint.url()));
}

void Metrics::show(const std::string &line) {
  if (options.log)
    print(isTerminal ? fmt::format("\r\x1b[K{}\n{}", line, progress()) : line + "\n");
}

std::string Metrics::progress() const {
  return shown ? progressLine(shown->first, options.steps, shown->second, terminalColumns()) : "";
}

void Metrics::say(const std::string &line) { show(line); }

double Metrics::secondsLeft(const StepRecord &record) {
  constexpr double weight = 0.1; // of the latest step
  auto now = std::chrono::steady_clock::now();
  double seconds = std::chrono::duration<double>(now - lastStep).count();
  bool isFirst = lastStep == std::chrono::steady_clock::time_point();
  lastStep = now;
  if (isFirst)
    return record.seconds * static_cast<double>(options.steps - record.step);
  meanSeconds = meanSeconds > 0 ? (1 - weight) * meanSeconds + weight * seconds : seconds;
  return meanSeconds * static_cast<double>(options.steps - record.step);
}

bool Metrics::isDue(int64_t step) {
  bool isFirst = !hasSteps;
  hasSteps = true;
  if (!options.logEvery)
    return !isTerminal;
  return isFirst || step % *options.logEvery == 0 || step == options.steps;
}

void Metrics::continueAfter(int64_t step) {
  int64_t dropped = file.dropLast([step](std::string_view line) { return isOfLaterStep(line, step); });
  if (dropped > 0)
    fmt::print(stderr, "{}: note: {} of steps after {}, from which the run resumes, dropped\n",
               options.metrics.string(), counted(dropped, "line"), step);
}

void Metrics::addRestarts(int64_t step) {
  if (options.metrics.empty() || options.restarts.empty())
    return;
  double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (size_t i = options.resume ? options.restarts.size() - 1 : 0; i < options.restarts.size(); ++i)
    file.add(metricsLine(options.restarts[i], step, std::max(0.0, now - options.restarts[i].endedAt)));
}

void Metrics::close(const std::string &line) {
  if (options.log)
    print((shown ? "\n" : "") + line + "\n");
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
    fmt::print(stderr, "standard output cannot be written: {}; the run continues without it\n", std::strerror(reason));
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
  if (record.normLimit > 0) {
    line["grad_norm_limit"] = record.normLimit;
    line["spike"] = record.isSpike;
  }
  if (record.batch > 0)
    line["batch"] = record.batch;
  if (!record.experts.isEmpty())
    line["experts"] = loadsOf(record.experts);
  if (!record.attentionScores.empty())
    line["max_attention_logit"] = scoresOf(record.attentionScores);
  if (record.packing)
    line["packing"] = {{"documents", record.packing->documents},
                       {"tokens", record.packing->tokens},
                       {"longest_document", record.packing->longest},
                       {"replica_imbalance", record.packing->replicaImbalance},
                       {"context_imbalance", record.packing->contextImbalance}};
  line["schema"] = 1;
  return line.dump();
}

std::string metricsLine(const EvaluationRecord &record) {
  nlohmann::ordered_json line = {{evaluationKey, record.step},
                                 {"evaluation_loss", number(record.loss)},
                                 {"evaluation_perplexity", number(std::exp(record.loss))},
                                 {"evaluation_tokens", record.tokens},
                                 {"schema", 1}};
  return line.dump();
}

std::string metricsLine(const SaveRecord &record) {
  nlohmann::ordered_json line = {{savedKey, record.afterStep},
                                 {"saved_step", record.step},
                                 {"checkpoint", record.name},
                                 {"checkpoint_bytes", record.bytes},
                                 {"blocked_seconds", record.blockedSeconds},
                                 {"written_seconds", record.writtenSeconds},
                                 {"schema", 1}};
  return line.dump();
}

std::string metricsLine(const RollbackRecord &record) {
  nlohmann::ordered_json line = {{rollbackKey, record.afterStep},
                                 {"to_step", record.toStep},
                                 {"skipped_samples", record.skippedSamples},
                                 {"rollback", record.number},
                                 {"max_rollbacks", record.most},
                                 {"reason", record.reason},
                                 {"schema", 1}};
  return line.dump();
}

std::string metricsLine(const RestartRecord &record, int64_t step, double seconds) {
  nlohmann::ordered_json line = {{restartKey, step},
                                 {"kind", nameOf(record.kind)},
                                 {"ranks_before", record.ranksBefore},
                                 {"ranks", record.ranks},
                                 {"plan", record.plan},
                                 {"restart", record.number},
                                 {"max_restarts", record.most},
                                 {"down_seconds", seconds},
                                 {"reason", record.reason},
                                 {"schema", 1}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string logLine(const SaveRecord &record, const std::filesystem::path &folder) {
  return fmt::format("saved {}: {:.4g} MB; training waited {}, written in {}", (folder / record.name).string(),
                     static_cast<double>(record.bytes) / 1e6, withSpeed(record.blockedSeconds, record.bytes),
                     withSpeed(record.writtenSeconds, record.bytes));
}

std::string loadedLine(const std::filesystem::path &checkpoint, uint64_t bytes, double seconds) {
  return fmt::format("loaded {}: {:.4g} MB in {}", checkpoint.string(), static_cast<double>(bytes) / 1e6,
                     withSpeed(seconds, bytes));
}

std::string metricsLine(const SlowRecord &record) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (size_t i = 0; i < record.ranks.size(); ++i) {
    const SlowRank &rank = record.ranks[i];
    ranks.push_back({{"rank", rank.rank},
                     {"host", record.hosts[i]},
                     {"ratio", rank.ratio},
                     {"compute_seconds", rank.seconds},
                     {"median_seconds", rank.median},
                     {"whole_host", rank.isWholeHost}});
  }
  nlohmann::ordered_json line = {
      {slowKey, record.step}, {"window_steps", record.windowSteps}, {"slow_ranks", ranks}, {"schema", 1}};
  return line.dump();
}

void Metrics::add(const StepRecord &record) {
  endpoint.add(record);
  events.add(record.step, {{"loss", record.loss},
                           {"gradient_norm", record.gradNorm},
                           {"learning_rate", record.learningRate},
                           {"step_seconds", record.seconds},
                           {"tokens_per_second", record.tokensPerSecond},
                           {"loss_scale", record.lossScale}});
  if (!record.experts.isEmpty())
    events.add(record.step, {{"experts/max_over_mean", record.experts.mostOverMean()},
                             {"experts/dropped", record.experts.droppedShare()}});
  if (!record.attentionScores.empty())
    events.add(record.step, {{"max_attention_logit", largestOf(record.attentionScores)}});
  if (record.packing)
    events.add(record.step, {{"packing/replica_imbalance", record.packing->replicaImbalance},
                             {"packing/context_imbalance", record.packing->contextImbalance}});
  double left = secondsLeft(record);
  if (isTerminal)
    shown = {record, left};
  if (isDue(record.step) || record.isSpike)
    show(logLine(record, options.steps, left));
  else if (isTerminal)
    print("\r\x1b[K" + progress());
  if (!options.metrics.empty())
    file.add(metricsLine(record));
}

void Metrics::add(const SaveRecord &record) {
  endpoint.add(record);
  show(logLine(record, options.checkpoint));
  if (!options.metrics.empty())
    file.add(metricsLine(record));
}

void Metrics::add(const RollbackRecord &record) {
  endpoint.add(record);
  show(
      fmt::format("rollback {} of at most {}: {}; the run goes back to the checkpoint of step {} and skips the {} that "
                  "it has read since",
                  record.number, record.most, record.reason, record.toStep, counted(record.skippedSamples, "sample")));
  if (!options.metrics.empty())
    file.add(metricsLine(record));
}

void Metrics::add(const EvaluationRecord &record) {
  endpoint.add(record);
  events.add(record.step, {{"evaluation/loss", record.loss}, {"evaluation/perplexity", std::exp(record.loss)}});
  show(fmt::format("evaluation after step {}: loss {:.5f}, perplexity {:.5g}, over {:.0f} tokens", record.step,
                   unsignedNaN(record.loss), unsignedNaN(std::exp(record.loss)), record.tokens));
  if (!options.metrics.empty())
    file.add(metricsLine(record));
}

void Metrics::add(const SlowRecord &record) {
  endpoint.add(record);
  if (!options.metrics.empty())
    file.add(metricsLine(record));
}

} // namespace espalier::rt
