#include "runtime/run/apart.h"

#include "runtime/status.h"

#include <algorithm>

namespace espalier::rt {
namespace {

std::optional<Refusal> refusalOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const std::exception &) {
    return Refusal::current();
  }
  return std::nullopt;
}

/// Stops all ranks if any rank has a start-up error. The first such rank throws its own error, and all others throw
/// ReportedElsewhere.
void requireNone(Agreement &agreement, int rank, const std::optional<Refusal> &own) {
  std::vector<std::string> words = agreement.tell(own ? std::to_string(own->status) : "");
  auto refused = std::ranges::find_if(words, [](const std::string &word) { return !word.empty(); });
  if (refused == words.end())
    return;
  if (refused - words.begin() == rank)
    own->raise();
  throw ReportedElsewhere(std::stoi(*refused));
}

} // namespace

void prepareApart(std::optional<PreparedRun> &prepared, const Program &program, const RunOptions &options,
                  Agreement &agreement, int rank, const std::optional<RunData> &data) {
  ProcessPlace place{.hostRanks = options.hostRanks(program.mesh().ranks()), .hasFirst = rank == 0};
  auto prepare = [&] { prepared.emplace(program, options, place, data); };
  requireNone(agreement, rank, rank == 0 ? refusalOf(prepare) : std::nullopt);
  bool hasToken = prepared && prepared->checkpoints;
  place.token = agreement.first(rank > 0 ? "" : hasToken ? prepared->checkpoints->token() : "none");
  requireNone(agreement, rank, rank > 0 ? refusalOf(prepare) : std::nullopt);
}

int runTold(const ResultFile &results, const std::function<int()> &work) {
  try {
    return work();
  } catch (const RankStopped &) {
    return 1;
  } catch (const std::exception &) {
    results.write({.refusal = Refusal::current()});
    return 0; // the launcher reports the error
  }
}

} // namespace espalier::rt
