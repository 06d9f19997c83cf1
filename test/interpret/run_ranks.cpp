#include "test/interpret/run_ranks.h"

#include <thread>

namespace espalier {

llvm::Error runRanks(int ranks, const std::function<llvm::Error(int, EvalContext &)> &body) {
  Rendezvous rendezvous(ranks);
  std::mutex mutex;
  std::string firstFailure;
  auto runOne = [&](int rank) {
    EvalContext context;
    context.rank = rank;
    context.rendezvous = &rendezvous;
    llvm::Error error = body(rank, context);
    bool hasFailed = static_cast<bool>(error);
    if (hasFailed) {
      // Recorded before the other ranks are stopped, because their errors are only consequences.
      std::lock_guard lock(mutex);
      std::string text = "rank " + std::to_string(rank) + ": " + llvm::toString(std::move(error));
      if (firstFailure.empty())
        firstFailure = text;
    }
    rendezvous.leave(hasFailed);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back(runOne, rank);
  for (std::thread &thread : threads)
    thread.join();
  if (firstFailure.empty())
    return llvm::Error::success();
  return llvm::createStringError(llvm::inconvertibleErrorCode(), firstFailure);
}

} // namespace espalier
