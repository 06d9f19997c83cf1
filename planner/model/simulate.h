// Plays a schedule table in max-plus algebra: an action starts when its stage is free and its
// inputs are there. The order per stage is fixed, so the result is monotone in every duration.
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

/// Seconds of one micro-batch on one chunk (in model order), sends included: a send occupies its
/// sender. `weight` is part of Backward where the schedule does not split it off.
struct ChunkSeconds {
  double forward = 0, backward = 0, weight = 0;
  double total() const { return forward + backward + weight; }
  void add(const ChunkSeconds &other, double times = 1) {
    forward += times * other.forward, backward += times * other.backward, weight += times * other.weight;
  }
};

/// One executed action, for traces.
struct PlayedAction {
  Action action;
  double startSeconds = 0, endSeconds = 0;
};

/// What happened. `finished` is false when stages wait for each other (a broken table).
struct Played {
  bool finished = false;
  double seconds = 0;                           ///< end of the last action
  std::vector<double> busySeconds;              ///< per stage
  std::vector<double> endSeconds;               ///< per stage, end of its last action
  std::vector<std::vector<PlayedAction>> trace; ///< per stage, when asked for
};

/// The longest path of actions of which each waits for the one before. Whatever the durations, a step is no shorter
/// than their sum and the work once per step of the stage where they end.
struct CriticalPath {
  double seconds = 0;                     ///< under the durations that it is critical for
  std::vector<std::array<int, 3>> counts; ///< its actions of each chunk (in model order), by ActionKind
  int lastStage = 0;
};

/// A table whose actions are brought into one order in which each comes after all it waits for. The order does not
/// depend on durations: it is found once, and playing is one pass over it.
class OrderedSchedule {
public:
  explicit OrderedSchedule(const ScheduleTable &table);

  /// chunks[i] belongs to model chunk i.
  Played play(const std::vector<ChunkSeconds> &chunks, bool wantTrace = false) const;

  /// The critical path, with the work once per step of the stage where it ends.
  CriticalPath criticalPath(const std::vector<ChunkSeconds> &chunks, const std::vector<double> &stepSeconds) const;

  /// inFlightPeaks() of each stage, for V-shaped schedules.
  const std::vector<InFlightPeaks> &inFlightPeaks() const { return peaks; }
  size_t actions() const { return order.size(); }

private:
  struct Step {
    Action action;
    int stage = 0, chunk = 0; ///< chunk in model order
    uint32_t waitsFor = 0;    ///< slot of the end of the action whose result it needs
    uint32_t end = 0;         ///< slot of its own end
  };

  void orderActions(const ScheduleTable &table, int microBatches);
  std::vector<std::array<double, 3>> durationsOf(const std::vector<ChunkSeconds> &chunks) const; ///< by ActionKind

  bool splitsBackward, finished = true;
  size_t stages;
  uint32_t slots = 0; ///< ends of actions that others wait for; slot 0 is the start of the step
  std::vector<InFlightPeaks> peaks;
  std::vector<Step> order;
};

/// Plays the table; chunks[i] belongs to model chunk i.
Played play(const ScheduleTable &table, const std::vector<ChunkSeconds> &chunks, bool wantTrace = false);

/// Schedules by their sizes, as many plans of a search have the same. May be asked by several threads at once.
class ScheduleCache {
public:
  /// Requires whyNotSchedulable() to be empty.
  std::shared_ptr<const OrderedSchedule> get(Schedule schedule, int stages, int microBatches, int virtualStages);

  /// inFlightPeaks() of each stage.
  std::shared_ptr<const std::vector<InFlightPeaks>> inFlightPeaks(Schedule schedule, int stages, int microBatches,
                                                                  int virtualStages);

private:
  static constexpr size_t mostActions = 1 << 22; ///< kept; what comes later is built each time it is asked for

  std::mutex mutex;
  using Key = std::tuple<Schedule, int, int, int>;
  std::map<Key, std::shared_ptr<const OrderedSchedule>> known;
  std::map<Key, std::shared_ptr<const std::vector<InFlightPeaks>>> peaks;
  size_t actions = 0;
};

} // namespace espalier::planner
