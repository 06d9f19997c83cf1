// Ranks as threads of one process: they read each other's memory directly, nothing is staged.
#pragma once

#include "runtime/comm/comm.h"

#include <memory>
#include <optional>

namespace espalier::rt {

/// The shared side of `ranks` communicators of this process. Outlives them.
class LocalWorld {
public:
  explicit LocalWorld(int ranks);
  ~LocalWorld();

  /// The end of one rank; at most one per rank.
  std::unique_ptr<Communicator> communicator(int rank);

  /// Stops all ranks, also those that have no end yet; the first failure is the one kept.
  void abort(Failure failure) noexcept;

  /// The first failure reported by any rank.
  std::optional<Failure> failure() const;

  struct State;

private:
  std::unique_ptr<State> state;
};

} // namespace espalier::rt
