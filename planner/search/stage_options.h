// What a stage may do with given layers. A StageOption says what each layer keeps, and what the stage then takes in
// seconds and bytes. With one chunk whose values stay on the device the fastest option that fits is best whatever the
// other stages do; with several chunks, or offloaded activations, several options are Pareto-optimal.
#pragma once

#include "planner/search/recompute_choices.h"

#include <limits>
#include <memory>
#include <span>
#include <vector>

namespace espalier::planner {

/// The chunks of one stage with what their layers keep.
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
  /// Plans of one search share `schedules`, and plans whose schedules split backward alike may share `costs`.
  StageOptions(const Problem &problem, const ParallelConfig &config,
               std::shared_ptr<ScheduleCache> schedules = std::make_shared<ScheduleCache>(),
               std::shared_ptr<const CostTable> costs = nullptr);

  /// The Pareto set of options that fit: each is faster than any other in some action of some chunk. The fastest in all
  /// comes first. When nothing fits, the option that needs the least share of memory. Bytes are not summed where they
  /// fit.
  std::vector<StageOption> options(int stage, std::span<const LayerRange> chunks);

  /// The first of them alone, which is quicker.
  StageOption fastest(int stage, std::span<const LayerRange> chunks);

  /// The same, memoized, of the layers first .. first + count - 1 in one chunk, or spread over several where all layers
  /// are alike.
  const std::vector<StageOption> &options(int stage, int first, int count);
  const StageOption &fastest(int stage, int first, int count);

  /// A given option, with its bytes.
  StageOption price(int stage, std::span<const LayerRange> chunks, const std::vector<RecomputedLayers> &recomputed);

  /// False when with very many kinds of layers, or layers, some options were left out.
  bool isComplete() const { return complete; }

  /// Visits of chunks that choosing what layers keep took so far, in all and for one range of layers.
  int64_t work() const { return visits; }
  int64_t meanWork() const { return chosen > 0 ? visits / chosen : 0; }

  const ParallelConfig &config() const { return parallel; }
  const CostTable &table() const { return *costs; }
  bool hasOneKind() const { return isOneKind; }
  int chunksPerStage() const { return perStage; }
  std::shared_ptr<const OrderedSchedule> schedule() const;

private:
  using Memo = std::vector<std::vector<std::vector<std::vector<StageOption>>>>; ///< [stage][first][count]

  void countInFlight();
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
  std::vector<int> runStart;                               // per layer: where its run of like layers begins
  std::shared_ptr<const std::vector<InFlightPeaks>> peaks; // per stage
  std::vector<int> likeStage;                              // the first stage that holds and costs the same
  std::vector<double> mostInFlight;                        // chunks that each stage holds at once
  Memo paretoSets, fastestOnly;
  bool complete = true;
  int64_t visits = 0, chosen = 0;  // choices of what layers keep
  StageContent content;            // of the stage that is priced
  std::vector<StageContent> parts; // its chunks alone, and what they keep
  std::vector<SavedBytes> saved;
};

/// Whether a stage may have several Pareto-optimal options.
bool hasSeveralOptions(const Problem &problem, const ParallelConfig &config);

/// What stages hold and need.
struct LaidStages {
  std::vector<StagePlan> stages;        ///< per chunk in model order
  std::vector<double> bytes, hostBytes; ///< per stage
};

/// Lays `counts` (layers per chunk, in model order) on the stages of the options' config, with what `recomputed` says
/// for each, otherwise what fits and is fastest, or needs the least.
LaidStages layStages(StageOptions &options, const std::vector<int> &counts,
                     const std::vector<std::vector<RecomputedLayers>> &recomputed = {});

} // namespace espalier::planner
