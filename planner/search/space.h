// The space of a search: every choice of axes, micro-batch, flags and schedule under the pins, handed out by rising
// bound. There are hundreds of thousands, of which a search looks at a few: a choice is not spread over its schedules
// before its own bound is due.
#pragma once

#include "planner/search.h"
#include "planner/search/layer_trades.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier::planner {

/// Everything but the split of layers: one of the choices of axes, and the schedule.
struct Candidate {
  double bound = 0; ///< no split of it is faster
  uint32_t choice = 0;
  uint32_t schedule = 0; ///< place among those of the choice, from 1; 0: the choice itself
  bool isRefined = true; ///< what layers keep is in the bound
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

  /// Its plan, without stages.
  Plan axes(const Candidate &candidate) const;

private:
  using ScheduleKey = std::pair<int, int64_t>; ///< stages and micro-batches decide which there are
  struct Schedules {
    std::vector<std::pair<Schedule, int>> list; ///< with virtual stages
    double plans = 0;                           ///< the ways to spread the layers, over all of them
  };

  bool isOffered(Schedule schedule) const;
  void enumerateAxes();
  void addMicroBatches(Plan plan);
  bool isOffered(int zero) const;
  bool isNothingShared(const Plan &plan, int zero) const;
  void addFlags(Plan plan);
  void addOffloads(Plan plan);
  std::vector<std::optional<WorkSum>> sum(const Problem &kinds, const KindCosts &costs,
                                          std::span<const uint32_t> which) const;
  void sumChoices();
  void countPlans(uint32_t choice);
  void addChoice(uint32_t choice);
  void mergeChoices();
  void sumDue();
  double memoryBound(const Candidate &candidate);
  int mostChunks(int stages) const;
  const Schedules &schedulesOf(const Plan &plan);
  void addSchedule(const Plan &plan, Schedules &schedules) const;
  std::vector<Candidate> spread(uint32_t choice, const WorkSum &work);

  const Problem &problem;
  bool all; ///< also plans that cannot be executed yet
  int threads;
  bool isOneKind = true;                     ///< all layers are alike
  std::vector<int64_t> microBatchCounts;     ///< those that divide the global batch, smallest micro-batches first
  std::vector<Plan> choices;                 ///< all but the schedule
  std::vector<std::optional<WorkSum>> works; ///< where they are summed
  /// With many kinds: choices whose micro-batches are the same, by their least bound with layers merged. They are
  /// priced kind by kind when they are due.
  struct Alike {
    double bound = 0;
    std::vector<uint32_t> choices;
    std::unique_ptr<LayerTrades> trades;
  };
  std::optional<MicroBatchTerms> microBatches;
  std::vector<Alike> alike;
  size_t alikePriced = 0;
  std::vector<uint32_t> alikeOf; ///< by choice
  std::map<std::tuple<Schedule, int, int64_t>, std::vector<HeldStages>> heldStages;
  std::map<ScheduleKey, Schedules> schedules;
  double planCount = 0;
  /// Candidates, and choices that are not spread yet under the least bound that any schedule of theirs can have.
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> waiting;
  std::vector<Candidate> taken; ///< by rising bound
};

} // namespace espalier::planner
