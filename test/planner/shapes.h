// Small and large models and machines that several planner tests share.
#pragma once

#include "planner/search.h"
#include "test/planner/shape_problem.h"

#include <cmath>
#include <random>

namespace espalier::planner {

/// Returns an A100-like machine with round numbers, for tests only.
inline Machine testMachine(int hosts, int devicesPerHost, double memoryBytes = 80e9) {
  Machine machine;
  machine.name = "test";
  machine.hosts = hosts;
  machine.devicesPerHost = devicesPerHost;
  machine.memoryBytes = memoryBytes;
  machine.peakFlops = 312e12;
  machine.memoryBytesPerSecond = 1.6e12;
  machine.matmulEfficiency = 0.75;
  machine.launchSeconds = 4e-6;
  machine.multiprocessors = 108;
  machine.link = {230e9, 3e-6};
  machine.network = {22e9, 8e-6};
  return machine;
}

/// Returns the machine with host memory for offloading.
inline Machine withHost(Machine machine, double hostBytes = 2e12, double bytesPerSecond = 25e9,
                        int devicesPerLink = 2) {
  machine.host = {hostBytes, bytesPerSecond, devicesPerLink};
  return machine;
}

inline ModelShape gpt(int layers, int64_t hidden, int64_t heads, int64_t vocab = 51200, int64_t seq = 2048) {
  ModelShape shape;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.ffn = 4 * hidden;
  shape.heads = shape.kvHeads = heads;
  shape.vocab = vocab;
  shape.seq = seq;
  return shape;
}

/// Returns a model whose layers are all of different kinds: some have more products, wider values or higher peaks.
inline Problem distinctLayers(int layers, int64_t hidden, int64_t heads, const Machine &machine, int64_t globalBatch) {
  Problem problem = shapeProblem(gpt(layers, hidden, heads), System{}, machine, globalBatch);
  const SegmentKind block = problem.kinds[1];
  problem.layers.clear();
  for (int layer = 0; layer < layers; ++layer) {
    SegmentKind kind = block;
    for (PatternTerms &terms : kind.patterns) {
      for (ComputeTerm &term : terms.compute)
        for (Monomial &count : term.count)
          count.coefficient *= 1 + 0.1 * ((layer * 5) % 13);
      for (Size &saved : terms.savedBytes)
        for (Monomial &bytes : saved)
          bytes.coefficient *= 1 + layer % 3;
      for (Size &peak : terms.backwardPeakBytes)
        for (Monomial &bytes : peak)
          bytes.coefficient *= 1 + layer % 4;
    }
    problem.layers.push_back({static_cast<int>(problem.kinds.size()), 1});
    problem.kinds.push_back(std::move(kind));
  }
  return problem;
}

/// Returns a model whose first layers have fewer products than the others, like mixtures of experts that begin with
/// dense layers.
inline Problem firstLayersLighter(int layers, int lighter, int64_t hidden, int64_t heads, const Machine &machine,
                                  int64_t globalBatch) {
  Problem problem = distinctLayers(9, hidden, heads, machine, globalBatch);
  int first = problem.layers.front().kind;
  problem.layers = {{first, lighter}, {first + 8, layers - lighter}};
  return problem;
}

/// Returns layers of two or three kinds, in any number and order: the first kinds of distinctLayers().
inline Problem mixedLayers(std::mt19937 &random, int layers, const Machine &machine, int64_t globalBatch) {
  Problem problem = distinctLayers(3, 512, 8, machine, globalBatch);
  int first = problem.layers.front().kind, kinds = 2 + static_cast<int>(random() % 2);
  problem.layers.clear();
  for (int layer = 0; layer < layers; ++layer)
    problem.layers.push_back({first + static_cast<int>(random() % kinds), 1});
  return problem;
}

/// Returns the model with its layers' parameters as experts that ep may shard. Samples are sharded over dp and ep, and
/// rows of `hidden` elements are sent to experts and back.
inline Problem withExperts(Problem problem, int experts) {
  constexpr int dp = static_cast<int>(Axis::Dp), ep = static_cast<int>(Axis::Ep);
  auto split = [](Size &size) {
    for (Monomial &part : size)
      for (const Power &power : part.powers)
        if (power.symbol == dp && power.exponent == -1) {
          part.powers.push_back({ep, -1});
          break;
        }
  };
  split(problem.boundaryBytes);
  split(problem.inputBytes);
  for (SegmentKind &kind : problem.kinds)
    for (PatternTerms &terms : kind.patterns) {
      bool isLayer = &kind == &problem.kinds[problem.layers.front().kind];
      for (ComputeTerm &term : terms.compute)
        for (Size *size : {&term.m, &term.n, &term.k, &term.count, &term.operations, &term.bytes})
          split(*size);
      for (CollectiveTerm &term : terms.collectives) {
        term.overExperts = term.axis == Axis::Dp && !isLayer;
        split(term.bytes);
      }
      for (auto *sizes : {&terms.savedBytes, &terms.forwardPeakBytes, &terms.backwardPeakBytes})
        for (Size &size : *sizes)
          split(size);
      for (ParameterTerm &term : terms.parameters)
        if (isLayer) {
          term.expert = true;
          for (Monomial &part : term.elements)
            part.powers.push_back({ep, -1});
        }
      CollectiveTerm sent;
      sent.kind = CollectiveKind::AllToAll;
      sent.axis = Axis::Ep;
      sent.bytes = {{4e3, {{dp, -1}, {ep, -1}, {kBatchSymbol, 1}}}};
      if (isLayer)
        for (Phase phase : {Phase::Forward, Phase::Forward, Phase::Backward, Phase::Backward}) {
          sent.phase = phase;
          terms.collectives.push_back(sent);
        }
    }
  problem.limits.push_back({"expert", experts, Axis::Ep});
  return problem;
}

/// Returns a log-uniform random number between the two.
inline double between(std::mt19937 &random, double low, double high) {
  return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
}

/// Pins stages and schedule to those of `axes`, with micro-batches of one sample.
inline void pinPipeline(Problem &problem, const Plan &config) {
  problem.pins.pp = config.pp;
  problem.pins.microBatchSize = 1;
  problem.pins.schedule = config.schedule;
  problem.pins.virtualStages = config.virtualStages;
}

/// Returns the bytes of the fullest stage of the plan that needs least; 0 if there is no plan. `options` restrict the
/// plans.
inline double leastBytes(Problem problem, SearchOptions options = {}) {
  problem.machine.memoryBytes = 1;
  options.relax = false;
  return search(problem, options).nearest.prediction.peakBytes;
}

} // namespace espalier::planner
