// Finds the best split under given axes by pricing every split with every recompute choice.
#pragma once

#include "planner/search.h"
#include "planner/search/stage_options.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

namespace espalier::planner {

// Visits all ways to write `total` as `parts` positive numbers.
inline void splits(int total, int parts, std::vector<int> &head, const std::function<void()> &visit) {
  if (parts == 1) {
    head.push_back(total);
    visit();
    head.pop_back();
    return;
  }
  for (int first = 1; first <= total - parts + 1; ++first) {
    head.push_back(first);
    splits(total - first, parts - 1, head, visit);
    head.pop_back();
  }
}

inline std::vector<int> kindsOfLayers(const Problem &problem) {
  std::vector<int> kinds;
  for (const LayerRun &run : problem.layers)
    kinds.insert(kinds.end(), run.count, run.kind);
  return kinds;
}

// Returns every choice of values that consecutive layers keep. For equal layers, only the number per class matters.
inline std::vector<std::vector<Recompute>> keptChoices(const std::vector<int> &kinds) {
  std::vector<std::vector<Recompute>> choices;
  std::vector<Recompute> choice;
  std::function<void()> extend = [&] {
    size_t layer = choice.size();
    if (layer == kinds.size()) {
      choices.push_back(choice);
      return;
    }
    Recompute most = Recompute::Full; // at most that of the last layer of this kind
    for (size_t other = 0; other < layer; ++other)
      if (kinds[other] == kinds[layer])
        most = choice[other];
    for (Recompute recompute : {Recompute::Full, Recompute::Selective, Recompute::None})
      if (recompute <= most) {
        choice.push_back(recompute);
        extend();
        choice.pop_back();
      }
  };
  extend();
  return choices;
}

// Visits every number of layers per stage, from `least` on.
inline void totals(int left, const std::vector<int> &least, std::vector<int> &head,
                   const std::function<void()> &visit) {
  if (head.size() == least.size()) {
    if (left == 0)
      visit();
    return;
  }
  for (int count = least[head.size()]; count <= left; ++count) {
    head.push_back(count);
    totals(left - count, least, head, visit);
    head.pop_back();
  }
}

inline std::vector<StagePlan *> chunksOfStage(Plan &plan, int stage) {
  std::vector<StagePlan *> chunks;
  for (int i = 0; i < chunksOf(plan.schedule, plan.virtualStages); ++i)
    chunks.push_back(&plan.stages[placement(plan).modelChunk(stage, i)]);
  return chunks;
}

inline std::vector<LayerRange> rangesOf(const std::vector<StagePlan *> &chunks) {
  std::vector<LayerRange> ranges;
  for (const StagePlan *chunk : chunks)
    ranges.push_back({chunk->firstLayer, chunk->layers});
  return ranges;
}

// Visits every way to recompute any number of layers of each kind.
inline void repeats(const std::vector<LikeLayers> &kinds, std::vector<RecomputedLayers> &head,
                    const std::function<void()> &visit) {
  if (head.size() == kinds.size()) {
    visit();
    return;
  }
  int layers = static_cast<int>(kinds[head.size()].chunks.size());
  for (int full = 0; full <= layers; ++full)
    for (int selective = 0; full + selective <= layers; ++selective) {
      head.push_back({full, selective});
      repeats(kinds, head, visit);
      head.pop_back();
    }
}

// Best step of plans with several chunks per stage under one split: any number of layers of each kind recompute.
inline double bruteForceOverRepeats(const Problem &problem, const Plan &config, const std::vector<int> &counts) {
  double best = std::numeric_limits<double>::infinity();
  CostTable costs = buildCostTable(problem, config);
  Plan plan = config;
  plan.stages.clear();
  int first = 0;
  for (int count : counts) {
    plan.stages.push_back({first, count, {}});
    first += count;
  }
  std::function<void(int)> choose = [&](int stage) {
    if (stage == config.pp) {
      PricedPlan priced = pricePlan(problem, plan);
      if (priced.prediction.fits())
        best = std::min(best, priced.prediction.stepSeconds);
      return;
    }
    std::vector<StagePlan *> chunks = chunksOfStage(plan, stage);
    std::vector<RecomputedLayers> head;
    repeats(layersByKind(costs, rangesOf(chunks)), head, [&] {
      auto classes = recomputeOfLayers(costs, rangesOf(chunks), head);
      for (size_t i = 0; i < chunks.size(); ++i)
        chunks[i]->recompute = classes[i];
      choose(stage + 1);
    });
  };
  choose(0);
  return best;
}

// Best step of plans with several chunks per stage. Tries every number of layers per stage if all layers are equal,
// else per chunk; or only the pinned ones.
inline double bruteForceOverChunks(const Problem &problem, const Plan &config) {
  if (problem.pins.stageLayers)
    return bruteForceOverRepeats(problem, config, *problem.pins.stageLayers);
  double best = std::numeric_limits<double>::infinity();
  std::vector<int> kinds = kindsOfLayers(problem), least, counts;
  bool isOneKind = std::ranges::count(kinds, kinds.front()) == static_cast<int>(kinds.size());
  if (isOneKind) {
    for (int stage = 0; stage < config.pp; ++stage)
      least.push_back(leastLayers(problem, config, stage));
  } else {
    least.assign(config.pp * chunksOf(config.schedule, config.virtualStages), 1);
    least.front() = least.back() = 0; // the first and the last chunk hold the embedding and the head
  }
  totals(problem.layerCount(), least, counts, [&] {
    best =
        std::min(best, bruteForceOverRepeats(problem, config, isOneKind ? spreadOverChunks(config, counts) : counts));
  });
  return best;
}

// Returns the least step time under fixed axes by pricing each plan.
inline double bruteForceUnder(const Problem &problem, const Plan &config) {
  double best = std::numeric_limits<double>::infinity();
  if (chunksOf(config.schedule, config.virtualStages) > 1)
    return bruteForceOverChunks(problem, config);
  std::vector<int> counts, kinds = kindsOfLayers(problem);
  splits(problem.layerCount(), config.pp, counts, [&] {
    if (problem.pins.stageLayers && counts != *problem.pins.stageLayers)
      return;
    Plan plan = config;
    plan.stages.assign(config.pp, {});
    std::function<void(int, int)> choose = [&](int stage, int first) {
      if (stage == config.pp) {
        PricedPlan priced = pricePlan(problem, plan);
        if (priced.prediction.fits())
          best = std::min(best, priced.prediction.stepSeconds);
        return;
      }
      std::vector<int> here(kinds.begin() + first, kinds.begin() + first + counts[stage]);
      for (const std::vector<Recompute> &kept : keptChoices(here)) {
        plan.stages[stage] = {first, counts[stage], kept};
        choose(stage + 1, first + counts[stage]);
      }
    };
    choose(0, 0);
  });
  return best;
}

} // namespace espalier::planner
