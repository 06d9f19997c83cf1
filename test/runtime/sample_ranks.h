// Runs the ranks of a plan as threads without the trainer, so that tests use only the executor.
#pragma once

#include "runtime/executor.h"

#include <functional>
#include <memory>
#include <vector>

namespace espalier::rt {

/// Wraps a rank's device. If empty, the rank uses the device itself.
using WrapDevice = std::function<std::unique_ptr<Device>(std::unique_ptr<Device>, int rank)>;

/// The results of every entry on rank 0, and the parameters by rank.
struct RanksResult {
  std::vector<Scalars> results;
  std::vector<std::vector<float>> parameters;

  bool operator==(const RanksResult &) const = default;
};

/// Trains `steps` steps from parameters that depend on their global position, then evaluates once. Throws RankFailure.
RanksResult runRanks(const Program &program, int steps, const WrapDevice &wrap = {},
                     const std::function<void(Executor &)> &prepare = {});

/// Fills the host staging buffers with the scalars and with samples that depend on step, micro-batch and position.
void fillExchanges(Executor &executor, const Program &program, int step, uint32_t microBatches);

} // namespace espalier::rt
