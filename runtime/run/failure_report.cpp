#include "runtime/run/failure_report.h"

#include "runtime/checkpoint/commit.h"
#include "runtime/describe_place.h"
#include "runtime/files/atomic_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using Json = nlohmann::ordered_json;

Json textOrNull(const std::string &text) { return text.empty() ? Json(nullptr) : Json(text); }
Json numberOrNull(int64_t number) { return number < 0 ? Json(nullptr) : Json(number); }

/// Splits "matmul at gpt2.yaml:31:7" into the op and its location. The location is empty if the text has none.
std::pair<std::string, std::string> opAndPlace(const std::string &op) {
  size_t at = op.find(" at ");
  return at == std::string::npos ? std::pair(op, std::string()) : std::pair(op.substr(0, at), op.substr(at + 4));
}

Json listOf(const std::vector<Waiting> &waiting) {
  Json list = Json::array();
  for (const Waiting &rank : waiting)
    list.push_back({{"rank", rank.rank}, {"transfer", textOrNull(rank.transfer)}});
  return list;
}

Json listOf(const std::vector<SlowAtEnd> &slow) {
  Json list = Json::array();
  for (const SlowAtEnd &rank : slow)
    list.push_back({{"rank", rank.rank}, {"ratio", rank.ratio}});
  return list;
}

/// Returns the restarts of an elastic run before this failure.
Json listOf(const std::vector<RestartRecord> &restarts) {
  Json list = Json::array();
  for (const RestartRecord &restart : restarts)
    list.push_back({{"kind", nameOf(restart.kind)},
                    {"ranks_before", restart.ranksBefore},
                    {"ranks", restart.ranks},
                    {"plan", restart.plan},
                    {"reason", restart.reason}});
  return list;
}

} // namespace

void writeFailureReport(const Program &program, const RunOptions &options, const RankFailure &run) {
  if (options.failureReport.empty())
    return;
  const Failure &failure = run.failure;
  auto [op, location] = opAndPlace(failure.op);
  int stage = failure.stage < 0 && failure.rank >= 0 ? program.mesh().stage(failure.rank) : failure.stage;
  std::string checkpoint = options.checkpoint.empty() ? "" : latestCheckpoint(options.checkpoint);
  Json report = {{"schema", 1},
                 {"rank", numberOrNull(failure.rank)},
                 {"stage", numberOrNull(stage)},
                 {"step", numberOrNull(failure.step < 0 ? -1 : failure.step + 1)}, // counted from 1, as in the metrics
                 {"action", textOrNull(failure.action)},
                 {"op", textOrNull(op)},
                 {"location", textOrNull(location)},
                 {"cause", failure.message},
                 {"waiting", listOf(run.waiting)},
                 {"slow", listOf(run.slow)},
                 {"checkpoint", textOrNull(checkpoint)},
                 {"resume", textOrNull(checkpoint.empty() ? "" : options.resumeCommand)},
                 {"final", failure.isFinal}};
  if (!options.restarts.empty())
    report["restarts"] = listOf(options.restarts);
  try {
    writeWhole(options.failureReport, report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const std::exception &error) {
    fmt::print(stderr, "espalier: warning: no report of the failure: {}\n", error.what());
  }
}

std::vector<Waiting> waitingRanks(const Program &program, const World &world, int first, int failed) {
  std::vector<Waiting> waiting;
  for (int rank = 0; rank < world.ranks(); ++rank)
    if (first + rank != failed)
      waiting.push_back({first + rank, waitedFor(program.plan(), world.status(rank))});
  return waiting;
}

std::vector<SlowAtEnd> slowRanks(const World &world) {
  std::vector<SlowAtEnd> slow;
  for (const RankStatus::Slow &one : world.status(0).slow)
    if (one.rank >= 0)
      slow.push_back({one.rank, one.ratio});
  return slow;
}

} // namespace espalier::rt
