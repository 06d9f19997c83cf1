// The largest attention scores of a step, which QK-clip keeps in counters of the layers.
#pragma once

#include "runtime/train/layer_counters.h"

namespace espalier::rt {

class Executor;
class Program;

/// The largest attention score of a layer in a step: scaled, before the softmax; 0 if all are below 0.
struct LayerScore {
  std::string layer; ///< "block.3"
  double largest = 0;

  bool operator==(const LayerScore &) const = default;
};

/// Returns the largest score of all layers.
double largestOf(const std::vector<LayerScore> &scores);

/// Reads the counters of attention scores. Each rank reads those of its own stage.
class ScoreCounters {
public:
  /// Finds the counters in the plan. The program and the executor must outlive this object.
  ScoreCounters(const Program &program, Executor &executor);

  bool isEmpty() const { return counters.empty(); }
  /// Returns the largest score of each layer in the last step, over all ranks. All ranks call it between the same two
  /// entries.
  std::vector<LayerScore> take(Agreement &agreement) const;

private:
  const Program &program;
  Executor &executor;
  std::vector<LayerCounter> counters;
};

} // namespace espalier::rt
