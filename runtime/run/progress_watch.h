// Watches threads of this process that do not go on: ranks, or the thread that opens the inputs of a run.
#pragma once

#include "runtime/launch/stall.h"
#include "runtime/stoppable_sleep.h"

#include <functional>
#include <memory>
#include <span>
#include <thread>

namespace espalier::rt {

struct RunOptions;

/// Polls from a thread of its own as long as it exists.
class ProgressWatch {
public:
  /// Calls `end`, which must end the process, with the failure of the ranks whose statuses these are. They must outlive
  /// this object.
  ProgressWatch(const RunOptions &options, std::span<RankStatus> ranks, StallTeller tell,
                std::function<void(const Failure &)> end);

private:
  const StallPatience patience;
  StallWatch watch;
  StoppableSleep between;
  std::jthread thread; ///< last, so that it ends first
};

/// Watches the calling thread while it opens the inputs of a run. If it does not go on, prints an error and ends the
/// process.
class StartWatch {
public:
  explicit StartWatch(const RunOptions &options);
  ~StartWatch();

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace espalier::rt
