#include "runtime/train/failure_report.h"

#include "runtime/checkpoint/commit.h"
#include "runtime/data/atomic_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using Json = nlohmann::ordered_json;

Json textOrNull(const std::string &text) { return text.empty() ? Json(nullptr) : Json(text); }
Json numberOrNull(int64_t number) { return number < 0 ? Json(nullptr) : Json(number); }

/// "matmul at gpt2.yaml:31:7" in its two parts; the second is empty where there is no place.
std::pair<std::string, std::string> opAndPlace(const std::string &op) {
  size_t at = op.find(" at ");
  return at == std::string::npos ? std::pair(op, std::string()) : std::pair(op.substr(0, at), op.substr(at + 4));
}

} // namespace

void writeFailureReport(const Program &program, const RunOptions &options, const Failure &failure) {
  if (options.failureReport.empty())
    return;
  auto [op, location] = opAndPlace(failure.op);
  int stage = failure.stage < 0 && failure.rank >= 0 ? program.mesh().stage(failure.rank) : failure.stage;
  std::string checkpoint = options.checkpoint.empty() ? "" : latestCheckpoint(options.checkpoint);
  Json report = {{"rank", numberOrNull(failure.rank)},
                 {"stage", numberOrNull(stage)},
                 {"step", numberOrNull(failure.step)},
                 {"action", textOrNull(failure.action)},
                 {"op", textOrNull(op)},
                 {"location", textOrNull(location)},
                 {"cause", failure.message},
                 {"waiting", nullptr},
                 {"checkpoint", textOrNull(checkpoint)},
                 {"resume", textOrNull(checkpoint.empty() ? "" : options.resumeCommand)}};
  try {
    std::string text = report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    AtomicFile file(options.failureReport.string());
    file.write(text.data(), text.size());
    file.commit();
  } catch (const std::exception &error) {
    fmt::print(stderr, "espalier: warning: no report of the failure: {}\n", error.what());
  }
}

} // namespace espalier::rt
