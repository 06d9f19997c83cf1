#include "planner/chunk_options.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace espalier::planner {

int layersOfChunk(const Plan &axes, int stage, int chunk, int layers) {
  int perStage = chunksOf(axes.schedule, axes.virtualStages), more = layers % perStage;
  bool isLastFirst = stage == 0 && !isVShaped(axes.schedule);
  return layers / perStage + (isLastFirst ? chunk >= perStage - more : chunk < more);
}

std::vector<int> spreadOverChunks(const Plan &axes, const std::vector<int> &totals) {
  int perStage = chunksOf(axes.schedule, axes.virtualStages);
  std::vector<int> counts(totals.size() * perStage);
  for (int stage = 0; stage < axes.pp; ++stage)
    for (int chunk = 0; chunk < perStage; ++chunk)
      counts[modelChunk(stage, chunk, axes.pp, isVShaped(axes.schedule))] =
          layersOfChunk(axes, stage, chunk, totals[stage]);
  return counts;
}

int leastLayers(const Problem &problem, const Plan &axes, int stage) {
  int chunks = chunksOf(axes.schedule, axes.virtualStages);
  if (chunks == 1)
    return 1;
  StageContent ends = stageEnds(axes, stage);
  return chunks - (ends.embed && problem.embed >= 0) - (ends.head && problem.head >= 0);
}

int leastLayers(const Problem &problem, const Plan &axes) {
  int chunks = axes.pp * chunksOf(axes.schedule, axes.virtualStages);
  return chunks == axes.pp ? chunks : chunks - (problem.embed >= 0) - (problem.head >= 0);
}

namespace {

// What the layer at a place in the order in which they repeat work keeps.
Recompute keptAt(const RepeatedLayers &repeated, int place) {
  return place < repeated.full                        ? Recompute::Full
         : place < repeated.full + repeated.selective ? Recompute::Selective
                                                      : Recompute::None;
}

// Calls visit(chunk, place in the chunk, what it keeps) for all layers of a stage in the order in which they repeat
// work.
template <typename Visit>
void visitLayers(std::span<const LayerRange> chunks, const RepeatedLayers &repeated, Visit visit) {
  int most = 0, next = 0;
  for (const LayerRange &chunk : chunks)
    most = std::max(most, chunk.count);
  for (int place = 0; place < most; ++place)
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
      if (place < chunks[chunk].count)
        visit(chunk, place, keptAt(repeated, next++));
}

// Which layers repeat work, so that a stage fits and repeats least. The bytes of a choice are those that every choice
// takes and the larger of what runs once per step and what is held with the largest transient.
class RepeatChoice {
public:
  RepeatChoice(const CostTable &costs, std::span<const LayerRange> chunks, const HeldChunks &held,
               const std::vector<double> &ends)
      : costs(costs), held(held), ends(ends), saved(chunks.size()) {
    visitLayers(chunks, {}, [&](size_t chunk, int place, Recompute) {
      order.push_back({static_cast<int>(chunk), costs.layerKinds[chunks[chunk].first + place]});
    });
  }

  // Of each number of layers in full the fewest selective ones that fit into `room`, which is for what is held and the
  // largest transient; `endsPeak` is that of embedding or head. When nothing fits, what takes least. `isOne`: none
  // behind that which repeats least.
  std::vector<RepeatedLayers> choose(double room, double endsPeak, bool isOne) {
    int layers = static_cast<int>(order.size());
    std::vector<RepeatedLayers> fitting;
    RepeatedLayers least;
    double leastBytes = std::numeric_limits<double>::infinity(), leastSeconds = leastBytes;
    auto fits = [&](const RepeatedLayers &repeated) {
      double bytes = bytesOf(repeated, endsPeak);
      if (bytes < leastBytes) {
        leastBytes = bytes;
        least = repeated;
      }
      return bytes <= room;
    };
    auto add = [&](const RepeatedLayers &repeated) {
      fitting.push_back(repeated);
      leastSeconds = std::min(leastSeconds, secondsOf(repeated).back());
    };
    for (int full = 0; full <= layers; ++full) {
      if (isOne && !fitting.empty() && secondsOf({full, 0}).back() >= leastSeconds)
        break;
      if (fits({full, 0})) {
        add({full, 0});
        break; // more only repeat more
      }
      int low = 0, selective = layers - full;
      if (!fits({full, selective}))
        continue;
      while (selective > low + 1) { // keeping less takes less
        int middle = (low + selective) / 2;
        (fits({full, middle}) ? selective : low) = middle;
      }
      add({full, selective});
    }
    return fitting.empty() ? std::vector<RepeatedLayers>{least} : fitting;
  }

  // What each chunk repeats, and all together behind them.
  std::vector<double> secondsOf(const RepeatedLayers &repeated) const {
    std::vector<double> seconds(saved.size() + 1);
    for (int i = 0; i < repeated.full + repeated.selective; ++i) {
      double more = costs.kinds[order[i].kind].recompute[classOf(repeated, i)].total();
      seconds[order[i].chunk] += more;
      seconds.back() += more;
    }
    return seconds;
  }

private:
  struct Place {
    int chunk, kind;
  };

  static int classOf(const RepeatedLayers &repeated, int i) { return static_cast<int>(keptAt(repeated, i)); }

  double bytesOf(const RepeatedLayers &repeated, double peak) {
    saved = ends;
    for (int i = 0; i < static_cast<int>(order.size()); ++i) {
      const SegmentCost &cost = costs.kinds[order[i].kind];
      int recompute = classOf(repeated, i);
      saved[order[i].chunk] += cost.savedBytes[recompute];
      peak = std::max(peak, peakBytes(cost, recompute));
    }
    double most = 0;
    for (const std::vector<int> &moment : held) {
      double bytes = 0;
      for (size_t chunk = 0; chunk < saved.size(); ++chunk)
        bytes += moment[chunk] * saved[chunk];
      most = std::max(most, bytes);
    }
    return most + peak;
  }

  const CostTable &costs;
  const HeldChunks &held;
  const std::vector<double> &ends; // per chunk, of a micro-batch
  std::vector<Place> order;        // layers as they repeat work
  std::vector<double> saved;       // per chunk
};

} // namespace

ChunkOptions::ChunkOptions(const Problem &problem, const StageOptions &options)
    : problem(problem), options(options), axes(options.axes()), costs(options.table()),
      perStage(chunksOf(axes.schedule, axes.virtualStages)) {}

// A V-shaped schedule is a table for all stages, which is not built before the first stage is asked for.
void ChunkOptions::countHeld() {
  held = options.mostHeld();
  for (int stage = 0; stage < axes.pp; ++stage) {
    int like = stage;
    if (stage < axes.pp - 1) // between the ends
      for (int other = 1; other < stage && like == stage; ++other)
        like = likeStage[other] == other && (*held)[other] == (*held)[stage] ? other : stage;
    likeStage.push_back(like);
    int most = 0;
    for (const std::vector<int> &moment : (*held)[stage])
      most = std::max(most, std::accumulate(moment.begin(), moment.end(), 0));
    mostInFlight.push_back(std::max(most, 1));
  }
}

template <typename Find>
const std::vector<ChunkOption> &ChunkOptions::remembered(Table &table, int stage, int layers, Find find) {
  if (!held)
    countHeld();
  table.resize(axes.pp);
  std::vector<std::vector<ChunkOption>> &places = table[likeStage[stage]];
  if (places.size() <= static_cast<size_t>(layers))
    places.resize(layers + 1);
  if (places[layers].empty()) {
    std::vector<LayerRange> chunks;
    for (int chunk = 0; chunk < perStage; ++chunk)
      chunks.push_back({0, layersOfChunk(axes, stage, chunk, layers)});
    places[layers] = find(chunks);
  }
  return places[layers];
}

const std::vector<ChunkOption> &ChunkOptions::choices(int stage, int layers) {
  return remembered(all, stage, layers, [&](const auto &chunks) { return choose(stage, chunks, /*isOne=*/false); });
}

const ChunkOption &ChunkOptions::best(int stage, int layers) {
  return remembered(first, stage, layers, [&](const auto &chunks) { return choose(stage, chunks, /*isOne=*/true); })
      .front();
}

std::vector<ChunkOption> ChunkOptions::choices(int stage, std::span<const LayerRange> chunks) {
  return choose(stage, chunks, /*isOne=*/false);
}

ChunkOption ChunkOptions::best(int stage, std::span<const LayerRange> chunks) {
  return choose(stage, chunks, /*isOne=*/true).front();
}

std::vector<ChunkOption> ChunkOptions::choose(int stage, std::span<const LayerRange> chunks, bool isOne) {
  int layers = 0;
  for (const LayerRange &chunk : chunks)
    layers += chunk.count;
  if (costs.commonRecompute) {
    RepeatedLayers all;
    if (*costs.commonRecompute != Recompute::None)
      (*costs.commonRecompute == Recompute::Full ? all.full : all.selective) = layers;
    return {price(stage, chunks, all)};
  }
  ChunkOption none = price(stage, chunks, {});
  if (none.fits || layers == 0)
    return {none};
  StageContent ends = stageEnds(axes, stage);
  std::vector<double> endBytes;
  for (const SavedBytes &chunk : saved) // of the stage that was priced
    endBytes.push_back(chunk.ends);
  double endsPeak = std::max(ends.embed ? peakBytes(costs.embed, 0) : 0, ends.head ? peakBytes(costs.head, 0) : 0);
  RepeatChoice choice(costs, chunks, (*held)[stage], endBytes);
  // What fits only by rounding is left out.
  std::vector<RepeatedLayers> fitting =
      choice.choose(problem.machine.memoryBytes * (1 - 1e-13) - none.fixedBytes, endsPeak, isOne);
  std::vector<std::pair<std::vector<double>, RepeatedLayers>> seconds;
  for (const RepeatedLayers &repeated : fitting)
    seconds.emplace_back(choice.secondsOf(repeated), repeated);
  std::ranges::sort(seconds, {}, [](const auto &one) { return std::pair(one.first.back(), one.second.full); });
  if (isOne)
    seconds.resize(1);
  std::vector<ChunkOption> options;
  for (auto one = seconds.begin(); one != seconds.end(); ++one) {
    auto isCovered = [&](const auto &other) {
      return std::ranges::equal(other.first, one->first, std::less_equal<>());
    };
    if (std::any_of(seconds.begin(), one, isCovered))
      continue;
    if (options.empty()) {
      options.push_back(price(stage, chunks, one->second));
      continue;
    }
    options.push_back(options.front()); // they differ in what is repeated
    options.back().repeated = one->second;
    for (int chunk = 0; chunk < perStage; ++chunk)
      options.back().seconds[chunk].backward += one->first[chunk] - seconds.front().first[chunk];
  }
  return options;
}

std::vector<std::vector<Recompute>> ChunkOptions::keep(std::span<const LayerRange> chunks,
                                                       const RepeatedLayers &repeated) const {
  std::vector<std::vector<Recompute>> kept;
  for (const LayerRange &chunk : chunks)
    kept.emplace_back(chunk.count);
  visitLayers(chunks, repeated, [&](size_t chunk, int place, Recompute recompute) { kept[chunk][place] = recompute; });
  return kept;
}

ChunkOption ChunkOptions::price(int stage, std::span<const LayerRange> chunks, const RepeatedLayers &repeated) {
  if (!held)
    countHeld();
  parts.resize(perStage);
  for (StageContent &part : parts)
    part.layers.assign(problem.kinds.size(), {});
  StageContent content = stageEnds(axes, stage);
  content.layers.resize(problem.kinds.size());
  visitLayers(chunks, repeated, [&](size_t chunk, int place, Recompute recompute) {
    int kind = costs.layerKinds[chunks[chunk].first + place], index = static_cast<int>(recompute);
    ++parts[chunk].layers[kind][index];
    ++content.layers[kind][index];
  });
  ChunkOption option;
  option.repeated = repeated;
  saved.clear();
  for (int chunk = 0; chunk < perStage; ++chunk) {
    int position = modelChunk(stage, chunk, axes.pp, isVShaped(axes.schedule));
    parts[chunk].embed = position == 0;
    parts[chunk].head = position == axes.pp * perStage - 1;
    saved.push_back(savedBytes(costs, parts[chunk]));
    option.seconds.push_back(chunkSeconds(costs, parts[chunk]));
  }
  content.inFlight = mostInFlight[stage];
  content.held = heldBytes((*held)[stage], saved, axes.offloadActivations);
  StageMemory memory = stageMemory(problem, costs, content);
  option.bytes = memory.total();
  option.hostBytes = memory.host();
  option.fits = option.bytes <= problem.machine.memoryBytes && option.hostBytes <= problem.machine.hostShareBytes();
  option.stepSeconds = stepPhase(costs, content).total();
  option.fixedBytes = option.bytes - memory.activations - memory.workspace;
  return option;
}

} // namespace espalier::planner
