// What a run starts from instead of initial values: a checkpoint of ours, whatever plan wrote it, or a folder of
// transformers or Megatron, whose tensors are turned into parts of parameters as ranks ask for them.
#pragma once

#include "runtime/checkpoint/convert/foreign_weights.h"
#include "runtime/checkpoint/stored_checkpoint.h"
#include "runtime/program.h"

#include <mutex>
#include <optional>

namespace espalier::rt {

class Executor;

/// Values of parameters that a program takes, by pieces. Shared by the ranks of a process.
class StartingWeights {
public:
  /// `from`: a checkpoint of ours or a folder of them (the newest), or what `systemAt` knows. Throws PlanError where it
  /// cannot be read, or has not each parameter of the plan in its shape, or has others.
  StartingWeights(const Program &program, const std::filesystem::path &from);
  /// Goes on with the training that wrote a checkpoint of ours: its optimizer's state and place are taken, too. Throws
  /// PlanError where there are none, or the training was another one.
  StartingWeights(const Program &program, const std::filesystem::path &from, const Continuation &run);

  /// Fills the parameters of a rank, their f32 masters and, where the run goes on, the rest of its optimizer's state,
  /// which else is zero. Called by each rank. Throws PlanError where what is read is damaged.
  void load(Executor &executor) const;

  /// Where the run begins.
  ScalarState state() const;

  /// Optimizer steps that made these weights; 0 where that is not known.
  int64_t trainedSteps() const { return stored ? stored->manifest().state.step : 0; }

private:
  void openForeign(const std::filesystem::path &from);
  void readForeign(const Piece &wanted, std::span<std::byte> values) const;
  std::shared_ptr<const std::vector<std::byte>> foreignParameter(size_t index) const;

  const Program &program;
  std::optional<StoredCheckpoint> stored;
  std::optional<ForeignWeights> foreign; ///< where nothing is stored
  std::map<std::string, size_t> indices; ///< of its parameters, by name
  std::optional<Continuation> continued; ///< of `stored`
  // Of files that are read whole one parameter at a time, the last one kept: ranks ask in like order.
  mutable std::mutex mutex;
  mutable std::shared_ptr<const std::vector<std::byte>> last;
  mutable size_t lastIndex = 0;
};

} // namespace espalier::rt
