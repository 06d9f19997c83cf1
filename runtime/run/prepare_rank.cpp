#include "runtime/run/prepare_rank.h"

#include "runtime/status.h"

#include <algorithm>

namespace espalier::rt {
namespace {

std::optional<StartupError> startupErrorOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const std::exception &) {
    return StartupError::current();
  }
  return std::nullopt;
}

/// Stops all ranks if any rank has a start-up error. The first such rank throws its own error, and all others throw
/// ReportedElsewhere.
void requireNone(Agreement &agreement, int rank, const std::optional<StartupError> &own) {
  std::vector<std::string> statuses = agreement.tell(own ? std::to_string(own->status) : "");
  auto refused = std::ranges::find_if(statuses, [](const std::string &status) { return !status.empty(); });
  if (refused == statuses.end())
    return;
  if (refused - statuses.begin() == rank)
    own->raise();
  throw ReportedElsewhere(std::stoi(*refused));
}

} // namespace

void prepareRank(std::optional<PreparedRun> &prepared, const Program &program, const RunOptions &options,
                 Agreement &agreement, int rank, const std::optional<RunData> &data) {
  ProcessPlace place{.hostRanks = options.hostRanks(program.mesh().ranks()), .hasFirst = rank == 0};
  auto prepare = [&] { prepared.emplace(program, options, place, data); };
  requireNone(agreement, rank, rank == 0 ? startupErrorOf(prepare) : std::nullopt);
  bool hasToken = prepared && prepared->checkpoints;
  place.token = agreement.first(rank > 0 ? "" : hasToken ? prepared->checkpoints->token() : noToken);
  requireNone(agreement, rank, rank > 0 ? startupErrorOf(prepare) : std::nullopt);
}

int runReporting(const ResultFile &results, const std::function<int()> &work) {
  try {
    return work();
  } catch (const RankStopped &) {
    return 1;
  } catch (const std::exception &) {
    results.write({.startupError = StartupError::current()});
    return 0; // the launcher reports the error
  }
}

} // namespace espalier::rt
