// One checkpoint of ours, opened to be loaded under a plan that may be another than the one that wrote it.
#pragma once

#include "runtime/checkpoint/sources.h"

namespace espalier::rt {

/// How a run goes on with a checkpoint.
struct Continuation {
  Fingerprint fingerprint; ///< of the run
  int64_t steps = 0;       ///< of the run, in total
  bool acceptChanges = false;
  bool isAloud = false; ///< this process tells people what is accepted
};

class StoredCheckpoint {
public:
  /// Reads the manifest and the shards' names, sizes and headers. Throws PlanError where they are not in order.
  explicit StoredCheckpoint(std::filesystem::path folder);
  StoredCheckpoint(const StoredCheckpoint &) = delete;

  const std::filesystem::path &path() const { return folder; }
  const Manifest &manifest() const { return theManifest; }

  /// Throws PlanError unless it has each parameter of the plan in its shape and no other.
  void requireParameters(const pb::Plan &plan) const;

  /// The same, and that a run may go on where this one stood: same training, or changes accepted, and all of the
  /// optimizer's state. One without any state begins a training with its weights.
  void requireContinuation(const pb::Plan &plan, const Continuation &run) const;

  /// Fills `values` with the elements of a piece, padding zero. Throws PlanError where what is read is damaged.
  void read(const Piece &wanted, std::span<std::byte> values) const;

  /// Where a run goes on: where this one stood, or at the beginning where there is no optimizer's state.
  ScalarState state(const pb::Settings &settings, const Continuation &run) const;

private:
  void requireSameTraining(const pb::Plan &plan, const Continuation &run) const;
  void requireSources(const pb::Plan &plan) const;

  const std::filesystem::path folder;
  const Manifest theManifest;
  const Sources sources;
};

/// Writes elements of one type to place `to` of an array of another.
void convertElements(std::span<const std::byte> from, pb::DataType type, std::span<std::byte> array,
                     pb::DataType wanted, int64_t to);

} // namespace espalier::rt
