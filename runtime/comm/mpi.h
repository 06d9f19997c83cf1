// Ranks as processes on any hosts, over OpenMPI's point-to-point messages. MPI's collectives are not used, because the
// order of their sums is not fixed.
#pragma once

#include "runtime/comm/world.h"

#include <memory>
#include <optional>

namespace espalier::rt {

/// This process as one rank that mpirun started. A process can make one at most, because MPI cannot be initialized
/// twice.
class MpiWorld {
public:
  /// `host` receives failures by other ways than MPI: an abort of `host` also stops this rank. `host` must outlive this
  /// object. Throws PlanError if OpenMPI is missing, std::runtime_error if it fails.
  explicit MpiWorld(const World *host = nullptr);

  /// Waits for all ranks to end; after an abort the wait has a short timeout.
  ~MpiWorld();

  /// Ends all processes that mpirun started, this one too. Called instead of the constructor if this rank cannot take
  /// part, because the others would block in their constructors. Throws as the constructor does.
  [[noreturn]] static void endAll(int status);

  int rank() const;
  int ranks() const;

  /// Makes this rank's communicator; called at most once.
  std::unique_ptr<Communicator> communicator();

  /// Stops all ranks.
  void abort(const Failure &failure) noexcept;

  /// Returns the first failure that this rank received. If two ranks fail at once, ranks may receive them in either
  /// order.
  std::optional<Failure> failure() const;

  struct Session;

private:
  std::unique_ptr<Session> session;
};

} // namespace espalier::rt
