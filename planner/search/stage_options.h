// The ways to run given layers on a given stage: what each of them keeps, so that the stage fits. With one chunk
// forward does not depend on that, and the shortest backward is best whatever the others do. Of several chunks it
// matters which repeats work, and where kept values are offloaded forward is the longer the more is kept: there are
// several options, none of which is best whatever the others do. One rule lays layers on chunks, another says which of
// a kind repeat work first, and only how many do is chosen.
#pragma once

#include "planner/search/keep.h"

#include <memory>
#include <span>
#include <vector>

namespace espalier::planner {

/// The chunks of one stage with what they keep.
struct StageOption {
  bool fits = false;
  std::vector<ChunkSeconds> seconds;    ///< of the layers of each chunk; see edgeSeconds
  double stepSeconds = 0;               ///< of the whole stage, once per step
  double bytes = 0, hostBytes = 0;      ///< of the whole stage, on the device and in host memory; see price()
  std::vector<RepeatedLayers> repeated; ///< of each kind of layer on the stage
};

/// Options under one choice of axes; remembers those of successive layers, and of layers that are all alike.
class StageOptions {
public:
  /// Plans of one search share `schedules`, and plans whose schedules split backward alike may share `costs`.
  StageOptions(const Problem &problem, const Axes &axes,
               std::shared_ptr<ScheduleCache> schedules = std::make_shared<ScheduleCache>(),
               std::shared_ptr<const CostTable> costs = nullptr);

  /// Options that fit: of any two each is faster in some action of some chunk. The fastest in all comes first. When
  /// nothing fits, that which needs the least share of what there is. Their bytes are not summed where they fit.
  std::vector<StageOption> choices(int stage, std::span<const LayerRange> chunks);

  /// The first of them alone, which is quicker.
  StageOption best(int stage, std::span<const LayerRange> chunks);

  /// The same, remembered, of the layers first .. first + count - 1 in one chunk, or spread over several where all are
  /// alike.
  const std::vector<StageOption> &choices(int stage, int first, int count);
  const StageOption &best(int stage, int first, int count);

  /// A given choice, with its bytes.
  StageOption price(int stage, std::span<const LayerRange> chunks, const std::vector<RepeatedLayers> &repeated);

  /// False when with very many kinds of layers some choices were left out.
  bool isComplete() const { return complete; }

  const Axes &axes() const { return plan; }
  const CostTable &table() const { return *costs; }
  bool hasOneKind() const { return isOneKind; }
  /// The schedule of the axes.
  std::shared_ptr<const OrderedSchedule> schedule() const;

private:
  using Table = std::vector<std::vector<std::vector<std::vector<StageOption>>>>; ///< [stage][first][count]

  void countHeld();
  StageRoom roomOf(int stage) const;
  std::vector<RepeatedLayers> fastest(const std::vector<LikeLayers> &kinds) const;
  std::vector<StageOption> choose(int stage, std::span<const LayerRange> chunks, bool isOne);
  const std::vector<StageOption> &remembered(Table &table, int stage, int first, int count, bool isOne);

  const Problem &problem;
  Axes plan;
  std::shared_ptr<ScheduleCache> schedules;
  std::shared_ptr<const CostTable> costs;
  int perStage;
  bool isOneKind = true;
  std::vector<int> runStart;                           // of the layers like each one, without others between
  std::shared_ptr<const std::vector<HeldChunks>> held; // per stage
  std::vector<int> likeStage;                          // the first stage that holds and costs the same
  std::vector<double> mostInFlight;                    // chunks that each stage holds at once
  Table all, first;
  bool complete = true;
  StageContent content;            // of the stage that is priced
  std::vector<StageContent> parts; // its chunks alone, and what they keep
  std::vector<SavedBytes> saved;
};

/// Whether a stage has several options none of which is best whatever the others do.
bool hasSeveralChoices(const Problem &problem, const Axes &axes);

/// What stages hold and need.
struct LaidStages {
  std::vector<StagePlan> stages;        ///< per chunk in model order
  std::vector<double> bytes, hostBytes; ///< per stage
};

/// Lays `counts` (layers per chunk, in model order) on the stages of the options' axes, with what `repeated` says for
/// each, otherwise what fits and is fastest, or needs the least.
LaidStages layStages(StageOptions &options, const std::vector<int> &counts,
                     const std::vector<std::vector<RepeatedLayers>> &repeated = {});

} // namespace espalier::planner
