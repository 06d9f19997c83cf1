#include "planner/chunk_options.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace espalier::planner {

std::vector<int> chunkLayers(const Plan &axes, int stage, int layers) {
  int perStage = chunksOf(axes.schedule, axes.virtualStages);
  std::vector<int> counts(perStage, layers / perStage);
  bool lastFirst = stage == 0 && !isVShaped(axes.schedule);
  for (int i = 0; i < layers % perStage; ++i)
    ++counts[lastFirst ? perStage - 1 - i : i];
  return counts;
}

std::vector<int> spreadOverChunks(const Plan &axes, const std::vector<int> &totals) {
  std::vector<int> counts(totals.size() * chunksOf(axes.schedule, axes.virtualStages));
  for (int stage = 0; stage < axes.pp; ++stage) {
    std::vector<int> own = chunkLayers(axes, stage, totals[stage]);
    for (size_t chunk = 0; chunk < own.size(); ++chunk)
      counts[modelChunk(stage, static_cast<int>(chunk), axes.pp, isVShaped(axes.schedule))] = own[chunk];
  }
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

// Which layers repeat work, so that a stage fits and repeats least. The bytes of a choice are those that every choice
// takes and the larger of what runs once per step and what is held with the largest transient.
class RepeatChoice {
public:
  RepeatChoice(const CostTable &costs, std::span<const LayerRange> chunks, const HeldChunks &held,
               const std::vector<double> &ends)
      : costs(costs), held(held), ends(ends), saved(chunks.size()) {
    int most = 0;
    for (const LayerRange &chunk : chunks)
      most = std::max(most, chunk.count);
    for (int place = 0; place < most; ++place)
      for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
        if (place < chunks[chunk].count)
          order.push_back({static_cast<int>(chunk), costs.layerKinds[chunks[chunk].first + place]});
  }

  // `room`: for what is held and the largest transient; `endsPeak`: the transient of embedding or head.
  RepeatedLayers choose(double room, double endsPeak) {
    int layers = static_cast<int>(order.size());
    RepeatedLayers best, least;
    double bestSeconds = std::numeric_limits<double>::infinity(), leastBytes = bestSeconds;
    auto fits = [&](const RepeatedLayers &repeated) {
      double bytes = bytesOf(repeated, endsPeak);
      if (bytes < leastBytes) {
        leastBytes = bytes;
        least = repeated;
      }
      return bytes <= room;
    };
    for (int full = 0; full <= layers && secondsOf({full, 0}) < bestSeconds; ++full) {
      int selective = 0;
      if (!fits({full, 0})) {
        int low = 0;
        selective = layers - full;
        if (!fits({full, selective}))
          continue;
        while (selective > low + 1) { // keeping less takes less
          int middle = (low + selective) / 2;
          (fits({full, middle}) ? selective : low) = middle;
        }
      }
      if (double seconds = secondsOf({full, selective}); seconds < bestSeconds) {
        bestSeconds = seconds;
        best = {full, selective};
      }
    }
    return bestSeconds < std::numeric_limits<double>::infinity() ? best : least;
  }

private:
  struct Place {
    int chunk, kind;
  };

  static int classOf(const RepeatedLayers &repeated, int i) {
    return i < repeated.full ? 2 : i < repeated.full + repeated.selective ? 1 : 0;
  }

  double secondsOf(const RepeatedLayers &repeated) const {
    double seconds = 0;
    for (int i = 0; i < repeated.full + repeated.selective; ++i)
      seconds += costs.kinds[order[i].kind].recompute[classOf(repeated, i)].total();
    return seconds;
  }

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
  }
  known.resize(axes.pp);
}

const ChunkOption &ChunkOptions::best(int stage, int layers) {
  if (!held)
    countHeld();
  std::vector<std::optional<ChunkOption>> &places = known[likeStage[stage]];
  if (places.size() <= static_cast<size_t>(layers))
    places.resize(layers + 1);
  if (!places[layers]) {
    std::vector<LayerRange> chunks;
    for (int count : chunkLayers(axes, stage, layers))
      chunks.push_back({0, count});
    places[layers] = best(stage, chunks);
  }
  return *places[layers];
}

ChunkOption ChunkOptions::best(int stage, std::span<const LayerRange> chunks) {
  if (!held)
    countHeld();
  int layers = 0;
  for (const LayerRange &chunk : chunks)
    layers += chunk.count;
  if (costs.commonRecompute) {
    RepeatedLayers all;
    if (*costs.commonRecompute != Recompute::None)
      (*costs.commonRecompute == Recompute::Full ? all.full : all.selective) = layers;
    return price(stage, chunks, all);
  }
  ChunkOption option = price(stage, chunks, {});
  if (option.fits || layers == 0)
    return option;
  StageContent ends = stageEnds(axes, stage);
  std::vector<double> saved(perStage, costs.inputBytes);
  saved.front() += ends.embed ? costs.embed.savedBytes[0] : 0;
  saved.back() += ends.head ? costs.head.savedBytes[0] : 0;
  double endsPeak = std::max(ends.embed ? peakBytes(costs.embed, 0) : 0, ends.head ? peakBytes(costs.head, 0) : 0);
  // What fits only by rounding is left out.
  double room = problem.machine.memoryBytes * (1 - 1e-13) - option.fixedBytes;
  return price(stage, chunks, RepeatChoice(costs, chunks, (*held)[stage], saved).choose(room, endsPeak));
}

std::vector<std::vector<Recompute>> ChunkOptions::keep(std::span<const LayerRange> chunks,
                                                       const RepeatedLayers &repeated) const {
  std::vector<std::vector<Recompute>> kept;
  int most = 0, next = 0;
  for (const LayerRange &chunk : chunks) {
    kept.emplace_back(chunk.count);
    most = std::max(most, chunk.count);
  }
  for (int place = 0; place < most; ++place)
    for (std::vector<Recompute> &chunk : kept)
      if (place < static_cast<int>(chunk.size())) {
        chunk[place] = next < repeated.full                        ? Recompute::Full
                       : next < repeated.full + repeated.selective ? Recompute::Selective
                                                                   : Recompute::None;
        ++next;
      }
  return kept;
}

ChunkOption ChunkOptions::price(int stage, std::span<const LayerRange> chunks, const RepeatedLayers &repeated) const {
  std::vector<std::vector<Recompute>> kept = keep(chunks, repeated);
  StageContent content = stageEnds(axes, stage);
  content.layers.resize(problem.kinds.size());
  std::vector<SavedBytes> saved;
  ChunkOption option;
  option.repeated = repeated;
  for (int chunk = 0; chunk < perStage; ++chunk) {
    int position = modelChunk(stage, chunk, axes.pp, isVShaped(axes.schedule));
    StageContent alone;
    alone.embed = position == 0;
    alone.head = position == axes.pp * perStage - 1;
    alone.layers.resize(problem.kinds.size());
    for (int layer = 0; layer < chunks[chunk].count; ++layer) {
      int kind = costs.layerKinds[chunks[chunk].first + layer], recompute = static_cast<int>(kept[chunk][layer]);
      ++alone.layers[kind][recompute];
      ++content.layers[kind][recompute];
    }
    saved.push_back(savedBytes(costs, alone));
    option.seconds.push_back(chunkSeconds(costs, alone));
  }
  const HeldChunks &moments = (*held)[stage];
  for (const std::vector<int> &moment : moments)
    content.inFlight = std::max<double>(content.inFlight, std::accumulate(moment.begin(), moment.end(), 0));
  content.held = heldBytes(moments, saved, axes.offloadActivations);
  StageMemory memory = stageMemory(problem, costs, content);
  option.bytes = memory.total();
  option.hostBytes = memory.host();
  option.fits = option.bytes <= problem.machine.memoryBytes && option.hostBytes <= problem.machine.hostShareBytes();
  option.stepSeconds = stepPhase(costs, content).total();
  option.fixedBytes = option.bytes - memory.activations - memory.workspace;
  return option;
}

} // namespace espalier::planner
