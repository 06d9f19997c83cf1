// Simulates a schedule table in max-plus algebra: an action starts when its stage is free and its inputs have arrived.
// The order on each stage is fixed, so that the result is monotone in every duration.
#pragma once

#include "planner/model/schedule.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace espalier::planner {

/// Seconds of one micro-batch on one chunk, including its sends: a send occupies the sender. Without split weight
/// gradients, `weight` is part of Backward.
struct ChunkSeconds {
  double forward = 0, backward = 0, weight = 0;
  double total() const { return forward + backward + weight; }
  /// Adds `times` times the seconds of `other`.
  void add(const ChunkSeconds &other, double times = 1) {
    forward += times * other.forward, backward += times * other.backward, weight += times * other.weight;
  }
};

/// One executed action, for traces.
struct PlayedAction {
  Action action;
  double startSeconds = 0, endSeconds = 0;
};

/// The result of a simulation. `finished` is false when stages deadlock (an invalid table).
struct Played {
  bool finished = false;
  double seconds = 0;                           ///< end of the last action
  std::vector<double> busySeconds;              ///< per stage
  std::vector<double> endSeconds;               ///< per stage, end of its last action
  std::vector<std::vector<PlayedAction>> trace; ///< per stage, if requested
};

/// The longest path of dependent actions. Under any durations, a step takes at least the length of the path, plus the
/// work once per step of its last stage.
struct CriticalPath {
  double seconds = 0;                     ///< length under the durations for which it is critical
  std::vector<std::array<int, 3>> counts; ///< its actions of each chunk (in model order), by ActionKind
  int lastStage = 0;
};

/// A table in topological order: each action follows all actions that it waits for. The order does not depend on
/// durations. It is computed once, and each simulation is one pass over it.
class OrderedSchedule {
public:
  /// Orders the actions of a table. A deadlock leaves `finished` false.
  explicit OrderedSchedule(const ScheduleTable &table);

  /// Simulates the table. chunks[i] belongs to model chunk i.
  Played play(const std::vector<ChunkSeconds> &chunks, bool wantTrace = false) const;

  /// Returns the critical path, including the work once per step of its last stage.
  CriticalPath criticalPath(const std::vector<ChunkSeconds> &chunks, const std::vector<double> &stepSeconds) const;

  /// stagePeaks() of each stage, for V-shaped schedules only.
  const std::vector<StagePeaks> &stagePeaks() const { return peaks; }
  /// Number of actions of all stages.
  size_t actions() const { return order.size(); }

private:
  struct Step {
    Action action;
    int stage = 0, chunk = 0; ///< chunk in model order
    uint32_t waitsFor = 0;    ///< slot with the end time of the action whose result it needs
    uint32_t end = 0;         ///< slot for its own end time
  };

  void orderActions(const ScheduleTable &table, int microBatches);
  std::vector<std::array<double, 3>> durationsOf(const std::vector<ChunkSeconds> &chunks) const; ///< by ActionKind

  bool splitsBackward, finished = true;
  size_t stages;
  uint32_t slots = 0; ///< number of end times that other actions wait for; slot 0 is the start of the step
  std::vector<StagePeaks> peaks;
  std::vector<Step> order;
};

/// Simulates the table. chunks[i] belongs to model chunk i.
Played play(const ScheduleTable &table, const std::vector<ChunkSeconds> &chunks, bool wantTrace = false);

/// Caches schedules by size, because many plans of a search share them. Thread-safe.
class ScheduleCache {
public:
  /// Requires whyNotSchedulable() to be empty.
  /// Returns the ordered schedule of these sizes.
  std::shared_ptr<const OrderedSchedule> get(Schedule schedule, int stages, int microBatches, int virtualStages);

  /// Returns stagePeaks() of each stage.
  std::shared_ptr<const std::vector<StagePeaks>> stagePeaks(Schedule schedule, int stages, int microBatches,
                                                            int virtualStages);

private:
  static constexpr size_t mostActions = 1 << 22; ///< actions kept; later schedules are rebuilt on every call

  std::mutex mutex;
  using Key = std::tuple<Schedule, int, int, int>;
  std::map<Key, std::shared_ptr<const OrderedSchedule>> known;
  std::map<Key, std::shared_ptr<const std::vector<StagePeaks>>> peaks;
  size_t actions = 0;
};

} // namespace espalier::planner
