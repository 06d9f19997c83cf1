// Ranks of a plan as threads, driven by hand: without the trainer, so that what the executor does is seen by itself.
#pragma once

#include "runtime/executor.h"

#include <functional>
#include <memory>
#include <vector>

namespace espalier::rt {

/// What a rank's device is wrapped in; empty for the device itself.
using WrapDevice = std::function<std::unique_ptr<Device>(std::unique_ptr<Device>, int rank)>;

/// What a run leaves: results of every entry as rank 0 read them, and the parameters, by rank.
struct RanksResult {
  std::vector<Scalars> results;
  std::vector<std::vector<float>> parameters;

  bool operator==(const RanksResult &) const = default;
};

/// Trains `steps` steps from parameters that are a function of their global place, then evaluates once. Throws
/// RankFailure.
RanksResult runRanks(const Program &program, int steps, const WrapDevice &wrap = {},
                     const std::function<void(Executor &)> &prepare = {});

/// Fills what the host fills: samples that are a function of step, micro-batch and place, and the scalars.
void fillExchanges(Executor &executor, const Program &program, int step, uint32_t microBatches);

} // namespace espalier::rt
