// Ranks as processes of any hosts, over OpenMPI's messages between two ranks; no collective of MPI is used, as their
// sums have no fixed order.
#pragma once

#include "runtime/comm/world.h"

#include <memory>
#include <optional>

namespace espalier::rt {

/// This process as one rank of those that mpirun started. At most one in the life of a process: MPI cannot begin again.
class MpiWorld {
public:
  /// `host`, which outlives this, hears of failures by other ways than MPI: what stops it stops this rank. Throws
  /// PlanError where OpenMPI is not there, std::runtime_error where it refuses.
  explicit MpiWorld(const World *host = nullptr);

  /// Waits for all ranks to come here; after a stop not for long.
  ~MpiWorld();

  /// In place of the constructor where this rank cannot take part: ends all processes that were started, this one too,
  /// as the others would wait for it in theirs. Throws as the constructor does.
  [[noreturn]] static void endAll(int status);

  int rank() const;
  int ranks() const;

  /// This rank's end; at most one.
  std::unique_ptr<Communicator> communicator();

  /// Stops all ranks.
  void abort(const Failure &failure) noexcept;

  /// The first failure that this rank has heard of; two that fail at once may be heard of in either order.
  std::optional<Failure> failure() const;

  struct Session;

private:
  std::unique_ptr<Session> session;
};

} // namespace espalier::rt
