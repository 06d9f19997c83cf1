// Starting values of a run: a checkpoint of any plan, or a folder of transformers or Megatron, whose tensors are
// converted when ranks request them.
#pragma once

#include "runtime/checkpoint/convert/foreign_weights.h"
#include "runtime/checkpoint/stored_checkpoint.h"
#include "runtime/program.h"

#include <mutex>
#include <optional>
#include <set>

namespace espalier::rt {

class Executor;
class ThreadPool;

/// The values of a program's parameters, by pieces. Shared by the ranks of a process.
class StartingWeights {
public:
  /// `from` is a checkpoint, a folder of them (the newest is used), or a path that `systemAt` recognizes. Throws
  /// PlanError if it cannot be read or its parameters differ from the plan's in name or shape.
  StartingWeights(const Program &program, const std::filesystem::path &from, NonFinite nonFinite);
  /// Continues the training that wrote a checkpoint: also loads optimizer state and position. Throws PlanError if these
  /// are missing or the training is another one.
  StartingWeights(const Program &program, const std::filesystem::path &from, NonFinite nonFinite,
                  const Continuation &run);

  /// Fills the parameters of a rank that are not missing, and their f32 masters. Also fills the other optimizer state
  /// if the training continues, else zeroes it. Called by each rank. Throws PlanError if the data read is damaged,
  /// or not finite where that is refused.
  void load(Executor &executor, ThreadPool &pool) const;

  /// Returns the adapters that the weights do not have. They start from initial values.
  const std::set<std::string> &missing() const { return missingAdapters; }

  /// Returns a text that identifies the weights, independent of their path: a checksum of a checkpoint's manifest,
  /// which has the checksums of its tensors, or a digest of another system's files. Throws DataError or PlanError.
  std::string identity() const;

  /// Returns the scalar state at which the run begins.
  ScalarState state() const;

  /// Returns the optimizer steps that made these weights; 0 if unknown.
  int64_t trainedSteps() const { return stored ? stored->manifest().state.step : 0; }

private:
  void openForeign();
  void readForeign(const Piece &wanted, std::span<std::byte> values) const;
  std::shared_ptr<const std::vector<std::byte>> foreignParameter(size_t index) const;

  const Program &program;
  const std::filesystem::path from;
  const NonFinite nonFinite;
  std::optional<StoredCheckpoint> stored;
  std::optional<ForeignWeights> foreign; ///< set if `stored` is not
  std::map<std::string, size_t> indices; ///< by name, into its parameters
  std::optional<Continuation> continued; ///< the training that `stored` continues
  std::set<std::string> missingAdapters;
  // The cache of files that are read one whole parameter at a time; ranks request parameters in the same order.
  mutable std::mutex mutex;
  mutable std::shared_ptr<const std::vector<std::byte>> last;
  mutable size_t lastIndex = 0;
};

} // namespace espalier::rt
