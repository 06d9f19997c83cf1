// The options of a stage with given layers. A StageOption says what each layer keeps, and the seconds and bytes of the
// stage. With one chunk and no offloaded activations, the fastest option that fits is best whatever the other stages
// do. Otherwise several options are Pareto-optimal.
#pragma once

#include "planner/search/recompute_choices.h"

#include <memory>
#include <span>
#include <vector>

namespace espalier::planner {

/// The chunks of one stage and what their layers keep.
struct StageOption {
  bool fits = false;
  std::vector<ChunkSeconds> seconds;        ///< of the layers of each chunk; see edgeSeconds
  double stepSeconds = 0;                   ///< of the whole stage, once per step
  double bytes = 0, hostBytes = 0;          ///< of the whole stage, on the device and in host memory; see price()
  std::vector<RecomputedLayers> recomputed; ///< of each kind of layer on the stage
};

/// The options of all stages under one config, memoized for ranges of layers.
class StageOptions {
public:
  /// Plans of one search share `schedules`. Plans whose schedules split backward in the same way may share `costs`.
  StageOptions(const Problem &problem, const ParallelConfig &config,
               std::shared_ptr<ScheduleCache> schedules = std::make_shared<ScheduleCache>(),
               std::shared_ptr<const CostTable> costs = nullptr);

  /// Returns the Pareto set of options that fit, fastest overall first: between any two,
  /// each is faster in some action. If nothing fits, returns the option that needs the smallest share of memory.
  /// Options that fit do not have their bytes summed.
  std::vector<StageOption> options(int stage, std::span<const LayerRange> chunks);

  /// Returns only the first option; faster.
  StageOption fastest(int stage, std::span<const LayerRange> chunks);

  /// Same, memoized, for the layers first .. first + count - 1. They form one chunk, or if all layers are equal they
  /// are spread over several chunks.
  const std::vector<StageOption> &options(int stage, int first, int count);
  const StageOption &fastest(int stage, int first, int count);

  /// Returns a given option with its bytes.
  StageOption price(int stage, std::span<const LayerRange> chunks, const std::vector<RecomputedLayers> &recomputed);

  /// Returns what each layer of the chunks keeps under the choice `recomputed`, or as the config states.
  std::vector<std::vector<Recompute>> classesOf(std::span<const LayerRange> chunks,
                                                const std::vector<RecomputedLayers> &recomputed) const;

  /// False if some options were dropped because of many layers or kinds of layers.
  bool isComplete() const { return complete; }

  /// Number of chunks visited so far to choose what layers keep: in all, and the mean per range of layers.
  int64_t work() const { return visits; }
  int64_t meanWork() const { return chosen > 0 ? visits / chosen : 0; }

  const ParallelConfig &config() const { return parallel; }
  const CostTable &table() const { return *costs; }
  /// Whether all layers are of one kind.
  bool hasOneKind() const { return isOneKind; }
  /// Number of chunks per stage under the config.
  int chunksPerStage() const { return perStage; }
  /// Returns the ordered schedule of the config.
  std::shared_ptr<const OrderedSchedule> schedule() const;

private:
  using Memo = std::vector<std::vector<std::vector<std::vector<StageOption>>>>; ///< [stage][first][count]

  void countPeaks();
  StageRoom roomOf(int stage) const;
  std::vector<RecomputedLayers> unconstrained(const std::vector<LikeLayers> &kinds) const;
  std::vector<StageOption> choose(int stage, std::span<const LayerRange> chunks, bool onlyFastest);
  const std::vector<StageOption> &memoized(Memo &memo, int stage, int first, int count, bool onlyFastest);

  const Problem &problem;
  ParallelConfig parallel;
  std::shared_ptr<ScheduleCache> schedules;
  std::shared_ptr<const CostTable> costs;
  int perStage;
  bool isOneKind = true;
  std::vector<int> runStart;       // per layer: first layer of its run of equal layers
  std::vector<StagePeaks> counted; // per stage, see countedPeaks()
  std::vector<int> likeStage;      // first stage with equal memory and cost
  Memo paretoSets, fastestOnly;
  bool complete = true;
  int64_t visits = 0, chosen = 0; // number of recompute choices
  StageParts parts;               // of the stage that is priced
};

/// Whether a stage may have several Pareto-optimal options.
bool hasSeveralOptions(const ParallelConfig &config);

/// Stages with their memory.
struct LaidStages {
  std::vector<StagePlan> stages;        ///< per chunk in model order
  std::vector<double> bytes, hostBytes; ///< per stage
};

/// Assigns `counts` (layers per chunk, in model order) to the stages of the options' config. Each stage recomputes as
/// `recomputed` says, otherwise as is fastest, or as needs the least memory if nothing fits.
LaidStages layStages(StageOptions &options, const std::vector<int> &counts,
                     const std::vector<std::vector<RecomputedLayers>> &recomputed = {});

} // namespace espalier::planner
