// Builds tables of V-shaped schedules, which have no closed form. A greedy scheduler places unit actions under a
// memory limit, in the published order of preference (backward, forward, weight gradient). Source: Qi et al. 2024.
#include "planner/model/schedule.h"

#include <algorithm>

namespace espalier::planner {

namespace {

// One stage while the table is built. `held` counts chunks between their forward and their weight gradient.
struct VStage {
  int nextForward[2] = {0, 0}, nextBackward[2] = {0, 0}, nextWeight[2] = {0, 0};
  int held = 0;
};

// Returns the number of chunks that a stage of a V-shaped schedule may hold. A micro-batch stays 4 p unit steps on a
// stage, counting both chunks: p forwards and p backwards lie between its two visits. A new micro-batch comes every
// sixth step. All stages stay busy with at least 2 p / 3 chunks (V-Min, a third of 1F1B's memory). V-Half holds half,
// and zero-bubble V all. With two extra chunks for V-Half and four for V-Min the greedy order below loses no step in
// the steady state.
int chunksHeld(Schedule schedule, int stages) {
  switch (schedule) {
  case Schedule::VMin:
    return std::min(chunksHeld(Schedule::VHalf, stages), (2 * stages + 2) / 3 + 4);
  case Schedule::VHalf:
    return std::min(2 * stages, stages + 2);
  default:
    return 2 * stages;
  }
}

// Builds a V-shaped schedule in unit time steps. Each stage takes the first of backward, forward and weight that is
// ready and fits. At most `stages` micro-batches are between their first forward and last backward on a stage. The
// last free slot is reserved for a second chunk, so that the oldest micro-batch always finds one and the greedy loop
// cannot stall.
class VBuilder {
public:
  VBuilder(int stages, int microBatches, int mostHeld)
      : stages(stages), microBatches(microBatches), mostHeld(mostHeld), places{stages, 2, /*returns=*/true},
        states(stages), table(stages), forwardDone(2 * stages, std::vector<int>(microBatches, never)),
        backwardDone(forwardDone) {}

  std::vector<std::vector<Action>> build() {
    size_t left = static_cast<size_t>(stages) * microBatches * 6;
    for (int now = 0; left > 0; ++now)
      for (int stage = 0; stage < stages; ++stage)
        left -= step(stage, now);
    return std::move(table);
  }

private:
  static constexpr int never = 1 << 30;

  bool backwardReady(int stage, int chunk, int now) const {
    int microBatch = states[stage].nextBackward[chunk], position = places.modelChunk(stage, chunk);
    if (microBatch >= states[stage].nextForward[chunk])
      return false;
    return position == 2 * stages - 1 ? forwardDone[position][microBatch] <= now
                                      : backwardDone[position + 1][microBatch] <= now;
  }

  bool forwardReady(int stage, int chunk, int now) const {
    const VStage &state = states[stage];
    int microBatch = state.nextForward[chunk], position = places.modelChunk(stage, chunk);
    if (microBatch >= microBatches || state.held >= mostHeld - (chunk == 0))
      return false;
    if (chunk == 0 && microBatch - state.nextBackward[0] >= stages)
      return false;
    return position == 0 || forwardDone[position - 1][microBatch] <= now;
  }

  int step(int stage, int now) {
    VStage &state = states[stage];
    for (int chunk : {1, 0})
      if (backwardReady(stage, chunk, now)) {
        int microBatch = state.nextBackward[chunk]++;
        backwardDone[places.modelChunk(stage, chunk)][microBatch] = now + 1;
        table[stage].push_back({ActionKind::Backward, microBatch, chunk});
        return 1;
      }
    for (int chunk : {1, 0})
      if (forwardReady(stage, chunk, now)) {
        int microBatch = state.nextForward[chunk]++;
        forwardDone[places.modelChunk(stage, chunk)][microBatch] = now + 1;
        ++state.held;
        table[stage].push_back({ActionKind::Forward, microBatch, chunk});
        return 1;
      }
    for (int chunk : {1, 0})
      if (state.nextWeight[chunk] < state.nextBackward[chunk]) {
        table[stage].push_back({ActionKind::Weight, state.nextWeight[chunk]++, chunk});
        --state.held;
        return 1;
      }
    return 0;
  }

  int stages, microBatches, mostHeld;
  Placement places;
  std::vector<VStage> states;
  std::vector<std::vector<Action>> table;
  std::vector<std::vector<int>> forwardDone, backwardDone; // [model chunk][micro-batch] -> time
};

} // namespace

std::vector<std::vector<Action>> buildVStages(Schedule schedule, int stages, int microBatches) {
  return VBuilder(stages, microBatches, chunksHeld(schedule, stages)).build();
}

} // namespace espalier::planner
