// The space of a search: every config under the pins, by rising lower bound. A choice is a config without its schedule.
// There are hundreds of thousands, of which a search looks at a few: a choice is not expanded to its schedules before
// its own bound is due.
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

/// Everything but the split of layers: one of the choices, and the schedule.
struct Candidate {
  double bound = 0; ///< no split of it is faster
  uint32_t choice = 0;
  uint32_t schedule = 0; ///< place among those of the choice, from 1; 0: the choice itself
  /// Equal bounds keep the order of enumeration.
  bool operator>(const Candidate &other) const {
    return std::tie(bound, choice, schedule) > std::tie(other.bound, other.choice, other.schedule);
  }
};

class SearchSpace {
public:
  /// Enumerates the choices and sums their work; `problem` must outlive this.
  SearchSpace(const Problem &problem, const SearchOptions &options);

  /// Candidates times the ways to spread the layers, at most 1e300.
  double plans() const { return planCount; }

  /// The candidate at a place in the order of rising bounds; null behind the last.
  const Candidate *at(size_t place);

  /// Bytes that the fullest stage needs at least.
  double leastBytes(const Candidate &candidate) const;

  bool hasOneKind() const { return isOneKind; }

  /// All of it.
  ParallelConfig config(const Candidate &candidate) const;

private:
  using ScheduleKey = std::tuple<int, int64_t, int>; ///< stages, micro-batches and ZeRO decide which there are
  struct Schedules {
    std::vector<std::pair<Schedule, int>> list; ///< with virtual stages
    double plans = 0;                           ///< the ways to spread the layers, over all of them
  };

  void enumerateAxes();
  void addMicroBatches(ParallelConfig config);
  bool isNothingShared(const ParallelConfig &config, int zero) const;
  void addFlags(ParallelConfig config);
  void addOffloads(ParallelConfig config);
  void sumChoices();
  int mostChunks(int stages) const;
  const Schedules &schedulesOf(const ParallelConfig &config);
  void addSchedule(const ParallelConfig &config, Schedules &schedules) const;
  std::vector<Candidate> expand(uint32_t choice, const WorkSum &work);

  const Problem &problem;
  bool all; ///< also plans that cannot be executed yet
  int threads;
  bool isOneKind = true;                     ///< all layers are alike
  std::vector<int64_t> microBatchCounts;     ///< those that divide the global batch, smallest micro-batches first
  std::vector<ParallelConfig> choices;       ///< all but the schedule
  std::vector<std::optional<WorkSum>> works; ///< of each choice for which the model has terms
  std::map<ScheduleKey, Schedules> schedules;
  double planCount = 0;
  /// Candidates, and choices that are not expanded yet under a bound of all their schedules.
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  std::vector<Candidate> ordered; ///< by rising bound
};

} // namespace espalier::planner
