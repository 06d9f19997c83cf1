// The search space: every config under the pins, by ascending lower bound. A choice is a config without its schedule.
// There are hundreds of thousands of choices, but a search visits few. A choice is thus expanded to its schedules only
// when its own bound is due.
#pragma once

#include "planner/search.h"
#include "planner/search/bounds.h"

#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier::planner {

/// A config: one of the choices and a schedule. The split of layers is still free.
struct Candidate {
  double bound = 0; ///< lower bound of all splits
  uint32_t choice = 0;
  uint32_t schedule = 0; ///< index of a schedule of the choice and a class of recompute, from 1; 0: the choice itself
  /// Ties keep the order of enumeration.
  bool operator>(const Candidate &other) const {
    return std::tie(bound, choice, schedule) > std::tie(other.bound, other.choice, other.schedule);
  }
};

/// Enumerates the configs of a problem by ascending lower bound.
class SearchSpace {
public:
  /// Enumerates the choices and sums their work; `problem` must outlive this.
  SearchSpace(const Problem &problem, const SearchOptions &options);

  /// Returns the number of plans: candidates times the ways to spread the layers, at most 1e300.
  double plans() const { return planCount; }
  /// Returns the number of choices, and of those whose state alone does not fit.
  int64_t configs() const { return static_cast<int64_t>(choices.size()); }
  int64_t tooLarge() const { return tooLargeCount; }

  /// Returns the candidate at a rank in the order of bounds; null past the end.
  const Candidate *at(size_t place);

  /// Returns a lower bound of the bytes of the fullest stage.
  double leastBytes(const Candidate &candidate) const;

  /// Whether all layers are of one kind.
  bool hasOneKind() const { return isOneKind; }

  /// Returns the complete config of a candidate.
  ParallelConfig config(const Candidate &candidate) const;

private:
  using ScheduleKey = std::tuple<int, int64_t, int>; ///< stages, micro-batches and ZeRO determine the schedules
  struct Schedules {
    std::vector<std::pair<Schedule, int>> list; ///< with virtual stages
    double plans = 0;                           ///< number of ways to spread the layers, over all schedules
  };

  void enumerateAxes();
  void addMicroBatches(ParallelConfig config);
  bool isNothingShared(const ParallelConfig &config, int zero) const;
  std::vector<int> shardGroups(const ParallelConfig &config) const;
  std::vector<bool> contextOrders(const ParallelConfig &config) const;
  void addFlags(ParallelConfig config);
  void addPlaces(ParallelConfig config);
  void addOffloads(ParallelConfig config);
  void sumChoices();
  int mostChunks(int stages) const;
  const Schedules &schedulesOf(const ParallelConfig &config);
  void addSchedule(const ParallelConfig &config, Schedules &schedules) const;
  std::vector<Candidate> expand(uint32_t choice, const WorkSum &work);
  void assignRecompute(Recompute recompute, ParallelConfig &config) const;

  const Problem &problem;
  bool all; ///< also plans that the executor cannot run yet
  int threads;
  uint32_t classes = 1;                      ///< of recompute, each of which is a candidate of its own
  bool isOneKind = true;                     ///< all layers are alike
  bool isCausal = false;                     ///< context ranks have unequal attention in contiguous order
  std::vector<int64_t> microBatchCounts;     ///< divisors of the global batch, smallest micro-batches first
  std::vector<ParallelConfig> choices;       ///< all but the schedule
  std::vector<std::optional<WorkSum>> works; ///< per choice; empty if the problem has no terms
  std::map<ScheduleKey, Schedules> schedules;
  double planCount = 0;
  int64_t tooLargeCount = 0;
  /// Candidates, and unexpanded choices with a bound over all their schedules.
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  std::vector<Candidate> ordered; ///< by rising bound
};

} // namespace espalier::planner
