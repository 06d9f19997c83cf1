// CBOR preserves every bit of a number, including NaN.
#include "runtime/run/rank_result.h"

#include "messages/data_error.h"
#include "runtime/status.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace espalier::rt {

using Json = nlohmann::json;

namespace {

Json rowOf(const ExpertLoads &loads) {
  Json layers = Json::array();
  for (const ExpertLoad &layer : loads.layers)
    layers.push_back({layer.layer, layer.chosen, layer.dropped});
  return {loads.steps, layers};
}

ExpertLoads loadsOf(const Json &row) {
  ExpertLoads loads;
  loads.steps = row.at(0);
  for (const Json &layer : row.at(1))
    loads.layers.push_back({layer.at(0), layer.at(1), layer.at(2)});
  return loads;
}

Json rowOf(const StepRecord &step) {
  return {step.step,      step.loss,      step.gradNorm,      step.learningRate, step.seconds,   step.tokensPerSecond,
          step.mfu,       step.lossScale, step.labels,        step.isApplied,    step.peakBytes, step.isSpike,
          step.normLimit, step.batch,     rowOf(step.experts)};
}

Json rowOf(const SaveRecord &save) {
  return {save.step, save.afterStep, save.name, save.bytes, save.blockedSeconds, save.writtenSeconds};
}

Json rowOf(const RollbackRecord &rollback) {
  return {rollback.afterStep, rollback.toStep, rollback.skippedSamples,
          rollback.number,    rollback.most,   rollback.reason};
}

Json rowOf(const std::optional<StartupError> &error) {
  if (!error)
    return Json::array();
  return {error->status, error->isElsewhere, error->text, error->file, error->line};
}

StepRecord stepOf(const Json &row) {
  return {row.at(0), row.at(1), row.at(2),  row.at(3),  row.at(4),  row.at(5),  row.at(6),          row.at(7),
          row.at(8), row.at(9), row.at(10), row.at(11), row.at(12), row.at(13), loadsOf(row.at(14))};
}

} // namespace

StartupError StartupError::current() {
  try {
    throw;
  } catch (const ReportedElsewhere &error) {
    return {.status = error.status, .isElsewhere = true};
  } catch (const MemoryError &error) {
    return {.status = 3, .text = error.what()};
  } catch (const DataError &error) {
    return {.text = error.reason(), .file = error.file(), .line = error.line()};
  } catch (const PlanError &error) {
    return {.text = error.what()};
  } catch (const std::exception &error) {
    return {.status = 1, .text = error.what()};
  }
}

void StartupError::raise() const {
  if (isElsewhere)
    throw ReportedElsewhere(status);
  if (!file.empty())
    throw DataError(file, text, line);
  if (status == 3)
    throw MemoryError(text);
  if (status == 2)
    throw PlanError(text);
  throw std::runtime_error(text);
}

ResultFile::ResultFile() : file(memfd_create("espalier result", MFD_CLOEXEC)) {
  if (file < 0)
    throw MemoryError(fmt::format("the system refuses a file in memory: {}", std::strerror(errno)));
}

ResultFile::~ResultFile() { close(file); }

void ResultFile::write(const RankResult &result) const {
  Json steps = Json::array(), evaluations = Json::array(), saves = Json::array(), rollbacks = Json::array();
  for (const StepRecord &step : result.run.steps)
    steps.push_back(rowOf(step));
  for (const EvaluationRecord &evaluation : result.run.evaluations)
    evaluations.push_back({evaluation.step, evaluation.loss, evaluation.tokens});
  for (const SaveRecord &save : result.run.saves)
    saves.push_back(rowOf(save));
  for (const RollbackRecord &rollback : result.run.rollbacks)
    rollbacks.push_back(rowOf(rollback));
  std::vector<uint8_t> bytes =
      Json::to_cbor({{"steps", steps},
                     {"all_steps", {result.run.stepCount, result.run.stepSeconds, result.run.isAnyApplied}},
                     {"rollbacks", rollbacks},
                     {"saves", saves},
                     {"evaluations", evaluations},
                     {"signal", result.run.stopSignal},
                     {"divergence", result.run.divergence},
                     {"load", result.loadFault},
                     {"metrics", result.metricsFault},
                     {"refusal", rowOf(result.startupError)}});
  for (size_t at = 0; at < bytes.size();) {
    ssize_t count = pwrite(file, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (count <= 0)
      throw std::runtime_error(fmt::format("the result of the run cannot be written: {}", std::strerror(errno)));
    at += count;
  }
}

std::optional<RankResult> ResultFile::read() const {
  struct stat status = {};
  if (fstat(file, &status) != 0)
    return std::nullopt;
  std::vector<uint8_t> bytes(status.st_size);
  for (size_t at = 0; at < bytes.size();) {
    ssize_t count = pread(file, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (count <= 0)
      return std::nullopt;
    at += count;
  }
  Json json = Json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
  if (json.is_discarded())
    return std::nullopt;
  RankResult result;
  for (const Json &row : json.at("steps"))
    result.run.steps.push_back(stepOf(row));
  const Json &all = json.at("all_steps");
  result.run.stepCount = all.at(0);
  result.run.stepSeconds = all.at(1);
  result.run.isAnyApplied = all.at(2);
  for (const Json &row : json.at("saves"))
    result.run.saves.push_back({row.at(0), row.at(1), row.at(2), row.at(3), row.at(4), row.at(5)});
  for (const Json &row : json.at("rollbacks"))
    result.run.rollbacks.push_back({row.at(0), row.at(1), row.at(2), row.at(3), row.at(4), row.at(5)});
  for (const Json &row : json.at("evaluations"))
    result.run.evaluations.push_back({row.at(0), row.at(1), row.at(2)});
  result.run.stopSignal = json.at("signal");
  result.run.divergence = json.at("divergence");
  result.loadFault = json.at("load");
  result.metricsFault = json.at("metrics");
  if (const Json &row = json.at("refusal"); !row.empty())
    result.startupError = StartupError{row.at(0), row.at(1), row.at(2), row.at(3), row.at(4)};
  return result;
}

} // namespace espalier::rt
