// CBOR keeps every bit of a number, NaN too.
#include "runtime/train/told_result.h"

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

Json rowOf(const StepRecord &step) {
  return {step.step, step.loss,      step.gradNorm, step.learningRate, step.seconds,  step.tokensPerSecond,
          step.mfu,  step.lossScale, step.labels,   step.isApplied,    step.peakBytes};
}

StepRecord stepOf(const Json &row) {
  return {row.at(0), row.at(1), row.at(2), row.at(3), row.at(4), row.at(5),
          row.at(6), row.at(7), row.at(8), row.at(9), row.at(10)};
}

} // namespace

ResultFile::ResultFile() : file(memfd_create("espalier result", MFD_CLOEXEC)) {
  if (file < 0)
    throw MemoryError(fmt::format("the system refuses a file in memory: {}", std::strerror(errno)));
}

ResultFile::~ResultFile() { close(file); }

void ResultFile::write(const ToldResult &told) const {
  Json steps = Json::array(), evaluations = Json::array();
  for (const StepRecord &step : told.result.steps)
    steps.push_back(rowOf(step));
  for (const EvaluationRecord &evaluation : told.result.evaluations)
    evaluations.push_back({evaluation.step, evaluation.loss, evaluation.tokens});
  std::vector<uint8_t> bytes = Json::to_cbor({{"steps", steps},
                                              {"evaluations", evaluations},
                                              {"signal", told.result.stopSignal},
                                              {"divergence", told.result.divergence},
                                              {"load", told.loadFault},
                                              {"metrics", told.metricsFault}});
  for (size_t at = 0; at < bytes.size();) {
    ssize_t count = pwrite(file, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (count <= 0)
      throw std::runtime_error(fmt::format("the result of the run cannot be told: {}", std::strerror(errno)));
    at += count;
  }
}

std::optional<ToldResult> ResultFile::read() const {
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
  ToldResult told;
  for (const Json &row : json.at("steps"))
    told.result.steps.push_back(stepOf(row));
  for (const Json &row : json.at("evaluations"))
    told.result.evaluations.push_back({row.at(0), row.at(1), row.at(2)});
  told.result.stopSignal = json.at("signal");
  told.result.divergence = json.at("divergence");
  told.loadFault = json.at("load");
  told.metricsFault = json.at("metrics");
  return told;
}

} // namespace espalier::rt
