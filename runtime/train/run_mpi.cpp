// Every process opens what the run needs for itself. Rank 0 does it first, as it holds the checkpoints' folder; what
// any process is refused ends all of them, and one says why.
#include "runtime/comm/mpi.h"
#include "runtime/train/prepared_run.h"
#include "runtime/train/rank.h"
#include "runtime/train/run_processes.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <functional>

namespace espalier::rt {
namespace {

/// What this process was refused, and with which status it ends for that.
struct Refusal {
  std::exception_ptr error;
  int status = 0;
};

Refusal refusalOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const MemoryError &) {
    return {std::current_exception(), 3};
  } catch (const std::exception &) {
    return {std::current_exception(), 2};
  }
  return {};
}

/// Ends all processes where one was refused something: the first of these with its own words.
void requireNone(Agreement &agreement, int rank, const Refusal &own) {
  std::vector<std::string> words = agreement.tell(own.error ? std::to_string(own.status) : "");
  auto refused = std::ranges::find_if(words, [](const std::string &word) { return !word.empty(); });
  if (refused == words.end())
    return;
  if (refused - words.begin() == rank)
    std::rethrow_exception(own.error);
  throw ReportedElsewhere(std::stoi(*refused));
}

/// Of all that rank 0 says, other processes keep their status.
RunResult finish(PreparedRun &run, const std::optional<Failure> &failure, int rank) {
  int speaker = failure ? std::max(0, failure->rank) : 0;
  if (rank == speaker)
    return run.finish(failure);
  bool hasFault = run.checkpoints && !run.checkpoints->loadFault().empty();
  if (hasFault || failure || !run.context.result.divergence.empty())
    throw ReportedElsewhere(hasFault ? 2 : 1);
  return std::move(run.context.result);
}

} // namespace

RunResult runOverMpi(const Program &program, const RunOptions &options) {
  if (options.keepGradients || options.keepParameters)
    throw PlanError("--dump-gradients and --dump-parameters gather in one process; run without mpirun");
  MpiWorld world;
  int rank = world.rank(), ranks = program.mesh().ranks();
  if (world.ranks() != ranks)
    throw PlanError(fmt::format("MPI has {} processes, the plan {} ranks; start as many", world.ranks(), ranks));
  std::unique_ptr<Communicator> communicator = world.communicator();
  Agreement agreement(*communicator, /*isFirstHere=*/true, /*spins=*/0);
  std::optional<PreparedRun> run;
  ProcessPlace place{.hostRanks = options.hostRanks(ranks), .hasFirst = rank == 0};
  auto open = [&] { run.emplace(program, options, place); };
  requireNone(agreement, rank, rank == 0 ? refusalOf(open) : Refusal());
  bool hasToken = run && run->checkpoints;
  place.token = agreement.first(rank > 0 ? "" : hasToken ? run->checkpoints->token() : "none");
  requireNone(agreement, rank, rank > 0 ? refusalOf(open) : Refusal());
  auto abort = [&](const Failure &failure) { world.abort(failure); };
  runRank(
      run->context,
      {rank, /*isFirstHere=*/true, run->threads, run->spins, {rank}, [&] { return std::move(communicator); }, abort});
  return finish(*run, world.failure(), rank);
}

} // namespace espalier::rt
