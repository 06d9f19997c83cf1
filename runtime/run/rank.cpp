#include "runtime/run/rank.h"

#include "runtime/crash_report.h"
#include "runtime/files/atomic_file.h"
#include "runtime/launch/thread_stack.h"

#include <fmt/format.h>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

namespace espalier::rt {
namespace {

/// Meets the other ranks: all processes compare what they must have in common. Returns why the run cannot begin, the
/// same on all ranks, or an empty string; rank 0 has then written the host and process id of every rank to the status
/// file.
std::string meet(const RunContext &context, Agreement &agreement) {
  std::vector<Met> met;
  std::string fault = compareStatements(agreement, context.statement, met);
  if (!fault.empty() || !agreement.isLeader())
    return fault;
  if (context.checkpoints)
    context.checkpoints->start();
  if (context.options.status.empty())
    return "";
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < met.size(); ++rank)
    ranks.push_back({{"rank", rank}, {"pid", met[rank].pid}, {"host", met[rank].host}});
  writeWhole(context.options.status, ranks.dump() + "\n");
  return "";
}

} // namespace

int spinsFor(int hostThreads) {
  constexpr int withOwnCore = 4000;
  return hostThreads <= static_cast<int>(std::thread::hardware_concurrency()) ? withOwnCore : 0;
}

void abortFor(const std::function<void(const Failure &)> &abort, int rank, const Executor *executor,
              const std::exception &error) noexcept {
  Failure failure;
  failure.rank = rank;
  try {
    bool isMemory = dynamic_cast<const std::bad_alloc *>(&error) != nullptr;
    failure.message = isMemory ? "the system refuses more memory" : error.what();
    if (executor)
      failure = executor->describe(failure.message);
    failure.isFinal = dynamic_cast<const FinalError *>(&error) != nullptr;
  } catch (...) {
    failure.message = "out of memory"; // a short string needs no allocation
  }
  abort(failure);
}

bool runRank(RunContext &context, const RankPlace &place) {
  std::unique_ptr<Communicator> communicator;
  std::optional<ThreadPool> pool;
  std::unique_ptr<Device> device;
  std::optional<Executor> executor;
  bool isDone = false;
  Activity *activity = place.status ? &place.status->main : nullptr;
  WatchedThread watched(activity);
  try {
    communicator = place.open();
    communicator->activity = activity;
    Agreement agreement(*communicator, place.isFirstHere, place.spins);
    if (std::string fault = meet(context, agreement); !fault.empty()) {
      if (place.isFirstHere)
        context.loadFault = fault;
    } else {
      pool.emplace(place.threads, place.spins);
      const pb::Stage &stage = context.program.plan().stages(context.program.mesh().stage(place.rank));
      device = context.program.backend().open(stage, {*communicator, *pool, place.spins, place.device});
      executor.emplace(context.program, place.rank, *device, place.status);
      CrashSite site(&*executor); // covers reads of memory-mapped samples between entries
      executor->fault = context.options.fault;
      Trainer(context, *executor, agreement, *pool).run();
    }
    isDone = true;
  } catch (const RankStopped &) {
    // The rank that failed first has recorded its failure.
  } catch (const std::exception &error) {
    abortFor(place.abort, place.rank, executor ? &*executor : nullptr, error);
  }
  if (place.status)
    place.status->hasEnded.store(true, std::memory_order_release);
  place.leave();
  return isDone;
}

} // namespace espalier::rt
