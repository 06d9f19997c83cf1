// How tokens spread over the experts of a model. Forward counts the choices of each expert in the counters of its
// layer. The counters stay on the device until the host reads and clears them, so steps move no data for them.
#pragma once

#include "format/mesh.h"

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::rt {

class Agreement;
class Executor;
class Program;

/// The choices of the tokens of one layer.
struct ExpertLoad {
  std::string layer;           ///< "block.3"
  std::vector<int64_t> chosen; ///< choices of each expert
  int64_t dropped = 0;         ///< choices beyond the capacity of an expert

  /// Returns the number of choices of all experts.
  int64_t choices() const;
  /// Returns the choices of the expert with most choices over those of an even spread; 1 without choices.
  double mostOverMean() const;

  bool operator==(const ExpertLoad &) const = default;
};

/// The loads of all layers with experts, over some steps and all ranks.
struct ExpertLoads {
  int64_t steps = 0; ///< since the loads before
  std::vector<ExpertLoad> layers;

  bool isEmpty() const { return layers.empty(); }
  /// Returns the largest ExpertLoad::mostOverMean of a layer.
  double mostOverMean() const;
  /// Returns the share of dropped choices among all choices.
  double droppedShare() const;
};

/// The counters of all stages, of which each rank reads and clears those of its own stage.
class ExpertCounters {
public:
  /// Finds the counters in the plan. The program and the executor must outlive this object.
  ExpertCounters(const Program &program, Executor &executor);

  /// Returns whether the plan has no counters.
  bool isEmpty() const { return layers.empty(); }
  /// Returns the counts of all ranks since the last call, and clears the counters. All ranks call it between the same
  /// two entries. Counts above 2^24 are rounded to 24 bits.
  std::vector<ExpertLoad> take(Agreement &agreement);

private:
  /// A counter of a stage.
  struct Counter {
    size_t layer;     ///< in `layers`
    bool isOfChoices; ///< else of drops
    uint64_t elements;
    uint32_t partial; ///< axes whose ranks count different tokens
    uint64_t address; ///< in this rank's device memory; only of its own stage
  };

  std::vector<uint32_t> read();

  const Mesh &mesh;
  Executor &executor;
  std::vector<ExpertLoad> layers;             ///< without counts
  std::vector<std::vector<Counter>> counters; ///< by stage
};

} // namespace espalier::rt
