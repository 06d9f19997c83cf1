// The best way to run a given range of layers on a given stage: what each layer keeps, so that the
// stage fits and its backward is shortest. Forward does not depend on that choice, so the shortest
// backward dominates; where it does (activations are offloaded), chunk_options.h has all choices, unless
// the user pins what layers keep.
#pragma once

#include "planner/model/schedule.h"
#include "planner/model/simulate.h"
#include "planner/search/range_costs.h"
#include "planner/search/recompute_choice.h"

#include <array>
#include <deque>
#include <optional>
#include <vector>

namespace espalier::planner {

/// A range of layers on a stage, with its choice of what is kept.
struct StageOption {
  bool fits = false;
  ChunkSeconds seconds;   ///< of the layers; see edgeSeconds
  double stepSeconds = 0; ///< of the whole stage, once per step
  double bytes = 0;       ///< of the whole stage; when nothing fits, of the least choice
  double hostBytes = 0;   ///< of the whole stage, in host memory
  /// No choice of what is kept has a shorter backward; less than that of `seconds` where its choice is not proved best.
  double leastBackward = 0;
  bool isProved() const { return leastBackward >= seconds.backward; }
};

/// Options of one choice of axes; remembers what it computed. Several chunks per stage: chunk_options.h.
class StageOptions {
public:
  /// `plan` gives axes, micro-batches and schedule; its stages are not looked at. Plans of one search share
  /// `schedules`.
  StageOptions(const Problem &problem, const Plan &plan,
               std::shared_ptr<ScheduleCache> schedules = std::make_shared<ScheduleCache>());

  /// `costs` are those of the plan, shared with plans that differ only in a schedule that splits backward alike.
  StageOptions(const Problem &problem, const Plan &plan, std::shared_ptr<ScheduleCache> schedules,
               std::shared_ptr<const CostTable> costs);

  /// Layers first .. first + count - 1 on `stage`, under a schedule with one chunk per stage.
  const StageOption &best(int stage, int first, int count);

  /// The same with less care for what is kept: whether it fits and the least backward hold.
  const StageOption &bound(int stage, int first, int count);

  /// What each layer keeps under best(): of each kind those that repeat most first.
  std::vector<Recompute> keep(int stage, int first, int count);

  const CostTable &table() const { return *shared; }
  const Plan &axes() const { return plan; }
  bool hasOneKind() const { return oneKind; }
  /// The schedule of the axes.
  std::shared_ptr<const OrderedSchedule> schedule() const;
  /// What each stage holds under it.
  std::shared_ptr<const std::vector<HeldChunks>> mostHeld() const;

private:
  const StageOption &known(int stage, int first, int count, int64_t budget);
  StageOption choose(int stage, int first, int count, int64_t budget);
  RecomputeChoice chooseMixed(int stage, int first, int count, int64_t budget);
  const CostTable &place(StageContent &content, int first, int count, Recompute recompute);
  std::vector<int> kindsIn(int first, int count) const;
  int countOf(int kind, int first, int count) const;
  StageContent contentOf(int stage) const;
  StageOption finish(const CostTable &table, const StageContent &content) const;

  static constexpr int64_t recomputeBudget = 4000;
  struct Known {
    StageOption option;
    int64_t budget = 0; ///< that it was chosen with
  };

  const Problem &problem;
  Plan plan;
  std::shared_ptr<const CostTable> shared;
  const CostTable &costs; ///< *shared
  std::shared_ptr<ScheduleCache> schedules;
  bool oneKind = true;
  std::vector<double> inFlight;     // per stage
  std::optional<RangeCosts> ranges; // with several kinds of layers
  CostTable range;                  // ends as costs, one kind: the range that is priced
  std::deque<Known> entries;
  /// Ranges on stages that are alike.
  struct Places {
    int stageClass = 0;
    std::vector<uint32_t> byCount; ///< place in entries, from 1; 0: not known yet
  };
  std::vector<std::vector<Places>> placesOf; // [first], or [stage class] where layers are all alike
};

/// What of a plan lies on a stage beside its layers: embedding, head and neighbours.
StageContent stageEnds(const Plan &plan, int stage);

/// Time of one segment of which a class of recompute keeps what backward reads.
ChunkSeconds segmentSeconds(const SegmentCost &cost, int recompute);

/// Time of the layers of one chunk.
ChunkSeconds chunkSeconds(const CostTable &table, const StageContent &content);

/// What a chunk costs beside its layers: the embedding (first chunk), the head (last), and its
/// sends to chunks on other stages.
ChunkSeconds edgeSeconds(const CostTable &table, int chunk, int stages, int chunksPerStage, bool vShape);

/// Time once per step, all chunks of the stage: optimizer and gradient reduction. What can hide
/// runs beside the backward of the last micro-batch (recompute not counted, so that it stays
/// independent of what is kept).
PhaseSeconds stepPhase(const CostTable &table, const StageContent &content);

} // namespace espalier::planner
